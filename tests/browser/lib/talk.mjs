// Talk with the test that has started this program: lines of JSON on both sides. A person who starts it by hand can read
// and answer them too.
import { createInterface } from 'node:readline';

const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

/** @param {object} line */
function say(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

/**
 * Reports a passed check.
 * @param {string} what
 */
export function checked(what) {
  say({ checked: what });
}

/**
 * Asks the test to do something to the service, and waits until that is done.
 * @param {string} what
 * @returns {Promise<any>} the answer of the test
 */
export async function ask(what) {
  say({ ask: what });
  const line = await answers.next();
  if (line.done) {
    throw new Error(`nobody answers "${what}"`);
  }
  return JSON.parse(line.value);
}

/**
 * The last line: how all of it ended.
 * @param {{scenario: string, error: string | null}} summary
 */
export function end(summary) {
  say({ summary });
  process.stdin.destroy();
}
