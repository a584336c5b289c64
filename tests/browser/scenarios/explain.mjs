// From the table of the slowest requests to one that is explained, with the mouse, with the keyboard, and by its address.
import { guarded } from '../lib/browser.mjs';
import { checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** @typedef {import('playwright-core').Page} Page */

/**
 * @param {Page} page
 * @param {number} count
 * @returns {Promise<number[]>} ids of requests of the table that touched the disk
 */
async function ids(page, count) {
  await page.locator('#slowest').scrollIntoViewIfNeeded();
  return until(`${count} rows in the table of the slowest requests`, async () => {
    const rows = await page.$$eval('#slowest-table tr[data-request]', (all) =>
      all.map((row) => Number(row.getAttribute('data-request'))),
    );
    return rows.length >= count && rows.slice(0, count);
  });
}

/**
 * The open dialog agrees with the API.
 * @param {Page} page
 * @param {string} url
 * @param {number} id
 */
async function tells(page, url, id) {
  const reply = await fetch(new URL(`/api/v1/requests/${id}`, url));
  if (!reply.ok) {
    throw new Error(`/api/v1/requests/${id} answers ${reply.status}`);
  }
  /** @type {{request_id: number, sentence: string, blocks: {operation: string, flags: string[], sector: number}[]}} */
  const request = await reply.json();
  const dialog = page.locator('#request[open]');
  await dialog.locator('.sentence, [role=alert]').first().waitFor();
  const text = (await dialog.innerText()).replaceAll(',', '');
  const drawn = (await dialog.locator('svg title').allTextContents()).join('\n');
  const missing = [String(request.request_id), request.sentence.replaceAll(',', '')].filter((part) => !text.includes(part));
  const sectors = request.blocks.filter((block) => block.operation !== 'flush').map((block) => block.sector);
  const unlisted = sectors.filter((sector) => !text.includes(String(sector)));
  const kinds = request.blocks.map((block) => [block.operation, ...block.flags].join(' ')).filter((kind) => !text.includes(kind));
  const undrawn = sectors.filter((sector) => !new RegExp(`sector ${sector}\\b`).test(drawn));
  if (missing.length > 0 || kinds.length > 0 || unlisted.length > 0 || undrawn.length > 0) {
    throw new Error(`request ${id}: missing ${missing} ${kinds}; sectors not listed ${unlisted}; not drawn ${undrawn}`);
  }
  return sectors.length;
}

/** @param {Page} page */
async function closed(page) {
  await page.keyboard.press('Escape');
  await page.locator('#request').waitFor({ state: 'hidden' });
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function explain(browser, url) {
  const guard = await guarded(browser, url);
  const { page } = guard;
  await page.goto(url);
  const [first, second, third] = await ids(page, 3);

  // Longer than the table stays as it is, if nobody presses.
  await page.locator(`tr[data-request="${first}"] td`).last().click({ delay: 9000 });
  const sectors = await tells(page, url, first);
  checked(`a click on a row explains request ${first}: its id, its sentence and ${sectors} sectors, as the API tells them`);
  await closed(page);
  checked('Escape closes it');

  const link = page.locator(`tr[data-request="${second}"] a`);
  await link.focus();
  await page.keyboard.press('Enter');
  await tells(page, url, second);
  await closed(page);
  await until('the focus where it was', () =>
    link.evaluate((element) => document.activeElement === element),
  );
  checked(`Enter explains request ${second}, and the focus comes back to its row`);

  await link.evaluate((element) => /** @type {HTMLElement} */ (element).blur());
  await page.goto(new URL(`/#request=${third}`, url).href);
  await page.reload();
  await tells(page, url, third);
  await page.locator('#request-close').click();
  await page.locator('#request').waitFor({ state: 'hidden' });
  // A dialog tells that it is closed a moment after it is hidden.
  await until('the plain address', () => page.evaluate(() => location.hash === ''));
  checked(`the address explains request ${third}, and is plain again when that is closed`);

  guard.allow(/status of 404/);
  await page.goto(new URL('/#request=18000000000000', url).href);
  await page.locator('#request[open] [role=alert]').waitFor();
  await closed(page);
  checked('a request that is not known is said not to be');
  guard.good();
}
