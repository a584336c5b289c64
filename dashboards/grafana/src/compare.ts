// One workload on a raw, an ext4 and an xfs store, or any stores, on shared axes.

import * as units from '@grafana/grafana-foundation-sdk/units';

import { EVERY, STORE, type Plan, type Row, orZero, storeLink } from './build.js';
import { columns, lines, table, unit } from './panels.js';

const rate = (metric: string, labels = '') => `rate(${metric}{${STORE}${labels}}${EVERY})`;
const inRange = (metric: string, labels = '') => `increase(${metric}{${STORE}${labels}}[$__range])`;
const byStore = (series: string) => `sum by (instance, store) (${series})`;

const PUTS = ',method=~"put.*"';
const GETS = ',method=~"get.*"';
/** Requests that read or change lumps; not those that watch or administer. */
const DATA = ',method=~"put.*|get.*|head|delete.*|list|usage"';
const FILE_SYSTEM = ',owner=~"fs-.*|writeback"';

const FAIR = 'Compare stores only while they do equal work: see the rates at the top.';
const NOT_ALONE =
  'Requests of others on the disk count, too: give each store its own disk for a fair comparison.';

const toSeek = () => [storeLink('lumpscope-seek', 'Where the head of ${__field.labels.store} goes')];

function quantile(q: number, methods: string): string {
  return `histogram_quantile(${q}, sum by (instance, store, le) (${rate('lumpscope_request_duration_seconds_bucket', methods)}))`;
}

function latency(q: number, name: string, methods: string) {
  return lines({
    title: `Latency of ${name}, p${q * 100}`,
    description: `Time from the arrival of a request to the last byte of its reply: ${q * 100} % took at most so long. Interpolated within buckets that double, so that small differences mean nothing. ${FAIR}`,
    unit: units.Seconds,
    w: 6,
    links: toSeek(),
    queries: [{ expr: quantile(q, methods), legend: '{{instance}} {{store}}' }],
  });
}

const stores: Row = {
  title: 'The stores and their rates of work',
  panels: [
    table({
      title: 'Stores',
      description:
        'The chosen stores: how they lie on the disk (layout), how their I/O is done (backend) and on which disk. A file system is not named here; the path says where it is mounted.',
      unit: units.Short,
      w: 12,
      headings: { instance: 'Service', store: 'Store', layout: 'Layout', device: 'Device', backend: 'Backend', block_size: 'Block size', path: 'Path' },
      without: ['Value'],
      columns: { 'Block size': [unit(units.BytesIEC)] },
      queries: [{ expr: `lumpscope_store_info{${STORE}}`, legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Requests on data',
      description: 'gRPC requests on lumps that ended, a second. The lines should lie on each other before anything below is compared.',
      unit: units.RequestsPerSecond,
      w: 6,
      links: toSeek(),
      queries: [{ expr: byStore(rate('lumpscope_requests_total', DATA)), legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Bytes put and got',
      description: `Bytes of lumps moved, a second. ${FAIR}`,
      unit: units.BytesPerSecondIEC,
      w: 6,
      links: toSeek(),
      queries: [
        { expr: byStore(rate('lumpscope_request_body_bytes_total', PUTS)), legend: '{{instance}} {{store}} put' },
        { expr: byStore(rate('lumpscope_request_body_bytes_total', GETS)), legend: '{{instance}} {{store}} get' },
      ],
    }),
  ],
};

const STAGES =
  'recv: its bytes arrive; sched: it waits for the owner of the store; index: where the lump lies; submit: to the kernel; queue: in the block layer; device: on the disk; wait, write, flush: the commit waits for the batch before, is written, is flushed; journal: the rest of the commit; reply: the answer goes out. Where there are no probes, queue and device are inside submit.';

function stages(name: string, methods: string) {
  const spent = `sum by (instance, store, stage) (${inRange('lumpscope_request_stage_seconds_total', methods)})`;
  const requests = byStore(inRange('lumpscope_request_duration_seconds_count', methods));
  return columns({
    title: `Where the time of a ${name} goes`,
    description: `Mean time of a ${name} by stage over the chosen time, one column for each store. ${STAGES} A mean hides the slow ones. ${FAIR}`,
    unit: units.Seconds,
    w: 12,
    h: 10,
    column: 'name',
    part: 'stage',
    queries: [
      {
        expr: `label_join(${spent} / on (instance, store) group_left () ${requests}, "name", " ", "instance", "store")`,
        legend: '{{name}} {{stage}}',
      },
    ],
  });
}

const times: Row = {
  title: 'Latency and stages',
  panels: [
    latency(0.5, 'puts', PUTS),
    latency(0.99, 'puts', PUTS),
    latency(0.5, 'gets', GETS),
    latency(0.99, 'gets', GETS),
    stages('put', PUTS),
    stages('get', GETS),
    ...(['wait', 'flush', 'device'] as const).map((stage) =>
      lines({
        title: `Mean time in the stage ${stage}`,
        description: `Mean seconds that a put or get spends in the stage ${stage}, over time. ${STAGES} ${FAIR}`,
        unit: units.Seconds,
        w: 8,
        links: toSeek(),
        queries: [
          {
            expr: `${byStore(rate('lumpscope_request_stage_seconds_total', `,method=~"(put|get).*",stage="${stage}"`))} / ${byStore(rate('lumpscope_request_duration_seconds_count', ',method=~"(put|get).*"'))}`,
            legend: '{{instance}} {{store}}',
          },
        ],
      }),
    ),
  ],
};

const amplification: Row = {
  title: 'Cost of a request for the disk',
  panels: [
    lines({
      title: 'Block requests per request',
      description: `Block requests of the disk for each gRPC request on data, of all owners, flushes included. ${NOT_ALONE}`,
      unit: units.Short,
      w: 8,
      decimals: 2,
      links: toSeek(),
      queries: [
        {
          expr: `${byStore(rate('lumpscope_block_requests_total'))} / ${byStore(rate('lumpscope_requests_total', DATA))}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Bytes written per byte put',
      description: `Write amplification: bytes that the disk was told to write for each byte of a put. More than 1: blocks are whole, the store and the file system keep journals, garbage collection and checkpoints write too. Writes inside an SSD are not seen. ${NOT_ALONE}`,
      unit: units.Short,
      w: 8,
      decimals: 2,
      links: toSeek(),
      queries: [
        {
          expr: `${byStore(rate('lumpscope_block_bytes_total', ',operation="write"'))} / ${byStore(rate('lumpscope_request_body_bytes_total', PUTS))}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Flushes per put',
      description: `Flushes of the disk for each put, of all owners. Less than 1: group commit shares them, or they are merged. ${NOT_ALONE}`,
      unit: units.Short,
      w: 8,
      decimals: 2,
      links: toSeek(),
      queries: [
        {
          expr: `${byStore(rate('lumpscope_block_requests_total', ',operation="flush"'))} / ${byStore(rate('lumpscope_requests_total', PUTS))}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Share of the file system, block requests',
      description: `Share of the block requests that the file system or the kernel made and no request asked for: fs-journal, fs-metadata, writeback. A raw store has none. ${NOT_ALONE}`,
      unit: units.PercentUnit,
      w: 12,
      max: 1,
      queries: [
        {
          expr: orZero(
            `sum by (instance, store, owner) (${rate('lumpscope_block_requests_total', FILE_SYSTEM)}) / on (instance, store) group_left () ${byStore(rate('lumpscope_block_requests_total'))}`,
            'store',
            'owner',
          ),
          legend: '{{instance}} {{store}}: {{owner}}',
        },
      ],
    }),
    lines({
      title: 'Share of the file system, bytes',
      description: `Share of the bytes that the file system or the kernel moved and no request asked for: fs-journal, fs-metadata, writeback. A raw store has none. ${NOT_ALONE}`,
      unit: units.PercentUnit,
      w: 12,
      max: 1,
      queries: [
        {
          expr: orZero(
            `sum by (instance, store, owner) (${rate('lumpscope_block_bytes_total', FILE_SYSTEM)}) / on (instance, store) group_left () ${byStore(rate('lumpscope_block_bytes_total'))}`,
            'store',
            'owner',
          ),
          legend: '{{instance}} {{store}}: {{owner}}',
        },
      ],
    }),
  ],
};

const PLACES =
  'Distances are between sectors as the kernel numbers them; where the disk really puts them is not known.';

const seeks: Row = {
  title: 'Where the head goes',
  panels: [
    ...([0.5, 0.99] as const).map((q) =>
      lines({
        title: `Seek distance, p${q * 100}`,
        description: `${q * 100} % of the block requests had a seek of at most so many bytes, without its sign. Interpolated within buckets that grow by eight: good for comparing, not for measuring. ${PLACES}`,
        unit: units.BytesIEC,
        w: 8,
        links: toSeek(),
        queries: [
          {
            expr: `histogram_quantile(${q}, sum by (instance, store, le) (${rate('lumpscope_block_seek_distance_bytes_bucket')}))`,
            legend: '{{instance}} {{store}}',
          },
        ],
      }),
    ),
    lines({
      title: 'Sequential share',
      description: `Share of the reads and writes that began exactly where the one before ended. ${PLACES}`,
      unit: units.PercentUnit,
      w: 8,
      max: 1,
      links: toSeek(),
      queries: [
        {
          expr: `${byStore(rate('lumpscope_block_sequential_requests_total'))} / ${byStore(rate('lumpscope_block_data_requests_total'))}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Head travel per request',
      description: `Bytes that the head travelled for each gRPC request on data, of all owners. The size of the disk and where a file lies on it matter as much as the layout. ${PLACES}`,
      unit: units.BytesIEC,
      w: 8,
      links: toSeek(),
      queries: [
        {
          expr: `${byStore(rate('lumpscope_block_head_travel_bytes_total'))} / ${byStore(rate('lumpscope_requests_total', DATA))}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Time lost to others',
      description:
        "Seconds a second in which the disk served others while block requests of the store's own requests waited. On a disk that works on several requests at once it is the most that they can have cost. 0: no others were served meanwhile. A lower bound while block requests have no event.",
      unit: units.Seconds,
      w: 8,
      links: toSeek(),
      queries: [
        { expr: orZero(byStore(rate('lumpscope_interference_seconds_total')), 'store', 'owner'), legend: '{{instance}} {{store}}' },
      ],
    }),
    lines({
      title: 'Device time, p99',
      description:
        '99 % of the block requests were with the device at most so long, flushes included. Interpolated within buckets that double. The wait in the queue before is not in it.',
      unit: units.Seconds,
      w: 8,
      links: toSeek(),
      queries: [
        {
          expr: `histogram_quantile(0.99, sum by (instance, store, le) (${rate('lumpscope_block_device_time_seconds_bucket')}))`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
  ],
};

export const compare: Plan = {
  uid: 'lumpscope-compare',
  title: 'Lumpscope: Compare',
  description:
    'Stores side by side on shared axes: the cost of one workload on a raw disk, on ext4 and on xfs. Choose the stores above.',
  variables: [],
  rows: [stores, times, amplification, seeks],
};
