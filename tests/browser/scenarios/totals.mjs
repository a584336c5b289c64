// Once nothing moves any more, every number of the page is that of the metrics endpoint, to the last digit.
import { guarded } from '../lib/browser.mjs';
import { STORES, drawn, equalToMetrics, panel, shown } from '../lib/panels.mjs';
import { ask, checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** Numbers there must be at least: puts and gets of three stores, their bytes, their block requests. */
const AT_LEAST = 30;

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function totals(browser, url) {
  const guard = await guarded(browser, url);
  const { page } = guard;
  await page.goto(url);
  const of = panel(page, 'totals', STORES[0]);
  const first = await drawn(of);
  const puts = async () =>
    (await shown(page)).filter(([name]) => name.startsWith('lumpscope_requests_total')).reduce((sum, [, n]) => sum + n, 0);
  await until('numbers', async () => (await puts()) > 0);
  const before = await puts();
  await until('numbers that grow', async () => (await puts()) > before);
  checked('the numbers grow under load');
  await ask('stop the load');
  await drawn(of, first);

  await equalToMetrics(page, url);
  const all = await shown(page);
  const moved = all.filter(([, is]) => is > 0);
  if (moved.length < AT_LEAST) {
    throw new Error(`only ${moved.length} of ${all.length} numbers are more than 0`);
  }
  for (const store of STORES) {
    for (const name of ['lumpscope_requests_total', 'lumpscope_block_requests_total', 'lumpscope_block_bytes_total']) {
      if (!moved.some(([selector]) => selector.startsWith(name) && selector.includes(`store="${store}"`))) {
        throw new Error(`the page shows no ${name} of ${store}`);
      }
    }
  }
  checked(`${all.length} numbers equal the metrics endpoint, ${moved.length} of them more than 0`);
  guard.good();
}
