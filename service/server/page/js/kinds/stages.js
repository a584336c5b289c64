// @ts-check
/** Where the time of the average request went, over time. */

import { clockAxis, gapAreas, plainAxis, roundUp, zeroOr } from "../axes.js";
import { requestsOf } from "../measure.js";
import { tooltip } from "../tooltip.js";
import { clock, share, span } from "../units.js";

/** @typedef {{from: number, to: number, count: number, mean: number, stages: Record<string, number>}} Bar */

/** @type {import("../section.js").Kind<{bars: Bar[]}, {most: number, stages: string[], method: string}>} */
export const stages = {
  id: "stages",
  title: "Latency by stage",
  height: 200,
  help: [
    "Mean time of a request in each interval, cut into its stages; the stages add up to the whole, so a column is as high as the mean latency.",
    "recv: receiving the body; sched: waiting for the store's turn; index: looking up, or choosing blocks; submit: system calls and checks; queue: the data waits for the disk; device: it is at the disk; wait: the commit waits for the batch before it; write, flush: it is written to the journal, and flushed with its data, until the service has seen that; journal: the rest of the commit; reply: handing over the answer.",
    "Without probes queue and device are unknown, and part of “submit”. A mean hides outliers: see the slowest requests.",
  ],
  choices: [
    ["put", "put"],
    ["get", "get"],
  ],
  prepare(view) {
    const method = view.choices.stages ?? "put";
    let most = 0;
    const stores = new Map(
      view.stores.map(({ name }) => {
        const bars = view.columns.map((column) => barOf(column, name, method));
        for (const bar of bars) most = Math.max(most, bar.mean);
        return [name, { bars }];
      }),
    );
    return { shared: { most, stages: view.hello.stages, method }, stores };
  },
  legend: (view, shared) => shared.stages.map((stage) => ({ label: stage, colour: view.palette.stages[stage] ?? "", symbol: "rect" })),
  option(data, shared, view) {
    const max = roundUp(shared.most || 1e6);
    const label = { color: view.palette.quiet, fontSize: 11, margin: 6, formatter: zeroOr(span) };
    return {
      grid: { left: 62, right: 10, top: 10, height: 162 },
      xAxis: clockAxis(view),
      yAxis: plainAxis(view, { min: 0, max, interval: max / 4, axisLabel: label }),
      tooltip: tooltip(view, (at) => told(data.bars, shared.stages, at)),
      series: [{ id: "stages", type: "custom", data: data.bars.map((bar) => [bar.from, bar.to, bar.mean]), encode: { x: 0, y: 2 }, clip: true, silent: true, markArea: gapAreas(view), renderItem: painter(data.bars, shared.stages, view) }],
    };
  },
  summary(_data, shared, view, store) {
    const sum = requestsOf(view.frames, store.name, shared.method);
    if (sum.count === 0) return `No ${shared.method} in this time.`;
    const parts = Object.entries(sum.stages).sort((a, b) => b[1] - a[1]).slice(0, 3);
    return `Mean ${shared.method} ${span(sum.total / sum.count)}: ` + parts.map(([stage, ns]) => `${stage} ${share(ns, sum.total)}`).join(", ") + ".";
  },
  table(data, shared) {
    return {
      head: ["time", "requests", "mean", ...shared.stages],
      rows: data.bars.filter((bar) => bar.count > 0).toReversed().map((bar) => [clock(bar.to), String(bar.count), span(bar.mean), ...shared.stages.map((s) => span(bar.stages[s] ?? 0))]),
    };
  },
  notes: () => [],
  marks: (data) => data.bars.filter((bar) => bar.count > 0).length,
};

/**
 * @param {import("../types.js").Column} column
 * @param {string} store
 * @param {string} method
 * @returns {Bar}
 */
function barOf(column, store, method) {
  const sum = requestsOf(column.frames, store, method);
  const n = sum.count || 1;
  const each = Object.fromEntries(Object.entries(sum.stages).map(([stage, ns]) => [stage, ns / n]));
  return { from: column.from, to: column.to, count: sum.count, mean: sum.total / n, stages: each };
}

/**
 * @param {Bar[]} bars
 * @param {string[]} stages
 * @param {import("../types.js").View} view
 */
function painter(bars, stages, view) {
  return (/** @type {any} */ params, /** @type {any} */ api) => {
    const bar = bars[params.dataIndex];
    if (!bar || bar.count === 0) return null;
    let below = 0;
    const children = [];
    for (const stage of stages) {
      const ns = bar.stages[stage] ?? 0;
      const [x0, y0] = api.coord([bar.from, below]);
      const [x1, y1] = api.coord([bar.to, below + ns]);
      below += ns;
      if (ns > 0) children.push({ type: "rect", shape: { x: x0, y: y1, width: Math.max(x1 - x0 - 0.8, 0.8), height: y0 - y1 }, style: { fill: view.palette.stages[stage] } });
    }
    return { type: "group", children };
  };
}

/**
 * @param {Bar[]} bars
 * @param {string[]} stages
 * @param {number} at
 */
function told(bars, stages, at) {
  const bar = bars.find((b) => at >= b.from && at <= b.to);
  if (!bar || bar.count === 0) return null;
  const rows = stages.filter((s) => (bar.stages[s] ?? 0) > 0).map((s) => [s, `${span(bar.stages[s] ?? 0)}  ·  ${share(bar.stages[s] ?? 0, bar.mean)}`]);
  return { head: `${clock(bar.to)}  mean of ${bar.count}: ${span(bar.mean)}`, rows: rows.toReversed() };
}
