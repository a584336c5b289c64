// @ts-check
/** Tooltips: built from elements, because styles within markup are forbidden on this page. */

import { el } from "./dom.js";

/** @typedef {{head: string, rows: string[][], hint?: string}|null} Told */

/**
 * The tooltip of an ECharts chart over time.
 * @param {import("./types.js").View} view
 * @param {(at: number) => Told} tell what stands at a time, in ms since 1970
 * @returns {object}
 */
export function tooltip(view, tell) {
  return {
    trigger: "axis",
    confine: true,
    transitionDuration: 0,
    hideDelay: 50,
    padding: [6, 9],
    backgroundColor: view.palette.panel,
    borderColor: view.palette.quiet,
    borderWidth: 1,
    shadowBlur: 0,
    textStyle: { color: view.palette.text, fontSize: 12 },
    axisPointer: { type: "line", animation: false, lineStyle: { color: view.palette.quiet, type: "dashed" }, label: { show: false } },
    formatter(/** @type {any} */ params) {
      const first = Array.isArray(params) ? params[0] : params;
      const told = tell(Number(first?.axisValue ?? NaN));
      return told ? body(told) : "";
    },
  };
}

/**
 * What a tooltip says.
 * @param {NonNullable<Told>} told
 * @returns {HTMLElement}
 */
export function body(told) {
  const rows = told.rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row", text: name ?? "" }), el("td", { text: value ?? "" })));
  return el(
    "div",
    { class: "tip" },
    el("strong", { text: told.head }),
    el("table", {}, el("tbody", {}, ...rows)),
    told.hint ? el("em", { text: told.hint }) : null,
  );
}
