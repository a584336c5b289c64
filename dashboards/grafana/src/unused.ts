// Metrics of METRICS.md that no dashboard shows, and why.

export const UNUSED: Readonly<Record<string, string>> = {
  lumpscope_store_bad_places: 'lumpscope_store_bad_bytes tells of them, and the state of the store of their number',
  lumpscope_block_discard_time_seconds: 'of disks that discard while they serve, which few do',
  lumpscope_block_flagged_device_time_seconds: 'of few block requests; `lumpscope explain` and `trace` name the flags of each',
  lumpscope_io_uring_punted_ios_total: 'a number for whoever chooses a backend: every flush is one',
  lumpscope_store_volatile: 'for an alert of your own; the reason of the store\'s state says it, and the log at each start',
};
