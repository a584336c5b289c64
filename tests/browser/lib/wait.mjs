// Waiting for conditions. No check may depend on how fast the machine is, so the limit is far above every real duration.

/** Milliseconds after which a wait is given up. */
export const PATIENCE = 240_000;

/** Milliseconds between two looks. */
const PAUSE = 100;

/** @param {number} ms */
export const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Looks until there is something to be seen.
 * @template T
 * @param {string | (() => string)} what the awaited condition, for the error; a function returns its last state
 * @param {() => Promise<T | null | undefined | false> | T | null | undefined | false} look
 * @returns {Promise<T>} the first result that is neither false nor nothing
 */
export async function until(what, look) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    const seen = await look();
    if (seen !== false && seen !== null && seen !== undefined) {
      return seen;
    }
    if (Date.now() > end) {
      throw new Error(`it did not come: ${typeof what === 'string' ? what : what()}`);
    }
    await sleep(PAUSE);
  }
}
