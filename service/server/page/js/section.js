// @ts-check
/** A section of the page: one kind of chart, one panel a store, all on the same axes. */

import { connect, init } from "../vendor/echarts.esm.min.js";
import { el, setText, svg, tableOf } from "./dom.js";
import { hover } from "./hover.js";

/**
 * @typedef {{label: string, colour?: string, symbol?: string, ramp?: boolean, most?: number}} LegendItem
 */

/**
 * @template D what one store's panel shows
 * @template S what all panels share
 * @typedef {object} Kind
 * @property {string} id
 * @property {string} title
 * @property {number} height of the chart in pixels; 0: no chart, `draw` fills the panel
 * @property {string[]} help how to read it, and what it cannot see
 * @property {string[][]} [choices] value and label; the first holds until another is chosen
 * @property {(view: View) => {shared: S, stores: Map<string, D>}} prepare
 * @property {(view: View, shared: S) => LegendItem[]} [legend]
 * @property {(data: D, shared: S, view: View) => object} [option] of ECharts
 * @property {(host: HTMLElement, data: D, shared: S) => void} [draw]
 * @property {(data: D, shared: S, view: View, store: import("./types.js").StoreInfo) => string} summary in words
 * @property {(data: D, shared: S, view: View) => import("./types.js").Sheet} [table]
 * @property {(view: View, store: string, data: D) => string[]} notes what is not observed
 * @property {(data: D) => number} marks how many things are drawn
 * @property {(place: import("./hover.js").Place, data: D, view: View) => import("./hover.js").Hit|null} [hit] what lies under the pointer
 */
/** @typedef {import("./types.js").View} View */
/** @typedef {{root: HTMLElement, name: string, plot: HTMLElement, summary: HTMLElement, notes: HTMLElement, sheet: HTMLElement, chart: import("../vendor/echarts.esm.min.js").Chart|null, drawn: {data: any, view: View}|null, visible: boolean}} Panel */

/** Tables are read; they change less often than charts. */
const SHEET_MS = 5_000;

/** One section. */
export class Section {
  /**
   * @param {Kind<any, any>} kind
   * @param {{changed: () => void, choose: (value: string) => void, request: (id: number) => void}} hooks
   */
  constructor(kind, hooks) {
    this.kind = kind;
    this.hooks = hooks;
    /** @type {Panel[]} */
    this.panels = [];
    this.asTable = false;
    this.sheetAt = 0;
    this.keyText = "";
    this.key = el("ul", { class: "key" });
    this.columns = el("div", { class: "columns" });
    this.root = el(
      "section",
      { id: kind.id, "aria-labelledby": `${kind.id}-title`, class: "section" },
      el(
        "header",
        {},
        el("h2", { id: `${kind.id}-title`, text: kind.title }),
        kind.legend ? this.key : null,
        el("span", { class: "space" }),
        this.#choices(),
        this.#toggle(),
        el("details", { class: "help" }, el("summary", { text: "How to read this", "aria-label": `How to read this: ${kind.title}` }), ...kind.help.map((text) => el("p", { text }))),
      ),
      this.columns,
    );
    this.watch = new IntersectionObserver((seen) => this.#seen(seen), { rootMargin: "80px" });
  }

  /**
   * Makes the panels of these stores.
   * @param {import("./types.js").StoreInfo[]} stores
   */
  columnsFor(stores) {
    this.watch.disconnect();
    for (const panel of this.panels) panel.chart?.dispose();
    this.panels = stores.map((store) => this.#panel(store));
    this.columns.replaceChildren(...this.panels.map((panel) => panel.root));
    for (const panel of this.panels) this.watch.observe(panel.root);
  }

  /**
   * Draws what is in view.
   * @param {View} view
   */
  draw(view) {
    if (!this.panels.some((panel) => panel.visible)) return;
    const { shared, stores } = this.kind.prepare(view);
    this.#legend(view, shared);
    const sheets = this.asTable && Date.now() - this.sheetAt >= SHEET_MS && !this.columns.contains(document.activeElement);
    if (sheets) this.sheetAt = Date.now();
    for (const panel of this.panels) {
      const data = stores.get(panel.name);
      const store = view.stores.find(({ name }) => name === panel.name);
      if (panel.visible && data && store) this.#drawPanel(panel, data, shared, view, store, sheets);
    }
  }

  /** Takes the width that there is now. */
  resize() {
    for (const panel of this.panels) panel.chart?.resize();
  }

  /**
   * @param {Panel} panel
   * @param {any} data
   * @param {any} shared
   * @param {View} view
   * @param {import("./types.js").StoreInfo} store
   * @param {boolean} sheets
   */
  #drawPanel(panel, data, shared, view, store, sheets) {
    const { kind } = this;
    setText(panel.summary, kind.summary(data, shared, view, store));
    const notes = kind.notes(view, panel.name, data);
    for (const gap of kind.height > 0 ? view.gaps.filter(({ before }) => !before).slice(-1) : []) {
      const seconds = Math.max(1, Math.round((gap.to - gap.from) / 1000));
      if (gap.skipped > 0) notes.push(`This browser was too slow for ${gap.skipped} frames: no data for ${seconds} s.`);
      else notes.push(gap.comes ? `The ${seconds} s before this page was opened are still to come.` : `No data for ${seconds} s.`);
    }
    setText(panel.notes, notes.join(" "));
    panel.drawn = { data, view };
    panel.root.dataset.seq = String(view.seq);
    panel.root.dataset.marks = String(kind.marks(data));
    if (kind.draw) kind.draw(panel.plot, data, shared);
    panel.plot.hidden = this.asTable;
    panel.sheet.hidden = !this.asTable;
    if (this.asTable) {
      if (sheets && kind.table) panel.sheet.replaceChildren(tableOf(`${kind.title}, ${panel.name}`, kind.table(data, shared, view)));
    } else if (kind.option) {
      panel.chart ??= this.#chart(panel);
      panel.chart.setOption({ animation: false, ...kind.option(data, shared, view) });
    }
  }

  /** @param {Panel} panel */
  #chart(panel) {
    const chart = init(panel.plot, null, { renderer: "canvas" });
    chart.group = this.kind.id;
    if (this.kind.id === "load" || this.kind.id === "stages") connect(this.kind.id);
    const { hit } = this.kind;
    if (hit) hover(chart, panel.plot, (place) => (panel.drawn ? hit(place, panel.drawn.data, panel.drawn.view) : null), this.hooks.request);
    return chart;
  }

  /**
   * @param {import("./types.js").StoreInfo} store
   * @returns {Panel}
   */
  #panel(store) {
    const { kind } = this;
    const id = `${kind.id}-${store.name}`;
    const plot = el("div", { class: "plot" });
    if (kind.height > 0) {
      plot.style.height = `${kind.height}px`;
      plot.setAttribute("role", "img");
      plot.setAttribute("aria-label", `${kind.title}, ${store.name}`);
      plot.setAttribute("aria-describedby", `${id}-summary`);
    }
    const summary = el("p", { class: "summary", id: `${id}-summary` });
    const notes = el("p", { class: "notes" });
    const sheet = el("div", { class: "sheet", hidden: true });
    const root = el("article", { class: "panel", id, data: { chart: kind.id, store: store.name }, "aria-labelledby": `${id}-name` }, el("h3", { id: `${id}-name`, text: store.name }), summary, plot, sheet, notes);
    return { root, name: store.name, plot, summary, notes, sheet, chart: null, drawn: null, visible: false };
  }

  #choices() {
    const { kind } = this;
    if (!kind.choices) return null;
    const options = kind.choices.map(([value = "", label = ""], at) =>
      el("label", {}, el("input", { type: "radio", name: `choice-${kind.id}`, value, checked: at === 0, on: { change: () => this.hooks.choose(value) } }), el("span", { text: label })),
    );
    return el("fieldset", { class: "segments" }, el("legend", { class: "quiet", text: `${kind.title}: show` }), ...options);
  }

  #toggle() {
    if (!this.kind.table) return null;
    const button = el("button", { type: "button", class: "as-table", "aria-pressed": "false", "aria-label": `${this.kind.title}: show as table`, text: "Table" });
    button.addEventListener("click", () => {
      this.asTable = !this.asTable;
      this.sheetAt = 0;
      button.setAttribute("aria-pressed", String(this.asTable));
      this.hooks.changed();
    });
    return button;
  }

  /**
   * @param {View} view
   * @param {any} shared
   */
  #legend(view, shared) {
    if (!this.kind.legend) return;
    const items = this.kind.legend(view, shared);
    const text = JSON.stringify([items, view.palette.dark]);
    if (text === this.keyText) return;
    this.keyText = text;
    this.key.replaceChildren(...items.map((item) => (item.ramp ? rampItem(item, view) : swatchItem(item))));
  }

  /** @param {IntersectionObserverEntry[]} seen */
  #seen(seen) {
    for (const entry of seen) {
      const panel = this.panels.find(({ root }) => root === entry.target);
      if (panel) panel.visible = entry.isIntersecting;
    }
    if (seen.some((entry) => entry.isIntersecting)) this.hooks.changed();
  }
}

/** The symbols of the charts, for the legend. @type {Record<string, string>} */
const PATHS = {
  circle: "M1,0A1,1 0 1 1 -1,0A1,1 0 1 1 1,0",
  triangle: "M0,-1L1,.8H-1Z",
  down: "M0,1L1,-.8H-1Z",
  diamond: "M0,-1L1,0L0,1L-1,0Z",
  rect: "M-.85,-.85H.85V.85H-.85Z",
  plus: "M-1,-.35H-.35V-1H.35V-.35H1V.35H.35V1H-.35V.35H-1Z",
  cross: "M-1,-.6L-.6,-1L0,-.4L.6,-1L1,-.6L.4,0L1,.6L.6,1L0,.4L-.6,1L-1,.6L-.4,0Z",
  line: "M-1,0H1",
};

/** @param {LegendItem} item */
function swatchItem(item) {
  const symbol = item.symbol ?? "rect";
  const draw = symbol === "line" ? { stroke: item.colour, "stroke-width": 0.6 } : { fill: item.colour };
  const mark = svg("svg", { viewBox: "-1 -1 2 2", width: 11, height: 11, "aria-hidden": "true" }, svg("path", { d: PATHS[symbol] ?? PATHS.rect, ...draw }));
  return el("li", {}, mark, el("span", { text: item.label }));
}

/**
 * @param {LegendItem} item
 * @param {View} view
 */
function rampItem(item, view) {
  const { ramp } = view.palette;
  const steps = ramp.map((fill, at) => svg("rect", { x: at * 14, y: 0, width: 14, height: 10, fill }));
  const scale = svg("svg", { viewBox: `0 0 ${ramp.length * 14} 10`, width: ramp.length * 14, height: 10, "aria-hidden": "true" }, ...steps);
  return el("li", {}, el("span", { text: "1" }), scale, el("span", { text: `${Math.max(item.most ?? 0, 1).toLocaleString("en")} ${item.label}` }), el("span", { class: "quiet-text", text: "(logarithmic)" }));
}
