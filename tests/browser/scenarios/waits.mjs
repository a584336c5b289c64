// Asks for its own end with a page open, and waits for it: nothing may be left of a browser whose test has failed.
import { ask } from '../lib/talk.mjs';

/** @param {import('playwright-core').Browser} browser */
export default async function waits(browser) {
  const page = await browser.newPage();
  await page.setContent('<p>open');
  await ask('end me');
}
