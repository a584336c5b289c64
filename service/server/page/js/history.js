// @ts-check
/** The last minutes, bounded: frames as they came, fewer dots the older they are. */

/** As many frames as the service keeps. */
const FRAMES = 300;
/** Dots of one store that a young frame keeps, an older one, and how many frames are young. */
const DOTS_YOUNG = 80;
const DOTS_OLD = 16;
const YOUNG = 60;
/** A frame covers the time since the one before; after so many intervals nobody has looked meanwhile. */
const LATEST = 5;
/** Columns over the time axis. */
const COLUMNS = 60;

/** Frames of the service, and what it said of itself. */
export class History {
  constructor() {
    /** @type {import("./types.js").Hello|null} */
    this.hello = null;
    /** @type {import("./types.js").Frame[]} */
    this.frames = [];
    /** @type {Record<string, import("./types.js").Totals>} */
    this.totals = {};
    this.lastSeq = -1;
  }

  /**
   * Takes what the service says of itself.
   * @param {any} said
   * @returns {boolean} true: it is another run of the service than before, whose frames count anew
   */
  greet(said) {
    const before = this.hello;
    this.hello = {
      ...said,
      frame_ms: number(said.frame_ms) || 1000,
      owners: list(said.owners),
      operations: list(said.operations),
      stages: list(said.stages),
      trace_url: String(said.trace_url ?? ""),
      stores: list(said.stores),
    };
    const other = before !== null && before.started_unix_ms !== said.started_unix_ms && this.lastSeq >= 0;
    if (other) this.lastSeq = -1;
    return other;
  }

  /**
   * Takes a frame.
   * @param {any} raw
   */
  push(raw) {
    const seq = number(raw.seq);
    if (seq <= this.lastSeq) return;
    const before = this.frames.at(-1);
    const to = number(raw.unix_ms);
    const length = this.hello?.frame_ms ?? 1000;
    const skipped = number(raw.skipped);
    const next = before !== undefined && seq === before.seq + 1 && skipped === 0;
    const near = next && to > before.to && to - before.to <= LATEST * length;
    const from = near ? before.to : to - length;
    /** @type {Record<string, import("./types.js").StorePart>} */
    const stores = {};
    for (const [name, part] of Object.entries(raw.stores ?? {})) {
      stores[name] = storePart(part);
      if (part.totals) this.totals[name] = part.totals;
    }
    this.lastSeq = seq;
    this.frames.push({ seq, from, to, skipped, gap: before !== undefined && !near, stores });
    if (this.frames.length > FRAMES) this.frames.shift();
    this.#age();
  }

  /** Thins the dots of the frame that has just become old. */
  #age() {
    const old = this.frames.at(-YOUNG - 1);
    if (!old) return;
    for (const part of Object.values(old.stores)) thin(part, DOTS_OLD);
  }

  /**
   * What lies in a time window.
   * @param {number} ms its length
   * @param {number} until its end, ms since 1970; Infinity: now
   * @returns {Pick<import("./types.js").View, "frames"|"columns"|"gaps"|"from"|"to"|"seq">}
   */
  window(ms, until) {
    const past = this.frames.filter((frame) => frame.to <= until);
    const to = past.at(-1)?.to ?? Date.now();
    const from = to - ms;
    const frames = past.filter((frame) => frame.to > from);
    const columns = columnsOf(frames, ms, this.hello?.frame_ms ?? 1000);
    return { frames, columns, gaps: gapsOf(frames, from), from, to, seq: past.at(-1)?.seq ?? -1 };
  }
}

/**
 * Frames by the same number of neighbours, so that columns stand still while time passes.
 * @param {import("./types.js").Frame[]} frames
 * @param {number} ms
 * @param {number} frameMs
 */
function columnsOf(frames, ms, frameMs) {
  const each = Math.max(1, Math.round(ms / frameMs / COLUMNS));
  /** @type {import("./types.js").Column[]} */
  const columns = [];
  let group = NaN;
  for (const frame of frames) {
    const mine = Math.floor(frame.seq / each);
    const last = columns.at(-1);
    if (last && mine === group && !frame.gap) {
      last.to = frame.to;
      last.frames.push(frame);
    } else columns.push({ from: frame.from, to: frame.to, frames: [frame] });
    group = mine;
  }
  return columns;
}

/**
 * @param {import("./types.js").Frame[]} frames
 * @param {number} from
 */
function gapsOf(frames, from) {
  /** @type {import("./types.js").Gap[]} */
  const gaps = [];
  const first = frames[0];
  if (first && first.from > from) gaps.push({ from, to: first.from, skipped: 0, before: true });
  for (let at = 1; at < frames.length; at += 1) {
    const [before, frame] = [frames[at - 1], frames[at]];
    if (before && frame?.gap && frame.from > from) gaps.push({ from: before.to, to: frame.from, skipped: frame.skipped, before: false });
  }
  return gaps;
}

/**
 * @param {any} raw
 * @returns {import("./types.js").StorePart}
 */
function storePart(raw) {
  const doubts = Array.isArray(raw.doubts) ? raw.doubts : raw.doubts ? [raw.doubts] : [];
  /** @type {import("./types.js").StorePart} */
  const part = {
    observed: raw.observed === true,
    whyNot: String(raw.why_not ?? ""),
    doubts: doubts.map(String),
    requests: raw.requests ?? {},
    heat: list(raw.heat),
    dataRequests: number(raw.data_requests),
    sequential: number(raw.sequential),
    moves: list(raw.moves),
    lost: raw.lost_ns ?? {},
    dots: list(raw.dots),
    dotsLeftOut: number(raw.dots_left_out),
  };
  // A flush has no place on the disk.
  part.dots = part.dots.filter((dot) => dot[2] > 0);
  thin(part, DOTS_YOUNG);
  return part;
}

/**
 * Keeps a fair sample of the dots.
 * @param {import("./types.js").StorePart} part
 * @param {number} most
 */
function thin(part, most) {
  const all = part.dots.length;
  if (all <= most) return;
  part.dots = Array.from({ length: most }, (_, at) => /** @type {import("./types.js").Dot} */ (part.dots[Math.floor((at * all) / most)]));
  part.dotsLeftOut += all - most;
}

/** @param {unknown} value */
function number(value) {
  return typeof value === "number" && Number.isFinite(value) ? value : 0;
}

/**
 * @param {unknown} value
 * @returns {any[]}
 */
function list(value) {
  return Array.isArray(value) ? value : [];
}
