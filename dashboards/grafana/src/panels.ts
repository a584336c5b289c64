// One function for each kind of panel. All take the words that every panel needs.

import * as barchart from '@grafana/grafana-foundation-sdk/barchart';
import * as bargauge from '@grafana/grafana-foundation-sdk/bargauge';
import * as common from '@grafana/grafana-foundation-sdk/common';
import type * as dashboard from '@grafana/grafana-foundation-sdk/dashboard';
import * as heat from '@grafana/grafana-foundation-sdk/heatmap';
import * as prometheus from '@grafana/grafana-foundation-sdk/prometheus';
import * as statPanel from '@grafana/grafana-foundation-sdk/stat';
import * as statetimeline from '@grafana/grafana-foundation-sdk/statetimeline';
import * as tablePanel from '@grafana/grafana-foundation-sdk/table';
import * as timeseries from '@grafana/grafana-foundation-sdk/timeseries';

import { type Placed, type Words, worded } from './build.js';

const tooltip = () =>
  new common.VizTooltipOptionsBuilder().mode(common.TooltipDisplayMode.Multi).sort(common.SortOrder.Descending);

const legend = () =>
  new common.VizLegendOptionsBuilder()
    .displayMode(common.LegendDisplayMode.List)
    .placement(common.LegendPlacement.Bottom)
    .showLegend(true);

/** Reduces each series to its last value. */
const last = () => new common.ReduceDataOptionsBuilder().calcs(['lastNotNull']);

const log2 = () => new common.ScaleDistributionConfigBuilder().type(common.ScaleDistribution.Log).log(2);

/** Lines over time. */
export interface LineWords extends Words {
  /** Areas on top of each other; only for what adds up. */
  stacked?: boolean;
  /** Logarithmic axis; not for what can be 0. */
  log?: boolean;
  /** May be below 0. */
  signed?: boolean;
}

export function lines(words: LineWords): Placed {
  const panel = new timeseries.PanelBuilder()
    .tooltip(tooltip())
    .legend(legend())
    .showPoints(common.VisibilityMode.Auto)
    .fillOpacity(words.stacked ? 40 : 8)
    .lineWidth(1);
  if (words.stacked) panel.stacking(new common.StackingConfigBuilder().mode(common.StackingMode.Normal).group('A'));
  if (words.log) panel.scaleDistribution(log2());
  return worded(panel, words.log || words.signed ? words : { min: 0, ...words });
}

/** Many cells over time: a histogram by `le`, or one row for each series. */
export interface HeatWords extends Words {
  /** What the axis shows; the unit of the panel is that of the cells. */
  axis: { unit: string; label: string };
  /** One row for each series, in this order from below; absent: a classic histogram, one row for each bucket. */
  rows?: { label: string; order: string[] };
}

export function heatmap(words: HeatWords): Placed {
  const panel = new heat.PanelBuilder()
    .calculate(false)
    .cellGap(0)
    .showLegend()
    .color(
      new heat.HeatmapColorOptionsBuilder()
        .mode(heat.HeatmapColorMode.Scheme)
        .scheme('Turbo')
        .scale(heat.HeatmapColorScale.Exponential)
        .exponent(0.5)
        .fill('dark-orange')
        .steps(64)
        .reverse(false),
    )
    .cellValues(new heat.CellValuesBuilder().unit(words.unit))
    .filterValues(new heat.FilterValueRangeBuilder().le(1e-9))
    .yAxis(new heat.YAxisConfigBuilder().unit(words.axis.unit).axisLabel(words.axis.label))
    .tooltip(new heat.HeatmapTooltipBuilder().mode(common.TooltipDisplayMode.Single).yHistogram(true).showColorScale(true))
    .exemplarsColor('rgba(255,0,255,0.7)');
  if (words.rows) panel.transformations(inOrder(words.rows.order)).rowsFrame(rowsFrame());
  const queries = words.rows
    ? words.queries
    : words.queries.map((query) => ({ ...query, format: prometheus.PromQueryFormat.Heatmap }));
  return worded(panel, { ...words, queries });
}

const rowsFrame = () => new heat.RowsHeatmapOptionsBuilder().layout(common.HeatmapCellLayout.Auto);

/** Makes one table of all series and puts its columns in order: labels sort as text, intervals do not. */
function inOrder(order: string[]): dashboard.DataTransformerConfig[] {
  const indexByName = Object.fromEntries(['Time', ...order].map((name, i) => [name, i]));
  return [
    { id: 'joinByField', options: { byField: 'Time', mode: 'outer' } },
    { id: 'organize', options: { excludeByName: {}, indexByName, renameByName: {} } },
  ];
}

/** Big numbers. */
export interface StatWords extends Words {
  /** A small line below the number. */
  line?: boolean;
}

export function stat(words: StatWords): Placed {
  const panel = new statPanel.PanelBuilder()
    .reduceOptions(last())
    .graphMode(words.line ? common.BigValueGraphMode.Area : common.BigValueGraphMode.None)
    .colorMode(words.thresholds ?? words.mappings ? common.BigValueColorMode.Background : common.BigValueColorMode.Value)
    .textMode(common.BigValueTextMode.Auto)
    .justifyMode(common.BigValueJustifyMode.Auto)
    .orientation(common.VizOrientation.Auto)
    .wideLayout(true);
  return worded(panel, { h: 4, ...words });
}

/** States over time: one band for each series. */
export function timeline(words: Words): Placed {
  const panel = new statetimeline.PanelBuilder()
    .mergeValues(true)
    .showValue(common.VisibilityMode.Never)
    .alignValue(common.TimelineValueAlignment.Left)
    .rowHeight(0.9)
    .fillOpacity(70)
    .lineWidth(0)
    .legend(legend())
    .tooltip(new common.VizTooltipOptionsBuilder().mode(common.TooltipDisplayMode.Single));
  return worded(panel, words);
}

/** A bar for each bucket of a histogram, or each series, over the chosen time. */
export function bars(words: Words): Placed {
  const panel = new bargauge.PanelBuilder()
    .reduceOptions(last())
    .displayMode(common.BarGaugeDisplayMode.Basic)
    .valueMode(common.BarGaugeValueMode.Color)
    .namePlacement(common.BarGaugeNamePlacement.Left)
    .showUnfilled(false)
    .sizing(common.BarGaugeSizing.Auto)
    .orientation(common.VizOrientation.Horizontal);
  return worded(panel, { min: 0, ...words });
}

/** A column of stacked parts for each value of a label. */
export interface ColumnWords extends Words {
  /** Label that names the columns; label that names the parts. */
  column: string;
  part: string;
}

export function columns(words: ColumnWords): Placed {
  const { column: rowField, part: columnField } = words;
  const panel = new barchart.PanelBuilder()
    .orientation(common.VizOrientation.Auto)
    .stacking(common.StackingMode.Normal)
    .showValue(common.VisibilityMode.Never)
    .barWidth(0.7)
    .groupWidth(0.7)
    .fillOpacity(80)
    .lineWidth(0)
    .xField(`${rowField}\\${columnField}`)
    .legend(legend())
    .tooltip(tooltip())
    .transformations([{ id: 'groupingToMatrix', options: { columnField, rowField, valueField: 'Value' } }]);
  return worded(panel, { min: 0, ...words, queries: words.queries.map(asTable) });
}

/** One line for each combination of labels, one column for each query. */
export interface TableWords extends Words {
  /** Heading of each column that is shown, by the name it has in the answer: a label, or "Value #A" for query A. */
  headings: Record<string, string>;
  /** Units of columns that do not have the panel's, by heading. */
  units?: Record<string, string>;
  /** Label that lines of several queries are joined by. */
  key?: string;
  /** Heading of the column that is sorted by, the largest first. */
  sortBy?: string;
  /** Labels whose column stays out although the answer has it. */
  without?: string[];
}

export function table(words: TableWords): Placed {
  const hidden = ['Time', '__name__', 'job', ...(words.key ? ['Time 1', 'Time 2', 'Time 3', 'Time 4'] : []), ...(words.without ?? [])];
  const organize: dashboard.DataTransformerConfig = {
    id: 'organize',
    options: {
      excludeByName: Object.fromEntries(hidden.map((name) => [name, true])),
      indexByName: Object.fromEntries(Object.keys(words.headings).map((name, i) => [name, i])),
      renameByName: words.headings,
    },
  };
  const join: dashboard.DataTransformerConfig = {
    id: 'joinByField',
    options: { byField: words.key ?? '', mode: 'outer' },
  };
  const panel = new tablePanel.PanelBuilder()
    .showHeader(true)
    .cellHeight(common.TableCellHeight.Sm)
    .transformations(words.key ? [join, organize] : [organize]);
  for (const [heading, unit] of Object.entries(words.units ?? {})) {
    panel.overrideByName(heading, [{ id: 'unit', value: unit }]);
  }
  if (words.sortBy) panel.sortBy([new common.TableSortByFieldStateBuilder().displayName(words.sortBy).desc(true)]);
  return worded(panel, { ...words, queries: words.queries.map(asTable) });
}

function asTable<Q extends object>(query: Q): Q & { instant: true; format: prometheus.PromQueryFormat } {
  return { ...query, instant: true, format: prometheus.PromQueryFormat.Table };
}
