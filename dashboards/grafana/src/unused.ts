// Metrics of METRICS.md that no dashboard shows, and why.

export const UNUSED: Readonly<Record<string, string>> = {};
