// A service with a store that serves and one that could not be opened: the page says which is which, never shows the
// failed one green, and shows what happened before it was opened.
import { guarded } from '../lib/browser.mjs';
import { drawn, panel } from '../lib/panels.mjs';
import { ask, checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** @param {string} url */
async function past(url) {
  const reply = await fetch(new URL('/api/v1/past', url));
  return /** @type {{stores: Record<string, any>}[]} */ ((await reply.json()).frames);
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function states(browser, url) {
  await until('a frame of the past', async () => (await past(url)).length > 0);
  const puts = await ask('put some lumps');
  const told = (/** @type {any[]} */ frames) => frames.reduce((sum, frame) => sum + (frame.stores.plain.requests.put?.count ?? 0), 0);
  await until('the puts in the past', async () => told(await past(url)) === puts);

  const guard = await guarded(browser, url);
  const { page } = guard;
  await page.goto(url);
  const load = panel(page, 'load', 'plain');
  await drawn(load);
  await page.locator('#window input[value="3600"]').locator('..').click();
  await until('where the data begins', async () => /^Data since [\d:]+ \(service start\)\./.test(await page.locator('#begin').innerText()));
  await until('requests of before', async () => Number(await load.getAttribute('data-marks')) > 0);
  await page.locator('#load .as-table').click();
  await until('a table of them', async () => (await load.locator('tbody tr').count()) > 0);
  checked('what happened before the page was opened is in its charts');

  const [plain, lost] = [panel(page, 'stores', 'plain'), panel(page, 'stores', 'lost')];
  await drawn(plain);
  const state = (/** @type {import('playwright-core').Locator} */ card) => card.locator('.state .badge').first();
  await until('the store that serves', async () => (await state(plain).getAttribute('data-state')) === 'serving');
  const used = await plain.locator('dd[data-tile="used"]').innerText();
  if (!/^[\d.]+ [KM]iB, [\d.]+ %$/.test(used)) {
    throw new Error(`used: ${used}`);
  }
  await until('the store that is not open', async () => (await state(lost).getAttribute('data-state')) === 'unavailable');
  const good = await lost.locator('.badge.good').count();
  if (good > 0 || !(await state(lost).getAttribute('class'))?.includes('bad')) {
    throw new Error('the store that is not open looks well');
  }
  const alert = await lost.locator('.firing li[data-alert="LumpscopeStoreFailed"]').innerText();
  const alarm = await page.locator('#alarms li.bad[data-store="lost"]').innerText();
  if (!alert.includes('lost.lusf') || !alarm.includes('lost.lusf') || (await page.locator('#alarms li').count()) !== 1) {
    throw new Error(`the reason is missing: ${alert}; ${alarm}`);
  }
  await until('a sign in the header', async () => (await page.locator('#connection').getAttribute('data-stores')) === 'bad');
  checked(`the card says: ${alert}`);
  if (process.env.LUMPSCOPE_PICTURE) {
    await page.evaluate(() => scrollTo(0, 0));
    await page.screenshot({ path: process.env.LUMPSCOPE_PICTURE });
  }
  guard.good();
}
