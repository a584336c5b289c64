// @ts-check
/** Sectors over time, as seekwatcher drew them: a dot for each block request, coloured by whose it is. */

import { clockAxis, gapAreas, plainAxis, roundUp, zeroOr } from "../axes.js";
import { dotSeries } from "../marks.js";
import { blockNotes, silence } from "../measure.js";
import { KINDS, kindOf } from "../palette.js";
import { bytes, clock, count, signedBytes, span } from "../units.js";

const SECTOR = 512;

/** How far from the pointer a dot may be, in pixels. */
const NEAR = 8;

/** @typedef {import("../types.js").Dot} Dot */

/** @type {import("../section.js").Kind<{points: Record<string, Dot[]>, n: number, leftOut: number}, {low: number, high: number, kinds: string[]}>} */
export const sectors = {
  id: "sectors",
  title: "Where the head goes",
  height: 280,
  help: [
    "Each dot is a block request: when it completed, and where on the disk it began, 0 at the bottom. Colour and shape say for whom. A rising line is sequential writing; dots of another colour far away pull the head from it. Click a dot of a request to have that request explained.",
    "Dots are a fair sample when there are many, fewer the older they are; the line above them says how many are left out. Flushes have no place and are not shown. On flash, or below a RAID controller, the place says little about distance.",
  ],
  choices: [
    ["used", "in use"],
    ["whole", "whole disk"],
  ],
  prepare(view) {
    const shared = { low: Infinity, high: 0, kinds: /** @type {string[]} */ ([]) };
    const stores = new Map(view.stores.map(({ name }) => [name, pointsOf(view, name, shared)]));
    shared.kinds = KINDS.map((kind) => kind.id).filter((id) => [...stores.values()].some((s) => (s.points[id]?.length ?? 0) > 0));
    const whole = Math.max(0, ...view.stores.map((store) => (store.device_sectors ?? 0) * SECTOR));
    if (view.choices.sectors === "whole" && whole > 0) [shared.low, shared.high] = [0, whole];
    else [shared.low, shared.high] = rounded(shared.low, shared.high);
    return { shared, stores };
  },
  legend: (view, shared) => KINDS.filter((kind) => shared.kinds.includes(kind.id)).map((kind) => ({ label: kind.label, colour: view.palette.owners[kind.id] ?? "", symbol: kind.symbol })),
  option(data, shared, view) {
    const groups = KINDS.map(({ id, symbol }) => {
      const often = id === "put" || id === "get";
      return { places: flat(data.points[id] ?? []), colour: view.palette.owners[id] ?? "", symbol, r: often ? 2.2 : 3.2 };
    });
    const step = (shared.high - shared.low) / 4;
    const ticks = [0, 1, 2, 3, 4].map((n) => shared.low + n * step);
    const label = { color: view.palette.quiet, fontSize: 11, margin: 6, customValues: ticks, formatter: zeroOr(bytes) };
    return {
      grid: { left: 62, right: 10, top: 10, height: 240 },
      xAxis: clockAxis(view),
      yAxis: plainAxis(view, { min: shared.low, max: shared.high, axisLabel: label, axisTick: { show: false, customValues: ticks }, interval: step }),
      series: [
        dotSeries(groups, view),
        { id: "gaps", type: "line", data: [], silent: true, markArea: gapAreas(view, withoutDots(view)) },
      ],
    };
  },
  summary(data, _shared, view, store) {
    if (data.n === 0) return silence(view, store.name, "No block request with a place in this time.");
    const told = KINDS.map(({ id }) => ({ id, n: data.points[id]?.length ?? 0 })).filter(({ n }) => n > 0);
    const left = data.leftOut > 0 ? ` ${count(data.leftOut)} more are left out.` : "";
    return `${count(data.n)} dots from ${bytes(least(data))} to ${bytes(greatest(data))}: ${told.map(({ id, n }) => `${id} ${count(n)}`).join(", ")}.${left}`;
  },
  table(data, _shared, view) {
    const all = Object.values(data.points).flat().sort((a, b) => b[0] - a[0]).slice(0, 50);
    return {
      head: ["time", "whose", "operation", "sector", "length", "seek", "at the device", "request"],
      rows: all.map((d) => [clock(d[0]), owner(view, d) + doubt(d), operation(view, d), String(d[1]), bytes(d[2] * SECTOR), d[5] === null ? "–" : signedBytes(d[5]), d[6] === null ? "–" : span(d[6]), d[7] > 0 ? { text: String(d[7]), href: `#request=${d[7]}` } : "–"]),
    };
  },
  notes(view, store) {
    const last = withoutDots(view).at(-1);
    return [...blockNotes(view, store), ...(last ? [`No dots until ${clock(last.to)}: they are made while a page is open.`] : [])];
  },
  marks: (data) => data.n,
  hit(place, data, view) {
    let [nearest, best] = [/** @type {Dot|null} */ (null), NEAR];
    for (const dot of Object.values(data.points).flat()) {
      const far = Math.hypot((dot[0] - place.x) * place.perX, (dot[1] * SECTOR - place.y) * place.perY);
      if (far < best) [nearest, best] = [dot, far];
    }
    return nearest && { told: told(view, nearest), request: nearest[7] };
  },
};

/**
 * Times in which no page was open.
 * @param {import("../types.js").View} view
 */
function withoutDots(view) {
  return view.frames.filter(({ past, dotless }) => past && dotless > view.from).map(({ from, dotless }) => ({ from, to: dotless }));
}

/**
 * @param {import("../types.js").View} view
 * @param {string} store
 * @param {{low: number, high: number}} shared
 */
function pointsOf(view, store, shared) {
  /** @type {Record<string, Dot[]>} */
  const points = {};
  let [n, leftOut] = [0, 0];
  for (const frame of view.frames) {
    const part = frame.stores[store];
    leftOut += part?.dotsLeftOut ?? 0;
    for (const dot of part?.dots ?? []) {
      const place = dot[1] * SECTOR;
      (points[kindOf(owner(view, dot), operation(view, dot))] ??= []).push(dot);
      shared.low = Math.min(shared.low, place);
      shared.high = Math.max(shared.high, place);
      n += 1;
    }
  }
  return { points, n, leftOut };
}

/**
 * A range that holds all and rests most of the time.
 * @param {number} low
 * @param {number} high
 * @returns {[number, number]}
 */
function rounded(low, high) {
  if (!Number.isFinite(low)) return [0, 2 ** 30];
  const step = roundUp(Math.max(high - low, 2 ** 20), 1024) / 4;
  const from = Math.floor(low / step) * step;
  return [from, from + Math.ceil((high + 1 - from) / step / 4) * 4 * step];
}

/** @param {import("../types.js").View} view @param {Dot} dot */
function owner(view, dot) {
  return view.hello.owners[dot[3]] ?? "other";
}

/** @param {import("../types.js").View} view @param {Dot} dot */
function operation(view, dot) {
  return view.hello.operations[dot[4]] ?? "other";
}

/** @param {{points: Record<string, Dot[]>}} data */
function least(data) {
  return Object.values(data.points).reduce((low, points) => points.reduce((n, dot) => Math.min(n, dot[1] * SECTOR), low), Infinity);
}

/** @param {{points: Record<string, Dot[]>}} data */
function greatest(data) {
  return Object.values(data.points).reduce((high, points) => points.reduce((n, dot) => Math.max(n, dot[1] * SECTOR), high), 0);
}

/**
 * Times and places, in turn.
 * @param {Dot[]} dots
 * @returns {Float64Array}
 */
function flat(dots) {
  const places = new Float64Array(dots.length * 2);
  dots.forEach((dot, at) => places.set([dot[0], dot[1] * SECTOR], at * 2));
  return places;
}

/** @param {Dot} dot */
function doubt(dot) {
  return dot[8] ? ", not certain" : "";
}

/** @param {import("../types.js").View} view @param {Dot} dot */
function whose(view, dot) {
  return owner(view, dot) + (dot[7] > 0 ? ` ${dot[7]}` : "") + doubt(dot);
}

/** @param {import("../types.js").View} view @param {Dot} dot */
function told(view, dot) {
  const rows = [
    ["whose", whose(view, dot)],
    ["sector", `${dot[1]} (${bytes(dot[1] * SECTOR)})`],
    ["seek", dot[5] === null ? "unknown" : signedBytes(dot[5])],
    ["at the device", dot[6] === null ? "not seen" : span(dot[6])],
  ];
  const head = `${clock(dot[0])}  ${operation(view, dot)} of ${bytes(dot[2] * SECTOR)}`;
  return { head, rows, hint: dot[7] > 0 ? "Click: explain this request" : undefined };
}
