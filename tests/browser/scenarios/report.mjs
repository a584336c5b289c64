// A report opened from its file: every chart drawn, nothing asked for, nothing in the console, nothing sticking out in
// light and dark, wide and narrow; axe finds nothing; on paper no figure is cut.
import { guarded } from '../lib/browser.mjs';
import { checked } from '../lib/talk.mjs';
import { axeSource } from '../lib/tools.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** Printable width and height of an A4 page in pixels, without the margins of the report's style. */
const PAPER = { width: Math.floor((182 / 25.4) * 96), height: Math.floor((263 / 25.4) * 96) };

/**
 * @param {Page} page
 * @param {string} where
 */
async function fits(page, where) {
  const { scroll, width, wide } = await page.evaluate(() => ({
    scroll: document.scrollingElement?.scrollWidth ?? 0,
    width: innerWidth,
    wide: [...document.querySelectorAll('body *')]
      .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.scroll, pre'))
      .map((one) => `${one.tagName}.${one.getAttribute('class')}`)
      .slice(0, 5),
  }));
  if (scroll > width || wide.length > 0) {
    throw new Error(`${where}: ${scroll} pixels wide in a window of ${width}: ${wide.join(', ')}`);
  }
}

/**
 * @param {Page} page
 * @param {string} where
 */
async function accessible(page, where) {
  await page.evaluate(axeSource);
  const found = await page.evaluate(async () => {
    const { axe } = /** @type {any} */ (globalThis);
    const values = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'];
    const result = await axe.run(document, { runOnly: { type: 'tag', values } });
    const told = (/** @type {any} */ v) =>
      `${v.id}: ${v.help}: ${v.nodes.slice(0, 3).map((/** @type {any} */ n) => n.html.slice(0, 200)).join(' | ')}`;
    return { violations: result.violations.map(told), passes: result.passes.length };
  });
  if (found.violations.length > 0) {
    throw new Error(`${where}: axe finds ${found.violations.length}: ${found.violations.join('\n')}`);
  }
  if (found.passes < 10) {
    throw new Error(`${where}: axe has looked at next to nothing`);
  }
}

/**
 * Every chart has a name, marks, and words on its axes that lie in its frame and not on each other.
 * @param {Page} page
 */
async function drawn(page) {
  const charts = await page.evaluate(() =>
    [...document.querySelectorAll('svg[role=img]')].map((svg) => {
      const words = [...svg.querySelectorAll('text')];
      const texts = words.map((text) => text.getBoundingClientRect());
      const frame = svg.getBoundingClientRect();
      const lie = (/** @type {DOMRect} */ a, /** @type {DOMRect} */ b) =>
        a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
      return {
        name: svg.getAttribute('aria-label') ?? '',
        marks: svg.querySelectorAll('path, polyline, rect, circle, polygon').length,
        words: texts.length,
        overlaps: words.filter((_, index) => texts.slice(index + 1).some((b) => lie(texts[index], b))).map((one) => one.textContent),
        outside: words
          .filter((_, index) => texts[index].left < frame.left - 2 || texts[index].right > frame.right + 2)
          .map((one) => one.textContent),
      };
    }),
  );
  for (const { name, marks, words, overlaps, outside } of charts) {
    if (!name || marks < 3 || words < 3 || overlaps.length > 0 || outside.length > 0) {
      throw new Error(`"${name}": ${JSON.stringify({ marks, words, overlaps, outside })}`);
    }
  }
  if (charts.length === 0) {
    throw new Error('there is no chart');
  }
  return charts.length;
}

/** @param {Page} page */
async function printable(page) {
  await page.emulateMedia({ media: 'print' });
  await page.setViewportSize(PAPER);
  await fits(page, 'on paper');
  const cut = await page.evaluate(
    (height) =>
      [...document.querySelectorAll('figure')]
        .filter((one) => getComputedStyle(one).breakInside !== 'avoid' || one.getBoundingClientRect().height > height)
        .map((one) => `${one.querySelector('figcaption')?.textContent} ${one.getBoundingClientRect().height}`),
    PAPER.height,
  );
  if (cut.length > 0) {
    throw new Error(`cut on paper: ${cut.join('; ')}`);
  }
  const clipped = await page.evaluate(() =>
    [...document.querySelectorAll('.scroll, pre')].filter((one) => one.scrollWidth > one.clientWidth + 1).length,
  );
  if (clipped > 0) {
    throw new Error(`${clipped} tables or charts are wider than the paper`);
  }
  const pdf = await page.pdf({ preferCSSPageSize: true });
  if (pdf.subarray(0, 5).toString() !== '%PDF-' || pdf.length < 10_000) {
    throw new Error(`no PDF of a report: ${pdf.length} bytes`);
  }
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function report(browser, url) {
  /** @type {Map<boolean, string>} */
  const grounds = new Map();
  for (const dark of [false, true]) {
    for (const width of [1280, 390]) {
      const where = `${dark ? 'dark' : 'light'}, ${width} px`;
      const guard = await guarded(browser, url, { dark, width, height: width === 390 ? 844 : 900 });
      const { page } = guard;
      /** @type {Set<string>} */
      const asked = new Set();
      page.on('request', (request) => asked.add(request.url()));
      await page.goto(url);
      const charts = await drawn(page);
      await fits(page, where);
      await accessible(page, where);
      grounds.set(dark, await page.evaluate(() => getComputedStyle(document.body).backgroundColor));
      if (!dark && width === 1280) {
        await printable(page);
        checked('on paper: no figure is cut, nothing is wider than the paper');
      }
      if (asked.size !== 1) {
        throw new Error(`${where}: asked for ${[...asked].join(', ')}`);
      }
      if (await page.evaluate(() => document.scripts.length !== 2 || 'hacked' in globalThis)) {
        throw new Error(`${where}: a script that is not the report's`);
      }
      checked(`${where}: ${charts} charts are drawn; fits; axe finds nothing; nothing was asked for`);
      guard.good();
      await page.context().close();
    }
  }
  if (grounds.get(true) === grounds.get(false)) {
    throw new Error(`dark is as light: ${grounds.get(true)}`);
  }
}
