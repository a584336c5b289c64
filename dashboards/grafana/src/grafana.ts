// What Grafana does with a panel by rules of its own, which the JSON does not show: how it names and orders rows,
// colours values and shortens labels. Each function answers what a reader would see wrong.

import type * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';

interface Target {
  expr?: string;
  legendFormat?: string;
  format?: string;
}
type Properties = { id: string; value?: unknown }[];
export type Shown = Omit<dashboard.Panel, 'targets'> & { targets?: Target[] };

/** Height of a line of the grid with the gap below, and what title and edges of a panel take, in pixels. */
const LINE = 38;
const FRAME = 48;
/** Width of a column of the grid on a laptop (1366 pixels), what a panel has beside its title, and about a letter of it. */
const COLUMN = 55;
const BESIDE = 48;
const LETTER = 7.2;
/** Bars lower than this have no room for their names. */
const BAR = 22;

/** Options as plain objects. */
function option(panel: Shown, name: string): unknown {
  return (panel.options as Record<string, unknown> | undefined)?.[name];
}

/** Everything about a panel that Grafana would show otherwise than it is meant. */
export function misshown(panel: Shown): string[] {
  return [...names(panel), ...rows(panel), ...colours(panel), ...labels(panel), ...times(panel)];
}

/** Series have names, each its own; two services may have stores of one name. */
function names({ type, targets = [] }: Shown): string[] {
  const wrong: string[] = [];
  const legends = targets.map((target) => target.legendFormat ?? '');
  if (legends.some((legend) => legend === '')) wrong.push('a query has no legend');
  if (type !== 'table' && new Set(legends).size !== legends.length) wrong.push(`two queries have one legend: ${legends.join(', ')}`);
  for (const { expr = '', legendFormat = '' } of targets) {
    const groups = [...expr.matchAll(/\b(?:by|on) \(([^)]*\bstore\b[^)]*)\)/g)].map((m) => m[1] ?? '');
    if (groups.some((group) => !/\binstance\b/.test(group))) wrong.push(`stores of one name are one series: ${expr}`);
    if (legendFormat.includes('{{store}}') && !legendFormat.includes('{{instance}}')) {
      wrong.push(`stores of one name have one legend: ${legendFormat}`);
    }
  }
  return wrong;
}

/** A heatmap has rows in the order of their numbers, and something to draw. */
function rows(panel: Shown): string[] {
  if (panel.type !== 'heatmap') return [];
  const wrong: string[] = [];
  const { targets = [], transformations = [] } = panel;
  if (targets.length !== 1) wrong.push('a heatmap draws one query');
  for (const { expr = '', format, legendFormat } of targets) {
    if (format !== 'heatmap') wrong.push('rows without the format heatmap are in the order of parseFloat of their names');
    const positive = transformations.some(({ id, options }) => {
      const filters = (options as { filters?: { fieldName: string; config: { id: string; options: { value: number } } }[] }).filters;
      return id === 'filterByValue' && filters?.some((f) => f.fieldName === 'yMin' && f.config.id === 'greater' && f.config.options.value === 0);
    });
    const classic = expr.includes('_bucket');
    // Series that differ in another label are pictures on top of each other, of which the last is seen.
    if (classic && (!expr.startsWith('sum by (le) (') || legendFormat !== '{{le}}')) wrong.push('rows are not the buckets');
    if (!classic && !positive) wrong.push('the zero bucket of a native histogram empties the panel');
  }
  return wrong;
}

/** No colour means nothing. */
function colours({ type, fieldConfig, options }: Shown): string[] {
  const { thresholds, color, mappings } = fieldConfig?.defaults ?? {};
  const wrong: string[] = [];
  if (['stat', 'bargauge', 'gauge'].includes(type) && !thresholds && !mappings?.length && color?.mode !== 'fixed') {
    wrong.push("neither thresholds nor a fixed colour: Grafana's own are red from 80 of the unit on");
  }
  const steps = thresholds?.steps.map((step) => step.value) ?? [null];
  if (steps[0] !== null) wrong.push('the lowest threshold has a value');
  if (steps.slice(1).some((step, i) => step === null || step <= (steps[i] ?? -Infinity))) wrong.push('thresholds do not rise');
  if (type === 'state-timeline' && !mappings?.length) wrong.push('states without mappings have the colours of thresholds');
  const heat = options as { color?: { mode?: string; scheme?: string } } | undefined;
  if (type === 'heatmap' && !(heat?.color?.scheme && TURNED.has(heat.color.scheme))) {
    wrong.push(`the palette ${heat?.color?.scheme} is not turned round in the dark theme: few looks like many in one of them`);
  }
  return wrong;
}

/** Palettes of a heatmap that Grafana turns round in the dark theme. */
const TURNED = new Set(['Blues', 'Greens', 'Greys', 'Oranges', 'Purples', 'Reds', 'BuGn', 'BuPu', 'GnBu', 'OrRd', 'PuBuGn', 'PuBu', 'PuRd', 'RdPu', 'YlGnBu', 'YlGn', 'YlOrBr', 'YlOrRd']);

/** Labels are as long as the names, and have room. */
function labels(panel: Shown): string[] {
  const wrong: string[] = [];
  const { type, targets = [], gridPos, title = '' } = panel;
  if (title.length * LETTER > (gridPos?.w ?? 0) * COLUMN - BESIDE) wrong.push('the title is cut on a laptop');
  const length = Number(option(panel, 'xTickLabelMaxLength') ?? 0);
  if (type === 'barchart' && length < 20) wrong.push(`labels below the bars end after ${length} letters`);
  if (type === 'bargauge') {
    if (targets.some((target) => /^\{\{\w+\}\}$/.test(target.legendFormat ?? ''))) wrong.push('bars have no names, or come in any order');
    const height = ((gridPos?.h ?? 0) * LINE - FRAME) / targets.length;
    if (height < BAR) wrong.push(`${targets.length} bars have ${height.toFixed(0)} pixels each`);
  }
  const info = targets.some((target) => /lumpscope_build_info/.test(target.expr ?? ''));
  if (type === 'stat' && info && option(panel, 'textMode') !== 'name') wrong.push('shows how many there are, not which');
  return wrong;
}

/** A moment that has not been has no date, and a size of blocks is bytes. */
function times({ type, fieldConfig, transformations = [] }: Shown): string[] {
  const wrong: string[] = [];
  const columns = (fieldConfig?.overrides ?? []).map(({ properties }) => properties as Properties);
  const of = (properties: Properties, id: string) => properties.find((property) => property.id === id)?.value;
  for (const properties of columns) {
    const unit = String(of(properties, 'unit') ?? '');
    if (unit.startsWith('dateTime') && !JSON.stringify(of(properties, 'mappings') ?? '').includes('"0"')) {
      wrong.push('a time of 0 is shown as decades ago');
    }
  }
  const sizes = JSON.stringify(transformations).includes('block_size');
  if (type === 'table' && sizes && !columns.some((properties) => of(properties, 'unit') === 'bytes')) wrong.push('a size of blocks is no number of bytes');
  return wrong;
}

/** The words of an alert's mark (@grafana/prometheus, annotations): a label that is not there leaves its name. */
export function mark(annotation: object, labels: Record<string, string>): string {
  const { titleFormat = '', textFormat = '' } = annotation as { titleFormat?: string; textFormat?: string };
  return `${titleFormat}\n${textFormat}`.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, name: string) => labels[name] ?? name);
}
