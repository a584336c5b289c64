// A service with tokens: the page asks for one, says when it is wrong, and shows what it allows.
//   LUMPSCOPE_TOKEN_ALL     may observe all stores
//   LUMPSCOPE_TOKEN_ONE     may observe the store ext4 only
//   LUMPSCOPE_TOKEN_OTHER   may read, and observe nothing
import { guarded } from '../lib/browser.mjs';
import { STORES } from '../lib/panels.mjs';
import { ask, checked } from '../lib/talk.mjs';
import { until } from '../lib/wait.mjs';

/** @typedef {import('playwright-core').Page} Page */

/** @param {string} name */
function token(name) {
  const is = process.env[`LUMPSCOPE_TOKEN_${name}`];
  if (!is) {
    throw new Error(`LUMPSCOPE_TOKEN_${name} is not set`);
  }
  return is;
}

/** @param {Page} page @param {string} text */
async function logIn(page, text) {
  await page.locator('#login-token').fill(text);
  await page.locator('#login-token').press('Enter');
}

/**
 * @param {Page} page
 * @returns {Promise<string[]>} the stores that the page shows anything of
 */
function stores(page) {
  return page.$$eval('[data-store]', (all) => [...new Set(all.map((one) => one.getAttribute('data-store') ?? ''))]);
}

/** @param {Page} page @param {string[]} wanted */
async function shows(page, wanted) {
  await until(`the stores ${wanted}`, async () => (await stores(page)).length > 0);
  await page.locator('#login').waitFor({ state: 'hidden' });
  const seen = await stores(page);
  if (seen.join() !== wanted.join()) {
    throw new Error(`the page shows ${seen} and not ${wanted}`);
  }
  // The table knows of the last minutes only.
  await ask('put some lumps');
  await page.locator('#slowest').scrollIntoViewIfNeeded();
  await page.locator('#slowest-table tr[data-request]').first().waitFor();
  const rows = await page.$$eval('#slowest-table tr[data-request] td:nth-child(2)', (all) => all.map((one) => one.textContent ?? ''));
  const foreign = rows.filter((name) => !wanted.includes(name));
  if (foreign.length > 0) {
    throw new Error(`among the slowest are requests to ${foreign}`);
  }
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function login(browser, url) {
  const guard = await guarded(browser, url);
  // The console tells of each refusal.
  guard.allow(/status of 40[13]/);
  /** @type {string[]} */
  const asked = [];
  const { page } = guard;
  page.on('request', (request) => asked.push(request.url()));
  await page.goto(url);
  await page.locator('#login').waitFor();
  await until('the focus in the form', () => page.evaluate(() => document.activeElement?.id === 'login-token'));
  if ((await stores(page)).length > 0) {
    throw new Error('stores are shown to strangers');
  }
  checked('a form asks for a token, and nothing is shown without one');

  for (const [what, text, words] of /** @type {[string, string, RegExp][]} */ ([
    ['a token that nobody has', 'wrong', /token/i],
    ['a token that may not observe', token('OTHER'), /observe/],
  ])) {
    const before = asked.length;
    await logIn(page, text);
    await until('an answer', () => asked.length > before);
    await until(`words on ${what}`, async () => words.test((await page.locator('#login-why').textContent()) ?? ''));
    if ((await stores(page)).length > 0) {
      throw new Error(`${what} shows stores`);
    }
    checked(`${what} is refused: ${await page.locator('#login-why').textContent()}`);
  }

  await logIn(page, token('ALL'));
  await shows(page, STORES);
  await page.reload();
  await shows(page, STORES);
  checked('the right one shows all stores, and is remembered while the tab is open');
  const leaks = asked.filter((one) => one.includes(token('ALL')));
  if (leaks.length > 0) {
    throw new Error(`the token is in the address ${leaks[0]}`);
  }
  guard.good();

  const other = await guarded(browser, url);
  other.allow(/status of 401/);
  await other.page.goto(url);
  await logIn(other.page, token('ONE'));
  await shows(other.page, ['ext4']);
  checked('a token for one store shows that store only; the tokens are in no address');
  other.good();
}
