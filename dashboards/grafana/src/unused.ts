// Metrics of METRICS.md that no dashboard shows, and why.

export const UNUSED: Readonly<Record<string, string>> = {
  lumpscope_store_bad_places: 'lumpscope_store_bad_bytes tells of them, and the state of the store of their number',
};
