// The metrics endpoint, read as Prometheus reads it.

/**
 * @typedef {{name: string, labels: Map<string, string>, value: number}} Sample
 */

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*?)\})? (\S+)(?: #.*)?$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"/g;

/**
 * @param {string} text
 * @returns {Map<string, string>}
 */
function labels(text) {
  const unescape = (/** @type {string} */ value) => value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
  return new Map([...text.matchAll(LABEL)].map(([, name, value]) => [name, unescape(value)]));
}

/**
 * All samples of a page of metrics.
 * @param {string} url of the endpoint
 * @returns {Promise<Sample[]>}
 */
export async function scrape(url) {
  const reply = await fetch(url);
  if (!reply.ok) {
    throw new Error(`${url} answers ${reply.status}`);
  }
  const samples = [];
  for (const line of (await reply.text()).split('\n')) {
    const parts = line.startsWith('#') ? null : LINE.exec(line);
    if (parts) {
      samples.push({ name: parts[1], labels: labels(parts[2] ?? ''), value: Number(parts[3]) });
    }
  }
  return samples;
}

/**
 * The sum of all series that a selector, as `name{label="value"}`, chooses. None: 0, as a counter that was never moved.
 * @param {Sample[]} samples
 * @param {string} selector
 * @returns {number}
 */
export function value(samples, selector) {
  const parts = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?$/.exec(selector.trim());
  if (!parts) {
    throw new Error(`this is no selector: ${selector}`);
  }
  const wanted = [...labels(parts[2] ?? '')];
  return samples
    .filter((sample) => sample.name === parts[1])
    .filter((sample) => wanted.every(([name, is]) => sample.labels.get(name) === is))
    .reduce((sum, sample) => sum + sample.value, 0);
}
