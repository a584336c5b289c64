// The browser, and the guards on every page: nothing from elsewhere, nothing in the console, nothing that the page's own
// policy forbids.
import { playwright } from './tools.mjs';
import { PATIENCE } from './wait.mjs';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {import('playwright-core').Browser} Browser */

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Offline, but for this machine: no name leads anywhere.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1',
];

/**
 * Starts the browser with a profile of its own, which is gone when it ends.
 * @returns {Promise<Browser>}
 */
export function launch() {
  const executablePath = process.env.LUMPSCOPE_CHROMIUM ?? '/usr/bin/chromium';
  return playwright.chromium.launch({ executablePath, args: FLAGS, timeout: PATIENCE });
}

/** A page and the errors on it. */
export class Guarded {
  /** @type {string[]} */
  #wrong = [];
  /** @type {RegExp[]} */
  #allowed = [];

  /** @param {Page} page @param {string} origin */
  constructor(page, origin) {
    /** The page. */
    this.page = page;
    page.on('request', (request) => {
      const url = new URL(request.url());
      if (url.origin !== origin && url.protocol !== 'data:' && url.protocol !== 'blob:') {
        this.#wrong.push(`a request to ${request.url()}`);
      }
    });
    page.on('pageerror', (error) => this.#wrong.push(`an error: ${error.stack ?? error.message}`));
    page.on('console', (message) => {
      if (message.type() === 'error' || message.type() === 'warning') {
        this.#wrong.push(`in the console: ${message.text()} (${message.location().url})`);
      }
    });
  }

  /**
   * Errors expected from now on, because the scenario causes them.
   * @param {RegExp} what
   */
  allow(what) {
    this.#allowed.push(what);
  }

  /** Fails when anything has gone wrong. */
  good() {
    const wrong = this.#wrong.filter((text) => !this.#allowed.some((allowed) => allowed.test(text)));
    if (wrong.length > 0) {
      throw new Error(`on the page: ${wrong.slice(0, 10).join('; ')}`);
    }
  }
}

/**
 * A fresh context with one guarded page, not yet anywhere.
 * @param {Browser} browser
 * @param {string} url that of the service
 * @param {{width?: number, height?: number, dark?: boolean}} [look]
 * @returns {Promise<Guarded>}
 */
export async function guarded(browser, url, { width = 1280, height = 900, dark = false } = {}) {
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? 'dark' : 'light',
    deviceScaleFactor: 1,
  });
  context.setDefaultTimeout(PATIENCE);
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      console.error(`forbidden by the policy: ${event.violatedDirective} ${event.blockedURI}`);
    });
  });
  return new Guarded(await context.newPage(), new URL(url).origin);
}
