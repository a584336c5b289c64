// @ts-check
/** The seek heatmap: how far the head had to go, over time. */

import { clockAxis, gapAreas, plainAxis, seekAxis, seekStep, stepText } from "../axes.js";
import { cellSeries } from "../marks.js";
import { WHOSE, blockNotes, heatOf, silence } from "../measure.js";
import { bytes, clock, count, share, span } from "../units.js";

/** @typedef {[from: number, to: number, step: number, count: number]} Cell */

/** @type {import("../section.js").Kind<{cells: Cell[]}, {widest: number, most: number}>} */
export const seeks = {
  id: "seeks",
  title: "Seek distance over time",
  height: 250,
  help: [
    "Each column is an interval, each row a range of signed distances between the end of one block request and the start of the next: 0 is sequential, up is towards the end of the disk, down towards sector 0; one row more is twice as far. The darker (in the dark theme: brighter), the more block requests in the time of a column; the scale is logarithmic and shared by all stores.",
    "A quiet disk is one band at 0. Two mirrored bands are a head that commutes between two places, as between data and a journal. Distances are between sectors as the kernel numbers them: remapping and caching inside the drive are not seen.",
  ],
  choices: WHOSE,
  prepare(view) {
    const shared = { widest: 0, most: 0 };
    const stores = new Map(
      view.stores.map(({ name }) => {
        const cells = view.columns.flatMap((column) => cellsOf(view, column, name));
        for (const cell of cells) {
          shared.widest = Math.max(shared.widest, Math.abs(cell[2]));
          shared.most = Math.max(shared.most, evened(view, cell));
        }
        return [name, { cells }];
      }),
    );
    return { shared, stores };
  },
  legend: (view, shared) => [{ ramp: true, label: `block requests in a cell of ${span(view.each * 1e6)}`, most: Math.round(shared.most) }],
  option(data, shared, view) {
    const axis = seekAxis(shared.widest);
    const label = { color: view.palette.quiet, fontSize: 11, margin: 6, customValues: axis.ticks, formatter: axis.label };
    return {
      grid: { left: 62, right: 10, top: 10, height: 212 },
      xAxis: clockAxis(view),
      yAxis: plainAxis(view, { min: axis.min, max: axis.max, axisLabel: label, splitLine: { show: false } }),
      series: [zero(view), cellSeries(data.cells.map((cell) => ({ x0: cell[0], x1: cell[1], y0: cell[2] - 0.5, y1: cell[2] + 0.5, n: evened(view, cell) })), shared.most, view)],
    };
  },
  summary(data, _shared, view, store) {
    const all = data.cells.reduce((sum, cell) => sum + cell[3], 0);
    if (all === 0) return silence(view, store.name, "No block request with a seek distance in this time.");
    return `${count(all)} block requests, ${share(of(data.cells, (s) => s === 0), all)} sequential, ${share(of(data.cells, (s) => Math.abs(s) > 11), all)} beyond 1 MiB; median |distance| below ${medianText(data.cells, all)}.`;
  },
  table(data) {
    const steps = [...new Set(data.cells.map((cell) => cell[2]))].sort((a, b) => b - a);
    const all = data.cells.reduce((sum, cell) => sum + cell[3], 0);
    return {
      head: ["signed seek distance", "block requests", "share"],
      rows: steps.map((step) => {
        const n = of(data.cells, (s) => s === step);
        return [stepText(step), count(n), share(n, all)];
      }),
    };
  },
  hit(place, data) {
    const step = Math.round(place.y);
    const cell = data.cells.find(([from, to, mine]) => mine === step && place.x >= from && place.x < to);
    return cell ? { told: { head: clock(cell[1]), rows: [["distance", stepText(step)], [`block requests in ${span((cell[1] - cell[0]) * 1e6)}`, count(cell[3])]] } } : null;
  },
  notes: blockNotes,
  marks: (data) => data.cells.length,
};

/**
 * @param {import("../types.js").View} view
 * @param {import("../types.js").Column} column
 * @param {string} store
 * @returns {Cell[]}
 */
function cellsOf(view, column, store) {
  /** @type {Map<number, number>} */
  const steps = new Map();
  for (const cell of heatOf(view, column.frames, store, view.choices.seeks ?? "all")) {
    const step = seekStep(cell[0], cell[1]);
    steps.set(step, (steps.get(step) ?? 0) + cell[6]);
  }
  return [...steps].map(([step, n]) => [column.from, column.to, step, n]);
}

/**
 * The count of a cell as if its column were as long as most: those from before the page was opened are longer.
 * @param {import("../types.js").View} view
 * @param {Cell} cell
 */
function evened(view, [from, to, , n]) {
  return Math.max(1, (n * view.each) / Math.max(to - from, 1));
}

/**
 * The line of sequential access, and the gaps.
 * @param {import("../types.js").View} view
 * @returns {object}
 */
function zero(view) {
  const mark = { silent: true, symbol: "none", label: { show: false }, lineStyle: { color: view.palette.quiet, width: 1, type: [2, 3] }, data: [{ yAxis: 0 }] };
  return { id: "zero", type: "line", data: [], silent: true, markLine: { ...mark, animation: false }, markArea: gapAreas(view) };
}

/** @param {Cell[]} cells @param {(step: number) => boolean} which */
function of(cells, which) {
  return cells.reduce((sum, cell) => sum + (which(cell[2]) ? cell[3] : 0), 0);
}

/** @param {Cell[]} cells @param {number} all */
function medianText(cells, all) {
  let seen = 0;
  for (let size = 0; size <= 41; size += 1) {
    seen += of(cells, (step) => Math.abs(step) === size);
    if (seen * 2 >= all) return bytes(512 * 2 ** size);
  }
  return "–";
}
