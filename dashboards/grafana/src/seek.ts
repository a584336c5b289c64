// Where the head of a disk goes, who sends it there, and what that costs.

import * as units from '@grafana/grafana-foundation-sdk/units';

import { EVERY, NATIVE_ROW, NO_NATIVE, STORE, type Plan, type Row, operations, orZero, owners, refId } from './build.js';
import { background, bars, heatmap, lines, scheme, stat, table, unit } from './panels.js';

const CHOSEN = `${STORE},owner=~"$owner",operation=~"$operation"`;
const BY_SEEK = `${STORE},operation=~"$operation"`;
/** Intervals of the seek distance, as METRICS.md lists them, from near to far. */
const INTERVALS = ['0..64KiB', '64KiB..4MiB', '4MiB..256MiB', '256MiB..16GiB', '16GiB..inf'];
/** The signed ones from far below to far above. */
const SIGNED = [...[...INTERVALS].reverse().map(backwards), '0', ...INTERVALS];
/** Names of the unsigned ones, and their two directions. */
const DISTANCES: [name: string, intervals: string][] = [
  ['sequential', '0'],
  ...INTERVALS.map((interval): [string, string] => {
    const [near, far] = interval.replaceAll(/(\d)([KMG]iB)/g, '$1 $2').split('..');
    return [far === 'inf' ? `over ${near}` : `${near} to ${far}`, `${interval}|${backwards(interval)}`.replaceAll('.', '[.]')];
  }),
];

function backwards(interval: string): string {
  const [near = '', far = ''] = interval.split('..');
  return `-${far}..-${near}`;
}

const rate = (metric: string, labels: string) => `rate(${metric}{${labels}}${EVERY})`;

/** Block numbers of one store of each disk: every store has those of its whole disk. */
const ofDisks = (series: string) =>
  `${series} and on (instance, store) topk by (instance, device) (1, lumpscope_probe_attached{${STORE}})`;

const SHARED_DISK = 'Stores on one disk share its block requests, and each shows all of them.';
const ONCE = 'The block requests of a disk count once, however many stores are on it.';
const AT_LEAST =
  'A lower bound while block requests have no event: see "Unknown owners" on the dashboard of the observer.';
const NO_PHYSICS =
  'Distances are between sectors as the kernel numbers them; where an SSD, a RAID controller or a virtual disk really puts them is not known.';

const head: Row = {
  title: 'Where the head goes',
  panels: [
    stat({
      title: 'Sequential share',
      description: `Share of the reads and writes that began exactly where the one before ended, over the chosen time. ${NO_PHYSICS}`,
      unit: units.PercentUnit,
      w: 6,
      min: 0,
      max: 1,
      queries: [
        {
          expr: `sum by (instance, store) (increase(lumpscope_block_sequential_requests_total{${STORE}}[$__range])) / sum by (instance, store) (increase(lumpscope_block_data_requests_total{${STORE}}[$__range]))`,
          legend: '{{instance}} {{store}}',
          instant: true,
        },
      ],
    }),
    stat({
      title: 'Head travel',
      description: `How far the head has travelled in the chosen time: the sum of all seek distances without their signs. ${NO_PHYSICS}`,
      unit: units.BytesIEC,
      w: 6,
      queries: [
        {
          expr: `sum by (instance, store) (increase(lumpscope_block_head_travel_bytes_total{${STORE},owner=~"$owner"}[$__range]))`,
          legend: '{{instance}} {{store}}',
          instant: true,
        },
      ],
    }),
    stat({
      title: 'Median device time',
      description:
        'Half of the chosen block requests were with the device at most so long, from issue to completion, over the chosen time. Interpolated within buckets that double.',
      unit: units.Seconds,
      w: 6,
      queries: [
        {
          expr: `histogram_quantile(0.5, sum by (instance, store, le) (increase(lumpscope_block_device_time_seconds_bucket{${CHOSEN}}[$__range])))`,
          legend: '{{instance}} {{store}}',
          instant: true,
        },
      ],
    }),
    stat({
      title: 'Time lost to others',
      description: `Seconds in which the disk served others while block requests of the store's own requests waited, over the chosen time. On a disk that works on several requests at once it is the most that they can have cost. 0: no others were served meanwhile. ${AT_LEAST}`,
      unit: units.Seconds,
      w: 6,
      queries: [
        {
          expr: orZero(`sum by (instance, store) (increase(lumpscope_interference_seconds_total{${STORE}}[$__range]))`, 'store', 'owner'),
          legend: '{{instance}} {{store}}',
          instant: true,
        },
      ],
    }),
    heatmap({
      title: 'Time and signed seek distance',
      description: `Distances with their direction: rows above 0 are seeks to higher sectors, rows below are seeks back; one row more is twice as far, as on the built-in page. Equal bands above and below 0: the head goes back and forth between two places. All owners count. ${NO_PHYSICS} ${ONCE}`,
      unit: units.IOOpsPerSecond,
      axis: { unit: units.BytesIEC, label: 'signed seek distance' },
      w: 24,
      h: 14,
      queries: [{ expr: `sum by (le) (${ofDisks(rate('lumpscope_block_signed_seek_bytes_bucket', BY_SEEK))})`, legend: '{{le}}' }],
    }),
    heatmap({
      title: 'Time and seek distance, without its sign',
      description: `Each column is a moment, each row a distance between the end of one block request and the start of the next: the lowest row, 0, is sequential, the highest crosses the disk. Strong colours at the bottom: the disk works in order. A band far up that comes back with each commit: a journal far away from the data. ${NO_PHYSICS} ${ONCE}`,
      unit: units.IOOpsPerSecond,
      axis: { unit: units.BytesIEC, label: 'seek distance' },
      w: 12,
      h: 10,
      queries: [{ expr: `sum by (le) (${ofDisks(rate('lumpscope_block_seek_distance_bytes_bucket', CHOSEN))})`, legend: '{{le}}' }],
    }),
    bars({
      title: 'Distances over the chosen time',
      description: `How many block requests had a seek of such a length, in either direction. All owners count. ${NO_PHYSICS} ${ONCE}`,
      unit: units.Short,
      w: 12,
      h: 10,
      queries: DISTANCES.map(([name, intervals]) => ({
        expr: `sum(${ofDisks(`increase(lumpscope_block_seek_device_time_seconds_count{${BY_SEEK},seek=~"${intervals}"}[$__range])`)})`,
        legend: name,
        instant: true,
      })),
    }),
    lines({
      title: 'Quantiles of the distance',
      description: `Half, or 99 %, of the chosen block requests had a seek of at most so many bytes. Interpolated within buckets that grow by eight: good for comparing, not for measuring. ${NO_PHYSICS}`,
      unit: units.BytesIEC,
      w: 12,
      h: 10,
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (instance, store, le) (${rate('lumpscope_block_seek_distance_bytes_bucket', CHOSEN)}))`,
        legend: `{{instance}} {{store}} p${q * 100}`,
      })),
    }),
    lines({
      title: 'Sequential share over time',
      description: `Share of the reads and writes that began exactly where the one before ended. All owners count, as the head serves all. A request that leaves one sector out is not sequential. ${NO_PHYSICS}`,
      unit: units.PercentUnit,
      w: 12,
      h: 10,
      max: 1,
      queries: [
        {
          expr: `sum by (instance, store) (${rate('lumpscope_block_sequential_requests_total', STORE)}) / sum by (instance, store) (${rate('lumpscope_block_data_requests_total', STORE)})`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
  ],
};

/** Names of the coarse buckets of device time, and the bounds as servers of 2.x and 3.x write them. */
const TIMES: [name: string, le: string][] = [
  ['up to 8 µs', '0.000008192|8.192e-0?6'],
  ['to 66 µs', '0.000065536|6.5536e-0?5'],
  ['to 524 µs', '0.000524288'],
  ['to 4.2 ms', '0.004194304'],
  ['to 34 ms', '0.033554432'],
  ['to 268 ms', '0.268435456'],
  ['to 2.1 s', '2.147483648'],
  ['longer', '[+]Inf'],
];

/** Share of the block requests of each interval that took at most so long. */
function tookAtMost(le: string): string {
  const bucket = `lumpscope_block_seek_device_time_seconds_bucket{${BY_SEEK},le=~"${le}"}`;
  return `sum by (seek) (${ofDisks(`increase(${bucket}[$__range])`)}) / (${bySeek('sum by (seek) (X)', 'count')} > 0)`;
}

/** The place of each interval in the order of distances: by their names they would be in that of their letters. */
const RANK = SIGNED.map(
  (seek, i) => `${i} + 0 * sum by (seek) (lumpscope_block_seek_device_time_seconds_count{${BY_SEEK},seek="${seek}"})`,
).join(' or ');

function bySeek(form: string, part: 'count' | 'bucket'): string {
  const series = `increase(lumpscope_block_seek_device_time_seconds_${part}{${BY_SEEK}}[$__range])`;
  return form.replaceAll('X', ofDisks(series));
}

const cost: Row = {
  title: 'What a seek costs',
  panels: [
    heatmap({
      title: 'Time and device time',
      description:
        "Each row is a time from issue to completion of a block request. Waiting in the block layer's queue is not included. On a spinning disk far seeks are a band of their own, at some milliseconds; where there is none, distance costs nothing here.",
      unit: units.IOOpsPerSecond,
      axis: { unit: units.Seconds, label: 'device time' },
      w: 12,
      h: 12,
      queries: [{ expr: `sum by (le) (${ofDisks(rate('lumpscope_block_device_time_seconds_bucket', CHOSEN))})`, legend: '{{le}}' }],
    }),
    table({
      title: 'Seek distance and device time',
      description: `For each interval of the signed distance, from far back to far ahead: how many block requests, their share, and how long the device took. When far intervals are slower than 0, seeks cost. All owners count. ${NO_PHYSICS}`,
      unit: units.Short,
      w: 12,
      h: 12,
      headings: { 'Value #E': '#', seek: 'Signed distance', 'Value #A': 'Block requests', 'Value #B': 'Share', 'Value #C': 'p50', 'Value #D': 'p99' },
      columns: { Share: [unit(units.PercentUnit)], p50: [unit(units.Seconds)], p99: [unit(units.Seconds)] },
      sortBy: ['#'],
      upwards: true,
      queries: [
        { expr: bySeek('sum by (seek) (X)', 'count'), legend: '{{seek}}' },
        { expr: bySeek('sum by (seek) (X) / on () group_left () (sum(X) > 0)', 'count'), legend: '{{seek}}' },
        { expr: bySeek('histogram_quantile(0.5, sum by (seek, le) (X))', 'bucket'), legend: '{{seek}}' },
        { expr: bySeek('histogram_quantile(0.99, sum by (seek, le) (X))', 'bucket'), legend: '{{seek}}' },
        { expr: RANK, legend: '{{seek}}' },
      ],
    }),
    table({
      title: 'Seek distance by device time',
      description: `Each line is an interval of the signed distance, from far back to far ahead; each column a device time, from issue to completion. A cell is the share of the line's block requests that took so long. A disk with a head draws a V on its side, a flash disk a straight band. All owners count. ${NO_PHYSICS} ${ONCE}`,
      unit: units.PercentUnit,
      w: 24,
      h: 12,
      min: 0,
      max: 1,
      decimals: 0,
      headings: {
        [`Value #${refId(TIMES.length)}`]: '#',
        seek: 'Signed distance',
        ...Object.fromEntries(TIMES.map(([name], i) => [`Value #${refId(i)}`, name])),
      },
      columns: {
        '#': [unit(units.Short)],
        ...Object.fromEntries(TIMES.map(([name]) => [name, [background(), scheme('continuous-blues')]])),
      },
      sortBy: ['#'],
      upwards: true,
      queries: [
        ...TIMES.map(([, le], i) => ({ expr: `${tookAtMost(le)}${i > 0 ? ` - ${tookAtMost(TIMES[i - 1]?.[1] ?? '')}` : ''}`, legend: '{{seek}}' })),
        { expr: RANK, legend: '{{seek}}' },
      ],
    }),
    lines({
      title: 'Mean device time by signed distance',
      description: `Mean time from issue to completion, for each interval of the signed distance. ${NO_PHYSICS}`,
      unit: units.Seconds,
      w: 8,
      queries: [
        {
          expr: `sum by (seek) (${ofDisks(rate('lumpscope_block_seek_device_time_seconds_sum', BY_SEEK))}) / sum by (seek) (${ofDisks(rate('lumpscope_block_seek_device_time_seconds_count', BY_SEEK))})`,
          legend: '{{seek}}',
        },
      ],
    }),
    lines({
      title: 'Device time by owner and operation, p50 and p99',
      description:
        'Half, or 99 %, of the block requests of this owner and operation were with the device at most so long. Interpolated within buckets that double. Flushes are below.',
      unit: units.Seconds,
      w: 8,
      log: true,
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (owner, operation, le) (${ofDisks(rate('lumpscope_block_device_time_seconds_bucket', CHOSEN))}))`,
        legend: `{{owner}} {{operation}} p${q * 100}`,
      })),
    }),
    lines({
      title: 'Time lost to others, by whom',
      description: `Seconds a second in which the disk served others while block requests of the store's own requests waited, by the class of the others. On a disk that works on several requests at once it is the most that they can have cost. none: no others were served meanwhile. ${AT_LEAST}`,
      unit: units.Seconds,
      w: 8,
      stacked: true,
      queries: [
        {
          expr: orZero(`sum by (instance, store, owner) (${rate('lumpscope_interference_seconds_total', STORE)})`, 'store', 'owner'),
          legend: '{{instance}} {{store}}: {{owner}}',
        },
      ],
    }),
  ],
};

const movers: Row = {
  title: 'Who moved the head',
  panels: [
    lines({
      title: 'Head travel, by the owner that moved it away',
      description:
        'Bytes a second that the head travelled before block requests of the chosen owners, by the owner of the request that had sent it away. unknown: two were under way at once, or there is no event.',
      unit: units.BytesPerSecondIEC,
      w: 8,
      stacked: true,
      queries: [
        {
          expr: `sum by (moved_by) (${ofDisks(rate('lumpscope_block_head_travel_bytes_total', `${STORE},owner=~"$owner"`))})`,
          legend: 'moved by {{moved_by}}',
        },
      ],
    }),
    lines({
      title: 'Moves of the head',
      description:
        'Block requests a second before which the head had to travel, by their owner and by the owner of the request that had sent the head away. request after request is the workload itself; request after fs-journal is the cost of the file system. unknown after unknown: block requests without an event.',
      unit: units.IOOpsPerSecond,
      w: 8,
      stacked: true,
      queries: [
        {
          expr: `sum by (owner, moved_by) (${ofDisks(rate('lumpscope_block_head_moves_total', `${STORE},owner=~"$owner"`))})`,
          legend: '{{owner}} after {{moved_by}}',
        },
      ],
    }),
    table({
      title: 'Head travel over the chosen time',
      description:
        'For each pair: how often the head had to travel before a block request of the owner because another had sent it away, and how far in all. The largest line is where to begin.',
      unit: units.Short,
      w: 8,
      headings: { owner: 'Owner', moved_by: 'Moved by', Value: 'Travel' },
      columns: { Travel: [unit(units.BytesIEC)] },
      sortBy: ['Travel'],
      queries: [
        {
          expr: `sum by (owner, moved_by) (${ofDisks(`increase(lumpscope_block_head_travel_bytes_total{${STORE},owner=~"$owner"}[$__range])`)})`,
          legend: '{{owner}} after {{moved_by}}',
        },
      ],
    }),
    lines({
      title: 'Block requests by owner and operation',
      description: `Block requests a second. request: made for a request of gRPC or S3; store: for the store itself; fs-journal, fs-metadata, writeback: of the file system or the kernel; other: of other processes on that disk. ${ONCE}`,
      unit: units.IOOpsPerSecond,
      w: 12,
      stacked: true,
      queries: [
        {
          expr: `sum by (owner, operation) (${ofDisks(rate('lumpscope_block_requests_total', CHOSEN))})`,
          legend: '{{owner}} {{operation}}',
        },
      ],
    }),
    lines({
      title: 'Block bytes by owner and operation',
      description: `Bytes of these block requests, a second. A flush has no bytes. ${ONCE}`,
      unit: units.BytesPerSecondIEC,
      w: 12,
      stacked: true,
      queries: [
        {
          expr: `sum by (owner, operation) (${ofDisks(rate('lumpscope_block_bytes_total', CHOSEN))})`,
          legend: '{{owner}} {{operation}}',
        },
      ],
    }),
  ],
};

const underWay: Row = {
  title: 'Queue, size, flushes, and what is under way',
  panels: [
    lines({
      title: 'Time in the queue by owner and operation, p50 and p99',
      description:
        'Half, or 99 %, of the block requests of this owner and operation waited at most so long between being made and being given to the driver (blktrace Q2D). Interpolated within buckets that double.',
      unit: units.Seconds,
      w: 8,
      log: true,
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (owner, operation, le) (${ofDisks(rate('lumpscope_block_queue_time_seconds_bucket', CHOSEN))}))`,
        legend: `{{owner}} {{operation}} p${q * 100}`,
      })),
    }),
    lines({
      title: 'Time of a flush by owner, p50 and p99',
      description:
        "Half, or 99 %, of the flushes of the disk's cache took at most so long from issue to completion. Interpolated within buckets that double. A disk that writes through has none.",
      unit: units.Seconds,
      w: 8,
      log: true,
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (owner, le) (${ofDisks(rate('lumpscope_block_flush_time_seconds_bucket', STORE))}))`,
        legend: `{{owner}} p${q * 100}`,
      })),
    }),
    lines({
      title: 'Size by owner and operation, p50 and p99',
      description:
        'Half, or 99 %, of the block requests of this owner and operation were at most so long. Interpolated within buckets that double.',
      unit: units.BytesIEC,
      w: 8,
      log: true,
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (owner, operation, le) (${ofDisks(rate('lumpscope_block_size_bytes_bucket', CHOSEN))}))`,
        legend: `{{owner}} {{operation}} p${q * 100}`,
      })),
    }),
    lines({
      title: 'Utilisation',
      description: `Share of the time in which the disk had any block request under way (%util of iostat), as the kernel counts. 100 % says that a disk with one head is full; an SSD works on many at once and may take more. ${SHARED_DISK}`,
      unit: units.PercentUnit,
      w: 12,
      max: 1,
      queries: [{ expr: `clamp_max(${rate('lumpscope_block_busy_seconds_total', STORE)}, 1)`, legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Mean queue',
      description: `Mean number of block requests under way (aqu-sz of iostat), as the kernel counts: unlike the number at each scrape, it misses none. ${SHARED_DISK}`,
      unit: units.Short,
      w: 12,
      decimals: 2,
      queries: [{ expr: rate('lumpscope_block_under_way_seconds_total', STORE), legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Block requests under way',
      description: `How many block requests were under way when the metrics were read, whoever made them. ${SHARED_DISK}`,
      unit: units.Short,
      w: 12,
      queries: [{ expr: `lumpscope_block_in_flight_requests{${STORE}}`, legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Age of the oldest block request under way',
      description: `How long the oldest block request under way had been when the metrics were read. A line that climbs is a disk that hangs: \`lumpscope top\` says what it hangs on. ${SHARED_DISK}`,
      unit: units.Seconds,
      w: 12,
      queries: [{ expr: `lumpscope_block_in_flight_oldest_seconds{${STORE}}`, legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Failed block requests',
      description: `Block requests that ended with an error, whoever made them. The last row says why. ${SHARED_DISK}`,
      unit: units.IOOpsPerSecond,
      w: 12,
      queries: [{ expr: rate('lumpscope_block_failed_requests_total', STORE), legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Merged into block requests that waited',
      description: `What the kernel merged into block requests before the driver was given them, as its own statistics count. ${SHARED_DISK}`,
      unit: units.IOOpsPerSecond,
      w: 12,
      queries: [{ expr: rate('lumpscope_block_merged_bios_total', STORE), legend: '{{instance}} {{store}} {{operation}}' }],
    }),
  ],
};

const failed: Row = {
  title: 'Only when block requests have failed: why',
  collapsed: true,
  panels: [
    lines({
      title: 'Failed block requests by reason',
      description: `In the kernel's words: medium is a bad spot, offline and transport are the disk or the way to it. ${SHARED_DISK}`,
      unit: units.IOOpsPerSecond,
      w: 24,
      queries: [
        {
          expr: rate('lumpscope_block_failures_total', STORE),
          legend: '{{instance}} {{store}} {{operation}} {{failure}}',
          absent: 'no failure need have happened',
        },
      ],
    }),
  ],
};

const native: Row = {
  title: NATIVE_ROW,
  collapsed: true,
  panels: [
    heatmap({
      title: 'Time and seek distance, in native buckets',
      description: `As the heatmap of distances above, in doublings instead of steps of eight: exactly what the probes count. Sequential ones, at 0, have no place on a logarithmic axis. ${NO_PHYSICS} ${ONCE}`,
      unit: units.IOOpsPerSecond,
      axis: { unit: units.BytesIEC, label: 'seek distance' },
      w: 12,
      h: 10,
      native: true,
      queries: [
        { expr: `sum (${ofDisks(rate('lumpscope_block_seek_distance_bytes', CHOSEN))})`, legend: 'distance', absent: NO_NATIVE },
      ],
    }),
    heatmap({
      title: 'Time and device time, in native buckets',
      description:
        'Time from issue to completion of block requests. The buckets end at powers of two of a second, those of the probes at powers of two of a nanosecond: each is shown up to 7 % too low.',
      unit: units.IOOpsPerSecond,
      axis: { unit: units.Seconds, label: 'device time' },
      w: 12,
      h: 10,
      native: true,
      queries: [
        { expr: `sum (${ofDisks(rate('lumpscope_block_device_time_seconds', CHOSEN))})`, legend: 'device time', absent: NO_NATIVE },
      ],
    }),
    lines({
      title: 'Device time by signed distance from native buckets, p50 and p99',
      description: `Half, or 99 %, of the block requests of each interval of the signed distance were with the device at most so long: doublings here, where the classic buckets grow by eight. ${NO_PHYSICS}`,
      unit: units.Seconds,
      w: 24,
      log: true,
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (seek) (${ofDisks(rate('lumpscope_block_seek_device_time_seconds', BY_SEEK))}))`,
        legend: `{{seek}} p${q * 100}`,
        absent: NO_NATIVE,
      })),
    }),
  ],
};

export const seek: Plan = {
  uid: 'lumpscope-seek',
  title: 'Lumpscope: Seek',
  description: 'Where the head goes, what a seek costs, and who moved the head away. All of it is empty for a disk that is not observed.',
  variables: [owners(), operations()],
  rows: [head, cost, underWay, movers, native, failed],
};
