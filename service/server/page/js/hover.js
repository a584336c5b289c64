// @ts-check
/** What lies under the pointer, for charts whose marks are too many to be single things for the library. */

import { body } from "./tooltip.js";
import { el } from "./dom.js";

/**
 * @typedef {{x: number, y: number, perX: number, perY: number}} Place where the pointer is, in the units of the axes,
 *   and how many pixels one unit takes
 * @typedef {{told: NonNullable<import("./tooltip.js").Told>, request?: number}} Hit
 */

/**
 * Shows what lies under the pointer, and follows a click on a request.
 * @param {import("../vendor/echarts.esm.min.js").Chart} chart
 * @param {HTMLElement} plot its element
 * @param {(place: Place) => Hit|null} find
 * @param {(id: number) => void} open
 */
export function hover(chart, plot, find, open) {
  const tip = el("div", { class: "tip floating", hidden: true });
  plot.append(tip);
  const at = (/** @type {MouseEvent} */ event) => {
    const pixel = [event.offsetX, event.offsetY];
    if (event.target instanceof Node && tip.contains(event.target)) return null;
    if (!chart.containPixel({ gridIndex: 0 }, pixel)) return null;
    const [x = 0, y = 0] = chart.convertFromPixel({ gridIndex: 0 }, pixel);
    const [x1 = 0, y1 = 0] = chart.convertFromPixel({ gridIndex: 0 }, [event.offsetX + 1, event.offsetY - 1]);
    return find({ x, y, perX: 1 / Math.abs(x1 - x), perY: 1 / Math.abs(y1 - y) });
  };
  plot.addEventListener("mousemove", (event) => {
    const hit = at(event);
    tip.hidden = hit === null;
    plot.classList.toggle("clickable", (hit?.request ?? 0) > 0);
    if (!hit) return;
    tip.replaceChildren(body(hit.told));
    const left = event.offsetX + 14 + tip.offsetWidth > plot.clientWidth ? event.offsetX - tip.offsetWidth - 14 : event.offsetX + 14;
    tip.style.left = `${Math.max(0, left)}px`;
    tip.style.top = `${Math.max(0, Math.min(event.offsetY + 10, plot.clientHeight - tip.offsetHeight))}px`;
  });
  plot.addEventListener("mouseleave", () => (tip.hidden = true));
  plot.addEventListener("click", (event) => {
    const id = at(event)?.request ?? 0;
    if (id > 0) open(id);
  });
}
