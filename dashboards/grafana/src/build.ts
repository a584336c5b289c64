// Shared by all dashboards: selectors, variables, links, and panels that cannot be made without title, description
// and unit.

import type * as cog from '@grafana/grafana-foundation-sdk/cog';
import * as common from '@grafana/grafana-foundation-sdk/common';
import * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import * as prometheus from '@grafana/grafana-foundation-sdk/prometheus';

/** The data source that the reader chooses. */
export const SOURCE: common.DataSourceRef = { type: 'prometheus', uid: '${datasource}' };

/** Label matchers of a service; of its stores; of its stores and the requests that named none. */
export const SERVICE = 'instance=~"$instance"';
export const STORE = `${SERVICE},store=~"$store"`;
export const STORE_OR_NONE = `${SERVICE},store=~"$store|"`;
/** The time over which rates are taken: four scrapes, or more when the picture is coarse. */
export const EVERY = '[$__rate_interval]';
/** Name of a series of one store: two services may each have a store of one name. */
export const STORE_NAME = '{{instance}} {{store}}';

/** One query of a panel. */
export interface Query {
  expr: string;
  /** Name of a series, with labels as {{label}}. */
  legend: string;
  /** Ask for exemplars too: points that lead to traces. */
  exemplar?: boolean;
  /** Only the last value, not a line. */
  instant?: boolean;
  format?: prometheus.PromQueryFormat;
  /** Why this query may answer nothing on a store under load; then it stands in absent.json. */
  absent?: string;
}

/** Texts of a panel. */
export interface Words {
  title: string;
  /** Meaning of the number, and its blind spots. */
  description: string;
  /** A unit of Grafana. */
  unit: string;
  queries: Query[];
  /** Columns of the grid, of 24; rows of the grid. */
  w: number;
  h?: number;
  decimals?: number;
  min?: number;
  max?: number;
  mappings?: dashboard.ValueMapping[];
  thresholds?: [number | null, string][];
  /** One colour, that means nothing; without it and without thresholds Grafana's own apply: red from 80 on. */
  color?: string;
  links?: cog.Builder<dashboard.DashboardLink>[];
}

/** The methods that the builders of all kinds of panels have. */
export interface AnyPanel extends cog.Builder<dashboard.Panel> {
  id(id: number): this;
  title(title: string): this;
  description(description: string): this;
  datasource(source: common.DataSourceRef): this;
  gridPos(position: dashboard.GridPos): this;
  unit(unit: string): this;
  decimals(decimals: number): this;
  min(min: number): this;
  max(max: number): this;
  mappings(mappings: dashboard.ValueMapping[]): this;
  thresholds(thresholds: cog.Builder<dashboard.ThresholdsConfig>): this;
  colorScheme(color: cog.Builder<dashboard.FieldColor>): this;
  dataLinks(links: cog.Builder<dashboard.DashboardLink>[]): this;
  withTarget(target: cog.Builder<cog.Dataquery>): this;
}

/** A panel and the room it takes. */
export interface Placed {
  panel: AnyPanel;
  queries: Query[];
  w: number;
  h: number;
}

export interface Row {
  title: string;
  collapsed?: boolean;
  panels: Placed[];
}

/** A dashboard before it is laid out. */
export interface Plan {
  uid: string;
  title: string;
  description: string;
  variables: cog.Builder<dashboard.VariableModel>[];
  rows: Row[];
}

const DEFAULT_HEIGHT = 8;
const COLUMNS = 24;

/** Gives a builder of any kind its words and its queries. */
export function worded<P extends AnyPanel>(panel: P, words: Words): Placed {
  panel.title(words.title).description(words.description).datasource(SOURCE).unit(words.unit);
  if (words.decimals !== undefined) panel.decimals(words.decimals);
  if (words.min !== undefined) panel.min(words.min);
  if (words.max !== undefined) panel.max(words.max);
  if (words.mappings) panel.mappings(words.mappings);
  if (words.links) panel.dataLinks(words.links);
  if (words.thresholds) panel.thresholds(thresholds(words.thresholds));
  if (words.color) panel.colorScheme(new dashboard.FieldColorBuilder().mode(dashboard.FieldColorModeId.Fixed).fixedColor(words.color));
  words.queries.forEach((query, i) => panel.withTarget(target(query, refId(i))));
  return { panel, queries: words.queries, w: words.w, h: words.h ?? DEFAULT_HEIGHT };
}

/** The letter of a query. */
export function refId(i: number): string {
  return String.fromCharCode('A'.charCodeAt(0) + i);
}

function target(query: Query, ref: string): prometheus.DataqueryBuilder {
  const made = new prometheus.DataqueryBuilder()
    .refId(ref)
    .datasource(SOURCE)
    .editorMode(prometheus.QueryEditorMode.Code)
    .expr(query.expr)
    .legendFormat(query.legend);
  if (query.instant) made.instant();
  else made.range();
  if (query.exemplar) made.exemplar(true);
  if (query.format) made.format(query.format);
  return made;
}

function thresholds(steps: [number | null, string][]): dashboard.ThresholdsConfigBuilder {
  return new dashboard.ThresholdsConfigBuilder()
    .mode(dashboard.ThresholdsMode.Absolute)
    .steps(steps.map(([value, color]) => ({ value, color })));
}

/** A text for every value from `from` on, or for one value. */
export function said(text: string, value: number, from = false): dashboard.ValueMapping[] {
  const result = { text, index: 0 };
  if (!from) return [{ type: dashboard.MappingType.ValueToText, options: { [value]: result } }];
  return [{ type: dashboard.MappingType.RangeToText, options: { from: value, to: null, result } }];
}

/** Text and colour for single values. */
export function states(map: Record<string, [string, string]>): dashboard.ValueMapping[] {
  const options = Object.fromEntries(
    Object.entries(map).map(([value, [text, color]], index) => [value, { text, color, index }]),
  );
  return [{ type: dashboard.MappingType.ValueToText, options }];
}

/**
 * A counter that has no series before its first event: what it says, or 0 for each store that is served.
 * `label` gets the value `name` there, so that the line has a name.
 */
export function orZero(expr: string, by: 'store' | 'instance', label: string, name = 'none'): string {
  const [labels, all] =
    by === 'store' ? ['instance, store', `lumpscope_store_failed{${STORE}}`] : ['instance', `lumpscope_build_info{${SERVICE}}`];
  return `${expr} or on (${labels}) label_replace(0 * max by (${labels}) (${all}), "${label}", "${name}", "", "")`;
}

/** Why a query of native histograms may answer nothing. */
export const NO_NATIVE = 'Prometheus before 3, or one that is not told to scrape native histograms, has none';
export const NATIVE_ROW = 'Only when Prometheus scrapes native histograms (3.x): finer pictures';

// --- Variables ------------------------------------------------------------------------------------------------------

const ALL: dashboard.VariableOption = { selected: true, text: ['All'], value: ['$__all'] };

/** The values of a label, all of them chosen at first. `all`: what "All" means to Prometheus; absent: each by name. */
function labelValues(name: string, label: string, query: string, description: string, all?: string) {
  const made = new dashboard.QueryVariableBuilder(name)
    .label(label)
    .description(description)
    .datasource(SOURCE)
    .query({ query, refId: 'PrometheusVariableQueryEditor-VariableQuery' })
    .refresh(dashboard.VariableRefresh.OnTimeRangeChanged)
    .sort(dashboard.VariableSort.AlphabeticalAsc)
    .multi(true)
    .includeAll(true)
    .current(ALL);
  return all === undefined ? made : made.allValue(all);
}

const dataSource = () =>
  new dashboard.DatasourceVariableBuilder('datasource')
    .label('Data source')
    .description('The Prometheus that scrapes the service.')
    .type('prometheus')
    .current({ selected: true, text: 'Prometheus', value: 'prometheus' });

const instance = () =>
  labelValues('instance', 'Service', 'label_values(lumpscope_build_info, instance)', 'Address of the service.', '.*');

const device = () =>
  labelValues(
    'device',
    'Device',
    `label_values(lumpscope_store_info{${SERVICE}}, device)`,
    'The disk below a store, as the kernel names it.',
    '.*',
  );

const store = () =>
  labelValues(
    'store',
    'Store',
    `label_values(lumpscope_store_info{${SERVICE},device=~"$device"}, store)`,
    'The stores on the chosen disks.',
  );

/** Choice of methods of gRPC and S3. */
export const methods = () =>
  labelValues(
    'method',
    'Method',
    `label_values(lumpscope_requests_total{${STORE_OR_NONE}}, method)`,
    'Methods of gRPC, and of S3 (s3_...).',
    '.*',
  );

/** Choice of owners of block requests. */
export const owners = () =>
  labelValues(
    'owner',
    'Owner',
    `label_values(lumpscope_block_requests_total{${STORE}}, owner)`,
    'Owner of a block request: a request, the store itself, the file system, or another process.',
    '.*',
  );

/** Choice of operations of block requests. */
export const operations = () =>
  labelValues(
    'operation',
    'Operation',
    `label_values(lumpscope_block_requests_total{${STORE}}, operation)`,
    'Operation of a block request.',
    '.*',
  );

const page = () =>
  new dashboard.TextBoxVariableBuilder('page')
    .label('Built-in page')
    .description('Address of the page that the service serves itself, as your browser reaches it.')
    .defaultValue('http://127.0.0.1:9464/');

// --- Links ----------------------------------------------------------------------------------------------------------

const TAG = 'lumpscope';

function links(): cog.Builder<dashboard.DashboardLink>[] {
  return [
    new dashboard.DashboardLinkBuilder('Lumpscope')
      .type(dashboard.DashboardLinkType.Dashboards)
      .tags([TAG])
      .includeVars(true)
      .keepTime(true),
    new dashboard.DashboardLinkBuilder('Built-in page')
      .type(dashboard.DashboardLinkType.Link)
      .icon('external link')
      .tooltip('The live page of the service: single requests and their block requests')
      .url('${page}')
      .targetBlank(true),
  ];
}

/** From a series with the label `store` to another dashboard for that store alone, same time. */
export function storeLink(uid: string, title: string): cog.Builder<dashboard.DashboardLink> {
  const url = `/d/${uid}?\${__url_time_range}&\${datasource:queryparam}&var-instance=\${__field.labels.instance}&var-store=\${__field.labels.store}`;
  return new dashboard.DashboardLinkBuilder(title).type(dashboard.DashboardLinkType.Link).url(url);
}

// --- Layout ---------------------------------------------------------------------------------------------------------

/** Lays panels out from left to right and top to bottom. Answers the first free line below. */
function place(panels: Placed[], top: number, nextId: () => number): number {
  let x = 0;
  let y = top;
  let tallest = 0;
  for (const { panel, w, h } of panels) {
    if (x + w > COLUMNS) {
      x = 0;
      y += tallest;
      tallest = 0;
    }
    panel.id(nextId()).gridPos({ x, y, w, h });
    x += w;
    tallest = Math.max(tallest, h);
  }
  return y + tallest;
}

/** The dashboard of a plan. */
export function assemble(plan: Plan): dashboard.Dashboard {
  const made = new dashboard.DashboardBuilder(plan.title)
    .uid(plan.uid)
    .description(plan.description)
    .tags([TAG])
    .time({ from: 'now-30m', to: 'now' })
    .refresh('10s')
    .timezone('browser')
    .tooltip(dashboard.DashboardCursorSync.Crosshair)
    .links(links())
    .annotation(alerts())
    .variables([dataSource(), instance(), device(), store(), ...plan.variables, page()]);
  let id = 0;
  const nextId = () => ++id;
  let y = 0;
  for (const { title, collapsed = false, panels } of plan.rows) {
    const row = new dashboard.RowBuilder(title)
      .id(nextId())
      .collapsed(collapsed)
      .gridPos({ x: 0, y, w: COLUMNS, h: 1 });
    const below = place(panels, y + 1, nextId);
    if (collapsed) panels.forEach(({ panel }) => row.withPanel(panel));
    made.withRow(row);
    if (!collapsed) panels.forEach(({ panel }) => made.withPanel(panel));
    // A collapsed row takes one line; what lies in it is placed as if it were open.
    y = collapsed ? y + 1 : below;
  }
  return asked(made.build());
}

/** What the builders set by themselves and Grafana's own types do not know. */
const UNASKED = new Set(['auto', 'auto_count', 'auto_min', 'footer']);
/** What they set by themselves and would hide links in a menu. */
const HIDDEN = dashboard.DashboardLinkPlacement.InControlsMenu;

/** Takes these out. */
function asked(board: dashboard.Dashboard): dashboard.Dashboard {
  const text = JSON.stringify(board, (key, value: unknown) => (UNASKED.has(key) || value === HIDDEN ? undefined : value));
  return JSON.parse(text) as dashboard.Dashboard;
}

/** Where Grafana serves the runbooks: docker-compose.yml puts them there. */
const RUNBOOKS = '/public/lumpscope/runbooks';

function alerts(): dashboard.AnnotationQueryBuilder {
  const page = '{{alertname}}.md';
  return new dashboard.AnnotationQueryBuilder()
    .name('Alerts')
    .datasource(SOURCE)
    .enable(true)
    .iconColor('red')
    .titleFormat('{{alertname}}')
    .textFormat(`Runbook: <a href="${RUNBOOKS}/${page}" target="_blank">docs/runbooks/${page}</a>`)
    // A label that an alert does not have gives no tag; in a text its name would stand there.
    .tagKeys('severity,instance,store')
    .target(target({ expr: `ALERTS{alertname=~"Lumpscope.*",alertstate="firing",${SERVICE}}`, legend: '{{alertname}}' }, 'Alerts'));
}
