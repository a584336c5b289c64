// @ts-check
/** The dialog of one explained request. */

import { ApiError, read } from "./api.js";
import { byId, el, setText, tableOf } from "./dom.js";
import { timeline } from "./timeline.js";
import { bytes, clock, count, share, signedBytes, span } from "./units.js";

/** @typedef {import("./types.js").Explained} Explained */

/** Opens and closes with the address: `#request=ID`. */
export class ExplainedDialog {
  /** @param {{palette: () => import("./palette.js").Palette, traceUrl: () => string}} page */
  constructor(page) {
    this.page = page;
    this.dialog = byId("request", HTMLDialogElement);
    this.title = byId("request-title", HTMLElement);
    this.body = byId("request-body", HTMLElement);
    /** @type {Explained|null} */
    this.shown = null;
    this.wanted = 0;
    /** @type {Element|null} */
    this.before = null;
    byId("request-close", HTMLButtonElement).addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("close", () => this.#closed());
    addEventListener("hashchange", () => this.follow());
    addEventListener("resize", () => this.redraw());
  }

  /** Does what the address says. */
  follow() {
    const id = Number(/^#request=(\d+)$/.exec(location.hash)?.[1] ?? 0);
    if (id > 0) void this.#open(id);
    else if (this.dialog.open) this.dialog.close();
  }

  /** Draws again, for another width or theme. */
  redraw() {
    const host = this.body.querySelector(".timeline");
    if (!this.shown || !this.dialog.open || !host) return;
    host.replaceChildren(timeline(this.shown, Math.max(host.clientWidth, 280), this.page.palette()));
  }

  /** @param {number} id */
  async #open(id) {
    this.wanted = id;
    this.shown = null;
    setText(this.title, `Request ${id}`);
    this.body.replaceChildren(el("p", { text: "Asking …" }));
    if (!this.dialog.open) {
      this.before = document.activeElement;
      this.dialog.showModal();
    }
    try {
      const request = await read(`requests/${id}`);
      if (this.wanted === id) this.#show(request);
    } catch (error) {
      if (this.wanted !== id) return;
      const told = error instanceof ApiError ? error.message : "The answer could not be read.";
      this.body.replaceChildren(el("p", { role: "alert", text: told }));
    }
  }

  /** @param {Explained} r */
  #show(r) {
    this.shown = r;
    setText(this.title, `${r.method} of ${bytes(r.bytes)} on ${r.store}, ${span(r.total_ns)}`);
    const steps = r.steps.map((step) => el("li", {}, el("span", { class: "at", text: step.from_ns === 0 ? "0" : `${step.from_ns < 0 ? "" : "+"}${span(step.from_ns)}` }), el("span", { text: `${step.stage}: ${step.text}` }), el("span", { class: "took", text: span(step.took_ns) })));
    this.body.replaceChildren(
      el("p", { class: "sentence", text: r.sentence }),
      r.incomplete ? el("p", { class: "notes", text: r.incomplete }) : "",
      this.#facts(r),
      el("h3", { text: "To scale" }),
      el("div", { class: "timeline" }),
      el("p", { class: "quiet-text", text: "Above the line the stages; their places are derived from their lengths. Below it the block requests by the kernel's clock: waiting, then at the device." }),
      el("h3", { text: "In words" }),
      el("ol", { class: "steps" }, ...steps),
      el("h3", { text: "Block requests" }),
      r.blocks.length > 0 ? tableOf(`Block requests of request ${r.request_id}`, blockSheet(r)) : el("p", { text: "None was seen." }),
      r.block_requests > r.blocks.length ? el("p", { class: "notes", text: `${r.block_requests - r.blocks.length} more are not listed.` }) : "",
    );
    this.redraw();
  }

  /** @param {Explained} r */
  #facts(r) {
    const lost = Object.entries(r.lost_ns).map(([owner, ns]) => `${owner} ${span(ns)}`);
    const stages = Object.entries(r.stages).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
    const rows = [
      ["Request", String(r.request_id)],
      ["Began", clock(r.begin_unix_ns / 1e6)],
      ["Ended", r.ok ? "with success" : "with an error"],
      ["Disk", r.device || "unknown"],
      ["Lost to others", lost.length > 0 ? lost.join(", ") : "nothing that was seen"],
    ];
    const told = stages.map(([stage, ns]) => `${stage} ${span(ns)} (${share(ns, r.total_ns)})`).join(", ");
    const wide = el("div", { class: "wide" }, el("dt", { text: "Stages" }), el("dd", { text: told }));
    const list = rows.map(([name = "", text = ""]) => el("div", {}, el("dt", { text: name }), el("dd", { text })));
    const template = this.page.traceUrl();
    let trace = el("dd", { text: r.trace_id || "not exported" });
    if (r.trace_id && /^https?:\/\//.test(template)) {
      const href = template.replace("{trace_id}", encodeURIComponent(r.trace_id));
      trace = el("dd", {}, el("a", { href, rel: "noreferrer", target: "_blank", text: r.trace_id }));
    }
    return el("dl", { class: "request-facts" }, ...list, el("div", {}, el("dt", { text: "Trace" }), trace), wide);
  }

  #closed() {
    this.wanted = 0;
    this.shown = null;
    if (location.hash.startsWith("#request=")) history.replaceState(null, "", location.pathname + location.search);
    const id = this.before instanceof HTMLElement && this.before.isConnected && this.before !== document.body ? null : "slowest-title";
    if (id === null) /** @type {HTMLElement} */ (this.before).focus();
    else document.getElementById(id)?.focus();
    this.before = null;
  }
}

/**
 * @param {Explained} r
 * @returns {import("./types.js").Sheet}
 */
function blockSheet(r) {
  return {
    head: ["at", "what", "for", "sector", "length", "seek distance", "who had the head before", "queue", "device"],
    rows: r.blocks.map((b) => [
      b.queued_at_ns === null ? "–" : span(b.queued_at_ns),
      [b.operation, ...b.flags].join(" ") + (b.failed ? `, failed${b.failure ? `: ${b.failure}` : ""}` : ""),
      b.purpose + (b.shared ? ", shared" : "") + (b.uncertain ? ", possibly not its own" : ""),
      b.operation === "flush" ? "–" : count(b.sector),
      b.operation === "flush" ? "–" : bytes(b.sectors * 512),
      b.seek_bytes === null || b.seek_bytes === undefined ? "–" : signedBytes(b.seek_bytes),
      b.previous_owner || "unknown",
      b.queued_at_ns === null || b.issued_at_ns === null ? "not seen" : span(b.queue_ns),
      b.done_at_ns === null ? "not seen" : span(b.device_ns),
    ]),
  };
}
