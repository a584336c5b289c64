// Series and labels of a query, from the grammar of Prometheus.

import { parser } from '@prometheus-io/lezer-promql';

/** A selector: the name of a series and the labels it is chosen by. */
export interface Selector {
  name: string;
  labels: string[];
}

export interface Asked {
  selectors: Selector[];
  /** Labels that aggregations, joins and label_replace name. */
  labels: string[];
  /** Labels that label_replace and label_join make. */
  made: string[];
  /** Places that the grammar does not know. */
  errors: string[];
}

/** Puts something that the grammar knows where Grafana puts a duration. */
export function withDurations(expr: string): string {
  return expr.replaceAll('$__rate_interval', '1m').replaceAll('$__range', '1h').replaceAll('$__interval', '15s');
}

export function ask(expr: string): Asked {
  const text = withDurations(expr);
  const asked: Asked = { selectors: [], labels: [], made: [], errors: [] };
  const inside: string[] = [];
  parser.parse(text).iterate({
    enter(node) {
      const said = text.slice(node.from, node.to);
      if (node.type.isError) asked.errors.push(`at ${node.from}: ${text.slice(node.from, node.from + 30)}`);
      else if (node.name === 'VectorSelector') asked.selectors.push({ name: '', labels: [] });
      else if (node.name === 'Identifier' && inside.at(-1) === 'VectorSelector') last(asked).name = said;
      else if (node.name === 'LabelName' && inside.at(-1) === 'GroupingLabels') asked.labels.push(said);
      else if (node.name === 'LabelName') last(asked).labels.push(said);
      inside.push(node.name);
    },
    leave() {
      inside.pop();
    },
  });
  const replaced = text.matchAll(/label_replace\([^"]*(?:"[^"]*"[^"]*)*?, "(\w+)", "[^"]*", "\w*", "[^"]*"\)/g);
  const joined = text.matchAll(/, "(\w+)", " ", "\w+", "\w+"\)/g);
  asked.made = [...replaced, ...joined].map((m) => m[1] ?? '');
  return asked;
}

function last(asked: Asked): Selector {
  const selector = asked.selectors.at(-1);
  if (!selector) throw new Error('a label stands before every selector');
  return selector;
}
