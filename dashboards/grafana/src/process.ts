// The kernel's numbers about the process of the service.

import * as units from '@grafana/grafana-foundation-sdk/units';

import { EVERY, SERVICE, type Row } from './build.js';
import { lines, stat } from './panels.js';

export const pressure: Row = {
  title: 'Only when the kernel tells of pressure (psi=1)',
  collapsed: true,
  panels: ['cpu', 'io', 'memory'].map((resource) =>
    lines({
      title: `Waiting for ${resource}`,
      description: `Share of the time in which tasks of this machine waited for ${resource}: some of them, or all at once (pressure stall information). Tasks of others count, too. "All" for ${resource} means that the machine did nothing else meanwhile.`,
      unit: units.PercentUnit,
      w: 8,
      max: 1,
      queries: [
        {
          expr: `rate(lumpscope_pressure_seconds_total{${SERVICE},resource="${resource}"}${EVERY})`,
          legend: '{{instance}} {{waiting}}',
          absent: 'the kernel does not tell of pressure',
        },
      ],
    }),
  ),
};

/** All who are scraped have these metrics: those of this service. */
const OWN = `job="lumpscope",${SERVICE}`;

export const process: Row = {
  title: 'The process',
  panels: [
    lines({
      title: 'CPU time',
      description:
        'CPU seconds a second of the whole service, user and system, and those of the one thread that ties block requests to requests. The cost of the probes is in neither; the dashboard Observer has it.',
      unit: units.Short,
      w: 6,
      queries: [
        { expr: `rate(process_cpu_seconds_total{${OWN}}${EVERY})`, legend: '{{instance}} all' },
        { expr: `rate(lumpscope_observer_cpu_seconds_total{${SERVICE}}${EVERY})`, legend: '{{instance}} observer' },
      ],
    }),
    lines({
      title: 'Memory of the process',
      description:
        'Memory of the service that is in RAM, and the addresses it has reserved, whether or not there is memory behind them. Lumps and index have panels of their own above.',
      unit: units.BytesIEC,
      w: 6,
      queries: [
        { expr: `process_resident_memory_bytes{${OWN}}`, legend: '{{instance}} in RAM' },
        { expr: `process_virtual_memory_bytes{${OWN}}`, legend: '{{instance}} reserved' },
      ],
    }),
    lines({
      title: 'Open files and threads',
      description:
        'Files, sockets and maps that the service has open, the most it may have, and its threads. Without free file descriptors no connection can be accepted.',
      unit: units.Short,
      w: 6,
      log: true,
      queries: [
        { expr: `process_open_fds{${OWN}}`, legend: '{{instance}} open' },
        { expr: `process_max_fds{${OWN}}`, legend: '{{instance}} most' },
        { expr: `process_threads{${OWN}}`, legend: '{{instance}} threads' },
      ],
    }),
    stat({
      title: 'Running for',
      description: 'Time since the service was started. An unexpectedly short one means that it was restarted: look into its log.',
      unit: units.Seconds,
      w: 6,
      h: 8,
      decimals: 0,
      thresholds: [[null, 'green']],
      queries: [{ expr: `time() - process_start_time_seconds{${OWN}}`, legend: '{{instance}}' }],
    }),
  ],
};
