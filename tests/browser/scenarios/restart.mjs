// The service is killed and comes back: the page says so, and goes on with the numbers of the new one.
import { guarded } from '../lib/browser.mjs';
import { drawn, equalToMetrics, panel, shown } from '../lib/panels.mjs';
import { ask, checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function restart(browser, url) {
  const guard = await guarded(browser, url);
  const { page } = guard;
  const state = () => page.locator('#connection').getAttribute('data-state');
  const puts = async () => (await shown(page)).find(([name]) => /requests_total.*store="raw".*method="put"/.test(name))?.[1];
  await page.goto(url);
  await drawn(panel(page, 'totals', 'raw'));
  const before = await ask('put some lumps');
  await until(`${before} puts`, async () => (await puts()) === before);
  checked(`${before} puts are shown`);

  guard.allow(/ERR_CONNECTION_REFUSED|ERR_INCOMPLETE_CHUNKED_ENCODING|ERR_CONNECTION_RESET|ERR_EMPTY_RESPONSE/);
  await ask('kill the service');
  await until('that the page says so', async () => (await state()) === 'reconnecting');
  if (!(await page.locator('#connection').isVisible())) {
    throw new Error('nobody sees that the connection is lost');
  }
  checked(`the page says: ${await page.locator('#connection').textContent()}`);

  const after = await ask('start the service and put some lumps');
  await until('a page that is live again', async () => (await state()) === 'live');
  await until(`${after} puts`, async () => (await puts()) === after);
  await equalToMetrics(page, url);
  checked(`the service is back, the page too, with its ${after} puts and numbers equal to its metrics`);
  guard.good();
}
