// The dashboards as a TypeScript file in which every value must fit the types that Grafana publishes of itself
// (@grafana/schema). Object literals may not have members that the type does not know, so a misspelt option does not
// compile.

import type * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';

/** Module of @grafana/schema with the options of a kind of panel. */
const MODULES: Readonly<Record<string, string>> = {
  barchart: 'barchart/panelcfg/x/BarChartPanelCfg_types.gen',
  bargauge: 'bargauge/panelcfg/x/BarGaugePanelCfg_types.gen',
  heatmap: 'heatmap/panelcfg/x/HeatmapPanelCfg_types.gen',
  stat: 'stat/panelcfg/x/StatPanelCfg_types.gen',
  'state-timeline': 'statetimeline/panelcfg/x/StateTimelinePanelCfg_types.gen',
  table: 'table/panelcfg/x/TablePanelCfg_types.gen',
  timeseries: 'timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen',
};
/** Kinds whose fields have nothing of their own. */
const PLAIN_FIELDS = new Set(['stat', 'bargauge']);

const HEAD = `import type { Dataquery } from '@grafana/grafana-foundation-sdk/prometheus';
import type { AnnotationQuery, Dashboard, Panel, RowPanel } from '@grafana/schema';

/** A type as JSON has it: members of an enumeration are their texts. */
type Plain<T> = 0 extends 1 & T
  ? T
  : T extends string
    ? \`\${T}\`
    : T extends number | boolean | null | undefined
      ? T
      : T extends (infer U)[]
        ? Plain<U>[]
        : T extends object
          ? { [K in keyof T]: Plain<T[K]> }
          : T;

/** What the data source of Prometheus reads of an annotation beside it (@grafana/prometheus, annotations). */
type Marks = Plain<AnnotationQuery> & { tagKeys: string; textFormat: string; titleFormat: string };

/** @grafana/schema has no queries of Prometheus any more: the builders' type. */
type Query = Plain<Omit<Dataquery, '_implementsDataqueryVariant'>>;
`;

const text = (value: unknown) => JSON.stringify(value, undefined, 1);
const name = (kind: string) => kind.replaceAll('-', '_');

function panel(value: dashboard.Panel): string[] {
  const kind = value.type;
  const { options, targets, fieldConfig, ...rest } = value;
  const fields = PLAIN_FIELDS.has(kind) ? 'Record<string, never>' : `Partial<${name(kind)}.FieldConfig>`;
  return [
    `(${text(rest)}) satisfies Plain<Panel>;`,
    `(${text(fieldConfig)}) satisfies Plain<Panel['fieldConfig']>;`,
    `(${text(options)}) satisfies Plain<${name(kind)}.Options>;`,
    `(${text(fieldConfig?.defaults.custom ?? {})}) satisfies Plain<${fields}>;`,
    ...(targets ?? []).map((target) => `(${text(target)}) satisfies Query;`),
  ];
}

/** The text of the TypeScript file. */
export function typed(files: Map<string, string>): string {
  const boards = [...files].filter(([path]) => path.startsWith('dashboards/'));
  const lines: string[] = [];
  const kinds = new Set<string>();
  for (const [, json] of boards) {
    const { panels = [], annotations, ...rest } = JSON.parse(json) as dashboard.Dashboard;
    lines.push(`(${text(rest)}) satisfies Plain<Dashboard>;`);
    for (const { target, ...annotation } of annotations.list ?? []) {
      lines.push(`(${text(annotation)}) satisfies Marks;`, `(${text(target)}) satisfies Query;`);
    }
    for (const member of panels) {
      const inside = 'panels' in member ? member.panels : [member as dashboard.Panel];
      if ('panels' in member) lines.push(`(${text({ ...member, panels: [] })}) satisfies Plain<RowPanel>;`);
      inside.forEach((each) => kinds.add(each.type));
      inside.forEach((each) => lines.push(...panel(each)));
    }
  }
  const imports = [...kinds].map((kind) => {
    const module = MODULES[kind];
    if (!module) throw new Error(`add the module of ${kind} to MODULES`);
    return `import type * as ${name(kind)} from '@grafana/schema/dist/esm/raw/composable/${module}';`;
  });
  return [...imports, HEAD, ...lines, ''].join('\n');
}
