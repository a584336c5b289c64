// Dark and light, wide and narrow: nothing sticks out, and axe finds nothing that keeps people out.
import { guarded } from '../lib/browser.mjs';
import { CHARTS, drawn, panel, pixels } from '../lib/panels.mjs';
import { checked } from '../lib/talk.mjs';
import { axeSource } from '../lib/tools.mjs';
import { until } from '../lib/wait.mjs';

/** @typedef {import('playwright-core').Page} Page */

/**
 * @param {Page} page
 * @param {string} where
 */
async function fits(page, where) {
  const { scroll, width, wide } = await page.evaluate(() => ({
    scroll: document.scrollingElement?.scrollWidth ?? 0,
    width: innerWidth,
    wide: [...document.querySelectorAll('body *')]
      .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll'))
      .map((one) => `${one.tagName}#${one.id}.${one.getAttribute('class')}`)
      .slice(0, 5),
  }));
  if (scroll > width) {
    throw new Error(`${where}: ${scroll} pixels wide in a window of ${width}: ${wide.join(', ')}`);
  }
}

/**
 * @param {Page} page
 * @param {string} where
 */
async function accessible(page, where) {
  // By the debugger, which the page's policy does not hold back.
  await page.evaluate(axeSource);
  const found = await page.evaluate(async () => {
    const { axe } = /** @type {any} */ (globalThis);
    const result = await axe.run(document, { runOnly: { type: 'tag', values: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] } });
    const told = (/** @type {any} */ v) => `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((/** @type {any} */ n) => `${n.html.slice(0, 200)} ${n.failureSummary}`).join(' | ')}`;
    return { violations: result.violations.map(told), passes: result.passes.length };
  });
  if (found.violations.length > 0) {
    throw new Error(`${where}: axe finds ${found.violations.length}: ${found.violations.join('\n')}`);
  }
  if (found.passes < 10) {
    throw new Error(`${where}: axe has looked at next to nothing`);
  }
}

/** @param {Page} page @param {string} store */
async function everything(page, store) {
  for (const chart of CHARTS) {
    await drawn(panel(page, chart, store));
  }
  await page.locator('#slowest').scrollIntoViewIfNeeded();
  await page.locator('#slowest-table tr[data-request]').first().waitFor();
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function looks(browser, url) {
  /** @type {Map<boolean, string>} */
  const grounds = new Map();
  for (const dark of [false, true]) {
    for (const width of [1280, 390]) {
      const where = `${dark ? 'dark' : 'light'}, ${width} px`;
      const guard = await guarded(browser, url, { dark, width, height: width === 390 ? 844 : 900 });
      const { page } = guard;
      await page.goto(url);
      await until('a frame', async () => (await page.$$('article.panel[data-seq]')).length > 0);
      await everything(page, 'raw');
      await fits(page, where);
      await accessible(page, where);
      grounds.set(dark, await page.evaluate(() => getComputedStyle(document.body).backgroundColor));

      await page.locator('#slowest-table tr[data-request] a').first().click();
      await page.locator('#request[open] .sentence').waitFor();
      await fits(page, `${where}, explained`);
      await accessible(page, `${where}, explained`);
      await page.keyboard.press('Escape');
      checked(`${where}: fits, with and without an explained request; axe finds nothing`);
      guard.good();
      await page.context().close();
    }
  }
  if (grounds.get(true) === grounds.get(false)) {
    throw new Error(`dark is as light: ${grounds.get(true)}`);
  }

  const guard = await guarded(browser, url);
  await guard.page.goto(url);
  const load = panel(guard.page, 'load', 'raw');
  await drawn(load);
  const light = await pixels(load);
  await guard.page.locator('#theme').selectOption('dark');
  await until('dark pictures', async () => {
    const ground = await guard.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    return ground === grounds.get(true) && (await pixels(load)).image !== light.image;
  });
  await guard.page.reload();
  await drawn(load);
  const ground = await guard.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  if (ground !== grounds.get(true)) {
    throw new Error('the theme that was chosen is forgotten');
  }
  checked('dark can be chosen, and stays chosen');
  guard.good();
}
