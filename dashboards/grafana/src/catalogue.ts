// Series that queries may name: the metrics of METRICS.md, the recording rules, and Prometheus' own.

import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

/** Labels that Prometheus adds to every series of a scrape. */
export const SCRAPED: readonly string[] = ['instance', 'job'];

export interface Metric {
  kind: string;
  labels: string[];
}

/** Metrics by name, as METRICS.md has them. */
export function documented(root: string): Map<string, Metric> {
  const text = readFileSync(join(root, 'service/server/METRICS.md'), 'utf8');
  const metrics = new Map<string, Metric>();
  for (const line of text.split('\n').filter((line) => line.startsWith('| `'))) {
    const [, name = '', kind = '', labels = ''] = line.split('|').map((cell) => cell.trim());
    metrics.set(name.replaceAll('`', ''), { kind, labels: [...labels.matchAll(/`(\w+)`/g)].map((m) => m[1] ?? '') });
  }
  return metrics;
}

/** Names of the recording rules beside the dashboards. */
export function recorded(root: string): Set<string> {
  const folder = join(root, 'dashboards/prometheus');
  const rules = readdirSync(folder).filter((name) => name.endsWith('.yml'));
  const texts = rules.map((name) => readFileSync(join(folder, name), 'utf8'));
  return new Set(texts.flatMap((text) => [...text.matchAll(/^\s*-?\s*record:\s*(\S+)/gm)].map((m) => m[1] ?? '')));
}

/** Series that Prometheus makes itself. */
const BUILT_IN = new Map<string, Metric>([
  ['up', { kind: 'gauge', labels: [] }],
  ['ALERTS', { kind: 'gauge', labels: ['alertname', 'alertstate', 'severity', 'store', 'device', 'kind', 'program'] }],
]);

/** The metric a series belongs to and the labels the series has; absent: there is no such series. */
export function seriesOf(name: string, metrics: Map<string, Metric>): { metric: string; labels: string[] } | undefined {
  const own = BUILT_IN.get(name) ?? metrics.get(name);
  if (own) return { metric: name, labels: [...own.labels, ...SCRAPED] };
  for (const part of ['_bucket', '_sum', '_count']) {
    const metric = name.endsWith(part) ? name.slice(0, -part.length) : '';
    const found = metrics.get(metric);
    if (found?.kind === 'histogram') {
      return { metric, labels: [...found.labels, ...SCRAPED, ...(part === '_bucket' ? ['le'] : [])] };
    }
  }
  return undefined;
}
