// @ts-check
/** The joint heatmap: what a seek of some distance costs at the device. */

import { plainAxis, seekAxis, seekStep, stepText, timeAxis } from "../axes.js";
import { cellSeries } from "../marks.js";
import { WHOSE, blockNotes, heatOf, silence } from "../measure.js";
import { count, span } from "../units.js";

/** Times below are one cell of the probes. */
const LEAST_NS = 1024;

/** @typedef {[step: number, fromNs: number, toNs: number, count: number]} Cell */

/** @type {import("../section.js").Kind<{cells: Cell[]}, {widest: number, most: number, least: number, longest: number}>} */
export const joint = {
  id: "joint",
  title: "What a seek costs",
  height: 260,
  help: [
    "Block requests of the whole time window by signed seek distance (across; 0 is sequential) and by the time they spent at the device, issued to completed (up; logarithmic). On a disk with a head the cells form a V: farther is slower. On flash they are flat.",
    "Two clouds above each other at one distance are two mechanisms, such as a write cache that is full or empty. Not included: the wait in the kernel's queue before the device, and flushes, which have no place.",
  ],
  choices: WHOSE,
  prepare(view) {
    const shared = { widest: 0, most: 0, least: Infinity, longest: 0 };
    const stores = new Map(
      view.stores.map(({ name }) => {
        const cells = cellsOf(view, name);
        for (const [step, from, to, n] of cells) {
          shared.widest = Math.max(shared.widest, Math.abs(step));
          shared.most = Math.max(shared.most, n);
          shared.least = Math.min(shared.least, from);
          shared.longest = Math.max(shared.longest, to);
        }
        return [name, { cells }];
      }),
    );
    return { shared, stores };
  },
  legend: (_view, shared) => [{ ramp: true, label: "block requests in a cell", most: shared.most }],
  option(data, shared, view) {
    const across = seekAxis(shared.widest);
    const up = Number.isFinite(shared.least) ? timeAxis(shared.least / 1.01, shared.longest * 1.01) : timeAxis(1e4, 1e7);
    const label = { color: view.palette.quiet, fontSize: 11 };
    return {
      grid: { left: 62, right: 14, top: 10, height: 222 },
      xAxis: {
        type: "value",
        min: across.min,
        max: across.max,
        axisLine: { show: true, onZero: false, lineStyle: { color: view.palette.line } },
        axisTick: { show: true, customValues: across.ticks, lineStyle: { color: view.palette.line } },
        axisLabel: { ...label, customValues: across.ticks, formatter: across.label, hideOverlap: true },
        splitLine: { show: false },
      },
      yAxis: plainAxis(view, { min: up.min, max: up.max, axisLabel: { ...label, margin: 6, customValues: up.ticks, formatter: up.label }, axisTick: { show: false, customValues: up.ticks } }),
      series: [
        {
          id: "zero",
          type: "line",
          data: [],
          silent: true,
          markLine: { silent: true, animation: false, symbol: "none", label: { show: false }, lineStyle: { color: view.palette.quiet, width: 1, type: [2, 3] }, data: [{ xAxis: 0 }] },
        },
        cellSeries(data.cells.map(([step, from, to, n]) => ({ x0: step - 0.5, x1: step + 0.5, y0: Math.log10(from), y1: Math.log10(to), n })), shared.most, view),
      ],
    };
  },
  summary(data, _shared, view, store) {
    const [near, far] = [median(data.cells, (s) => Math.abs(s) <= 11), median(data.cells, (s) => Math.abs(s) > 11)];
    if (near === null && far === null) return silence(view, store.name, "No block request with a seek distance in this time.");
    const told = [near === null ? "" : `${span(near)} within 1 MiB`, far === null ? "" : `${span(far)} beyond`];
    return `Median device time, interpolated: ${told.filter((text) => text).join(", ")}.`;
  },
  table(data) {
    const steps = [...new Set(data.cells.map((cell) => cell[0]))].sort((a, b) => a - b);
    return {
      head: ["signed seek distance", "block requests", "median device time, interpolated"],
      rows: steps.map((step) => {
        const mine = data.cells.filter((cell) => cell[0] === step);
        return [stepText(step), count(mine.reduce((sum, cell) => sum + cell[3], 0)), span(median(mine, () => true) ?? 0)];
      }),
    };
  },
  hit(place, data) {
    const step = Math.round(place.x);
    const ns = 10 ** place.y;
    const cell = data.cells.find(([mine, from, to]) => mine === step && ns >= from && ns < to);
    return cell ? { told: { head: stepText(step), rows: [["at the device", `${span(cell[1])} to ${span(cell[2])}`], ["block requests", count(cell[3])]] } } : null;
  },
  notes: blockNotes,
  marks: (data) => data.cells.length,
};

/**
 * @param {import("../types.js").View} view
 * @param {string} store
 * @returns {Cell[]}
 */
function cellsOf(view, store) {
  /** @type {Map<string, Cell>} */
  const sums = new Map();
  for (const cell of heatOf(view, view.frames, store, view.choices.joint ?? "all")) {
    const step = seekStep(cell[0], cell[1]);
    const from = Math.max(cell[2], LEAST_NS / 2);
    const key = `${step} ${from}`;
    const sum = sums.get(key);
    if (sum) sum[3] += cell[6];
    else sums.set(key, [step, from, Math.min(cell[3], from * 2), cell[6]]);
  }
  return [...sums.values()];
}

/**
 * @param {Cell[]} cells
 * @param {(step: number) => boolean} which
 * @returns {number|null} ns, interpolated in its bucket
 */
function median(cells, which) {
  const mine = cells.filter((cell) => which(cell[0])).sort((a, b) => a[1] - b[1]);
  let left = mine.reduce((sum, cell) => sum + cell[3], 0) / 2;
  for (const [, from, to, n] of mine) {
    if (left <= n) return from + ((to - from) * left) / n;
    left -= n;
  }
  return null;
}
