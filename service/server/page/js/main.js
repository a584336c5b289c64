// @ts-check
/** Puts the page together: the stream, what is shown, and when it is drawn. */

import { setToken, token } from "./api.js";
import { byId, el, setText } from "./dom.js";
import { ExplainedDialog } from "./explained.js";
import { History } from "./history.js";
import { lost, moves } from "./kinds/bars.js";
import { joint } from "./kinds/joint.js";
import { load } from "./kinds/load.js";
import { sectors } from "./kinds/sectors.js";
import { seeks } from "./kinds/seeks.js";
import { stages } from "./kinds/stages.js";
import { stores } from "./kinds/stores.js";
import { totals } from "./kinds/totals.js";
import { Live } from "./live.js";
import { lamp } from "./measure.js";
import { Observer } from "./observer.js";
import { paletteOf } from "./palette.js";
import { Past } from "./past.js";
import { Section } from "./section.js";
import { Slowest } from "./slowest.js";
import * as theme from "./theme.js";
import { clock } from "./units.js";

const KINDS = [stores, sectors, seeks, stages, joint, moves, lost, load, totals];
/** Charts are drawn at most this often. */
const DRAW_MS = 1_000;
/** A hidden page keeps its history up to date for so long, then lets the service rest. */
const HIDDEN_MS = 300_000;
const narrow = matchMedia("(max-width: 759px)");

class Page {
  constructor() {
    this.history = new History();
    this.windowMs = 60_000;
    this.paused = false;
    /** @type {Set<string>|null} null: all that fit */
    this.shown = null;
    /** @type {Record<string, string>} */
    this.choices = {};
    /** @type {import("./types.js").View|null} */
    this.view = null;
    this.drawnAt = 0;
    /** What the columns were made for. */
    this.columnsKey = "";
    this.timer = 0;
    this.hiddenTimer = 0;
    this.state = /** @type {import("./live.js").State} */ ("connecting");
    this.live = new Live({
      hello: (said) => this.#hello(said),
      frame: (frame) => this.#frame(frame),
      state: (state, why) => this.#state(state, why),
      since: () => this.history.lastSeq,
    });
    this.explained = new ExplainedDialog({ palette: () => paletteOf(theme.isDark()), traceUrl: () => this.history.hello?.trace_url ?? "" });
    this.past = new Past(this.history, () => this.#soon(false));
    this.sections = KINDS.map((kind) => new Section(kind, { changed: () => this.#soon(true), choose: (value) => this.#choose(kind.id, value), request: openRequest }));
    byId("sections", HTMLElement).append(...this.sections.map((section) => section.root));
    this.slowest = new Slowest(byId("slowest-body", HTMLElement), openRequest);
    this.observer = new Observer(byId("observer-body", HTMLElement));
    this.#controls();
  }

  /** Begins. */
  start() {
    this.live.start();
    this.explained.follow();
  }

  /** @param {import("./types.js").Hello} said */
  #hello(said) {
    const anew = this.history.greet(said);
    setText(byId("version", HTMLElement), said.version);
    this.#columns();
    byId("login", HTMLElement).hidden = true;
    return anew;
  }

  /** @param {any} frame */
  #frame(frame) {
    this.history.push(frame);
    if (!this.paused) this.#soon(false);
  }

  /** The stores that are shown: those that were chosen, else as many as fit beside each other. */
  #visible() {
    const all = this.history.hello?.stores ?? [];
    const chosen = this.shown ? all.filter(({ name }) => this.shown?.has(name)) : all;
    const fit = chosen.length > 0 ? chosen : all;
    if (narrow.matches) return fit.slice(0, 1);
    return this.shown && chosen.length > 0 ? fit : fit.slice(0, 4);
  }

  #columns() {
    const shown = this.#visible();
    const key = JSON.stringify([this.history.hello?.stores, shown.map(({ name }) => name), narrow.matches]);
    if (key === this.columnsKey) return;
    this.columnsKey = key;
    for (const section of this.sections) section.columnsFor(shown);
    this.#picker(shown.map(({ name }) => name));
    this.#soon(true);
  }

  /** @param {string[]} shown */
  #picker(shown) {
    const all = this.history.hello?.stores ?? [];
    const type = narrow.matches ? "radio" : "checkbox";
    const labels = all.map(({ name }) => {
      const input = el("input", { type, name: "store", value: name, checked: shown.includes(name) });
      input.addEventListener("change", () => this.#pick(name, input.checked));
      return el("label", {}, input, el("span", { text: name }));
    });
    byId("stores-picker", HTMLElement).replaceChildren(el("legend", { class: "quiet", text: "Stores shown" }), ...labels);
  }

  /**
   * @param {string} name
   * @param {boolean} on
   */
  #pick(name, on) {
    const next = narrow.matches ? new Set([name]) : new Set(this.#visible().map((store) => store.name));
    if (on) next.add(name);
    else if (next.size > 1) next.delete(name);
    this.shown = next;
    this.#columns();
    const again = document.querySelector(`#stores-picker input[value="${CSS.escape(name)}"]`);
    if (again instanceof HTMLElement) again.focus();
  }

  /**
   * Draws when it is time to: at most once a second, and not while nobody looks.
   * @param {boolean} now do not wait for the next second
   */
  #soon(now) {
    if (document.hidden || !this.history.hello) return;
    if (now) {
      clearTimeout(this.timer);
      this.timer = 0;
    }
    if (this.timer !== 0) return;
    const wait = now ? 0 : Math.max(0, this.drawnAt + DRAW_MS - 50 - performance.now());
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.#draw();
    }, wait);
  }

  #draw() {
    const { hello } = this.history;
    if (!hello || document.hidden) return;
    this.drawnAt = performance.now();
    const still = this.paused ? this.view : null;
    const view = {
      ...this.history.window(this.windowMs, still?.to ?? Infinity),
      hello,
      totals: still?.totals ?? { ...this.history.totals },
      stores: this.#visible(),
      palette: paletteOf(theme.isDark()),
      choices: this.choices,
    };
    this.view = view;
    setText(byId("begin", HTMLElement), this.history.knowsPast ? begin(view) : "");
    this.#alarms();
    for (const section of this.sections) {
      try {
        section.draw(view);
      } catch (error) {
        // One section that cannot make sense of what came must not take the others with it.
        console.error(`${section.kind.title} could not be drawn`, error);
      }
    }
    document.documentElement.dataset.seq = String(view.seq);
  }

  /** Stores that do not serve or have a condition that holds, whether they are shown or not. */
  #alarms() {
    const parts = Object.entries(this.history.frames.at(-1)?.stores ?? {});
    const told = parts.flatMap(([name, { health }]) => {
      const lit = lamp(health);
      return lit === "good" ? [] : [{ name, lit, text: [health.state, health.why, ...health.firing.map(({ text }) => text)].filter((part, at, all) => part && all.indexOf(part) === at).join("; ") }];
    });
    const list = byId("alarms", HTMLElement);
    const worst = told.some(({ lit }) => lit === "bad") ? "bad" : told.length > 0 ? "warn" : "good";
    byId("connection", HTMLElement).dataset.stores = worst;
    const text = JSON.stringify(told);
    if (list.dataset.told === text) return;
    list.dataset.told = text;
    list.replaceChildren(...told.map(({ name, lit, text }) => el("li", { class: lit, data: { store: name } }, el("b", { text: name }), ` ${text}`)));
  }

  /**
   * @param {string} kind
   * @param {string} value
   */
  #choose(kind, value) {
    this.choices = { ...this.choices, [kind]: value };
    this.#soon(true);
  }

  /**
   * @param {import("./live.js").State} state
   * @param {string} why
   */
  #state(state, why) {
    this.state = state;
    this.why = why;
    if (state === "login" || state === "refused") this.#login(why);
    this.#rest();
    this.#tell();
  }

  /** Tables ask only while the page is live. */
  #rest() {
    const live = this.state === "live" && !this.paused;
    this.slowest.setActive(live);
    this.observer.setActive(live);
    this.past.setActive(this.state === "live");
  }

  #tell() {
    const shown = this.paused && this.state === "live" ? "paused" : this.state;
    const badge = byId("connection", HTMLElement);
    badge.dataset.state = shown;
    setText(badge, shown === "login" || shown === "refused" ? "not logged in" : shown === "stopped" ? "asleep" : shown);
    badge.title = this.why ?? "";
  }

  /** @param {string} why */
  #login(why) {
    const form = byId("login", HTMLElement);
    const wrong = token() !== "";
    form.hidden = false;
    setText(byId("login-why", HTMLElement), wrong ? why : "This service wants a token with the scope observe.");
    byId("login-token", HTMLInputElement).focus();
  }

  #controls() {
    byId("pause", HTMLButtonElement).addEventListener("click", (event) => {
      this.paused = !this.paused;
      const button = /** @type {HTMLButtonElement} */ (event.currentTarget);
      button.setAttribute("aria-pressed", String(this.paused));
      setText(button, this.paused ? "Go on" : "Pause");
      this.#rest();
      this.#tell();
      this.#soon(true);
    });
    byId("window", HTMLElement).addEventListener("change", (event) => {
      this.windowMs = Number(/** @type {HTMLInputElement} */ (event.target).value) * 1000;
      this.#soon(true);
    });
    const select = byId("theme", HTMLSelectElement);
    select.value = theme.chosen();
    const redraw = () => (this.#soon(true), this.explained.redraw());
    select.addEventListener("change", () => (theme.choose(select.value), redraw()));
    theme.watch(redraw);
    byId("login-form", HTMLFormElement).addEventListener("submit", (event) => {
      event.preventDefault();
      setToken(byId("login-token", HTMLInputElement).value.trim());
      this.live.start();
    });
    narrow.addEventListener("change", () => this.#columns());
    let resizing = 0;
    addEventListener("resize", () => {
      clearTimeout(resizing);
      resizing = setTimeout(() => {
        for (const section of this.sections) section.resize();
        this.#soon(true);
      }, 150);
    });
    document.addEventListener("visibilitychange", () => this.#visibility());
  }

  #visibility() {
    clearTimeout(this.hiddenTimer);
    if (document.hidden) this.hiddenTimer = setTimeout(() => this.live.stop(), HIDDEN_MS);
    else {
      if (this.state === "stopped") this.live.start();
      this.#soon(true);
    }
  }
}

/**
 * Where the data begins, if that lies in the time window.
 * @param {import("./types.js").View} view
 */
function begin(view) {
  const first = view.gaps.find(({ before }) => before);
  if (!first) return "";
  // The first frame begins once the stores are open.
  const start = first.to - view.hello.started_unix_ms < 2 * view.hello.past_frame_ms ? " (service start)" : "";
  return `Data since ${clock(first.to)}${start}. Grey is time without data.`;
}

/** @param {number} id */
function openRequest(id) {
  location.hash = `request=${id}`;
}

theme.apply();
new Page().start();
