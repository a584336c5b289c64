// Runs one scenario against a running service: run.mjs SCENARIO. Its settings come from the environment:
//   LUMPSCOPE_URL         http://ADDRESS of the page, the API and the metrics
//   LUMPSCOPE_TOKEN...    tokens, for the scenario that logs in
// Prints lines of JSON: {"checked"} for each passed check, {"ask"} for an action of the test, and {"summary"} at the
// end. Ends with 0 only when all was good.
import { launch } from './lib/browser.mjs';
import { end } from './lib/talk.mjs';

const scenario = process.argv[2] ?? '';
const url = process.env.LUMPSCOPE_URL ?? '';
if (!/^[a-z_]+$/.test(scenario) || !url) {
  throw new Error('usage: LUMPSCOPE_URL=http://ADDRESS browser-node run.mjs SCENARIO');
}

/** @type {{default: (browser: import('playwright-core').Browser, url: string) => Promise<void>}} */
const { default: run } = await import(`./scenarios/${scenario}.mjs`);
const browser = await launch();
/** @type {string | null} */
let error = null;
try {
  await run(browser, url);
} catch (thrown) {
  error = thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown);
} finally {
  await browser.close();
}
end({ scenario, error });
process.exitCode = error === null ? 0 : 1;
