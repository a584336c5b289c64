// @ts-check
/** Cells and dots for ECharts: all of one colour are one shape, because thousands of shapes a second cost too much. */

import { graphic } from "../vendor/echarts.esm.min.js";
import { rampColour } from "./palette.js";

/** @typedef {{x0: number, x1: number, y0: number, y1: number, n: number}} Cell a rectangle in the units of the axes, and its count */

graphic.registerShape(
  "cells",
  graphic.extendShape({
    shape: { rects: [] },
    buildPath(/** @type {CanvasRenderingContext2D} */ path, /** @type {{rects: number[][]}} */ shape) {
      for (const [x = 0, y = 0, w = 0, h = 0] of shape.rects) path.rect(x, y, w, h);
    },
  }),
);

/**
 * How each symbol is drawn, about (x, y) with a radius.
 * @type {Record<string, (path: CanvasRenderingContext2D, x: number, y: number, r: number) => void>}
 */
const SYMBOLS = {
  circle: (path, x, y, r) => (path.moveTo(x + r, y), path.arc(x, y, r, 0, 2 * Math.PI)),
  triangle: (path, x, y, r) => corners(path, x, y, r, [0, -1, 1, 0.8, -1, 0.8]),
  down: (path, x, y, r) => corners(path, x, y, r, [0, 1, 1, -0.8, -1, -0.8]),
  diamond: (path, x, y, r) => corners(path, x, y, r, [0, -1.2, 1.2, 0, 0, 1.2, -1.2, 0]),
  rect: (path, x, y, r) => path.rect(x - r, y - r, 2 * r, 2 * r),
  plus: (path, x, y, r) => (path.rect(x - r, y - r * 0.35, 2 * r, r * 0.7), path.rect(x - r * 0.35, y - r, r * 0.7, 2 * r)),
  cross: (path, x, y, r) => corners(path, x, y, r, [-1, -0.6, -0.6, -1, 0, -0.4, 0.6, -1, 1, -0.6, 0.4, 0, 1, 0.6, 0.6, 1, 0, 0.4, -0.6, 1, -1, 0.6, -0.4, 0]),
};

graphic.registerShape(
  "dots",
  graphic.extendShape({
    shape: { places: new Float64Array(), symbol: "circle", r: 2 },
    buildPath(/** @type {CanvasRenderingContext2D} */ path, /** @type {{places: Float64Array, symbol: string, r: number}} */ shape) {
      const draw = SYMBOLS[shape.symbol] ?? SYMBOLS.circle;
      for (let at = 0; at < shape.places.length; at += 2) draw?.(path, shape.places[at] ?? 0, shape.places[at + 1] ?? 0, shape.r);
    },
  }),
);

/**
 * A series that paints dots.
 * @param {{places: Float64Array, colour: string, symbol: string, r: number}[]} groups places: x and y of each dot in
 *   turn, in the units of the axes; r: radius in pixels
 * @param {import("./types.js").View} view
 * @returns {object} of ECharts
 */
export function dotSeries(groups, view) {
  return {
    id: "dots",
    type: "custom",
    silent: true,
    clip: true,
    data: groups.map(() => [view.from, 0]),
    renderItem(/** @type {any} */ params, /** @type {any} */ api) {
      const group = groups[params.dataIndex];
      if (!group || group.places.length === 0) return null;
      // Both axes are linear: two points say where all others are.
      const [x0, y0] = api.coord([view.from, 0]);
      const [x1, y1] = api.coord([view.to, 2 ** 30]);
      const places = group.places.map((n, at) =>
        at % 2 === 0 ? x0 + ((n - view.from) / (view.to - view.from)) * (x1 - x0) : y0 + (n / 2 ** 30) * (y1 - y0),
      );
      return { type: "dots", shape: { places, symbol: group.symbol, r: group.r }, style: { fill: group.colour } };
    },
  };
}

/**
 * A series that paints cells.
 * @param {Cell[]} cells
 * @param {number} most the greatest count on the same scale
 * @param {import("./types.js").View} view
 * @returns {object} of ECharts
 */
export function cellSeries(cells, most, view) {
  const { ramp } = view.palette;
  /** @type {Map<string, Cell[]>} */
  const byColour = new Map(ramp.map((colour) => [colour, []]));
  for (const cell of cells) byColour.get(rampColour(ramp, cell.n, most))?.push(cell);
  return {
    id: "cells",
    type: "custom",
    silent: true,
    clip: true,
    data: ramp.map(() => [view.from, 0]),
    renderItem(/** @type {any} */ params, /** @type {any} */ api) {
      const colour = ramp[params.dataIndex] ?? "";
      const rects = (byColour.get(colour) ?? []).map((cell) => rect(cell, api));
      return { type: "cells", shape: { rects }, style: { fill: colour } };
    },
  };
}

/**
 * @param {Cell} cell
 * @param {any} api
 */
function rect(cell, api) {
  const [left, low] = api.coord([cell.x0, cell.y0]);
  const [right, high] = api.coord([cell.x1, cell.y1]);
  return [left, high, Math.max(right - left - 0.4, 1), Math.max(low - high - 0.4, 1)];
}

/**
 * Filling closes it; closing thousands of them by hand costs more than all the rest.
 * @param {CanvasRenderingContext2D} path
 * @param {number} x
 * @param {number} y
 * @param {number} r
 * @param {number[]} at corners in radii: x and y in turn
 */
function corners(path, x, y, r, at) {
  for (let n = 0; n < at.length; n += 2) {
    const [px, py] = [x + r * (at[n] ?? 0), y + r * (at[n + 1] ?? 0)];
    if (n === 0) path.moveTo(px, py);
    else path.lineTo(px, py);
  }
}
