// @ts-check
/** What each store is, how it is, whether it is observed, and its numbers of now. */

import { el, setText } from "../dom.js";
import { METHODS, lamp, newest, quantile, requestsOf, seconds } from "../measure.js";
import { bytes, clock, count, figures, share, span } from "../units.js";

/** Rates are means of so many milliseconds, so that they can be read. */
const NOW_MS = 5_000;
/** Shares from which on room is scarce, as the alerts have it. */
const JOURNAL_FULL = 0.8;
const DATA_FULL = 0.9;

/**
 * @typedef {object} Card
 * @property {[string, string, string][]} tiles name, label, value
 * @property {[string, string, string, number|null, number][]} room name, label, value, how full, and from where on that is too full
 * @property {string} facts
 * @property {import("../types.js").StorePart|null} part
 * @property {string[]} words
 */

/** @type {import("../section.js").Kind<Card, null>} */
export const stores = {
  id: "stores",
  title: "Stores",
  height: 0,
  help: [
    "A store is green while it serves and no condition of the alerts holds. Conditions are those of dashboards/prometheus/alerts.yml without their waiting times, by the names of the alerts; docs/runbooks has a page for each.",
    "Rates and travel are means of the last five seconds, percentiles are of the whole time window. Travel is the sum of all seek distances, without their signs; sequential is the share of reads and writes that began where the one before ended.",
    "A store is observed when every block request of its disk is seen. When it is not, requests are still timed, and everything about the disk is missing or incomplete, as the card says.",
  ],
  prepare: (view) => ({ shared: null, stores: new Map(view.stores.map((store) => [store.name, cardOf(view, store)])) }),
  draw(host, card) {
    if (!host.firstChild) host.append(...skeleton(card));
    const [facts, badges, why, firing, , , words] = host.children;
    const [state, observed] = badges?.children ?? [];
    if (!facts || !why || !firing || !words || !state || !observed) return;
    const { part } = card;
    setText(facts, card.facts);
    setText(state, part?.health.state || "no frame yet");
    state.className = `badge ${part ? lamp(part.health) : "unknown"}`;
    state.setAttribute("data-state", part?.health.state ?? "");
    setText(observed, part === null ? "" : part.observed ? "observed" : "not observed");
    observed.className = `badge ${part?.observed ? "good" : "warn"}`;
    setText(why, part?.health.why ?? "");
    list(firing, part?.health.firing.map(({ alert, text }) => [alert, text]) ?? []);
    [...card.tiles, ...card.room].forEach(([id, , value]) => setText(/** @type {Element} */ (host.querySelector(`dd[data-tile="${id}"] span`)), value));
    card.room.forEach(([id, , , full]) => {
      const meter = host.querySelector(`meter[data-of="${id}"]`);
      if (meter instanceof HTMLMeterElement) meter.value = full ?? 0;
    });
    list(words, card.words.map((text) => ["", text]));
  },
  summary: () => "",
  notes: () => [],
  marks: (card) => card.tiles.length + card.room.length,
};

/** @param {Card} card */
function skeleton(card) {
  const tile = (/** @type {string} */ id, /** @type {string} */ label, /** @type {Element|null} */ more) => el("div", { class: "tile" }, el("dt", { text: label }), el("dd", { data: { tile: id } }, el("span"), more));
  const meter = (/** @type {string} */ id, /** @type {string} */ label, /** @type {number} */ high) => el("meter", { min: 0, max: 1, high, optimum: 0, "aria-label": label, data: { of: id } });
  return [
    el("p", { class: "facts" }),
    el("p", { class: "state" }, el("span", { class: "badge" }), el("span", { class: "badge" })),
    el("p", { class: "why" }),
    el("ul", { class: "firing" }),
    el("dl", { class: "tiles" }, ...card.tiles.map(([id, label]) => tile(id, label, null))),
    el("dl", { class: "tiles room" }, ...card.room.map(([id, label, , full, high]) => tile(id, label, full === null ? null : meter(id, label, high)))),
    el("ul", { class: "words" }),
  ];
}

/**
 * @param {Element} host
 * @param {[string, string][]} items alert and text
 */
function list(host, items) {
  if (host.textContent === items.map(([alert, text]) => alert + text).join("")) return;
  host.replaceChildren(...items.map(([alert, text]) => el("li", { data: { alert } }, alert ? el("b", { text: alert }) : null, text)));
}

/**
 * @param {import("../types.js").View} view
 * @param {import("../types.js").StoreInfo} store
 * @returns {Card}
 */
function cardOf(view, store) {
  const last = view.frames.filter((frame) => frame.to > view.to - NOW_MS);
  const long = Math.max(seconds(last), 0.001);
  const part = newest(view, store.name);
  const now = Object.fromEntries(METHODS.map((m) => [m, requestsOf(last, store.name, m)]));
  const flow = METHODS.reduce((sum, m) => sum + (now[m]?.bytes ?? 0), 0) / long;
  let [travel, data, sequential, lost] = [0, 0, 0, 0];
  for (const frame of last) {
    for (const move of frame.stores[store.name]?.moves ?? []) travel += move[4];
    data += frame.stores[store.name]?.dataRequests ?? 0;
    sequential += frame.stores[store.name]?.sequential ?? 0;
    for (const ns of Object.values(frame.stores[store.name]?.lost ?? {})) lost += ns;
  }
  const p99 = (/** @type {string} */ m) => {
    const ns = quantile(requestsOf(view.frames, store.name, m).latency, 0.99);
    return ns === null ? "–" : span(ns);
  };
  const seen = part?.observed === true;
  return {
    tiles: [
      ["put-rate", "puts", last.length > 0 ? `${figures((now.put?.count ?? 0) / long)}/s` : "–"],
      ["put-p99", "put p99", p99("put")],
      ["get-rate", "gets", last.length > 0 ? `${figures((now.get?.count ?? 0) / long)}/s` : "–"],
      ["get-p99", "get p99", p99("get")],
      ["flow", "bodies", last.length > 0 ? `${bytes(flow)}/s` : "–"],
      ["travel", "head travel", seen ? `${bytes(travel / long)}/s` : "–"],
      ["sequential", "sequential", seen ? share(sequential, data) : "–"],
      ["lost", "lost to others", seen ? `${span(lost / long)}/s` : "–"],
    ],
    room: roomOf(part?.health.numbers ?? null),
    facts: [store.layout, store.device || "disk unknown", store.backend, store.path].filter((text) => text).join(" · "),
    part,
    words: part === null ? [] : [...spots(part.health.numbers), ...(part.observed ? part.doubts : [part.whyNot || "No reason was given."])],
  };
}

/**
 * @param {import("../types.js").Numbers|null} n null: the store is not open
 * @returns {Card["room"]}
 */
function roomOf(n) {
  const ratio = (/** @type {number} */ part, /** @type {number} */ all) => (all > 0 ? part / all : 0);
  const told = (/** @type {(n: import("../types.js").Numbers) => string} */ text) => (n ? text(n) : "–");
  return [
    ["used", "used", told((s) => `${bytes(s.data_used_bytes)}, ${share(s.data_used_bytes, s.data_capacity_bytes)}`), n ? ratio(n.data_used_bytes, n.data_capacity_bytes) : 0, DATA_FULL],
    ["free", "free", told((s) => bytes(s.data_capacity_bytes - s.data_used_bytes)), null, 0],
    ["journal", "journal, live", told((s) => `${share(s.journal_used_bytes, s.journal_capacity_bytes)}, ${share(s.journal_live_bytes, s.journal_capacity_bytes)}`), n ? ratio(n.journal_live_bytes, n.journal_capacity_bytes) : 0, JOURNAL_FULL],
    ["queue", "waiting, under way", told((s) => `${count(s.queue_length)}, ${count(s.under_way)}`), null, 0],
    ["errors", "I/O errors", told((s) => count(s.io_errors)), null, 0],
    ["refused", "bad spots", told((s) => (s.bad_places > 0 ? `${count(s.bad_places)}, ${bytes(s.bad_bytes)}` : "none")), null, 0],
    ["scrub", "damaged lumps", told((s) => count(s.scrub_corrupt + s.scrub_read_errors + s.checksum_failures)), null, 0],
    ["pass", "last scrub", told((s) => (s.scrub_last_pass_ns > 0 ? dated(s.scrub_last_pass_ns / 1e6) : "never")), null, 0],
  ];
}

/**
 * Where the bad spots are.
 * @param {import("../types.js").Numbers|null} n
 * @returns {string[]}
 */
function spots(n) {
  if (!n || n.bad_at.length === 0) return [];
  const more = n.bad_places - n.bad_at.length;
  const places = n.bad_at.map(([at, long]) => `${at} (${bytes(long)})`).join(", ");
  return [`The disk refuses to write at byte ${places}${more > 0 ? `, and at ${count(more)} more places` : ""}; nothing is put there.`];
}

/**
 * Time of day for what was today, else the day.
 * @param {number} ms since 1970
 */
function dated(ms) {
  const at = new Date(ms);
  return at.toDateString() === new Date().toDateString() ? clock(ms) : at.toLocaleDateString("en-CA");
}
