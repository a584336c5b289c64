// @ts-check
/**
 * Colours of the charts in both themes. Owners are told apart by people who cannot tell colours apart, too: hues after
 * Okabe and Ito, and a shape each, each with at least 3:1 to its background. The least step of the ramp has 2:1: it is one request among many.
 */

/**
 * @typedef {object} Palette
 * @property {boolean} dark
 * @property {string} text
 * @property {string} quiet
 * @property {string} line
 * @property {string} panel
 * @property {string} gap
 * @property {Record<string, string>} owners by kind of `KINDS`
 * @property {Record<string, string>} stages
 * @property {Record<string, string>} methods
 * @property {string[]} ramp few to many
 */

/**
 * Kinds of block requests as the charts show them.
 * @type {readonly {id: string, label: string, symbol: string}[]}
 */
export const KINDS = [
  { id: "put", label: "request, write (put)", symbol: "circle" },
  { id: "get", label: "request, read (get)", symbol: "triangle" },
  { id: "store", label: "store", symbol: "diamond" },
  { id: "fs-journal", label: "fs-journal", symbol: "rect" },
  { id: "fs-metadata", label: "fs-metadata", symbol: "plus" },
  { id: "writeback", label: "writeback", symbol: "down" },
  { id: "other", label: "other", symbol: "cross" },
];

/** @type {Palette} */
const LIGHT = {
  dark: false,
  text: "#1b2430",
  quiet: "#55606f",
  line: "#dfe4ea",
  panel: "#ffffff",
  gap: "rgba(85,96,111,0.09)",
  owners: {
    put: "#0a66b0",
    get: "#d1560a",
    store: "#008a66",
    "fs-journal": "#b8478f",
    "fs-metadata": "#a87900",
    writeback: "#6f57c8",
    other: "#5c6570",
  },
  stages: {
    recv: "#8492a3",
    sched: "#a87900",
    index: "#6f57c8",
    submit: "#2f8f8e",
    queue: "#d1560a",
    device: "#0a66b0",
    journal: "#7a2b5e",
    wait: "#8a6d3b",
    write: "#b8478f",
    flush: "#c2415a",
    reply: "#4d5a68",
  },
  methods: { put: "#0a66b0", get: "#d1560a", delete: "#008a66", other: "#5c6570" },
  ramp: ["#93c0e3", "#6fa8d6", "#4b8dc6", "#2f72b0", "#1f5893", "#194274", "#152a55"],
};

/** @type {Palette} */
const DARK = {
  dark: true,
  text: "#e6ebf2",
  quiet: "#a3afbf",
  line: "#2b3441",
  panel: "#171d26",
  gap: "rgba(163,175,191,0.09)",
  owners: {
    put: "#56b4f5",
    get: "#ff9248",
    store: "#2fcf9f",
    "fs-journal": "#f08cc8",
    "fs-metadata": "#ecc94b",
    writeback: "#a996ff",
    other: "#a3afbf",
  },
  stages: {
    recv: "#8b99ab",
    sched: "#ecc94b",
    index: "#a996ff",
    submit: "#5cc9c6",
    queue: "#ff9248",
    device: "#4da6ea",
    journal: "#c77dff",
    wait: "#cfae7a",
    write: "#f08cc8",
    flush: "#ff7a8c",
    reply: "#c5cedb",
  },
  methods: { put: "#56b4f5", get: "#ff9248", delete: "#2fcf9f", other: "#a3afbf" },
  ramp: ["#2f5c8a", "#2a7b9e", "#289aa6", "#43b594", "#7fcc78", "#c4de60", "#fdea68"],
};

/**
 * The palette of a theme.
 * @param {boolean} dark
 * @returns {Palette}
 */
export function paletteOf(dark) {
  return dark ? DARK : LIGHT;
}

/**
 * Kind of a block request.
 * @param {string} owner its class
 * @param {string} operation
 * @returns {string} id of one of `KINDS`
 */
export function kindOf(owner, operation) {
  if (owner === "request") return operation === "read" ? "get" : "put";
  return KINDS.some((kind) => kind.id === owner) ? owner : "other";
}

/**
 * Colour for a count: logarithmic, so that one request among thousands is still seen.
 * @param {string[]} ramp
 * @param {number} n at least 1
 * @param {number} most the greatest count on the same axes
 * @returns {string}
 */
export function rampColour(ramp, n, most) {
  const part = most <= 1 ? 0 : Math.log(n) / Math.log(most);
  return ramp[Math.min(ramp.length - 1, Math.floor(part * ramp.length))] ?? "#888";
}
