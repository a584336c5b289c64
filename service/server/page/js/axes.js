// @ts-check
/** Axes that all stores of a section share, and the scales that a chart library does not have. */

import { bytes, clock, signedBytes, span } from "./units.js";

const SECTOR = 512;
const TICK_BYTES = [2 ** 12, 2 ** 20, 2 ** 30, 2 ** 40];

/**
 * Place of a signed distance on a logarithmic axis that goes through 0. One step is a factor of two; distance 0 has the
 * step around 0 for itself.
 * @param {number} distance bytes
 * @returns {number}
 */
export function seekPlace(distance) {
  const size = Math.abs(distance) / SECTOR;
  return size < 1 ? 0 : Math.sign(distance) * (Math.log2(size) + 0.5);
}

/**
 * Number of the step that a cell of the histogram covers.
 * @param {number} from bytes, included
 * @param {number} to bytes, not included
 * @returns {number} 0: distance 0; negative: towards sector 0
 */
export function seekStep(from, to) {
  if (from >= 0) return from < SECTOR ? 0 : Math.round(Math.log2(from / SECTOR)) + 1;
  return -(Math.round(Math.log2(1 - to / SECTOR)) + 1);
}

/**
 * Distances that a step covers, in words.
 * @param {number} step
 * @returns {string}
 */
export function stepText(step) {
  if (step === 0) return "0";
  const low = SECTOR * 2 ** (Math.abs(step) - 1);
  const sign = step < 0 ? "−" : "+";
  return `${sign}${bytes(low)} to ${sign}${bytes(2 * low)}`;
}

/**
 * The axis of signed distances, symmetric.
 * @param {number} widest the greatest |step| on it
 * @returns {{min: number, max: number, ticks: number[], label: (at: number) => string}}
 */
export function seekAxis(widest) {
  const max = Math.max(widest, 12) + 0.5;
  const places = TICK_BYTES.filter((n) => seekPlace(n) <= max);
  // The outermost edge says how far the disk was crossed; a neighbour that is too near gives way to it.
  const edge = SECTOR * 2 ** Math.floor(max - 0.5);
  const kept = places.filter((n) => seekPlace(edge) - seekPlace(n) > 3);
  const sizes = [...kept, edge];
  const all = [...sizes.map((n) => -n), 0, ...sizes];
  const names = new Map(all.map((n) => [seekPlace(n), signedBytes(n)]));
  return { min: -max, max, ticks: [...names.keys()].sort((a, b) => a - b), label: (at) => names.get(at) ?? "" };
}

/**
 * Logarithmic axis of times; places are log10 of nanoseconds.
 * @param {number} least ns, above 0
 * @param {number} most ns
 * @returns {{min: number, max: number, ticks: number[], label: (at: number) => string}}
 */
export function timeAxis(least, most) {
  const min = Math.log10(least);
  const max = Math.max(Math.log10(most), min + 1);
  const ticks = [];
  for (let at = Math.ceil(min - 1e-9); at <= max + 1e-9; at += 1) ticks.push(at);
  return { min, max, ticks, label: (at) => span(10 ** at) };
}

/**
 * Times of day along the bottom.
 * @param {number} from ms since 1970
 * @param {number} to
 * @returns {number[]} at whole quarters of minutes, minutes or tens of minutes
 */
export function clockTicks(from, to) {
  const step = to - from > 900_000 ? 600_000 : to - from > 150_000 ? 60_000 : 15_000;
  const ticks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) ticks.push(at);
  return ticks;
}

/**
 * The axis of time that all charts over time share.
 * @param {import("./types.js").View} view
 * @param {boolean} labels
 * @returns {object} an ECharts xAxis
 */
export function clockAxis(view, labels = true) {
  const ticks = clockTicks(view.from, view.to);
  return {
    type: "value",
    min: view.from,
    max: view.to,
    axisLine: { show: true, lineStyle: { color: view.palette.line } },
    axisTick: { show: labels, customValues: ticks, lineStyle: { color: view.palette.line } },
    axisLabel: { show: labels, customValues: ticks, formatter: clock, color: view.palette.quiet, fontSize: 11, hideOverlap: true },
    splitLine: { show: false },
    axisPointer: { label: { show: false } },
  };
}

/**
 * A vertical axis in the house style.
 * @param {import("./types.js").View} view
 * @param {object} more
 * @returns {object} an ECharts yAxis
 */
export function plainAxis(view, more) {
  return {
    type: "value",
    axisLine: { show: false },
    axisTick: { show: false },
    splitLine: { show: true, lineStyle: { color: view.palette.line } },
    axisLabel: { color: view.palette.quiet, fontSize: 11, margin: 6 },
    axisPointer: { show: false },
    ...more,
  };
}

/**
 * Says 0 without a unit.
 * @param {(n: number) => string} formatter
 * @returns {(n: number) => string}
 */
export function zeroOr(formatter) {
  return (n) => (n === 0 ? "0" : formatter(n));
}

/**
 * The least round number (1, 2, 5 times a power) that is not below `n`, so that axes rest most of the time.
 * @param {number} n
 * @param {number} [base] 10, or 1024 for sizes
 * @returns {number}
 */
export function roundUp(n, base = 10) {
  if (!(n > 0)) return 1;
  if (base === 10) {
    const unit = 10 ** Math.floor(Math.log10(n));
    return unit * ([1, 2, 4, 6, 8, 10].find((f) => f * unit >= n * 0.9999) ?? 10);
  }
  return 2 ** Math.ceil(Math.log2(n));
}

/**
 * Bands where nothing is known: drawn, never bridged.
 * @param {import("./types.js").View} view
 * @param {{from: number, to: number}[]} more bands of one chart
 * @returns {object} an ECharts markArea
 */
export function gapAreas(view, more = []) {
  return {
    silent: true,
    itemStyle: { color: view.palette.gap },
    label: { show: false },
    data: [...view.gaps, ...more].map((gap) => [{ xAxis: gap.from }, { xAxis: gap.to }]),
  };
}
