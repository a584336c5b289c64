// The inside of the stores: journal, space, queue, flushes, memory, scrubber, checkpoints, damage.

import * as units from '@grafana/grafana-foundation-sdk/units';

import { EVERY, STORE, STORE_NAME, type Plan, type Query, type Row, said } from './build.js';
import { lines, stat, table, texts, unit } from './panels.js';
import { pressure, process } from './process.js';

const rate = (metric: string) => `sum by (instance, store) (rate(lumpscope_store_${metric}{${STORE}}${EVERY}))`;
const now = (metric: string) => `sum by (instance, store) (lumpscope_store_${metric}{${STORE}})`;
const share = (part: string, whole: string) => `${now(part)} / ${now(whole)}`;

/** A line for each store, named by the store and what it is. */
function of(expr: string, what = ''): Query {
  return { expr, legend: what === '' ? STORE_NAME : `${STORE_NAME} ${what}` };
}

/** Bytes by which the data of each store grew over the last day. */
const GROWTH = `sum by (instance, store) (delta(lumpscope_store_data_used_bytes{${STORE}}[1d]))`;

/** What happened in the chosen time, as a number that should be 0. */
function never(title: string, metric: string, description: string) {
  return stat({
    title,
    description,
    unit: units.Short,
    w: 4,
    decimals: 0,
    thresholds: [[null, 'green'], [1, 'red']],
    queries: [{ ...of(`sum by (instance, store) (increase(lumpscope_store_${metric}{${STORE}}[$__range]))`), instant: true }],
  });
}

const damage: Row = {
  title: 'Damage: each of these should be 0',
  panels: [
    never(
      'Gets with wrong bytes',
      'checksum_failures_total',
      'Gets in the chosen time whose bytes did not match their checksum; nothing was returned. Only lumps that clients read are checked here; the scrubber checks the rest.',
    ),
    never(
      'Corrupt lumps found',
      'scrub_corrupt_lumps_total',
      'Lumps that the scrubber has found in the chosen time whose bytes are not those that were written. Each is named in the log. A lump that is found again in the next pass counts again; without a scrubber this stays 0.',
    ),
    never(
      'Unreadable lumps found',
      'scrub_unreadable_lumps_total',
      'Lumps that the scrubber could not read in the chosen time. Each is named in the log. Without a scrubber this stays 0.',
    ),
    never(
      'I/O errors',
      'io_errors_total',
      'Reads, writes and flushes of the engine that failed in the chosen time. After a failed write or flush the store takes no changes.',
    ),
    never(
      'Checkpoints given up',
      'checkpoints_failed_total',
      'Checkpoints of the index given up in the chosen time, for lack of room or because a write failed. The store works on; its next open takes longer.',
    ),
    never(
      'Past their deadline',
      'deadline_dropped_requests_total',
      'Requests dropped in the chosen time because their deadline had passed before they touched the disk. The client has been told; no work was wasted on them.',
    ),
  ],
};

const journal: Row = {
  title: 'Journal',
  panels: [
    lines({
      title: 'Journal used and live',
      description:
        'Share of the ring between its head and its tail, and the share that holds live records. Garbage collection can free the used bytes that are not live. Used near 1: puts wait for it; live near 1: the journal is too small for so many lumps.',
      unit: units.PercentUnit,
      w: 8,
      max: 1,
      queries: [
        of(share('journal_used_bytes', 'journal_capacity_bytes'), 'used'),
        of(share('journal_live_bytes', 'journal_capacity_bytes'), 'live'),
      ],
    }),
    lines({
      title: 'Changes per commit',
      description:
        'Group commit: journal records that one commit, and so one flush, makes durable. 1: every change pays for its own flush; more: those that come at a time share one. Records that garbage collection moved are counted too.',
      unit: units.Short,
      w: 8,
      decimals: 2,
      queries: [of(`${rate('journal_records_total')} / ${rate('journal_commits_total')}`)],
    }),
    lines({
      title: 'Commits, records and moves of the head',
      description:
        'Journal batches committed, records in them (relocated ones included), and times that the head of the ring was moved, a second. Each commit is a write and, unless told otherwise, a flush.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [
        of(rate('journal_commits_total'), 'commits'),
        of(rate('journal_records_total'), 'records'),
        of(rate('journal_header_writes_total'), 'head moved'),
      ],
    }),
    lines({
      title: 'Garbage collection of the journal, records',
      description:
        'Records that garbage collection passed over because they are dead, and live ones that it moved to the tail, a second. Many moved for few dropped: the journal is nearly full of live records, and each put pays for the moves.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [
        of(rate('journal_gc_dropped_records_total'), 'dropped'),
        of(rate('journal_gc_relocated_records_total'), 'moved'),
      ],
    }),
    lines({
      title: 'Garbage collection of the journal, bytes',
      description: 'Bytes of the journal a second that garbage collection read to find dead records. It reads in the order of the ring, beside the requests.',
      unit: units.BytesPerSecondIEC,
      w: 8,
      queries: [of(rate('journal_gc_read_bytes_total'), 'read')],
    }),
    lines({
      title: 'Runs of garbage collection, and checkpoints',
      description:
        'Times a second that garbage collection began to work, and checkpoints of the index that were completed. Both stay at 0 while there is little to do.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [of(rate('journal_gc_runs_total'), 'collections'), of(rate('checkpoints_total'), 'checkpoints')],
    }),
    lines({
      title: 'Replay of the next open, bytes',
      description:
        'Bytes of the journal beyond the newest checkpoint of the index: the next open reads them. It falls with each checkpoint; without room for checkpoints it is the whole journal.',
      unit: units.BytesIEC,
      w: 12,
      queries: [of(now('checkpoint_lag_bytes'))],
    }),
    lines({
      title: 'Replay of the next open, records',
      description: 'Journal records beyond the newest checkpoint of the index: the next open replays them.',
      unit: units.Short,
      w: 12,
      queries: [of(now('checkpoint_lag_records'))],
    }),
  ],
};

const space: Row = {
  title: 'Space',
  panels: [
    lines({
      title: 'Space of lumps',
      description:
        'Share of the data region in use, in whole blocks. A put needs one free extent that is large enough: see the largest one beside.',
      unit: units.PercentUnit,
      w: 6,
      max: 1,
      queries: [of(share('data_used_bytes', 'data_capacity_bytes'))],
    }),
    lines({
      title: 'Growth in a day',
      description:
        'Bytes by which the store grew in the last day, deletions taken off. In its first day: since Prometheus began to scrape it.',
      unit: units.BytesIEC,
      w: 6,
      signed: true,
      queries: [of(GROWTH)],
    }),
    stat({
      title: 'Days until full',
      description:
        'Free bytes divided by the growth of the last day; the time before the first scrape counts as without growth. A store that does not grow is never full. Puts may fail earlier, when no free extent is large enough, or when the journal is full of live records.',
      unit: units.Days,
      w: 6,
      h: 8,
      decimals: 0,
      thresholds: [[null, 'red'], [7, 'orange'], [30, 'green']],
      mappings: said('over 10 years', 3650, true),
      queries: [of(`clamp_max((${now('data_capacity_bytes')} - ${now('data_used_bytes')}) / clamp_min(${GROWTH}, 1), 3650)`)],
    }),
    lines({
      title: 'Largest free extent, all free',
      description: 'The largest lump that can be put now fits into the largest free extent. Beside it all free bytes.',
      unit: units.BytesIEC,
      w: 6,
      queries: [
        of(now('largest_free_bytes'), 'largest'),
        of(`${now('data_capacity_bytes')} - ${now('data_used_bytes')}`, 'free'),
      ],
    }),
    lines({
      title: 'Bad places',
      description:
        'Bytes that the device has refused to write, as far as the store remembers. Puts go elsewhere; more than none means that the disk begins to fail.',
      unit: units.BytesIEC,
      w: 8,
      queries: [of(now('bad_bytes'))],
    }),
    lines({
      title: 'Fragmentation',
      description:
        'Share of the free bytes that lies outside the largest free extent. High is harmless while the largest extent is larger than any lump.',
      unit: units.PercentUnit,
      w: 8,
      max: 1,
      queries: [of(now('fragmentation_ratio'))],
    }),
    lines({
      title: 'Lumps and free extents',
      description: 'Lumps in the store, and free extents of the data region between them.',
      unit: units.Short,
      w: 8,
      queries: [of(now('lumps'), 'lumps'), of(now('free_extents'), 'free extents')],
    }),
  ],
};

const queue: Row = {
  title: 'Queue, disk and overload',
  panels: [
    lines({
      title: 'Mean wait in the queue',
      description:
        "Mean time that requests waited for the store's owner thread before they were started. Not the block layer's queue: that is the stage queue of a request.",
      unit: units.Seconds,
      w: 8,
      queries: [of(`${rate('queue_wait_seconds_total')} / ${rate('queue_started_requests_total')}`)],
    }),
    lines({
      title: 'Waiting, started, in flight',
      description:
        'Requests that wait for the owner thread, requests it has started and not finished, and I/Os handed to the kernel and not completed. Sampled at each scrape: peaks between two scrapes are not seen.',
      unit: units.Short,
      w: 8,
      queries: [of(now('queue_length'), 'waiting'), of(now('pending_requests'), 'started'), of(now('in_flight_ios'), 'I/Os')],
    }),
    lines({
      title: 'Started, and started out of turn',
      description:
        'Requests taken from the queue, a second, and those started before an older one that waited: the scheduler prefers those with a nearer deadline or a higher priority.',
      unit: units.RequestsPerSecond,
      w: 8,
      queries: [of(rate('queue_started_requests_total'), 'started'), of(rate('queue_overtakes_total'), 'out of turn')],
    }),
    lines({
      title: 'Requests refused',
      description:
        'Requests refused, a second, because the queue was full, because more waited than their own limit allows, because the store was overloaded, or (puts) because the memory for lumps was used up. The client is told to come again.',
      unit: units.RequestsPerSecond,
      w: 8,
      queries: [
        of(rate('queue_refused_requests_total'), 'queue full'),
        of(rate('queue_refused_own_limit_requests_total'), 'own limit'),
        of(rate('overload_refused_requests_total'), 'overload'),
        of(rate('buffer_refused_puts_total'), 'memory'),
      ],
    }),
    lines({
      title: 'Overload and deadlines',
      description:
        'Times a second that the store became overloaded, whether it is now (1), and requests started after, or dropped because of, their deadline. Deadlines are set by clients: a request without one is never late.',
      unit: units.CountsPerSecond,
      w: 16,
      queries: [
        of(rate('overloads_total'), 'became overloaded'),
        of(now('overloaded'), 'is overloaded'),
        of(rate('deadline_missed_requests_total'), 'started late'),
        of(rate('deadline_dropped_requests_total'), 'dropped'),
      ],
    }),
    lines({
      title: 'Writes and flushes of the engine',
      description:
        'Writes and flushes a second that the engine asked for, how many of the writes were forced (FUA) and so took no flush, how many puts were written while their bytes came in (in pieces), how many flushes were spared because they would have changed nothing, and how many journal records each flush made durable. The disk may see more: the file system flushes for itself (Compare: flushes per put).',
      unit: units.CountsPerSecond,
      w: 24,
      queries: [
        of(rate('writes_total'), 'writes'),
        of(rate('writes_forced_total'), 'forced writes'),
        of(rate('puts_passed_total'), 'puts written as they came'),
        of(rate('flushes_total'), 'flushes'),
        of(rate('flushes_spared_total'), 'flushes spared'),
        of(`${rate('journal_records_total')} / ${rate('flushes_total')}`, 'records per flush'),
      ],
    }),
  ],
};

const memory: Row = {
  title: 'Memory',
  panels: [
    lines({
      title: 'Memory of lumps in the engine',
      description:
        'Memory that lumps hold in the engine, how much of it belongs to gets, and the most that they may hold. At the limit puts are refused and gets wait.',
      unit: units.BytesIEC,
      w: 8,
      queries: [
        of(now('buffer_used_bytes'), 'used'),
        of(now('buffer_get_bytes'), 'of gets'),
        of(now('buffer_budget_bytes'), 'limit'),
      ],
    }),
    lines({
      title: 'Waits for memory',
      description: 'Times a second that gets began to wait because the memory for lumps was used up.',
      unit: units.CountsPerSecond,
      w: 8,
      queries: [of(rate('buffer_waits_total'))],
    }),
    lines({
      title: 'Memory of the index',
      description: 'Memory that the index of the lumps takes: it grows with the number of lumps, not with their size.',
      unit: units.BytesIEC,
      w: 8,
      queries: [of(now('index_memory_bytes'))],
    }),
  ],
};

const scrub: Row = {
  title: 'Scrubber',
  panels: [
    lines({
      title: 'Scrubber, bytes read',
      description:
        'Bytes a second that the scrubber reads to compare lumps with their checksums. 0: it is not running, or waits; scrub-rate sets how fast it may be.',
      unit: units.BytesPerSecondIEC,
      w: 6,
      queries: [of(rate('scrub_read_bytes_total'))],
    }),
    lines({
      title: 'Scrubber, lumps',
      description:
        'Lumps a second that the scrubber has looked at, those without a checksum, of which it can only say that they are readable, and gets of such lumps.',
      unit: units.CountsPerSecond,
      w: 6,
      queries: [
        of(rate('scrub_lumps_total'), 'looked at'),
        of(rate('scrub_unverified_lumps_total'), 'without checksum'),
        of(rate('unverified_gets_total'), 'gets without checksum'),
      ],
    }),
    lines({
      title: 'Progress of the pass',
      description: 'Bytes of the store that the present pass of the scrubber has behind it. It starts again with each pass.',
      unit: units.BytesIEC,
      w: 6,
      queries: [of(now('scrub_position_bytes'))],
    }),
    table({
      title: 'Passes of the scrubber',
      description:
        'Passes over the whole store that the scrubber has completed since the store was opened, and when the last one ended.',
      unit: units.Short,
      w: 6,
      headings: { instance: 'Service', store: 'Store', 'Value #A': 'Passes', 'Value #B': 'Last ended' },
      columns: { 'Last ended': [unit(units.DateTimeFromNow), texts(said('never', 0))] },
      queries: [of(now('scrub_passes_total')), of(`1000 * ${now('scrub_last_pass_timestamp_seconds')}`)],
    }),
  ],
};

export const engine: Plan = {
  uid: 'lumpscope-engine',
  title: 'Lumpscope: Engine',
  description: 'The inside of the stores: journal, space, queue, flushes, memory, scrubber, checkpoints, damage. Complete with and without probes.',
  variables: [],
  rows: [damage, journal, space, queue, memory, scrub, process, pressure],
};
