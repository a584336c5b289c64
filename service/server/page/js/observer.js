// @ts-check
/** What watches the disks, what it cannot see, and what it costs. */

import { ApiError, read } from "./api.js";
import { el, setText, tableOf } from "./dom.js";
import { count, span } from "./units.js";

const EVERY_MS = 10_000;

/**
 * @typedef {object} Program
 * @property {string} name
 * @property {string} hook
 * @property {boolean} attached
 * @property {string} not_attached_because
 * @property {boolean} needed
 * @property {number} runs
 * @property {number} run_ns
 * @property {number} recursion_misses
 *
 * @typedef {object} Observed
 * @property {string} store
 * @property {string} device
 * @property {boolean} observed
 * @property {string} not_observed_because
 * @property {string} mode
 * @property {{policy: string, effective: boolean, not_effective_because: string, denied: number, allowed: number}} guard
 *
 * @typedef {{programs: Program[], events: {one_in: number, slower_than_ns: number}, stores: Observed[]}} Described
 */

/** The section, kept up to date while it is looked at. */
export class Observer {
  /** @param {HTMLElement} host */
  constructor(host) {
    this.host = host;
    this.note = el("p", { class: "notes" });
    this.told = el("div", { class: "observer" });
    this.active = false;
    this.visible = false;
    this.text = "";
    host.append(this.told, this.note);
    new IntersectionObserver(([entry]) => {
      this.visible = entry?.isIntersecting === true;
      void this.#load();
    }).observe(host);
    setInterval(() => void this.#load(), EVERY_MS);
  }

  /**
   * While it is not active nothing is asked.
   * @param {boolean} active
   */
  setActive(active) {
    const begins = active && !this.active;
    this.active = active;
    if (begins) void this.#load();
  }

  async #load() {
    if (!this.active || !this.visible || document.hidden || this.host.contains(document.activeElement)) return;
    try {
      const said = /** @type {Described} */ (await read("observer"));
      setText(this.note, "");
      const text = JSON.stringify([said.programs, said.events, said.stores]);
      if (text !== this.text) this.#show(said);
      this.text = text;
    } catch (error) {
      setText(this.note, error instanceof ApiError ? error.message : "The answer could not be read.");
    }
  }

  /** @param {Described} said */
  #show(said) {
    const stores = said.stores.map((s) => [s.store, s.device || "unknown", s.observed ? `yes, by ${s.mode}` : `no: ${s.not_observed_because}`, guardText(s.guard)]);
    const programs = said.programs.map((p) => [p.name, p.hook, p.attached ? "yes" : `no: ${p.not_attached_because}`, p.runs > 0 ? count(p.runs) : "not measured", p.runs > 0 ? span(p.run_ns / p.runs) : "–"]);
    this.told.replaceChildren(
      el("p", { class: "summary", text: eventsText(said.events) }),
      tableOf("How the stores are observed", { head: ["store", "disk", "observed", "guard of the device"], rows: stores }),
      tableOf("Programs of the observer", { head: ["program", "hook", "attached", "runs measured", "mean run"], rows: programs }),
    );
  }
}

/** @param {Described["events"]} events */
function eventsText(events) {
  const slow = events.slower_than_ns > 0 ? `, and every one that took ${span(events.slower_than_ns)} or more` : "";
  if (events.one_in === 1) return "Every block request is handed out as an event.";
  const some = events.one_in === 0 ? "No block request is handed out by chance" : `One block request in ${count(events.one_in)} is handed out as an event`;
  return `${some}${slow}. Counters and heatmaps count all; dots, head moves and explained requests know only these.`;
}

/** @param {Observed["guard"]} guard */
function guardText(guard) {
  if (guard.policy === "off") return "off";
  const seen = `${count(guard.denied)} denied, ${count(guard.allowed)} allowed`;
  return guard.effective ? `${guard.policy}: ${seen}` : `${guard.policy}, not effective: ${guard.not_effective_because}`;
}
