// @ts-check
/** The last hour as the service kept it while no page was open, asked for piece by piece. */

import { read } from "./api.js";

/** Frames of the past, kept up to date while the page is live. */
export class Past {
  /**
   * @param {import("./history.js").History} history
   * @param {() => void} changed
   */
  constructor(history, changed) {
    this.history = history;
    this.changed = changed;
    this.active = false;
    this.timer = 0;
  }

  /**
   * While it is not active nothing is asked.
   * @param {boolean} active
   */
  setActive(active) {
    if (active === this.active) return;
    this.active = active;
    clearTimeout(this.timer);
    if (active) void this.#load();
  }

  async #load() {
    try {
      const { frames } = await read(`past?since=${this.history.lastPast}`);
      if (frames.length > 0) {
        this.history.remember(frames);
        this.changed();
      }
    } catch {
      // The stream says what is wrong with the connection; what is missing comes with the next answer.
    }
    clearTimeout(this.timer);
    if (this.active) this.timer = setTimeout(() => void this.#load(), this.history.hello?.past_frame_ms || 10_000);
  }
}
