// Trust in the observer's numbers, and the cost of observing.

import * as units from '@grafana/grafana-foundation-sdk/units';

import { EVERY, SERVICE, STORE, type Plan, type Row, states } from './build.js';
import { lines, stat, table, timeline, unit } from './panels.js';

const byStore = (metric: string) => `sum by (instance, store) (rate(lumpscope_${metric}{${STORE}}${EVERY}))`;
const service = (metric: string) => `rate(lumpscope_${metric}{${SERVICE}}${EVERY})`;

const trust: Row = {
  title: 'Can the numbers be trusted?',
  panels: [
    timeline({
      title: 'Observed',
      description:
        'Whether every block request of the disk below the store is seen. not observed: requests are served and timed, but nothing is known of their block requests; `lumpscope admin observer` says why. At each scrape.',
      unit: units.Short,
      w: 8,
      h: 6,
      mappings: states({ 0: ['not observed', 'red'], 1: ['observed', 'green'] }),
      queries: [{ expr: `lumpscope_probe_attached{${STORE},device=~"$device"}`, legend: '{{instance}} {{store}}: {{device}}, {{mode}}' }],
    }),
    timeline({
      title: 'Complete',
      description:
        "Whether nothing was lost and the probes count as many block requests and bytes as the kernel's own disk statistics. It stays incomplete until the service restarts, even when no more is lost.",
      unit: units.Short,
      w: 8,
      h: 6,
      mappings: states({ 0: ['incomplete', 'red'], 1: ['complete', 'green'] }),
      queries: [{ expr: `lumpscope_audit_complete{${STORE}}`, legend: '{{instance}} {{store}}' }],
    }),
    stat({
      title: 'Attributed since the start',
      description:
        'Share of the bytes of data I/O of this service that could be tied to the request that caused them. Shared bytes (one block request for several requests) and those of the engine itself are not in it. Absent before the first I/O.',
      unit: units.PercentUnit,
      w: 8,
      h: 6,
      decimals: 2,
      thresholds: [[null, 'red'], [0.95, 'orange'], [0.99, 'green']],
      queries: [
        {
          expr: `sum by (instance, store) (lumpscope_attribution_ratio{${STORE},result=~"attributed|shared"})`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Attribution over time',
      description:
        'Bytes of data I/O of this service, a second, by how they were tied to requests: attributed to one, shared by several, or unattributed; unknown: in block requests without an event. I/O of others on the disk is not in it.',
      unit: units.BytesPerSecondIEC,
      w: 8,
      stacked: true,
      queries: [
        { expr: `sum by (result) (rate(lumpscope_attribution_bytes_total{${STORE}}${EVERY}))`, legend: '{{result}}' },
      ],
    }),
    lines({
      title: 'Audit, block requests: probes less kernel',
      description:
        "Block requests completed, as counted by the probes, less those of the kernel's own disk statistics, since the start. 0 is right. The two are not read at the same instant, so that it may leave 0 for one scrape under load.",
      unit: units.Short,
      w: 8,
      signed: true,
      queries: [
        {
          expr: `lumpscope_audit_requests_total{${STORE},source="probes"} - ignoring (source) lumpscope_audit_requests_total{${STORE},source="kernel"}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
    lines({
      title: 'Audit, bytes: probes less kernel',
      description:
        "Bytes of these block requests, by these two counters. 0 is right. Bytes of discards are not counted alike by every kernel.",
      unit: units.BytesIEC,
      w: 8,
      signed: true,
      queries: [
        {
          expr: `lumpscope_audit_bytes_total{${STORE},source="probes"} - ignoring (source) lumpscope_audit_bytes_total{${STORE},source="kernel"}`,
          legend: '{{instance}} {{store}}',
        },
      ],
    }),
  ],
};

const missing: Row = {
  title: 'Gaps and doubts',
  panels: [
    lines({
      title: 'Not seen, or seen late',
      description:
        'Block requests a second: whose start was not seen or whose table was full (unmatched); that no probe was shown and that were found later (found late: counted, their device time is unknown); that did not fit into the table of those in flight; that were sent to the disk again because its driver was busy (reissued: harmless).',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [
        { expr: byStore('unmatched_block_requests_total'), legend: '{{instance}} {{store}} unmatched' },
        { expr: byStore('audit_found_late_requests_total'), legend: '{{instance}} {{store}} found late' },
        { expr: byStore('audit_in_flight_full_requests_total'), legend: '{{instance}} {{store}} table full' },
        { expr: byStore('audit_reissued_requests_total'), legend: '{{instance}} {{store}} reissued' },
      ],
    }),
    lines({
      title: 'Events lost and probes skipped',
      description:
        'Events a second that were lost between kernel and service, exactly, and times that the kernel skipped a probe because it was already running. Explanations and traces miss lost events; counters and histograms do not.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [
        { expr: byStore('lost_events_total'), legend: '{{instance}} {{store}} lost' },
        { expr: byStore('probe_recursion_misses_total'), legend: '{{instance}} {{store}} skipped' },
      ],
    }),
    lines({
      title: 'Two ways of attribution',
      description:
        'Block requests a second whose submission (thread or io_uring) and place on the disk name one I/O (agree) or different ones (conflict: should be 0), and those whose submission was not seen, such as those of kernel workers; these are attributed by their place alone. Ambiguous: place and time suit another I/O, or somebody else, as well.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [
        { expr: byStore('audit_attribution_agreements_total'), legend: '{{instance}} {{store}} agree' },
        { expr: byStore('audit_attribution_conflicts_total'), legend: '{{instance}} {{store}} conflict' },
        { expr: byStore('audit_submission_unknown_requests_total'), legend: '{{instance}} {{store}} submission not seen' },
        { expr: byStore('audit_ambiguous_requests_total'), legend: '{{instance}} {{store}} ambiguous' },
      ],
    }),
    lines({
      title: 'I/Os attributed by their sectors alone',
      description:
        'I/Os a second that a thread of the service could not announce to the probes because another thread had its place. They are attributed by their sectors alone, so nothing can contradict it.',
      unit: units.CountsPerSecond,
      w: 6,
      queries: [{ expr: service('submissions_unchecked_ios_total'), legend: '{{instance}}' }],
    }),
    lines({
      title: 'Events not asked for',
      description:
        'Completed block requests a second that were not handed out as events because the event policy did not ask for them. They are counted, their owners are unknown; explanations and traces do not name them.',
      unit: units.CountsPerSecond,
      w: 6,
      queries: [{ expr: byStore('audit_not_sampled_requests_total'), legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Unknown owners',
      description:
        'Block requests a second without an event, because they were not asked for or were lost, and requests of which not all that held them up is known. Above 0, times lost to others are lower bounds, and what each owner did is too; sums over the owners are exact.',
      unit: units.CountsPerSecond,
      w: 6,
      queries: [{ expr: byStore('interference_gaps_total'), legend: '{{instance}} {{store}}' }],
    }),
    table({
      title: 'Event policy',
      description:
        'One of so many completed block requests is handed out as an event (1: each; 0: none by chance), and besides each that took at least so long (0: no such rule). `lumpscope admin observer` changes it while the service runs.',
      unit: units.Short,
      w: 6,
      headings: { instance: 'Service', 'Value #A': 'One in', 'Value #B': 'And slower than' },
      columns: { 'And slower than': [unit(units.Seconds)] },
      queries: [
        { expr: `max by (instance) (lumpscope_event_policy_one_in{${SERVICE}})`, legend: '{{instance}}' },
        { expr: `max by (instance) (lumpscope_event_policy_slower_than_seconds{${SERVICE}})`, legend: '{{instance}}' },
      ],
    }),
  ],
};

const watchers: Row = {
  title: 'Programs in the kernel, and watchers',
  panels: [
    table({
      title: 'Programs in the kernel',
      description:
        'The eBPF programs, their hooks, and whether each is attached (1). `lumpscope admin observer` shows the reason and the consequence when one is not.',
      unit: units.Short,
      w: 8,
      headings: { instance: 'Service', program: 'Program', hook: 'Hook', Value: 'Attached' },
      queries: [{ expr: `lumpscope_probe_program_attached{${SERVICE}}`, legend: '{{program}}' }],
    }),
    lines({
      title: 'Calls that watch live',
      description:
        'Calls that watch now (trace, record), and block requests or lines a second that were left out of them because their clients took them too slowly. The service never waits for a watcher.',
      unit: units.Short,
      w: 8,
      queries: [
        { expr: `sum by (kind) (lumpscope_watches{${SERVICE}})`, legend: '{{kind}}' },
        { expr: `sum by (kind) (${service('watch_dropped_total')})`, legend: '{{kind}} left out' },
      ],
    }),
    lines({
      title: 'Slow requests kept',
      description:
        'Slow requests of the last minutes that `lumpscope explain` and the built-in page can tell of, with their block requests.',
      unit: units.Short,
      w: 8,
      queries: [{ expr: `sum by (instance, store) (lumpscope_kept_slow_requests{${STORE}})`, legend: '{{instance}} {{store}}' }],
    }),
    lines({
      title: 'Processor time of the observer',
      description:
        'Seconds of processor time a second of the thread that ties block requests to requests: 1 is one processor. It grows with the block requests that are handed out as events. The cost of the probes themselves is measured only on demand: see below.',
      unit: units.Short,
      w: 8,
      decimals: 3,
      queries: [{ expr: service('observer_cpu_seconds_total'), legend: '{{instance}}' }],
    }),
    lines({
      title: 'Programs skipped by the kernel',
      description:
        'Times a second that the kernel skipped a program because it was already running on that processor. Its counts are then missing.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [
        { expr: `sum by (program) (${service('probe_program_recursion_misses_total')})`, legend: '{{program}}' },
      ],
    }),
    table({
      title: 'Guard',
      description:
        'The policy of the guard of each device (off, audit, deny), and the opens for writing by other processes that it has denied, or seen and allowed, since the start. Opens through other paths of the kernel are not seen.',
      unit: units.Short,
      w: 8,
      headings: { instance: 'Service', store: 'Store', policy: 'Policy', 'Value #B': 'Denied', 'Value #C': 'Allowed' },
      without: ['Value #A'],
      queries: [
        { expr: `max by (instance, store, policy) (lumpscope_guard_policy{${STORE}} == 1)`, legend: '{{instance}} {{store}}' },
        { expr: `sum by (instance, store) (lumpscope_guard_denied_opens_total{${STORE}})`, legend: '{{instance}} {{store}}' },
        { expr: `sum by (instance, store) (lumpscope_guard_allowed_opens_total{${STORE}})`, legend: '{{instance}} {{store}}' },
      ],
    }),
  ],
};

const NO_STATISTICS = 'the setting program-statistics is off: no program has run while time was taken';

const cost: Row = {
  title: 'Only when program-statistics is on: the cost of the programs',
  collapsed: true,
  panels: [
    lines({
      title: 'Time in programs',
      description:
        'Seconds a second, over all processors, that the eBPF programs ran, while the kernel was told to measure it. Measuring costs something too, so it is off by default. The work of the service on the events is not included.',
      unit: units.Seconds,
      w: 12,
      queries: [
        {
          expr: `sum by (program) (${service('probe_program_run_seconds_total')})`,
          legend: '{{program}}',
        },
      ],
    }),
    lines({
      title: 'Time of one run',
      description: 'Mean time of one run of a program, while the kernel was told to measure it.',
      unit: units.Seconds,
      w: 12,
      queries: [
        {
          expr: `sum by (program) (${service('probe_program_run_seconds_total')}) / sum by (program) (${service('probe_program_runs_total')})`,
          legend: '{{program}}',
          absent: NO_STATISTICS,
        },
      ],
    }),
  ],
};

const guard: Row = {
  title: 'Only when the guard is on',
  collapsed: true,
  panels: [
    timeline({
      title: 'Guard effective',
      description:
        '1 when a trial proved that the guard follows its policy. Absent when the guard is off. `lumpscope admin observer` shows the reason when it is not effective.',
      unit: units.Short,
      w: 24,
      h: 6,
      mappings: states({ 0: ['not effective', 'red'], 1: ['effective', 'green'] }),
      queries: [{ expr: `lumpscope_guard_effective{${STORE}}`, legend: '{{instance}} {{store}}', absent: 'the guard is off' }],
    }),
  ],
};

export const observer: Plan = {
  uid: 'lumpscope-observer',
  title: 'Lumpscope: Observer',
  description: 'Trust in the block numbers, their gaps, and the cost of observing.',
  variables: [],
  rows: [trust, missing, watchers, cost, guard],
};
