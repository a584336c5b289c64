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

/** Many cells over time: a histogram, one row for each bucket. */
export interface HeatWords extends Words {
  /** What the axis shows; the unit of the panel is that of the cells. */
  axis: { unit: string; label: string };
  /** Native buckets in place of `le`. */
  native?: boolean;
}

export function heatmap(words: HeatWords): Placed {
  const panel = new heat.PanelBuilder()
    .calculate(false)
    .cellGap(0)
    .showLegend()
    .color(
      new heat.HeatmapColorOptionsBuilder()
        .mode(heat.HeatmapColorMode.Scheme)
        // Grafana turns this one round in the dark theme: few is near the background in both.
        .scheme('YlOrRd')
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
  if (words.native) panel.transformations([WITHOUT_ZERO]);
  const queries = words.queries.map((query) => ({ ...query, format: prometheus.PromQueryFormat.Heatmap }));
  return worded(panel, { ...words, queries });
}

/** The axis of native buckets is logarithmic: with the bucket of zero it has no end, and the picture is empty. */
const WITHOUT_ZERO: dashboard.DataTransformerConfig = {
  id: 'filterByValue',
  options: {
    type: 'include',
    match: 'all',
    filters: [{ fieldName: 'yMin', config: { id: 'greater', options: { value: 0 } } }],
  },
};

/** Big numbers. */
export interface StatWords extends Words {
  /** A small line below the number. */
  line?: boolean;
  /** The names of the series, not their values. */
  names?: boolean;
}

export function stat(words: StatWords): Placed {
  const coloured = words.thresholds !== undefined || words.mappings !== undefined;
  const panel = new statPanel.PanelBuilder()
    .reduceOptions(last())
    .graphMode(words.line ? common.BigValueGraphMode.Area : common.BigValueGraphMode.None)
    .colorMode(coloured ? common.BigValueColorMode.Background : common.BigValueColorMode.None)
    .textMode(words.names ? common.BigValueTextMode.Name : common.BigValueTextMode.Auto)
    .justifyMode(common.BigValueJustifyMode.Auto)
    .orientation(common.VizOrientation.Auto)
    .wideLayout(true);
  return worded(panel, { h: 4, ...(coloured ? {} : { color: 'text' }), ...words });
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

/** A bar for each query, over the chosen time. */
export function bars(words: Words): Placed {
  const panel = new bargauge.PanelBuilder()
    .reduceOptions(last())
    .displayMode(common.BarGaugeDisplayMode.Basic)
    .valueMode(common.BarGaugeValueMode.Color)
    .namePlacement(common.BarGaugeNamePlacement.Left)
    .showUnfilled(false)
    .sizing(common.BarGaugeSizing.Auto)
    .orientation(common.VizOrientation.Horizontal);
  return worded(panel, { min: 0, color: 'blue', ...words });
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
    .xTickLabelMaxLength(40)
    .legend(legend())
    .tooltip(tooltip())
    .transformations([{ id: 'groupingToMatrix', options: { columnField, rowField, valueField: 'Value' } }]);
  return worded(panel, { min: 0, ...words, queries: words.queries.map(asTable) });
}

/** One line for each combination of labels, one column for each query. */
export interface TableWords extends Words {
  /** Heading of each column that is shown, by the name it has in the answer: a label, or "Value #A" for query A. */
  headings: Record<string, string>;
  /** What single columns have that the others do not, by heading. */
  columns?: Record<string, dashboard.DynamicConfigValue[]>;
  /** Headings of the columns that are sorted by: the largest first, but in `upwards` the smallest. */
  sortBy?: string[];
  upwards?: boolean;
  /** Columns that stay out although the answer has them. */
  without?: string[];
}

export function table(words: TableWords): Placed {
  const organize: dashboard.DataTransformerConfig = {
    id: 'organize',
    options: {
      excludeByName: Object.fromEntries(['Time', '__name__', 'job', ...(words.without ?? [])].map((name) => [name, true])),
      indexByName: Object.fromEntries(Object.keys(words.headings).map((name, i) => [name, i])),
      renameByName: words.headings,
    },
  };
  // Lines of several queries are one where all labels are equal.
  const merge: dashboard.DataTransformerConfig = { id: 'merge', options: {} };
  const panel = new tablePanel.PanelBuilder()
    .showHeader(true)
    .cellHeight(common.TableCellHeight.Sm)
    .transformations(words.queries.length > 1 ? [merge, organize] : [organize]);
  Object.entries(words.columns ?? {}).forEach(([heading, properties]) => panel.overrideByName(heading, properties));
  const sorted = words.sortBy?.map((name) => new common.TableSortByFieldStateBuilder().displayName(name).desc(!words.upwards));
  if (sorted) panel.sortBy(sorted);
  return worded(panel, { color: 'text', ...words, queries: words.queries.map(asTable) });
}

/** Properties of a column: its unit; a text for one value; the background in the colours of `scheme`. */
export const unit = (value: string): dashboard.DynamicConfigValue => ({ id: 'unit', value });
export const texts = (value: dashboard.ValueMapping[]): dashboard.DynamicConfigValue => ({ id: 'mappings', value });
export const background = (): dashboard.DynamicConfigValue => ({
  id: 'custom.cellOptions',
  value: { type: 'color-background', mode: 'basic' },
});
export const scheme = (mode: string): dashboard.DynamicConfigValue => ({ id: 'color', value: { mode } });

function asTable<Q extends object>(query: Q): Q & { instant: true; format: prometheus.PromQueryFormat } {
  return { ...query, instant: true, format: prometheus.PromQueryFormat.Table };
}
