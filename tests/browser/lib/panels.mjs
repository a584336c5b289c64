// Panels of the page, one per chart and store, and the contents of their canvases.
import { scrape, value } from './metrics.mjs';
import { until } from './wait.mjs';

/** @typedef {import('playwright-core').Page} Page */
/** @typedef {import('playwright-core').Locator} Locator */

/** The stores of a lab. */
export const STORES = ['raw', 'ext4', 'xfs'];

/** Difference of red, green and blue, of 255, from which on a pixel is not grey. */
const COLOURED = 40;

/** Charts on a canvas, as their panels name them in data-chart. */
export const CHARTS = ['load', 'stages', 'seeks', 'joint', 'sectors'];

/**
 * @param {Page} page
 * @param {string} chart
 * @param {string} store
 * @returns {Locator}
 */
export function panel(page, chart, store) {
  return page.locator(`article.panel[data-chart="${chart}"][data-store="${store}"]`);
}

/**
 * Brings a panel into view, because only visible panels are drawn, and waits for a frame later than the one it shows.
 * @param {Locator} of
 * @param {number} [after] a frame's number
 * @returns {Promise<number>} number of the frame that it shows
 */
export async function drawn(of, after = -1) {
  await of.scrollIntoViewIfNeeded();
  return until(`a picture of a frame after ${after} in ${of}`, async () => {
    const seq = Number((await of.getAttribute('data-seq')) ?? -1);
    return seq > after && { seq };
  }).then(({ seq }) => seq);
}

/**
 * The newest frame that the page has drawn anywhere.
 * @param {Page} page
 * @returns {Promise<number>}
 */
export function newest(page) {
  return page.$$eval('article.panel[data-seq]', (all) =>
    Math.max(-1, ...all.map((one) => Number(one.getAttribute('data-seq')))),
  );
}

/**
 * Contents of the canvas of a panel.
 * @param {Locator} of
 * @returns {Promise<{image: string, coloured: number}>} the image, and how many pixels have a colour: axes, lines and
 * text is grey, marks of the disk are not
 */
export function pixels(of) {
  return of.locator('canvas').first().evaluate((element, least) => {
    const canvas = /** @type {HTMLCanvasElement} */ (element);
    // Read from a copy, so that the page's own canvas stays as it is.
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    if (!copy || canvas.width === 0 || canvas.height === 0) {
      return { image: '', coloured: 0 };
    }
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    let coloured = 0;
    for (let at = 0; at < data.length; at += 4) {
      const [r, g, b] = [data[at], data[at + 1], data[at + 2]];
      coloured += data[at + 3] > 128 && Math.max(r, g, b) - Math.min(r, g, b) > least ? 1 : 0;
    }
    return { image: canvas.toDataURL(), coloured };
  }, COLOURED);
}

/**
 * The numbers of the page that are numbers of the metrics endpoint.
 * @param {Page} page
 * @returns {Promise<[string, number][]>} selectors and values
 */
export function shown(page) {
  return page.$$eval('[data-metric]', (all) =>
    all.map((one) => [one.getAttribute('data-metric') ?? '', Number(one.getAttribute('data-value') ?? NaN)]),
  );
}

/**
 * Waits until all of them equal the metrics endpoint, which is possible only on an idle service.
 * @param {Page} page
 * @param {string} url
 */
export async function equalToMetrics(page, url) {
  /** @type {string[]} */
  let differ = [];
  await until(
    () => `a page that equals the metrics: ${differ.join('; ')}`,
    async () => {
      const samples = await scrape(new URL('/metrics', url).href);
      const all = await shown(page);
      differ = all
        .filter(([selector, is]) => value(samples, selector) !== is)
        .map(([selector, is]) => `${selector} is ${is} on the page and ${value(samples, selector)} in the metrics`);
      return all.length > 0 && differ.length === 0;
    },
  );
}
