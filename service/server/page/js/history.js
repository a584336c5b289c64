// @ts-check
/**
 * The last hour, bounded: frames of a second as they came, fewer dots the older they are, and frames of ten seconds for
 * the time when no page was open.
 */

/** As many frames as the service keeps. */
const FRAMES = 300;
/** Dots of one store that a young frame keeps, an older one, and how many frames are young. */
const DOTS_YOUNG = 80;
const DOTS_OLD = 16;
const YOUNG = 60;
/** As many frames of the past as the service keeps. */
const PAST = 360;
/** Columns over the time axis. */
const COLUMNS = 60;

/** @typedef {import("./types.js").Frame} Frame */

/** Frames of the service, and what it said of itself. */
export class History {
  constructor() {
    /** @type {import("./types.js").Hello|null} */
    this.hello = null;
    /** @type {import("./types.js").Frame[]} */
    this.frames = [];
    /** Frames that the service made whether a page was open or not. @type {import("./types.js").Frame[]} */
    this.past = [];
    /** @type {Record<string, import("./types.js").Totals>} */
    this.totals = {};
    this.lastSeq = -1;
    this.lastPast = 0;
    /** The service has told of the time before the page was opened. */
    this.knowsPast = false;
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
    if (other) {
      this.lastSeq = -1;
      this.lastPast = 0;
      this.knowsPast = false;
    }
    return other;
  }

  /**
   * Takes a frame.
   * @param {any} raw
   */
  push(raw) {
    const seq = number(raw.seq);
    if (seq <= this.lastSeq) return;
    for (const [name, part] of Object.entries(raw.stores ?? {})) if (part.totals) this.totals[name] = part.totals;
    this.lastSeq = seq;
    this.frames.push(frameOf(raw));
    if (this.frames.length > FRAMES) this.frames.shift();
    this.#age();
  }

  /**
   * Takes frames of the past.
   * @param {any[]} raw oldest first
   */
  remember(raw) {
    this.knowsPast = true;
    for (const frame of raw.map(frameOf).filter(({ seq }) => seq > this.lastPast)) {
      this.lastPast = frame.seq;
      this.past.push({ ...frame, past: true });
    }
    this.past.splice(0, Math.max(0, this.past.length - PAST));
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
   * @returns {Pick<import("./types.js").View, "frames"|"columns"|"each"|"gaps"|"from"|"to"|"seq">}
   */
  window(ms, until) {
    const last = this.frames.findLast((frame) => frame.to <= until);
    const to = last?.to ?? this.past.findLast((frame) => frame.to <= until)?.to ?? Date.now();
    const from = to - ms;
    const inside = (/** @type {Frame} */ frame) => frame.to > from && frame.to <= to;
    const length = this.hello?.frame_ms ?? 1000;
    const frames = joined(this.past.filter(inside), this.frames.filter(inside), length);
    const each = Math.max(ms / COLUMNS, length);
    const gaps = gapsOf(frames, from, this.hello?.past_frame_ms || 10_000);
    return { frames, columns: columnsOf(frames, each, length), each, gaps, from, to, seq: last?.seq ?? -1 };
  }
}

/**
 * Frames of a second where they tell of all of the time, and those of the past for the rest.
 * @param {Frame[]} past
 * @param {Frame[]} fine
 * @param {number} frameMs length of a fine one
 * @returns {Frame[]} in the order of time, each with its gap
 */
function joined(past, fine, frameMs) {
  const within = (/** @type {Frame} */ f, /** @type {Frame} */ p) => p.from < (f.from + f.to) / 2 && (f.from + f.to) / 2 <= p.to;
  const covered = (/** @type {Frame} */ p) => fine.reduce((sum, f) => sum + Math.max(0, Math.min(f.to, p.to) - Math.max(f.from, p.from)), 0);
  const kept = past.filter((p) => covered(p) < p.to - p.from - 1.5 * frameMs);
  const rest = fine.filter((f) => !kept.some((p) => within(f, p)));
  const dotted = kept.map((p) => withDots(p, fine.filter((f) => within(f, p))));
  const all = [...dotted, ...rest].sort((a, b) => a.to - b.to);
  return all.map((frame, at) => {
    const before = all[at - 1];
    return { ...frame, gap: before !== undefined && (frame.skipped > 0 || frame.from - before.to > 2 * frameMs) };
  });
}

/**
 * A frame of the past with the dots of those that it stands for.
 * @param {Frame} past
 * @param {Frame[]} fine
 * @returns {Frame}
 */
function withDots(past, fine) {
  const parts = Object.entries(past.stores).map(([name, part]) => {
    const dots = fine.flatMap((frame) => frame.stores[name]?.dots ?? []);
    return [name, { ...part, dots, dotsLeftOut: Math.max(0, part.dataRequests - dots.length) }];
  });
  return { ...past, dotless: fine[0]?.from ?? past.to, stores: Object.fromEntries(parts) };
}

/**
 * Frames by the time they end in, so that columns stand still while time passes; in a short window each for itself.
 * @param {Frame[]} frames
 * @param {number} each length of a column
 * @param {number} frameMs
 */
function columnsOf(frames, each, frameMs) {
  /** @type {import("./types.js").Column[]} */
  const columns = [];
  let group = NaN;
  for (const frame of frames) {
    const mine = each <= frameMs ? frame.to : Math.floor(frame.to / each);
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
 * @param {number} pastMs length of a frame of the past
 */
function gapsOf(frames, from, pastMs) {
  /** @type {import("./types.js").Gap[]} */
  const gaps = [];
  const first = frames[0];
  if (first && first.from > from) gaps.push({ from, to: first.from, skipped: 0, before: true, comes: false });
  for (let at = 1; at < frames.length; at += 1) {
    const [before, frame] = [frames[at - 1], frames[at]];
    if (!before || !frame?.gap || frame.from <= from) continue;
    // A frame of the past ends after the page was opened: it tells of the time before, and has not come yet.
    const young = (frames.at(-1)?.to ?? 0) - frame.from < 2 * pastMs;
    const comes = before.past && !frame.past && young;
    gaps.push({ from: before.to, to: frame.from, skipped: frame.skipped, before: false, comes });
  }
  return gaps;
}

/**
 * @param {any} raw
 * @returns {Frame}
 */
function frameOf(raw) {
  const parts = Object.entries(raw.stores ?? {}).map(([name, part]) => [name, storePart(part)]);
  return { seq: number(raw.seq), from: number(raw.from_unix_ms), to: number(raw.unix_ms), skipped: number(raw.skipped), gap: false, past: false, dotless: 0, stores: Object.fromEntries(parts) };
}

/**
 * @param {any} raw
 * @returns {import("./types.js").StorePart}
 */
function storePart(raw) {
  const doubts = Array.isArray(raw.doubts) ? raw.doubts : raw.doubts ? [raw.doubts] : [];
  /** @type {import("./types.js").StorePart} */
  const part = {
    health: { state: String(raw.health?.state ?? ""), why: String(raw.health?.why ?? ""), numbers: raw.health?.numbers ?? null, firing: list(raw.health?.firing) },
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
