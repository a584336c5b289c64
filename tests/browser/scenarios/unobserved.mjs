// A service that does not observe its disks: the page names the unknown values, and shows the others. The path of the
// store is full of markup: it must be shown as text.
//   LUMPSCOPE_PATH   path of the store `plain`
import { guarded } from '../lib/browser.mjs';
import { drawn, panel } from '../lib/panels.mjs';
import { ask, checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function unobserved(browser, url) {
  const path = process.env.LUMPSCOPE_PATH ?? '';
  const guard = await guarded(browser, url);
  const { page } = guard;
  await page.goto(url);
  const card = panel(page, 'stores', 'plain');
  await drawn(card);
  const text = await until('words on what is not observed', async () => {
    const said = await card.innerText();
    return /not observed/i.test(said) && said;
  });
  if (!path.includes('<') || !text.includes(path)) {
    throw new Error(`the card does not show the path ${path} but ${text}`);
  }
  const injected = await page.evaluate(() => document.querySelectorAll('main b, main img').length);
  if (injected > 0) {
    throw new Error('the path has become elements of the page');
  }
  checked(`the card says: ${text.replaceAll('\n', ' ')}`);

  const load = panel(page, 'load', 'plain');
  await drawn(load);
  await ask('put some lumps');
  await until('requests', async () => Number(await load.getAttribute('data-marks')) > 0);
  for (const chart of ['seeks', 'joint', 'sectors']) {
    const of = panel(page, chart, 'plain');
    await drawn(of);
    await until(`words in ${chart}`, async () => /not observed|no probes|switched off|nothing is known/i.test(await of.locator('.notes').innerText()));
    if (Number(await of.getAttribute('data-marks')) > 0) {
      throw new Error(`${chart} shows what nobody has seen`);
    }
  }
  checked('requests are shown; the charts of the disk are empty and say why');
  guard.good();
}
