// A browser that does nothing and a client that reads nothing take no frames from others.
import { connect } from 'node:net';
import { guarded } from '../lib/browser.mjs';
import { newest } from '../lib/panels.mjs';
import { checked } from '../lib/talk.mjs';
import { sleep, until } from '../lib/wait.mjs';

/** Frames that others must get meanwhile. */
const MEANWHILE = 4;
/** Milliseconds between two signs of life of the frozen page. */
const SIGN = 200;

/**
 * @param {string} url
 * @returns {Promise<import('node:net').Socket>} that has asked for frames and reads none
 */
function deaf(url) {
  const { hostname, port, host } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => {
      socket.pause();
      socket.write(`GET /api/v1/live HTTP/1.1\r\nHost: ${host}\r\n\r\n`, () => resolve(socket));
    });
    socket.on('error', reject);
  });
}

/** @param {import('playwright-core').Browser} browser @param {string} url */
export default async function slow(browser, url) {
  const [frozen, good] = [await guarded(browser, url), await guarded(browser, url)];
  await frozen.page.goto(url);
  await good.page.goto(url);
  await until('frames in both', async () => (await newest(frozen.page)) >= 0 && (await newest(good.page)) >= 0);
  const sockets = await Promise.all([deaf(url), deaf(url), deaf(url)]);

  // The frozen page runs in a process of its own and does nothing until it is told so by a request that it cannot see
  // fail: a flag in the page would never be read. So it freezes for short times, again and again.
  let done = false;
  const freezing = (async () => {
    while (!done) {
      await frozen.page.evaluate((ms) => {
        const end = performance.now() + ms;
        while (performance.now() < end);
      }, 20 * SIGN);
    }
  })();
  const before = await newest(good.page);
  await until('frames in the other page', async () => (await newest(good.page)) >= before + MEANWHILE);
  done = true;
  await freezing;
  checked(`one page was frozen and three clients read nothing: another got ${MEANWHILE} frames and more`);

  const then = await newest(good.page);
  await until('the frozen page goes on', async () => (await newest(frozen.page)) > then);
  checked('the frozen page is up to date again');
  for (const socket of sockets) {
    socket.destroy();
  }
  await sleep(SIGN);
  frozen.good();
  good.good();
}
