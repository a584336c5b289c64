// @ts-check
/** Requests per second, bytes per second, and how long requests took. */

import { clockAxis, gapAreas, plainAxis, roundUp, zeroOr } from "../axes.js";
import { METHODS, quantile, requestsOf, seconds } from "../measure.js";
import { tooltip } from "../tooltip.js";
import { bytes, clock, figures, span } from "../units.js";

/** @typedef {{at: number, from: number, to: number, rate: Record<string, number>, flow: Record<string, number>, p50: Record<string, number|null>, p99: Record<string, number|null>}} Point */

const TOPS = [20, 120, 220];
const HEIGHTS = [70, 70, 86];
const TITLES = ["requests/s", "bytes/s", "latency: p99 solid, p50 dashed"];

/** @type {import("../section.js").Kind<{points: Point[]}, {rate: number, flow: number, least: number, most: number, methods: string[]}>} */
export const load = {
  id: "load",
  title: "Load",
  height: 328,
  help: [
    "Requests that ended in each interval, the bytes of their bodies, and the time within which half (p50) and 99 of 100 (p99) of them ended, from arrival to the last byte of the reply.",
    "Latency is logarithmic, and estimated within the buckets of a histogram. It does not contain the client's side or the network before the service.",
  ],
  prepare(view) {
    const shared = { rate: 0, flow: 0, least: Infinity, most: 0, methods: /** @type {string[]} */ ([]) };
    const stores = new Map(view.stores.map(({ name }) => [name, { points: pointsOf(view, name, shared) }]));
    shared.methods = METHODS.filter((m) => [...stores.values()].some((s) => s.points.some((p) => (p.rate[m] ?? 0) > 0)));
    return { shared, stores };
  },
  legend: (view, shared) => shared.methods.map((m) => ({ label: m, colour: view.palette.methods[m] ?? "", symbol: "line" })),
  option(data, shared, view) {
    const most = Number.isFinite(shared.least) ? shared.most : 1e7;
    const least = Number.isFinite(shared.least) ? shared.least : 1e5;
    const grids = TOPS.map((top, at) => ({ left: 62, right: 10, top, height: HEIGHTS[at] }));
    const style = { color: view.palette.quiet, fontSize: 11, fontWeight: "normal" };
    return {
      title: TITLES.map((text, at) => ({ text, left: 0, top: (TOPS[at] ?? 0) - 19, padding: 0, textStyle: style })),
      grid: grids,
      axisPointer: { link: [{ xAxisIndex: "all" }] },
      xAxis: grids.map((_, at) => ({ ...clockAxis(view, at === 2), gridIndex: at })),
      yAxis: [
        linear(view, 0, roundUp(shared.rate), figures),
        linear(view, 1, roundUp(shared.flow, 1024), bytes),
        plainAxis(view, {
          gridIndex: 2,
          type: "log",
          min: 10 ** Math.floor(Math.log10(least)),
          max: 10 ** Math.ceil(Math.log10(most)),
          axisLabel: { color: view.palette.quiet, fontSize: 11, margin: 6, formatter: zeroOr(span) },
        }),
      ],
      tooltip: tooltip(view, (at) => told(data.points, shared.methods, at)),
      series: shared.methods.flatMap((method) => [
        line(view, method, 0, data.points, (p) => p.rate[method] ?? 0),
        line(view, method, 1, data.points, (p) => p.flow[method] ?? 0),
        line(view, method, 2, data.points, (p) => p.p99[method] ?? null),
        line(view, method, 3, data.points, (p) => p.p50[method] ?? null),
      ]).concat([0, 1, 2].map((at) => ({ id: `gaps${at}`, type: "line", data: [], xAxisIndex: at, yAxisIndex: at, markArea: gapAreas(view) }))),
    };
  },
  summary(_data, shared, view, store) {
    const told = shared.methods.map((method) => {
      const sum = requestsOf(view.frames, store.name, method);
      const [p50, p99] = [quantile(sum.latency, 0.5), quantile(sum.latency, 0.99)];
      const rate = figures(sum.count / Math.max(seconds(view.frames), 1));
      return `${method} ${rate}/s` + (p99 === null ? "" : `, p50 ${span(p50 ?? 0)}, p99 ${span(p99)}`) + (sum.errors > 0 ? `, ${sum.errors} failed` : "");
    });
    return told.length > 0 ? told.join(" · ") : "No request in this time.";
  },
  table(data, shared) {
    return {
      head: ["time", ...shared.methods.flatMap((m) => [`${m}/s`, `${m} bytes/s`, `${m} p50`, `${m} p99`])],
      rows: data.points.toReversed().map((p) => [clock(p.to), ...shared.methods.flatMap((m) => cells(p, m))]),
    };
  },
  notes: () => [],
  marks: (data) => data.points.filter((p) => Object.values(p.rate).some((n) => n > 0)).length,
};

/** @param {Point} p @param {string} m */
function cells(p, m) {
  const [p50, p99] = [p.p50[m], p.p99[m]];
  return [figures(p.rate[m] ?? 0), bytes(p.flow[m] ?? 0), p50 ? span(p50) : "–", p99 ? span(p99) : "–"];
}

/**
 * @param {import("../types.js").View} view
 * @param {string} store
 * @param {{rate: number, flow: number, least: number, most: number}} shared
 * @returns {Point[]}
 */
function pointsOf(view, store, shared) {
  return view.columns.map((column) => {
    const long = (column.to - column.from) / 1000 || 1;
    /** @type {Point} */
    const point = { at: (column.from + column.to) / 2, from: column.from, to: column.to, rate: {}, flow: {}, p50: {}, p99: {} };
    for (const method of METHODS) {
      const sum = requestsOf(column.frames, store, method);
      const [p50, p99] = [quantile(sum.latency, 0.5), quantile(sum.latency, 0.99)];
      point.rate[method] = sum.count / long;
      point.flow[method] = sum.bytes / long;
      point.p50[method] = p50;
      point.p99[method] = p99;
      shared.rate = Math.max(shared.rate, sum.count / long);
      shared.flow = Math.max(shared.flow, sum.bytes / long);
      if (p50 !== null && p99 !== null) {
        shared.least = Math.min(shared.least, Math.max(p50, 1000));
        shared.most = Math.max(shared.most, p99, 10_000);
      }
    }
    return point;
  });
}

/**
 * @param {import("../types.js").View} view
 * @param {string} method
 * @param {number} row 0 rate, 1 bytes, 2 p99, 3 p50
 * @param {Point[]} points
 * @param {(p: Point) => number|null} value
 * @returns {object}
 */
function line(view, method, row, points, value) {
  const axis = Math.min(row, 2);
  /** @type {(object)[]} */
  const data = [];
  points.forEach((p, at) => {
    const [before, after] = [points[at - 1], points[at + 1]];
    if (before && p.from > before.to) data.push([before.to, null]);
    const y = value(p);
    const alone = y !== null && (before ? value(before) : null) === null && (after ? value(after) : null) === null;
    data.push(alone ? { value: [p.at, y], symbol: "circle" } : [p.at, y]);
  });
  return {
    id: `${method}${row}`,
    type: "line",
    xAxisIndex: axis,
    yAxisIndex: axis,
    data,
    symbol: "none",
    symbolSize: 4,
    silent: true,
    lineStyle: { width: row === 3 ? 1.2 : 1.8, type: row === 3 ? "dashed" : "solid" },
    itemStyle: { color: view.palette.methods[method] },
    emphasis: { disabled: true },
  };
}

/**
 * @param {import("../types.js").View} view
 * @param {number} at
 * @param {number} max
 * @param {(n: number) => string} formatter
 */
function linear(view, at, max, formatter) {
  const label = { color: view.palette.quiet, fontSize: 11, margin: 6, formatter: zeroOr(formatter) };
  return plainAxis(view, { gridIndex: at, min: 0, max, interval: max / 2, axisLabel: label });
}

/**
 * @param {Point[]} points
 * @param {string[]} methods
 * @param {number} at
 */
function told(points, methods, at) {
  const p = points.find((point) => at >= point.from && at <= point.to);
  if (!p) return null;
  return { head: clock(p.to), rows: methods.map((m) => [m, cells(p, m).join("  ·  ")]) };
}
