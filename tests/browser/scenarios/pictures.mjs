// The page loads with nothing from elsewhere; its pictures appear, and change while there is load.
import { guarded } from '../lib/browser.mjs';
import { CHARTS, STORES, drawn, panel, pixels } from '../lib/panels.mjs';
import { checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** Pixels of a colour that a picture has at least, of some 100,000. */
const NOT_BLANK = 40;

/**
 * @param {import('playwright-core').Page} page
 * @param {string} chart
 * @param {string} store
 */
async function moves(page, chart, store) {
  const of = panel(page, chart, store);
  const first = await drawn(of);
  await until(`marks in ${chart} of ${store}`, async () => Number(await of.getAttribute('data-marks')) > 0);
  const before = await pixels(of);
  if (before.coloured < NOT_BLANK) {
    throw new Error(`${chart} of ${store} is blank: ${before.coloured} pixels have a colour`);
  }
  await drawn(of, first);
  await until(`another picture in ${chart} of ${store}`, async () => (await pixels(of)).image !== before.image);
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function pictures(browser, url) {
  const guard = await guarded(browser, url);
  const { page } = guard;
  await page.goto(url);
  for (const chart of CHARTS) {
    for (const store of STORES) {
      await moves(page, chart, store);
    }
    checked(`${chart}: drawn for ${STORES.join(', ')}, and another picture with a later frame`);
  }
  guard.good();
  checked('all came from the service itself; nothing in the console, nothing that the policy forbids');
}
