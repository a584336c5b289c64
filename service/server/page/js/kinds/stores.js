// @ts-check
/** What each store is, whether it is observed, and its numbers of now. */

import { el, setText } from "../dom.js";
import { METHODS, newest, quantile, requestsOf, seconds } from "../measure.js";
import { bytes, figures, share, span } from "../units.js";

/** Rates are means of so many frames, so that they can be read. */
const NOW = 5;

/** @typedef {{tiles: [string, string, string][], facts: string, observed: boolean|null, words: string[]}} Card */

/** @type {import("../section.js").Kind<Card, null>} */
export const stores = {
  id: "stores",
  title: "Stores",
  height: 0,
  help: [
    "Rates and travel are means of the last five seconds, percentiles are of the whole time window. Travel is the sum of all seek distances, without their signs; sequential is the share of reads and writes that began where the one before ended.",
    "A store is observed when every block request of its disk is seen. When it is not, requests are still timed, and everything about the disk is missing or incomplete, as the card says.",
  ],
  prepare: (view) => ({ shared: null, stores: new Map(view.stores.map((store) => [store.name, cardOf(view, store)])) }),
  draw(host, card) {
    if (!host.firstChild) {
      const tiles = card.tiles.map(([id, label]) => el("div", { class: "tile" }, el("dt", { text: label }), el("dd", { data: { tile: id } })));
      host.append(el("p", { class: "facts" }), el("p", { class: "state" }), el("dl", { class: "tiles" }, ...tiles), el("ul", { class: "words" }));
    }
    const [facts, state, , words] = host.children;
    if (!facts || !state || !words) return;
    setText(facts, card.facts);
    state.className = `state ${card.observed === null ? "unknown" : card.observed ? "yes" : "no"}`;
    setText(state, card.observed === null ? "no frame yet" : card.observed ? "observed" : "not observed");
    host.querySelectorAll("dd").forEach((cell, at) => setText(cell, card.tiles[at]?.[2] ?? ""));
    if (words.textContent !== card.words.join("")) words.replaceChildren(...card.words.map((text) => el("li", { text })));
  },
  summary: () => "",
  notes: () => [],
  marks: (card) => card.tiles.length,
};

/**
 * @param {import("../types.js").View} view
 * @param {import("../types.js").StoreInfo} store
 * @returns {Card}
 */
function cardOf(view, store) {
  const last = view.frames.slice(-NOW);
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
    facts: [store.layout, store.device || "disk unknown", store.backend, store.path].filter((text) => text).join(" · "),
    observed: part === null ? null : part.observed,
    words: part === null ? [] : part.observed ? part.doubts : [part.whyNot || "No reason was given."],
  };
}
