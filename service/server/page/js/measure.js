// @ts-check
/** Sums over frames: what charts, tiles and tables show. */

import { kindOf } from "./palette.js";

/** @typedef {import("./types.js").Frame} Frame */

/** Methods with a line of their own; the rest is "other". */
export const METHODS = ["put", "get", "delete", "other"];

/**
 * Which of `METHODS` a method counts as.
 * @param {string} method
 * @returns {string}
 */
export function methodKind(method) {
  return METHODS.includes(method) ? method : "other";
}

/**
 * Seconds that frames cover.
 * @param {Frame[]} frames
 * @returns {number}
 */
export function seconds(frames) {
  return frames.reduce((sum, frame) => sum + (frame.to - frame.from), 0) / 1000;
}

/**
 * Requests of one kind in some frames.
 * @param {Frame[]} frames
 * @param {string} store
 * @param {string} kind one of `METHODS`
 * @returns {{count: number, errors: number, bytes: number, total: number, stages: Record<string, number>, latency: [number, number, number][]}}
 *   sums; times in ns
 */
export function requestsOf(frames, store, kind) {
  const sum = { count: 0, errors: 0, bytes: 0, total: 0, stages: /** @type {Record<string, number>} */ ({}), latency: /** @type {[number, number, number][]} */ ([]) };
  /** @type {Map<number, [number, number, number]>} */
  const buckets = new Map();
  for (const frame of frames) {
    for (const [method, part] of Object.entries(frame.stores[store]?.requests ?? {})) {
      if (methodKind(method) !== kind) continue;
      sum.count += part.count;
      sum.errors += part.errors;
      sum.bytes += part.bytes;
      sum.total += part.total_ns;
      for (const [stage, ns] of Object.entries(part.stages ?? {})) sum.stages[stage] = (sum.stages[stage] ?? 0) + ns;
      for (const [from, to, n] of part.latency ?? []) {
        const bucket = buckets.get(from);
        if (bucket) bucket[2] += n;
        else buckets.set(from, [from, to, n]);
      }
    }
  }
  sum.latency = [...buckets.values()].sort((a, b) => a[0] - b[0]);
  return sum;
}

/**
 * The time within which a share of the requests ended.
 * @param {[number, number, number][]} buckets from, to in ns, count; ascending
 * @param {number} q 0 to 1
 * @returns {number|null} ns, as if those in a bucket were spread evenly; null: there is no request
 */
export function quantile(buckets, q) {
  const all = buckets.reduce((sum, bucket) => sum + bucket[2], 0);
  const wanted = Math.max(1, Math.ceil(all * q));
  let before = 0;
  for (const [from, to, n] of buckets) {
    if (before + n >= wanted) return from + ((to - from - 1) * (wanted - before)) / n;
    before += n;
  }
  return null;
}

/**
 * Cells of the heatmaps by step of the seek distance and by time, for some kinds of block requests.
 * @param {import("./types.js").View} view
 * @param {Frame[]} frames
 * @param {string} store
 * @param {string} whose one of `WHOSE`
 * @returns {import("./types.js").HeatCell[]}
 */
export function heatOf(view, frames, store, whose) {
  const cells = [];
  for (const frame of frames) {
    for (const cell of frame.stores[store]?.heat ?? []) {
      const kind = kindOf(view.hello.owners[cell[4]] ?? "other", view.hello.operations[cell[5]] ?? "");
      if (whose === "all" || whose === (kind === "put" || kind === "get" ? kind : "others")) cells.push(cell);
    }
  }
  return cells;
}

/** Whose block requests a heatmap shows. */
export const WHOSE = [
  ["all", "all"],
  ["put", "puts"],
  ["get", "gets"],
  ["others", "not requests"],
];

/**
 * The newest state of a store: whether it is observed, and what is doubtful.
 * @param {import("./types.js").View} view
 * @param {string} store
 * @returns {import("./types.js").StorePart|null} null: no frame of it has come yet
 */
export function newest(view, store) {
  return view.frames.at(-1)?.stores[store] ?? null;
}

/**
 * How a store is: its colour on the page.
 * @param {import("./types.js").Health} health
 * @returns {"good"|"warn"|"bad"} good: it serves, and no condition holds
 */
export function lamp(health) {
  if (["read-only", "failed", "gone", "unavailable"].includes(health.state)) return "bad";
  return health.state === "serving" && health.firing.length === 0 ? "good" : "warn";
}

/**
 * What a summary says when nothing of the disk is known.
 * @param {import("./types.js").View} view
 * @param {string} store
 * @param {string} nothing what it says when the disk is watched
 * @returns {string}
 */
export function silence(view, store, nothing) {
  return newest(view, store)?.observed === false ? "The disk is not observed." : nothing;
}

/**
 * What stands beside every chart of block requests: why it may be empty or incomplete.
 * @param {import("./types.js").View} view
 * @param {string} store
 * @returns {string[]} sentences
 */
export function blockNotes(view, store) {
  const now = newest(view, store);
  if (!now) return [];
  return now.observed ? now.doubts : [`Not observed: ${now.whyNot || "no reason was given"}.`];
}
