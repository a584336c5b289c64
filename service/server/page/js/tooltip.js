// @ts-check
/** The tooltip of all charts: built from elements, because styles within markup are forbidden on this page. */

import { el } from "./dom.js";

/** @typedef {{head: string, rows: string[][], hint?: string}|null} Told */

/**
 * A tooltip of an ECharts chart.
 * @param {import("./types.js").View} view
 * @param {"axis"|"item"} trigger
 * @param {(at: number, data: any) => Told} tell what stands at a place of the axis (ms since 1970), or of an item
 * @returns {object}
 */
export function tooltip(view, trigger, tell) {
  return {
    trigger,
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
      const told = tell(Number(first?.axisValue ?? NaN), first?.data);
      return told ? body(told) : "";
    },
  };
}

/** @param {NonNullable<Told>} told */
function body(told) {
  const rows = told.rows.map(([name, value]) => el("tr", {}, el("th", { scope: "row", text: name ?? "" }), el("td", { text: value ?? "" })));
  return el(
    "div",
    { class: "tip" },
    el("strong", { text: told.head }),
    el("table", {}, el("tbody", {}, ...rows)),
    told.hint ? el("em", { text: told.hint }) : null,
  );
}
