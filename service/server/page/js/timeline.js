// @ts-check
/** An explained request, drawn to scale: its stages, and under them its block requests. */

import { svg } from "./dom.js";
import { bytes, signedBytes, span } from "./units.js";

const ROW = 20;
const BAR = 13;
const LEFT = 128;
const RIGHT = 74;

/** @typedef {import("./types.js").Explained} Explained */

/**
 * Draws a request.
 * @param {Explained} r
 * @param {number} width pixels
 * @param {import("./palette.js").Palette} palette
 * @returns {SVGElement}
 */
export function timeline(r, width, palette) {
  const left = width < 560 ? 84 : LEFT;
  const right = width < 560 ? 56 : RIGHT;
  const begin = Math.min(0, ...r.blocks.map((b) => first(b) ?? 0));
  const end = Math.max(r.total_ns, ...r.blocks.map((b) => last(b) ?? 0), 1);
  const x = (/** @type {number} */ ns) => left + ((ns - begin) / (end - begin)) * (width - left - right);
  const stages = r.steps.filter((step) => !ofBlock(step.text));
  const blocks = r.blocks.filter((b) => first(b) !== null);
  const height = 30 + (stages.length + blocks.length) * ROW + 12;
  const parts = axis(begin, end, x, height, palette, width < 560 ? 3 : 6);
  let y = 30;
  for (const step of stages) {
    parts.push(...bar(x, y, step.from_ns, step.from_ns + step.took_ns, palette.stages[step.stage] ?? palette.quiet, `${step.text}: ${span(step.took_ns)}`));
    parts.push(label(left - 8, y, step.stage, palette, "end"), label(width - 4, y, span(step.took_ns), palette, "end", true));
    y += ROW;
  }
  parts.push(svg("line", { x1: 0, x2: width, y1: y + 3, y2: y + 3, stroke: palette.line }));
  y += 7;
  for (const b of blocks) {
    parts.push(...block(b, x, y, palette));
    const name = left < LEFT || b.purpose === b.operation ? b.operation : `${b.operation}, ${b.purpose}`;
    parts.push(label(left - 8, y, name, palette, "end"), label(width - 4, y, span(b.queue_ns + b.device_ns), palette, "end", true));
    y += ROW;
  }
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": "Timeline of the request; the same in words and numbers below" }, ...parts);
}

/**
 * @param {import("./types.js").Block} b
 * @param {(ns: number) => number} x
 * @param {number} y
 * @param {import("./palette.js").Palette} palette
 */
function block(b, x, y, palette) {
  const colour = palette.stages[b.purpose === "data" ? "device" : b.operation === "flush" ? "flush" : "write"];
  const parts = [];
  const title = `${b.operation} of ${bytes(b.sectors * 512)} at sector ${b.sector}` + (b.seek_bytes === null ? "" : `, seek ${signedBytes(b.seek_bytes)}`);
  const [queued, issued, done] = [b.queued_at_ns, b.issued_at_ns, b.done_at_ns];
  if (queued !== null && issued !== null) parts.push(...bar(x, y, queued, issued, palette.stages.queue ?? "", `${title}: waited ${span(b.queue_ns)}`, 0.75));
  if (issued !== null && done !== null) parts.push(...bar(x, y, issued, done, colour ?? "", `${title}: ${span(b.device_ns)} at the device`));
  else if (queued !== null && done !== null) parts.push(...bar(x, y, queued, done, palette.quiet, title));
  else parts.push(svg("circle", { cx: x(first(b) ?? 0), cy: y + BAR / 2, r: 3, fill: palette.quiet }, svg("title", { text: title })));
  return parts;
}

/**
 * @param {(ns: number) => number} x
 * @param {number} y
 * @param {number} from
 * @param {number} to
 * @param {string} fill
 * @param {string} title
 * @param {number} [opacity]
 */
function bar(x, y, from, to, fill, title, opacity = 1) {
  const wide = Math.max(x(to) - x(from), 1.5);
  return [svg("rect", { x: x(from), y, width: wide, height: BAR, rx: 1.5, fill, "fill-opacity": opacity }, svg("title", { text: title }))];
}

/**
 * @param {number} x
 * @param {number} y
 * @param {string} text
 * @param {import("./palette.js").Palette} palette
 * @param {string} anchor
 * @param {boolean} [quiet]
 */
function label(x, y, text, palette, anchor, quiet = false) {
  return svg("text", { x, y: y + BAR - 2.5, "text-anchor": anchor, "font-size": 12, fill: quiet ? palette.quiet : palette.text, text });
}

/**
 * @param {number} begin
 * @param {number} end
 * @param {(ns: number) => number} x
 * @param {number} height
 * @param {import("./palette.js").Palette} palette
 * @param {number} about how many ticks
 */
function axis(begin, end, x, height, palette, about) {
  const rough = (end - begin) / about;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = unit * ([1, 2, 5, 10].find((n) => n * unit >= rough) ?? 10);
  const parts = [];
  for (let at = Math.ceil(begin / step) * step; at <= end; at += step) {
    parts.push(svg("line", { x1: x(at), x2: x(at), y1: 22, y2: height - 4, stroke: palette.line }));
    parts.push(svg("text", { x: x(at), y: 14, "text-anchor": "middle", "font-size": 11, fill: palette.quiet, text: at === 0 ? "0" : span(at) }));
  }
  return parts;
}

/** Steps of block requests are drawn as block requests. @param {string} text */
function ofBlock(text) {
  return / at sector \d|^flush of the disk's cache/.test(text);
}

/** @param {import("./types.js").Block} b */
function first(b) {
  return b.queued_at_ns ?? b.issued_at_ns ?? b.done_at_ns;
}

/** @param {import("./types.js").Block} b */
function last(b) {
  return b.done_at_ns ?? b.issued_at_ns ?? b.queued_at_ns;
}
