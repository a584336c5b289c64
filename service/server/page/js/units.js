// @ts-check
/** Numbers as people read them: three figures, a unit, a real minus sign. */

const BYTES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
const TIMES = /** @type {const} */ ([
  [1e3, 1, "ns"],
  [1e6, 1e3, "µs"],
  [1e9, 1e6, "ms"],
  [Infinity, 1e9, "s"],
]);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/**
 * Three figures, without zeros behind the point.
 * @param {number} n
 * @returns {string}
 */
export function figures(n) {
  const size = Math.abs(n);
  if (size >= 100 || Number.isInteger(n)) return minus(whole.format(n));
  return minus(String(Number(n.toFixed(size >= 10 ? 1 : 2))));
}

/**
 * A count, with separators.
 * @param {number} n
 * @returns {string}
 */
export function count(n) {
  return minus(whole.format(n));
}

/**
 * A size or distance.
 * @param {number} n bytes, may be negative
 * @returns {string} such as "1.5 MiB"
 */
export function bytes(n) {
  let size = Math.abs(n);
  let unit = 0;
  while (size >= 1023.5 && unit < BYTES.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return minus(`${n < 0 ? "-" : ""}${figures(size)} ${BYTES[unit]}`);
}

/**
 * A distance that always has its sign.
 * @param {number} n bytes
 * @returns {string} such as "+1.5 MiB"; "0" without a unit
 */
export function signedBytes(n) {
  if (n === 0) return "0";
  return n > 0 ? `+${bytes(n)}` : bytes(n);
}

/**
 * A time span.
 * @param {number} ns nanoseconds
 * @returns {string} such as "1.45 ms"
 */
export function span(ns) {
  const size = Math.abs(ns);
  for (const [below, by, unit] of TIMES) {
    if (size < below * 0.9995) return `${figures(ns / by)} ${unit}`;
  }
  return `${figures(ns / 1e9)} s`;
}

/**
 * A share.
 * @param {number} part
 * @param {number} all 0: there is none
 * @returns {string} such as "12.5 %", "< 0.1 %", or a dash
 */
export function share(part, all) {
  if (!(all > 0)) return "–";
  const hundredths = Number(((100 * part) / all).toFixed(1));
  return part > 0 && hundredths === 0 ? "< 0.1 %" : `${figures(hundredths)} %`;
}

/**
 * Time of day in the browser's zone.
 * @param {number} ms since 1970
 * @returns {string} such as "17:05:09"
 */
export function clock(ms) {
  const at = new Date(ms);
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((n) => String(n).padStart(2, "0")).join(":");
}

/** @param {string} text */
function minus(text) {
  return text.replace("-", "−");
}
