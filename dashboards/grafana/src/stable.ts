// JSON whose text depends on nothing but its value.

/** Sorted by key, two spaces, a newline at the end. */
export function stable(value: unknown): string {
  return `${JSON.stringify(value, sorted, 2)}\n`;
}

function sorted(_key: string, value: unknown): unknown {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}
