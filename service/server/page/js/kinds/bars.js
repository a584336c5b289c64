// @ts-check
/** Who moved the head, and what time was lost to others: tables with bars, on one scale for all stores. */

import { el } from "../dom.js";
import { METHODS, blockNotes, requestsOf, seconds, silence } from "../measure.js";
import { bytes, count, span } from "../units.js";

/** Rows of the first table: the pairs that travelled most. */
const PAIRS = 8;

/** @typedef {{key: string, value: number, cells: string[]}} Row */
/** @typedef {{rows: Row[]}} Rows */

/** @type {import("../section.js").Kind<Rows, {most: number, keys: string[]}>} */
export const moves = {
  id: "moves",
  title: "Who moved the head",
  height: 0,
  help: [
    "For whom the head had to travel, and whose block request it had been sent away for before, over the whole time window. “request ← fs-journal” is a request that had to fetch the head back from the file system's journal. Bars are distances, on one scale for all stores.",
    "“unknown” is a predecessor that is not certain, as after a lost event. Movements inside the drive itself are not seen.",
  ],
  prepare(view) {
    /** @type {Map<string, number>} */
    const travel = new Map();
    const sums = new Map(view.stores.map(({ name }) => [name, movesOf(view, name)]));
    for (const sum of sums.values()) for (const [key, [, , far]] of sum) travel.set(key, Math.max(travel.get(key) ?? 0, far));
    const keys = [...travel].filter(([, far]) => far > 0).sort((a, b) => b[1] - a[1]).slice(0, PAIRS).map(([key]) => key);
    const most = Math.max(0, ...travel.values());
    const row = (/** @type {Map<string, [number, number, number]>} */ sum) => (/** @type {string} */ key) => {
      const [n, moved, far] = sum.get(key) ?? [0, 0, 0];
      return { key, value: far, cells: n > 0 ? [count(moved), bytes(far)] : ["0", "0 B"] };
    };
    const stores = new Map([...sums].map(([name, sum]) => [name, { rows: keys.map(row(sum)) }]));
    return { shared: { most, keys }, stores };
  },
  draw: (host, data, shared) => barTable(host, ["owner ← moved by", "seeks", "travel"], data.rows, shared.most),
  summary(data, _shared, view, store) {
    const far = data.rows.reduce((sum, row) => sum + row.value, 0);
    if (far === 0) return silence(view, store.name, "The head did not travel in this time.");
    const first = data.rows.reduce((a, b) => (b.value > a.value ? b : a));
    return `${bytes(far / Math.max(seconds(view.frames), 1))} of travel a second; most of it ${first.key}.`;
  },
  notes: blockNotes,
  marks: (data) => data.rows.filter((row) => row.value > 0).length,
};

/** @type {import("../section.js").Kind<Rows, {most: number, keys: string[]}>} */
export const lost = {
  id: "lost",
  title: "Time lost to others",
  height: 0,
  help: [
    "Time in which the disk served others while block requests of a store's requests waited, by the class of the others, over the whole time window. “request” is another request of this store.",
    "Several requests may wait at once, so this can be more than the time that has passed. It is counted only for block requests that the probes saw from queue to completion.",
  ],
  prepare(view) {
    const keys = view.hello.owners;
    const sums = new Map(view.stores.map(({ name }) => [name, lostOf(view, name)]));
    const most = Math.max(0, ...[...sums.values()].flatMap((sum) => keys.map((key) => sum[key] ?? 0)));
    const shown = keys.filter((key) => [...sums.values()].some((sum) => (sum[key] ?? 0) > 0));
    const row = (/** @type {string} */ store, /** @type {Record<string, number>} */ sum) => {
      const n = METHODS.reduce((all, kind) => all + requestsOf(view.frames, store, kind).count, 0);
      return (/** @type {string} */ key) => ({ key, value: sum[key] ?? 0, cells: [span(sum[key] ?? 0), n > 0 ? span((sum[key] ?? 0) / n) : "–"] });
    };
    const stores = new Map([...sums].map(([name, sum]) => [name, { rows: shown.map(row(name, sum)) }]));
    return { shared: { most, keys: shown }, stores };
  },
  draw: (host, data, shared) => barTable(host, ["lost to", "in all", "a request"], data.rows, shared.most),
  summary(data, _shared, view, store) {
    const ns = data.rows.reduce((sum, row) => sum + row.value, 0);
    if (ns === 0) return silence(view, store.name, "No time was lost to others in this time.");
    return `${span(ns / Math.max(seconds(view.frames), 1))} lost in each second.`;
  },
  notes: blockNotes,
  marks: (data) => data.rows.filter((row) => row.value > 0).length,
};

/**
 * @param {import("../types.js").View} view
 * @param {string} store
 */
function movesOf(view, store) {
  /** @type {Map<string, [number, number, number]>} */
  const sums = new Map();
  for (const frame of view.frames) {
    for (const [owner, by, n, moved, far] of frame.stores[store]?.moves ?? []) {
      const key = `${owner} ← ${by}`;
      const sum = sums.get(key) ?? [0, 0, 0];
      sums.set(key, [sum[0] + n, sum[1] + moved, sum[2] + far]);
    }
  }
  return sums;
}

/**
 * @param {import("../types.js").View} view
 * @param {string} store
 */
function lostOf(view, store) {
  /** @type {Record<string, number>} */
  const sums = {};
  for (const frame of view.frames) {
    for (const [owner, ns] of Object.entries(frame.stores[store]?.lost ?? {})) sums[owner] = (sums[owner] ?? 0) + ns;
  }
  return sums;
}

/**
 * @param {HTMLElement} host
 * @param {string[]} head
 * @param {Row[]} rows
 * @param {number} most
 */
function barTable(host, head, rows, most) {
  if (rows.length === 0) {
    host.replaceChildren();
    return;
  }
  const lines = rows.map((row) => {
    const bar = el("span", { class: "bar" });
    bar.style.width = `${most > 0 ? (100 * row.value) / most : 0}%`;
    const name = el("th", { scope: "row" }, el("span", { text: row.key }), el("span", { class: "track", "aria-hidden": "true" }, bar));
    return el("tr", { class: row.value > 0 ? "" : "none" }, name, ...row.cells.map((text) => el("td", { text })));
  });
  const top = el("tr", {}, ...head.map((text) => el("th", { scope: "col", text })));
  host.replaceChildren(el("table", { class: "bars" }, el("thead", {}, top), el("tbody", {}, ...lines)));
}
