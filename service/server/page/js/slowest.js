// @ts-check
/** The table of the slowest requests of all stores. */

import { ApiError, read } from "./api.js";
import { el, setText } from "./dom.js";
import { bytes, clock, count, figures, share, span } from "./units.js";

const EVERY_MS = 4_000;
const WITHIN_SECONDS = 300;
const LIMIT = 20;

/** @typedef {import("./types.js").Explained} Explained */
/** @typedef {{id: string, label: string, value: (r: Explained) => number|string, text: (r: Explained) => string, number?: boolean}} Field */

/** @type {Field[]} */
const FIELDS = [
  { id: "when", label: "Began", value: (r) => r.begin_unix_ns, text: (r) => clock(r.begin_unix_ns / 1e6) },
  { id: "store", label: "Store", value: (r) => r.store, text: (r) => r.store },
  { id: "method", label: "Method", value: (r) => r.method, text: (r) => (r.ok ? r.method : `${r.method}, failed`) },
  { id: "bytes", label: "Size", value: (r) => r.bytes, text: (r) => bytes(r.bytes), number: true },
  { id: "total", label: "Took", value: (r) => r.total_ns, text: (r) => span(r.total_ns), number: true },
  { id: "stage", label: "Most of it", value: (r) => most(r)[0], text: (r) => `${most(r)[0]} ${share(most(r)[1], r.total_ns)}` },
  { id: "blocks", label: "Block requests", value: (r) => r.block_requests, text: (r) => count(r.block_requests), number: true },
  { id: "seek", label: "Farthest seek", value: farthest, text: (r) => (r.blocks.some((b) => b.seek_bytes !== null) ? bytes(farthest(r)) : "–"), number: true },
  { id: "lost", label: "Lost to others", value: lost, text: (r) => span(lost(r)), number: true },
];

/** The table, kept up to date while it is looked at. */
export class Slowest {
  /**
   * @param {HTMLElement} host
   * @param {(id: number) => void} open
   */
  constructor(host, open) {
    this.open = open;
    /** @type {Explained[]} */
    this.requests = [];
    this.by = "total";
    this.down = true;
    this.visible = false;
    this.active = false;
    this.store = "";
    this.note = el("p", { class: "notes" });
    this.body = el("tbody");
    this.heads = FIELDS.map((field) => this.#head(field));
    const names = el("tr", {}, ...this.heads.map(({ cell }) => cell));
    const table = el("table", { class: "slowest", id: "slowest-table" }, el("caption", { class: "quiet", text: "Slowest requests of the last five minutes. Enter opens one." }), el("thead", {}, names), this.body);
    this.scroll = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of the slowest requests" }, table);
    host.append(this.scroll, this.note);
    new IntersectionObserver(([entry]) => {
      this.visible = entry?.isIntersecting === true;
      if (this.visible) void this.#load();
    }).observe(host);
    setInterval(() => void this.#load(), EVERY_MS);
    this.#order();
  }

  /**
   * While it is not active, as when paused or not logged in, nothing is asked.
   * @param {boolean} active
   */
  setActive(active) {
    const begins = active && !this.active;
    this.active = active;
    if (begins) void this.#load();
  }

  async #load() {
    if (!this.active || !this.visible || document.hidden || this.#busy()) return;
    try {
      const said = await read(`slowest?within_seconds=${WITHIN_SECONDS}&limit=${LIMIT}`);
      if (this.#busy()) return;
      this.requests = Array.isArray(said.requests) ? said.requests : [];
      setText(this.note, this.requests.length === 0 ? "No request of the last five minutes is kept." : "");
      this.#fill();
    } catch (error) {
      setText(this.note, error instanceof ApiError ? error.message : "The answer could not be read.");
    }
  }

  /**
   * True: somebody stands in a row, presses on one, or will come back to it from the dialog. A row that is replaced
   * between press and release gets no click.
   */
  #busy() {
    return this.body.contains(document.activeElement) || this.body.matches(":active") || document.querySelector("dialog[open]") !== null;
  }

  /** @param {Field} field */
  #head(field) {
    const button = el("button", { type: "button", text: field.label, on: { click: () => this.#sort(field.id) } });
    return { field, cell: el("th", { scope: "col", class: field.number ? "number" : "" }, button) };
  }

  /** @param {string} by */
  #sort(by) {
    this.down = this.by === by ? !this.down : true;
    this.by = by;
    this.#order();
    this.#fill();
  }

  #order() {
    for (const { field, cell } of this.heads) {
      if (field.id === this.by) cell.setAttribute("aria-sort", this.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
  }

  #fill() {
    const field = FIELDS.find(({ id }) => id === this.by);
    if (!field) return;
    const sign = this.down ? -1 : 1;
    const sorted = this.requests.toSorted((a, b) => sign * compare(field.value(a), field.value(b)));
    const longest = Math.max(1, ...sorted.map((r) => r.total_ns));
    this.body.replaceChildren(...sorted.map((r) => this.#row(r, longest)));
  }

  /**
   * @param {Explained} r
   * @param {number} longest ns
   */
  #row(r, longest) {
    const open = () => this.open(r.request_id);
    const cells = FIELDS.map((field) => {
      if (field.id !== "when") return el("td", { class: field.number ? "number" : "", text: field.text(r) }, field.id === "total" ? track(r.total_ns / longest) : null);
      const link = el("a", { href: `#request=${r.request_id}`, text: field.text(r), "aria-label": `Request ${r.request_id}, ${clock(r.begin_unix_ns / 1e6)}: explain` });
      return el("th", { scope: "row" }, link);
    });
    const row = el("tr", { data: { request: r.request_id }, title: r.sentence }, ...cells);
    row.addEventListener("click", (event) => {
      if (!(event.target instanceof HTMLAnchorElement)) open();
    });
    return row;
  }
}

/** @param {number} part 0 to 1 */
function track(part) {
  const bar = el("span", { class: "bar" });
  bar.style.width = `${figures(100 * part).replace(",", "")}%`;
  return el("span", { class: "track", "aria-hidden": "true" }, bar);
}

/** @param {Explained} r @returns {[string, number]} */
function most(r) {
  return Object.entries(r.stages).reduce((a, b) => (b[1] > a[1] ? b : a), ["–", 0]);
}

/** @param {Explained} r */
function farthest(r) {
  return r.blocks.reduce((far, b) => Math.max(far, Math.abs(b.seek_bytes ?? 0)), 0);
}

/** @param {Explained} r */
function lost(r) {
  return r.lost_in_all_ns ?? 0;
}

/** @param {number|string} a @param {number|string} b */
function compare(a, b) {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}
