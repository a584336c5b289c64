// With the keyboard alone: Tab reaches every control, the focus is visible, and every choice works.
import { guarded } from '../lib/browser.mjs';
import { drawn, newest, panel } from '../lib/panels.mjs';
import { checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** More stops than any page has. */
const STOPS = 400;

/**
 * Marks all that a person could operate. Of the radio buttons of a group one is reached, the arrows lead to the others.
 * @param {Page} page
 * @returns {Promise<number>}
 */
function mark(page) {
  return page.evaluate(() => {
    const all = [...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')];
    const operable = all.filter((one) => {
      const radio = one instanceof HTMLInputElement && one.type === 'radio' && !one.checked;
      return one.checkVisibility({ visibilityProperty: true }) && !one.hasAttribute('disabled') && !radio;
    });
    for (const [at, one] of operable.entries()) {
      one.setAttribute('data-stop', `${at} ${one.tagName} ${one.id} ${(one.getAttribute('aria-label') ?? one.textContent ?? '').trim().slice(0, 40)}`);
    }
    return operable.length;
  });
}

/**
 * Walks through the page with Tab.
 * @param {Page} page
 */
async function walk(page) {
  /** @type {Set<string>} */
  const reached = new Set();
  /** @type {string[]} */
  const plain = [];
  for (let stop = 0; stop < STOPS; stop += 1) {
    await page.keyboard.press('Tab');
    const here = await page.evaluate(() => {
      const at = document.activeElement;
      if (!at || at === document.body) {
        return null;
      }
      const look = (/** @type {Element} */ one) => {
        const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(one);
        return (outlineStyle !== 'none' && parseFloat(outlineWidth) > 0) || boxShadow !== 'none';
      };
      // A control that is hidden behind its label shows the focus there.
      const shows = [at, at.nextElementSibling, at.parentElement].some((one) => one !== null && look(one));
      return { stop: at.getAttribute('data-stop') ?? '', shows };
    });
    if (here === null) {
      break;
    }
    if (here.stop && reached.has(here.stop)) {
      break;
    }
    if (here.stop) {
      reached.add(here.stop);
    }
    if (!here.shows) {
      plain.push(here.stop);
    }
  }
  const all = await page.$$eval('[data-stop]', (ones) => ones.map((one) => one.getAttribute('data-stop') ?? ''));
  return { reached, plain, missed: all.filter((one) => !reached.has(one)) };
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function keyboard(browser, url) {
  const guard = await guarded(browser, url);
  const { page } = guard;
  await page.goto(url);
  await drawn(panel(page, 'load', 'raw'));
  await page.locator('#slowest').scrollIntoViewIfNeeded();
  await page.locator('#slowest-table tr[data-request]').first().waitFor();
  // Paused, so that the table does not change during the walk.
  await page.locator('#pause').focus();
  await page.keyboard.press('Space');
  await until('a page that rests', async () => (await page.locator('#pause').getAttribute('aria-pressed')) === 'true');
  checked('Space pauses');
  const controls = await mark(page);
  await page.evaluate(() => {
    scrollTo(0, 0);
    const first = /** @type {HTMLElement} */ (document.activeElement);
    first.blur();
  });
  await page.locator('a.skip').focus();
  await page.keyboard.press('Shift+Tab');
  const { reached, plain, missed } = await walk(page);
  if (missed.length > 0) {
    throw new Error(`Tab does not reach ${missed.join('; ')} (it reaches ${reached.size})`);
  }
  if (plain.length > 0) {
    throw new Error(`the focus does not show on ${plain.join('; ')}`);
  }
  checked(`Tab reaches all ${controls} controls, and the focus shows on each`);

  await page.locator('#pause').focus();
  await page.keyboard.press('Enter');
  const seen = await newest(page);
  await page.evaluate(() => scrollTo(0, 0));
  await until('frames again', async () => (await newest(page)) > seen);
  const table = page.locator('#load .as-table');
  await table.focus();
  await page.keyboard.press('Enter');
  await panel(page, 'load', 'raw').locator('.sheet table tbody tr').first().waitFor();
  checked('a chart is shown as a table by Enter');
  guard.good();
}
