// @ts-check
/** The stream of frames: read with fetch, so that the token goes into a header; taken up again where it broke. */

import { ApiError, open } from "./api.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
/** Frames come every second. */
const SILENCE_MS = 8_000;
/** The whole history of many stores fits; what is longer is not from the service. */
const LONGEST_EVENT = 16 * 1024 * 1024;

/**
 * @typedef {"connecting"|"live"|"reconnecting"|"login"|"refused"|"stopped"} State
 * @typedef {object} Listener
 * @property {(hello: import("./types.js").Hello) => boolean} hello true: `since` was of another run, begin anew
 * @property {(frame: any) => void} frame
 * @property {(state: State, why: string) => void} state
 * @property {() => number} since sequence number of the last frame; -1: none
 */

/** One connection at a time, for as long as it is started. */
export class Live {
  /** @param {Listener} listener */
  constructor(listener) {
    this.listener = listener;
    /** @type {AbortController|null} */
    this.running = null;
  }

  /** Connects, unless it does so already. */
  start() {
    if (this.running) return;
    this.running = new AbortController();
    void this.#run(this.running.signal);
  }

  /** Ends the connection. */
  stop() {
    this.running?.abort();
    this.running = null;
    this.listener.state("stopped", "");
  }

  /** @param {AbortSignal} stopped */
  async #run(stopped) {
    let wait = FIRST_WAIT_MS;
    this.listener.state("connecting", "");
    while (!stopped.aborted) {
      let why = "The connection ended.";
      try {
        if (await this.#once(stopped)) wait = FIRST_WAIT_MS;
      } catch (error) {
        if (stopped.aborted) return;
        if (error instanceof ApiError) {
          why = error.message;
          if (error.status === 401 || error.status === 403) {
            this.running = null;
            this.listener.state(error.status === 401 ? "login" : "refused", why);
            return;
          }
        }
      }
      if (stopped.aborted) return;
      this.listener.state("reconnecting", why);
      await pause(wait * (0.75 + Math.random() / 2), stopped);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  }

  /**
   * @param {AbortSignal} stopped
   * @returns {Promise<boolean>} true: something was received
   */
  async #once(stopped) {
    const silent = new AbortController();
    const stop = () => silent.abort();
    stopped.addEventListener("abort", stop, { once: true });
    let timer = setTimeout(stop, SILENCE_MS);
    let received = false;
    try {
      const since = this.listener.since();
      const answer = await open(since >= 0 ? `live?since=${since}` : "live", silent.signal);
      if (!answer.body) return false;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new Events();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return received;
        clearTimeout(timer);
        timer = setTimeout(stop, SILENCE_MS);
        for (const event of parser.feed(value)) {
          received = true;
          if (!this.#take(event)) {
            silent.abort();
            return true;
          }
        }
      }
    } finally {
      clearTimeout(timer);
      stopped.removeEventListener("abort", stop);
      silent.abort();
    }
  }

  /**
   * @param {{name: string, data: string}} event
   * @returns {boolean} false: begin anew
   */
  #take(event) {
    if (event.name === "hello") {
      if (this.listener.hello(JSON.parse(event.data))) return false;
      this.listener.state("live", "");
    } else if (event.name === "frame") {
      this.listener.frame(JSON.parse(event.data));
    }
    return true;
  }
}

/** Cuts a text/event-stream into events. */
export class Events {
  constructor() {
    this.rest = "";
    this.name = "message";
    /** @type {string[]} */
    this.data = [];
  }

  /**
   * @param {string} text the next piece, cut anywhere
   * @returns {{name: string, data: string}[]} what is complete now
   * @throws {Error} an event is longer than the service ever sends
   */
  feed(text) {
    const done = [];
    this.rest += text;
    let begin = 0;
    for (let end = this.rest.indexOf("\n"); end >= 0; end = this.rest.indexOf("\n", begin)) {
      const line = this.rest.slice(begin, end).replace(/\r$/, "");
      begin = end + 1;
      if (line !== "") this.#line(line);
      else if (this.data.length > 0) done.push(this.#event());
    }
    this.rest = this.rest.slice(begin);
    if (this.rest.length > LONGEST_EVENT) throw new Error("an event is too long");
    return done;
  }

  /** @param {string} line */
  #line(line) {
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "event") this.name = value;
    else if (field === "data") this.data.push(value);
  }

  #event() {
    const event = { name: this.name, data: this.data.join("\n") };
    this.name = "message";
    this.data = [];
    return event;
  }
}

/**
 * @param {number} ms
 * @param {AbortSignal} stopped
 */
function pause(ms, stopped) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    stopped.addEventListener("abort", () => (clearTimeout(timer), resolve(undefined)), { once: true });
  });
}
