// @ts-check
/** Totals since the service started: the very numbers of /metrics, each marked with its metric's name. */

import { el, setText } from "../dom.js";
import { bytes, count } from "../units.js";

/** @typedef {{metric: string, group: string, label: string, value: number, size: boolean}} Line */

/** @type {import("../section.js").Kind<{lines: Line[]}, {keys: string[]}>} */
export const totals = {
  id: "totals",
  title: "Totals since the service started",
  height: 0,
  help: [
    "The numbers of the metrics endpoint at this moment. Block requests are those of the whole disk below the store, of all owners.",
    "Stores on one disk share its block requests. Requests from before the service started, or while a store was not observed, are not included.",
  ],
  prepare(view) {
    const stores = new Map(view.stores.map(({ name }) => [name, { lines: linesOf(name, view.totals[name]) }]));
    // The same rows in every column, so that a number has its neighbours beside it.
    const order = new Map([...stores.values()].flatMap((s) => s.lines).map((line) => [key(line), line]));
    for (const [name, data] of stores) {
      const mine = new Map(data.lines.map((line) => [key(line), line]));
      data.lines = sorted([...order.values()]).map((line) => mine.get(key(line)) ?? { ...line, metric: rename(line.metric, name), value: 0 });
    }
    return { shared: { keys: [...order.keys()] }, stores };
  },
  draw(host, data) {
    const shape = data.lines.map((line) => line.metric).join("\n");
    if (host.dataset.shape !== shape) {
      host.dataset.shape = shape;
      host.replaceChildren(el("table", { class: "totals" }, ...groups(data.lines)));
    }
    const cells = host.querySelectorAll("td");
    data.lines.forEach((line, at) => {
      const cell = cells[at];
      if (!cell || cell.dataset.value === String(line.value)) return;
      cell.dataset.value = String(line.value);
      setText(cell, line.size ? bytes(line.value) : count(line.value));
    });
  },
  summary: () => "",
  notes: () => [],
  marks: (data) => data.lines.length,
};

/** @param {Line[]} lines */
function groups(lines) {
  const names = [...new Set(lines.map((line) => line.group))];
  return names.map((group) => {
    const mine = lines.filter((line) => line.group === group);
    const rows = mine.map((line) => el("tr", {}, el("th", { scope: "row", text: line.label }), el("td", { "data-metric": line.metric })));
    return el("tbody", {}, el("tr", { class: "group" }, el("th", { scope: "rowgroup", colspan: 2, text: group })), ...rows);
  });
}

const GROUPS = ["requests", "bytes of bodies", "block requests", "bytes of block requests", "disk"];

/** @param {Line[]} lines */
function sorted(lines) {
  return GROUPS.flatMap((group) => lines.filter((line) => line.group === group));
}

/**
 * @param {string} store
 * @param {import("../types.js").Totals|undefined} totals
 * @returns {Line[]}
 */
function linesOf(store, totals) {
  if (!totals) return [];
  /** @type {Line[]} */
  const lines = [];
  const add = (/** @type {string} */ group, /** @type {string} */ label, /** @type {string} */ name, /** @type {[string, string][]} */ labels, /** @type {number} */ value, size = false) => {
    const inside = [["store", store], ...labels].map(([k, v]) => `${k}="${v}"`).join(",");
    lines.push({ metric: `${name}{${inside}}`, group, label, value, size });
  };
  for (const [method, sum] of Object.entries(totals.requests ?? {})) {
    add("requests", method, "lumpscope_requests_total", [["method", method]], sum.count);
    add("bytes of bodies", method, "lumpscope_request_body_bytes_total", [["method", method]], sum.bytes, true);
  }
  for (const [owner, operations] of Object.entries(totals.block ?? {})) {
    for (const [operation, [requests, moved]] of Object.entries(operations)) {
      const labels = /** @type {[string, string][]} */ ([["owner", owner], ["operation", operation]]);
      add("block requests", `${owner}, ${operation}`, "lumpscope_block_requests_total", labels, requests);
      if (operation !== "flush") add("bytes of block requests", `${owner}, ${operation}`, "lumpscope_block_bytes_total", labels, moved, true);
    }
  }
  add("disk", "reads and writes", "lumpscope_block_data_requests_total", [], totals.data_requests);
  add("disk", "sequential", "lumpscope_block_sequential_requests_total", [], totals.sequential);
  add("disk", "events lost", "lumpscope_lost_events_total", [], totals.lost_events);
  return lines;
}

/** @param {Line} line */
function key(line) {
  return `${line.group} ${line.label}`;
}

/** @param {string} metric @param {string} store */
function rename(metric, store) {
  return metric.replace(/store="[^"]*"/, () => `store="${store}"`);
}
