// How the service answers: rate, errors and duration by store and method, and the state of its stores.

import * as units from '@grafana/grafana-foundation-sdk/units';

import {
  EVERY,
  NATIVE_ROW,
  NO_NATIVE,
  SERVICE,
  STORE,
  STORE_OR_NONE,
  type Plan,
  type Row,
  methods,
  orZero,
  states,
  storeLink,
} from './build.js';
import { background, heatmap, lines, stat, table, texts, timeline, unit } from './panels.js';

const CHOSEN = `${STORE_OR_NONE},method=~"$method"`;
/** Codes of failures of the service; the others are answers to clients. */
const FAILED = 'UNKNOWN|DEADLINE_EXCEEDED|RESOURCE_EXHAUSTED|ABORTED|INTERNAL|UNAVAILABLE|DATA_LOSS';

/** This dashboard for the service of a cell. */
const ONLY_THIS = '/d/lumpscope-overview?${__url_time_range}&${datasource:queryparam}&var-instance=${__value.raw}';

const toSeek = () => [storeLink('lumpscope-seek', 'Where the head of ${__field.labels.store} goes')];

function rate(metric: string, labels: string): string {
  return `rate(${metric}{${labels}}${EVERY})`;
}

function quantile(q: number): string {
  return `histogram_quantile(${q}, sum by (instance, store, method, le) (${rate('lumpscope_request_duration_seconds_bucket', CHOSEN)}))`;
}

/** Mean time that each stage takes of a request of some methods. */
function stages(method: string): string {
  const labels = `${STORE},method=~"${method}"`;
  return (
    `sum by (stage) (${rate('lumpscope_request_stage_seconds_total', labels)})` +
    ` / on () group_left () sum(${rate('lumpscope_request_duration_seconds_count', labels)})`
  );
}

const now: Row = {
  title: 'Now',
  panels: [
    stat({
      title: 'Service',
      description:
        'Whether Prometheus could read the metrics of the service at the last scrape. It cannot tell a service that is down from one that is cut off from Prometheus.',
      unit: units.Short,
      w: 4,
      mappings: states({ 0: ['down', 'red'], 1: ['up', 'green'] }),
      queries: [{ expr: `up{job="lumpscope",${SERVICE}}`, legend: '{{instance}}' }],
    }),
    stat({
      title: 'Stores that failed',
      description:
        'Stores that take no changes since an I/O of their own failed, mostly a write or flush, or that could not be opened. Which ones: see the states below; why: `lumpscope stat STORE`.',
      unit: units.Short,
      w: 4,
      thresholds: [[null, 'green'], [1, 'red']],
      queries: [{ expr: `sum(lumpscope_store_failed{${STORE}})`, legend: 'failed' }],
    }),
    stat({
      title: 'Alerts firing',
      description:
        'Alerts of dashboards/prometheus/alerts.yml that fire now. It says 0 too when Prometheus has not loaded these rules.',
      unit: units.Short,
      w: 4,
      thresholds: [[null, 'green'], [1, 'red']],
      queries: [
        {
          expr: `count(ALERTS{alertname=~"Lumpscope.*",alertstate="firing",${SERVICE}}) or 0 * count(up{job="lumpscope",${SERVICE}})`,
          legend: 'alerts',
        },
      ],
    }),
    stat({
      title: 'Requests',
      description: 'Requests of gRPC and S3 that ended, a second, over the chosen stores and methods. Calls that watch live (trace, record) count when they end.',
      unit: units.RequestsPerSecond,
      w: 4,
      line: true,
      queries: [{ expr: `sum(${rate('lumpscope_requests_total', CHOSEN)})`, legend: 'requests' }],
    }),
    stat({
      title: 'Requests failed',
      description: `Share of the requests that ended with ${FAILED.replaceAll('|', ', ')}. A lump that is not there, or a refused login, is no failure of the service. Requests that never reached the service are not counted.`,
      unit: units.PercentUnit,
      w: 4,
      decimals: 2,
      thresholds: [[null, 'green'], [0.001, 'orange'], [0.01, 'red']],
      queries: [
        {
          expr: `sum(${rate('lumpscope_requests_total', `${CHOSEN},code=~"${FAILED}"`)} or 0 * ${rate('lumpscope_requests_total', CHOSEN)}) / sum(${rate('lumpscope_requests_total', CHOSEN)})`,
          legend: 'failed',
        },
      ],
    }),
    stat({
      title: 'Version',
      description: 'The version that runs, by service. Two versions during an update are normal.',
      unit: units.Short,
      w: 4,
      names: true,
      queries: [{ expr: `count by (version) (lumpscope_build_info{${SERVICE}})`, legend: '{{version}}' }],
    }),
  ],
};

/** States of a store that matter more than overload, the worst first. */
const STATES = ['unavailable', 'gone', 'failed', 'read-only', 'degraded'];

/** The worst state of each store, or of each service, as a number: see STATE_NAMES. */
function worst(by: string): string {
  const states = STATES.map((state, at) => `${7 - at} * lumpscope_store_state{${STORE},state="${state}"} > 0`);
  const others = `2 * lumpscope_store_overloaded{${STORE}} > 0 or 1 * lumpscope_store_draining{${STORE}} > 0 or 0 * lumpscope_store_failed{${STORE}}`;
  const down = by === 'instance' ? `8 + (up{job="lumpscope",${SERVICE}} == 0) or ` : '';
  return `max by (${by}) (${down}${states.join(' or ')} or ${others})`;
}

const STATE_NAMES = states({
  0: ['serving', 'green'],
  1: ['draining', 'blue'],
  2: ['overloaded', 'orange'],
  3: ['degraded', 'orange'],
  4: ['read-only', 'red'],
  5: ['failed', 'red'],
  6: ['gone', 'red'],
  7: ['unavailable', 'red'],
  8: ['down', 'dark-red'],
});

const failures = (by: string, over: (labels: string) => string) =>
  `sum by (${by}) (${over(`${STORE_OR_NONE},code=~"${FAILED}"`)} or 0 * ${over(STORE_OR_NONE)}) / (sum by (${by}) (${over(STORE_OR_NONE)}) > 0)`;

const fleet: Row = {
  title: 'Fleet',
  panels: [
    table({
      title: 'Services, the worst first',
      description:
        'One line a service, for its chosen stores: the worst state of a store, the alerts that fire, requests that ended and the share that the service failed, the 99th percentile of their latency, the busiest disk and the fullest store. A service that is down has only its state.',
      unit: units.Short,
      w: 24,
      h: 7,
      headings: {
        instance: 'Service',
        'Value #A': 'State',
        'Value #B': 'Alerts',
        'Value #C': 'Requests',
        'Value #D': 'Failed',
        'Value #E': 'p99',
        'Value #F': 'Busiest disk',
        'Value #G': 'Fullest store',
      },
      columns: {
        Service: [{ id: 'links', value: [{ title: 'Only this service', url: ONLY_THIS }] }],
        State: [texts(STATE_NAMES), background()],
        Requests: [unit(units.RequestsPerSecond)],
        Failed: [unit(units.PercentUnit)],
        p99: [unit(units.Seconds)],
        'Busiest disk': [unit(units.PercentUnit)],
        'Fullest store': [unit(units.PercentUnit)],
      },
      sortBy: ['State', 'Alerts', 'Failed'],
      queries: [
        worst('instance'),
        `count by (instance) (ALERTS{alertname=~"Lumpscope.*",alertstate="firing",${SERVICE}}) or 0 * sum by (instance) (up{job="lumpscope",${SERVICE}})`,
        `sum by (instance) (${rate('lumpscope_requests_total', STORE_OR_NONE)})`,
        failures('instance', (labels) => rate('lumpscope_requests_total', labels)),
        `histogram_quantile(0.99, sum by (instance, le) (${rate('lumpscope_request_duration_seconds_bucket', STORE_OR_NONE)}))`,
        `max by (instance) (${rate('lumpscope_block_busy_seconds_total', STORE)})`,
        `max by (instance) (lumpscope_store_data_used_bytes{${STORE}} / lumpscope_store_data_capacity_bytes{${STORE}})`,
      ].map((expr) => ({ expr, legend: '{{instance}}' })),
    }),
  ],
};

const red: Row = {
  title: 'Requests: rate, errors, duration',
  panels: [
    lines({
      title: 'Rate by store and method',
      description:
        'Requests of gRPC and S3 (methods s3_...) that ended, a second. Requests that named no store (list_stores, describe_service) have an empty store. A request in progress is not in here yet.',
      unit: units.RequestsPerSecond,
      w: 12,
      links: toSeek(),
      queries: [{ expr: `sum by (instance, store, method) (${rate('lumpscope_requests_total', CHOSEN)})`, legend: '{{instance}} {{store}} {{method}}' }],
    }),
    lines({
      title: 'Rate by code',
      description:
        'Requests by the code they ended with. NOT_FOUND and ALREADY_EXISTS are answers; RESOURCE_EXHAUSTED is the service protecting itself; INTERNAL and DATA_LOSS need a look at the log.',
      unit: units.RequestsPerSecond,
      w: 12,
      stacked: true,
      queries: [{ expr: `sum by (code) (${rate('lumpscope_requests_total', CHOSEN)})`, legend: '{{code}}' }],
    }),
    stat({
      title: 'Error budget left',
      description:
        'Of the requests that may fail by the objective (dashboards/prometheus/rules.yml), the share that has not: over the chosen time, so choose that of the objective, e.g. 30 days. Below 0 the objective is missed.',
      unit: units.PercentUnit,
      w: 12,
      h: 6,
      decimals: 1,
      thresholds: [[null, 'red'], [0, 'orange'], [0.25, 'green']],
      queries: [
        {
          expr: `1 - (${failures('instance, store', (labels) => `increase(lumpscope_requests_total{${labels}}[$__range])`)}) / on () group_left () (1 - max(objective:lumpscope_requests:ratio))`,
          legend: '{{instance}} {{store}}',
          instant: true,
        },
      ],
    }),
    lines({
      title: 'Error budget, how fast it is used',
      description:
        'Share of the requests of the last hour that the service failed, by the share that may fail. 1: the budget lasts exactly as long as the objective counts; 14: a budget of 30 days is gone in two.',
      unit: units.Short,
      w: 12,
      h: 6,
      decimals: 2,
      queries: [
        {
          expr: `(${failures('instance, store', (labels) => `rate(lumpscope_requests_total{${labels}}[1h])`)}) / on () group_left () (1 - max(objective:lumpscope_requests:ratio))`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    ...([0.5, 0.9, 0.99] as const).map((q) =>
      lines({
        title: `Latency, p${q * 100}`,
        description: `Time from the arrival of a request to the last byte of its reply: ${q * 100} % of the requests took at most so long. Interpolated within buckets that double, so it may be off by a factor of up to two; the network and the client are not in it, and a slow reader of a get is.${q === 0.99 ? ' The objective of puts and gets is set in dashboards/prometheus/rules.yml.' : ''}`,
        unit: units.Seconds,
        w: 8,
        log: true,
        links: toSeek(),
        queries: [
          { expr: quantile(q), legend: '{{instance}} {{store}} {{method}}' },
          ...(q === 0.99 ? [{ expr: 'max(objective:lumpscope_request_duration_seconds:p99)', legend: 'objective' }] : []),
        ],
      }),
    ),
    heatmap({
      title: 'Latency of all chosen requests; points are single requests',
      description:
        'Each column is a moment, each cell how many requests a second took so long. A point is one request that was exported as a trace (an exemplar): click it and follow its trace id; the spans of the trace name its block requests. Points need the OpenTelemetry exporter (otlp-endpoint), and a Prometheus with exemplar storage; without them the cells are all there is. Only the last exported request of each bucket is kept at each scrape.',
      unit: units.RequestsPerSecond,
      axis: { unit: units.Seconds, label: 'latency' },
      w: 24,
      h: 10,
      queries: [
        {
          expr: `sum by (le) (${rate('lumpscope_request_duration_seconds_bucket', CHOSEN)})`,
          legend: '{{le}}',
          exemplar: true,
        },
      ],
    }),
  ],
};

const STAGE_WORDS =
  'recv: its bytes arrive; sched: it waits for the owner of the store; index: where the lump lies; submit: to the kernel; queue: in the block layer; device: on the disk; wait, write, flush: the commit waits for the batch before, is written, is flushed; journal: the rest of the commit; reply: the answer goes out. The stages add up to the mean latency. Without probes queue and device are inside submit.';

const work: Row = {
  title: 'Where the time of requests goes',
  panels: [
    lines({
      title: 'Mean time of a put by stage',
      description: `Puts of all kinds. ${STAGE_WORDS} A mean hides the slow ones: see the latencies above.`,
      unit: units.Seconds,
      w: 8,
      stacked: true,
      queries: [{ expr: stages('put.*'), legend: '{{stage}}' }],
    }),
    lines({
      title: 'Mean time of a get by stage',
      description: `Gets of all kinds. ${STAGE_WORDS} A get that finds nothing counts too, and is quick.`,
      unit: units.Seconds,
      w: 8,
      stacked: true,
      queries: [{ expr: stages('get.*'), legend: '{{stage}}' }],
    }),
    lines({
      title: 'Bytes moved by store and method',
      description:
        'Bytes of lumps in requests and replies, a second. Not the bytes on the disk: blocks are whole, and journal and file system write more (see Compare).',
      unit: units.BytesPerSecondIEC,
      w: 8,
      queries: [
        {
          expr: `sum by (instance, store, method) (${rate('lumpscope_request_body_bytes_total', `${STORE},method=~"$method"`)})`,
          legend: '{{instance}} {{store}} {{method}}',
        },
      ],
    }),
    lines({
      title: 'Requests in progress',
      description:
        'gRPC requests that have begun and not ended, of the whole service, and those on data that are inside a store. The rest waits for bodies, is being sent, or watches live. Sampled at each scrape: requests between two scrapes are not seen.',
      unit: units.Short,
      w: 8,
      queries: [
        { expr: `sum(lumpscope_requests_in_progress{${SERVICE}})`, legend: 'service' },
        { expr: `sum by (instance, store) (lumpscope_store_requests_in_progress{${STORE}})`, legend: '{{instance}} {{store}}' },
      ],
    }),
    lines({
      title: 'Memory of bodies',
      description:
        'Memory of lumps that are being put, or being read and sent. Not the memory of the whole process; that of the engine is in the dashboard Engine.',
      unit: units.BytesIEC,
      w: 8,
      stacked: true,
      queries: [{ expr: `sum by (direction) (lumpscope_body_memory_bytes{${SERVICE}})`, legend: '{{direction}}' }],
    }),
    timeline({
      title: 'State of the stores',
      description:
        'The state that the service tells, as it was at each scrape; and overloaded: it refuses requests that are not prioritized. The worst is shown.',
      unit: units.Short,
      w: 8,
      mappings: STATE_NAMES,
      queries: [{ expr: worst('instance, store'), legend: '{{instance}} {{store}}' }],
    }),
  ],
};

const door: Row = {
  title: 'Connections and logins',
  panels: [
    lines({
      title: 'Connections',
      description: 'Connections open now, by entrance: tcp and unix are gRPC, metrics is HTTP of the page and the metrics, s3 is S3. One gRPC connection carries many requests.',
      unit: units.Short,
      w: 6,
      queries: [{ expr: `sum by (entrance) (lumpscope_connections{${SERVICE}})`, legend: '{{entrance}}' }],
    }),
    lines({
      title: 'Connections accepted and not accepted',
      description:
        'Connections accepted, a second, by entrance, and the times that none could be accepted for want of file descriptors or memory. Connections stopped by a firewall are not seen.',
      unit: units.CountsPerSecond,
      w: 6,
      queries: [
        { expr: `sum by (entrance) (${rate('lumpscope_connections_accepted_total', SERVICE)})`, legend: '{{entrance}}' },
        {
          expr: orZero(`sum by (instance, entrance) (${rate('lumpscope_accept_errors_total', SERVICE)})`, 'instance', 'entrance', 'any'),
          legend: 'not accepted: {{entrance}}',
        },
      ],
    }),
    lines({
      title: 'Refused at the door',
      description:
        'Requests of unknown callers, or of callers without the right (by reason), and connections that did not get through their handshakes. 0: none so far. The log names the callers.',
      unit: units.CountsPerSecond,
      w: 6,
      queries: [
        {
          expr: orZero(`sum by (instance, reason) (${rate('lumpscope_login_failures_total', SERVICE)})`, 'instance', 'reason'),
          legend: 'login: {{reason}}',
        },
        {
          expr: orZero(`sum by (instance, reason) (${rate('lumpscope_connections_refused_total', SERVICE)})`, 'instance', 'reason'),
          legend: 'handshake: {{reason}}',
        },
      ],
    }),
    lines({
      title: 'Tokens, and reloads of secrets',
      description:
        'Tokens that are accepted; 0 when the service asks for none. Beside it how often, in the last hour, certificates and tokens were read again: ok, or failed and the old ones stayed.',
      unit: units.Short,
      w: 6,
      queries: [
        { expr: `lumpscope_tokens{${SERVICE}}`, legend: 'tokens' },
        {
          expr: orZero(`sum by (instance, result) (increase(lumpscope_reloads_total{${SERVICE}}[1h]))`, 'instance', 'result'),
          legend: 'reloads: {{result}}',
        },
      ],
    }),
  ],
};

const NO_S3 = 'the service has no S3 endpoint';
const S3 = `${STORE_OR_NONE},method=~"s3_.*"`;

const s3: Row = {
  title: 'Only when S3 is served (s3-listen)',
  collapsed: true,
  panels: [
    lines({
      title: 'S3 requests by operation',
      description:
        'S3 requests that ended, a second, by operation. They are among the requests above, too; the variable Method does not choose here. A multipart upload is one request for each part and two around them.',
      unit: units.RequestsPerSecond,
      w: 8,
      links: toSeek(),
      queries: [{ expr: `sum by (method) (${rate('lumpscope_requests_total', S3)})`, legend: '{{method}}', absent: NO_S3 }],
    }),
    lines({
      title: 'S3 requests by code',
      description:
        'The status of HTTP, mapped to the codes of gRPC: 404 is NOT_FOUND, 403 PERMISSION_DENIED, 409 ALREADY_EXISTS, 412 ABORTED, 503 UNAVAILABLE, 507 RESOURCE_EXHAUSTED, 500 INTERNAL. Clients repeat 503 by themselves, so it costs them time before it fails them.',
      unit: units.RequestsPerSecond,
      w: 8,
      stacked: true,
      queries: [{ expr: `sum by (code) (${rate('lumpscope_requests_total', S3)})`, legend: '{{code}}', absent: NO_S3 }],
    }),
    lines({
      title: 'S3 latency by operation, p99',
      description:
        'Of 100 S3 requests 99 took at most so long, from the request to the last byte of the reply. An object of several pieces counts as one request; MD5 for the ETag is in it (s3-etag crc avoids it).',
      unit: units.Seconds,
      w: 8,
      log: true,
      links: toSeek(),
      queries: [
        {
          expr: `histogram_quantile(0.99, sum by (method, le) (${rate('lumpscope_request_duration_seconds_bucket', S3)}))`,
          legend: '{{method}}',
          absent: NO_S3,
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
      title: 'Latency of all chosen requests, in native buckets',
      description:
        'As the heatmap of latency above, in buckets of 9 % each instead of doublings: two groups of requests that lie near each other become visible. The stages of the requests are not included.',
      unit: units.RequestsPerSecond,
      axis: { unit: units.Seconds, label: 'latency' },
      w: 16,
      h: 10,
      native: true,
      queries: [
        {
          expr: `sum(${rate('lumpscope_request_duration_seconds', CHOSEN)})`,
          legend: 'latency',
          exemplar: true,
          absent: NO_NATIVE,
        },
      ],
    }),
    lines({
      title: 'Latency from native buckets, p50 and p99',
      description:
        'Half, or 99 %, of the requests took at most so long, by store and method. Right to within 9 %, where the classic buckets may be off by a factor of up to two. Few requests make a 99th percentile of chance.',
      unit: units.Seconds,
      w: 8,
      h: 10,
      log: true,
      links: toSeek(),
      queries: [0.5, 0.99].map((q) => ({
        expr: `histogram_quantile(${q}, sum by (instance, store, method) (${rate('lumpscope_request_duration_seconds', CHOSEN)}))`,
        legend: `{{instance}} {{store}} {{method}} p${q * 100}`,
        absent: NO_NATIVE,
      })),
    }),
  ],
};

const NO_TLS = 'the service serves without TLS';
const NO_COLLECTOR = 'the service has no collector to send spans to';

const tls: Row = {
  title: 'Only when TLS is on',
  collapsed: true,
  panels: [
    stat({
      title: 'Certificate valid for',
      description:
        "Time until the service's certificate ends; it is read again by itself when the file changes. Absent without TLS. Not covered: the certificates of clients, and the CA.",
      unit: units.Seconds,
      w: 24,
      thresholds: [[null, 'red'], [604800, 'orange'], [2592000, 'green']],
      queries: [
        {
          expr: `lumpscope_certificate_not_after_timestamp_seconds{${SERVICE}} - time()`,
          legend: '{{instance}}',
          absent: NO_TLS,
        },
      ],
    }),
  ],
};

const traces: Row = {
  title: 'Only when spans are exported (otlp-endpoint)',
  collapsed: true,
  panels: [
    stat({
      title: 'Collector',
      description: 'Whether the collector took the last batch of spans. Absent before the first batch, and without a collector.',
      unit: units.Short,
      w: 6,
      h: 8,
      mappings: states({ 0: ['refused', 'red'], 1: ['took the last batch', 'green'] }),
      queries: [{ expr: `lumpscope_trace_exporter_up{${SERVICE}}`, legend: '{{instance}}', absent: NO_COLLECTOR }],
    }),
    lines({
      title: 'Spans exported and dropped',
      description:
        'Spans that the collector has taken, a second, and those that never arrived, by reason. Whether the trace store kept them is not known here.',
      unit: units.CountsPerSecond,
      w: 9,
      queries: [
        { expr: `sum(${rate('lumpscope_trace_spans_exported_total', SERVICE)})`, legend: 'exported', absent: NO_COLLECTOR },
        {
          expr: `sum by (reason) (${rate('lumpscope_trace_spans_dropped_total', SERVICE)})`,
          legend: 'dropped: {{reason}}',
          absent: NO_COLLECTOR,
        },
      ],
    }),
    lines({
      title: 'Requests without spans, and batches that failed',
      description:
        'Requests that were to be exported and of which no span was made, because too many ended at a time, and batches that the collector did not take, a second.',
      unit: units.CountsPerSecond,
      w: 9,
      queries: [
        { expr: `sum(${rate('lumpscope_trace_requests_lost_total', SERVICE)})`, legend: 'requests without spans', absent: NO_COLLECTOR },
        { expr: `sum(${rate('lumpscope_trace_export_failures_total', SERVICE)})`, legend: 'batches that failed', absent: NO_COLLECTOR },
      ],
    }),
  ],
};

export const overview: Plan = {
  uid: 'lumpscope-overview',
  title: 'Lumpscope: Overview',
  description: 'Rate, errors and duration of requests by store and method, their time by stage, and the state of the stores.',
  variables: [methods()],
  rows: [fleet, now, red, work, door, s3, native, tls, traces],
};
