// Takes the pictures of the documents: screenshots.mjs LUMPSCOPE FOLDER. Makes a lab of three disks, puts load on it,
// waits until the charts are full, and takes pictures of the page. Needs root, as the lab does.
// Dashboards are taken when a Grafana answers at GRAFANA_URL (http://127.0.0.1:3000).
import { execFileSync, spawn } from 'node:child_process';
import { chownSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { guarded, launch } from './lib/browser.mjs';
import { CHARTS, STORES, drawn, newest, panel } from './lib/panels.mjs';
import { until } from './lib/wait.mjs';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {import('playwright-core').Browser} Browser */

/** Frames, one a second, until the page's window of a minute is full of them, and the ten seconds before are past it. */
const FULL = 75;
/** Bytes that a picture may have: they are kept in the repository. */
const LARGEST = 200_000;
/** Requests a second: some dots a second on each disk, so that each can be seen. */
const RATE = '45';
/** Dashboards by uid, and the names of their pictures. */
const DASHBOARDS = { 'lumpscope-overview': 'grafana-overview', 'lumpscope-seek': 'grafana-seek', 'lumpscope-compare': 'grafana-compare' };

const [binary, folder] = process.argv.slice(2);
if (!binary || !folder) {
  throw new Error('usage: browser-node screenshots.mjs LUMPSCOPE FOLDER');
}

/** @type {import('node:child_process').ChildProcess[]} */
const children = [];

/** @param {string[]} args */
function start(args) {
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  return child;
}

/** Ends the started processes, the last first, and waits for them. */
async function end() {
  for (const child of children.splice(0).reverse()) {
    if (child.exitCode === null && child.signalCode === null) {
      const gone = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGINT');
      await gone;
    }
  }
}

/** @returns {Promise<{grpc: string, metrics: string}>} addresses of a service on a fresh lab */
async function lab() {
  const child = start(['lab', '--', '--listen', '127.0.0.1:0', '--metrics-listen', '127.0.0.1:0']);
  if (!child.stdout) {
    throw new Error('it was piped');
  }
  for await (const line of createInterface({ input: child.stdout })) {
    const ready = /^lumpscope ready .*?grpc=(\S+).*?metrics=(\S+)/.exec(line);
    if (ready) {
      return { grpc: ready[1], metrics: ready[2] };
    }
  }
  throw new Error('the lab did not become ready');
}

/**
 * @param {Page} page
 * @param {string} name
 * @param {import('playwright-core').PageScreenshotOptions} [options]
 */
async function take(page, name, options = {}) {
  const file = join(folder, `${name}.png`);
  await page.screenshot({ path: file, animations: 'disabled', ...options });
  // 256 colours are enough for the page.
  execFileSync('pngquant', ['--force', '--speed', '1', '--output', file, '--', file]);
  const { uid, gid } = statSync(folder);
  chownSync(file, uid, gid);
  const { size } = statSync(file);
  console.log(`${file}: ${size} bytes`);
  if (size > LARGEST) {
    throw new Error(`${file} has ${size} bytes, more than ${LARGEST}`);
  }
}

/**
 * A page that has drawn all that fits into a window of this size, once its charts are full.
 * @param {Browser} browser
 * @param {string} url
 * @param {{width: number, height: number, dark?: boolean}} look
 */
async function full(browser, url, look) {
  const { page } = await guarded(browser, url, look);
  await page.goto(url);
  await until('a first frame', async () => (await newest(page)) >= 0);
  for (const chart of CHARTS) {
    await drawn(panel(page, chart, STORES[0]));
  }
  await page.evaluate(() => scrollTo(0, 0));
  await until('full charts', async () => (await newest(page)) >= FULL);
  return page;
}

/**
 * @param {Page} page
 * @param {string} section id of the first that is in the picture
 * @param {number} height
 */
async function from(page, section, height) {
  const top = await page.locator(`#${section}`).evaluate((one) => one.getBoundingClientRect().top + scrollY);
  const header = (await page.locator('header.top').boundingBox())?.height ?? 0;
  await page.evaluate((y) => scrollTo(0, y), top - header - 8);
  const seen = await newest(page);
  await until('a frame after the scrolling', async () => (await newest(page)) > seen + 1);
  const { width = 1280 } = page.viewportSize() ?? {};
  return { clip: { x: 0, y: 0, width, height } };
}

/**
 * Reads the raw disk with dd beside the load until a row of the slowest requests names it.
 * @param {Page} page
 * @param {string} grpc
 */
async function disturbed(page, grpc) {
  const stores = execFileSync(binary, ['stores', '--server', `http://${grpc}`, '--json'], { encoding: 'utf8' });
  const disk = stores.trim().split('\n').map((line) => JSON.parse(line)).find(({ name }) => name === 'raw').path;
  const row = page.locator('#slowest-table tr[data-request][title*="the disk served dd["] a').first();
  await until('a request that waited for dd', async () => {
    execFileSync('dd', [`if=${disk}`, 'of=/dev/null', 'bs=16M', 'count=32', 'iflag=direct', 'status=none']);
    return (await row.count()) > 0;
  });
  return row;
}

/** @param {Browser} browser @param {string} url @param {string} grpc */
async function pictures(browser, url, grpc) {
  const light = await full(browser, url, { width: 1280, height: 1250 });
  await take(light, 'page-light');
  const dark = await full(browser, url, { width: 1280, height: 1250, dark: true });
  await take(dark, 'page-dark', await from(dark, 'seeks', 1250));
  const narrow = await full(browser, url, { width: 390, height: 844 });
  await take(narrow, 'page-390');

  await light.locator('#slowest').scrollIntoViewIfNeeded();
  const row = await disturbed(light, grpc);
  await row.click();
  await light.locator('#request[open] .sentence').waitFor();
  const dialog = await light.locator('#request').boundingBox();
  await take(light, 'explain', dialog ? { clip: dialog } : {});
  // A test compares it with the version of the sources.
  writeFileSync(join(folder, 'VERSION'), `${await light.locator('#version').innerText()}\n`);
}

/** @param {Browser} browser */
async function dashboards(browser) {
  const grafana = process.env.GRAFANA_URL || 'http://127.0.0.1:3000';
  const healthy = await fetch(new URL('/api/health', grafana)).then((reply) => reply.ok, () => false);
  if (!healthy) {
    console.log(`no Grafana answers at ${grafana}: its dashboards are not taken`);
    return;
  }
  const { page } = await guarded(browser, grafana, { width: 1280, height: 1000 });
  for (const [uid, name] of Object.entries(DASHBOARDS)) {
    await page.goto(new URL(`/d/${uid}?kiosk&theme=light&from=now-15m&to=now`, grafana).href);
    await page.locator('[data-viz-panel-key], .panel-container, [data-testid^="data-testid Panel header"]').first().waitFor();
    await page.waitForLoadState('networkidle');
    await take(page, name);
  }
}

process.once('SIGINT', () => void end().then(() => process.exit(130)));
process.once('SIGTERM', () => void end().then(() => process.exit(143)));
const browser = await launch();
try {
  const { grpc, metrics } = await lab();
  start(['load', '--server', `http://${grpc}`, '--rate', RATE]).stdout?.resume();
  await pictures(browser, `http://${metrics}/`, grpc);
  await dashboards(browser);
} finally {
  await browser.close();
  await end();
}
