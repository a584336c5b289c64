//! Can the numbers be trusted? What the probes saw against what the kernel counted itself.
//!
//! The kernel counts a request when it completes: reads, writes (data, and the empty writes that
//! ask for a flush), discards, and on its own the flushes that it sent. Merged bios are one
//! request. The probes' sum is the same four.
//!
//! What the block layer wraps in flushes completes twice: its data, which the probes count, and the
//! whole sequence, which the kernel counts. So the kernel may be behind by the sequences under way,
//! and ahead by those that were under way when watching began; both are known from the completions
//! of sequences that the probes were shown.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use lumpscope_ebpf_common::{InFlight, flag, op, stats};

use crate::clock::monotonic_ns;
use crate::device::{Layer, Target};
use crate::disk_stat::{DiskStat, in_flight, read_stat};
use crate::event::Event;
use crate::heat::{Cells, began_ns};
use crate::late::Late;
use crate::name::ThreadName;
use crate::probes::{Counters, Probes};
use crate::report::{AuditReport, InFlightReport, OwnerTotal};
use crate::slots::Slot;

/// How often to look for a moment in which the disk is idle.
pub(crate) const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);
/// After this time nothing is in flight any more that was when watching began.
const GRACE_NS: u64 = 5_000_000_000;
/// No request is larger, for the bounds of a comparison on a busy disk.
const LARGEST_REQUEST: u64 = 4 << 20;
const OPS: usize = op::COUNT as usize;

/// A watched disk.
#[derive(Debug)]
pub(crate) struct WatchedDisk {
    pub(crate) name: String,
    pub(crate) dev: u32,
    pub(crate) layer: Layer,
    pub(crate) slot: u32,
    stat: DiskStat,
    counters: Counters,
    /// Its cells and rows when watching began.
    cells: Cells,
    misses: u64,
    late: Late,
    /// Requests and bytes under way when watching began: the counts may differ by as much.
    slack: DiskStat,
    armed_ns: u64,
    /// Requests whose start was not seen because it was before watching began.
    started_before: AtomicU64,
    /// Sequences that were under way when watching began and have ended, as far as is known.
    begun_before: AtomicU64,
}

/// What the kernel counts when a sequence of flushes has ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sequences {
    /// Of these the probes saw no data: they began before watching did.
    begun_before: u64,
    /// The data of at most so many is counted, and the sequence is not.
    under_way: u64,
    /// Requests of all kinds whose start was before watching began: no loss.
    started_before: u64,
}

/// The kernel's counts around a reading of the probes'.
#[derive(Debug, Clone, Copy)]
struct Reading {
    stat: Option<DiskStat>,
    /// Requests and bytes under way meanwhile; 0 on an idle disk.
    slack: DiskStat,
}

impl WatchedDisk {
    /// Begins to watch, if possible at a moment in which the disk is idle.
    pub(crate) fn arm(
        probes: &mut Probes,
        target: &Target,
        slot: Slot,
    ) -> Result<WatchedDisk, aya::maps::MapError> {
        let (name, dev, layer) = (&target.disk, target.placement.dev, target.layer);
        let cells = if slot.used {
            probes.renew(slot.number)?
        } else {
            Cells::default()
        };
        let slot = slot.number;
        let mut counters = probes.counters(slot);
        let mut reading = Reading {
            stat: None,
            slack: DiskStat::default(),
        };
        for attempt in 0..ATTEMPTS {
            counters = probes.counters(slot);
            let mut watched = Ok(());
            reading = read_around(name, || watched = probes.watch(dev, slot, layer));
            watched?;
            if reading.slack == DiskStat::default() || attempt + 1 == ATTEMPTS {
                break;
            }
            probes.unwatch(dev, layer)?;
            thread::sleep(PAUSE);
        }
        Ok(WatchedDisk {
            name: name.clone(),
            dev,
            layer,
            slot,
            stat: reading.stat.unwrap_or_default(),
            counters,
            cells,
            misses: probes.recursion_misses(),
            late: Late::default(),
            slack: reading.slack,
            armed_ns: monotonic_ns(),
            started_before: AtomicU64::new(0),
            begun_before: AtomicU64::new(0),
        })
    }

    /// The sequences in a reading of the probes' counts.
    fn sequences(&self, since: &Counters) -> Sequences {
        if self.layer == Layer::Bios {
            return Sequences::default();
        }
        let begun = since[stats::WRAPPED];
        let ended = since[stats::SEQUENCE_ENDS];
        let started_before = self.started_before(since);
        let more = ended.saturating_sub(begun);
        let known = self.begun_before.fetch_max(more, Ordering::Relaxed);
        let begun_before = known.max(more);
        Sequences {
            begun_before,
            // Of those that began before, the data of some is counted.
            under_way: (begun + begun_before).saturating_sub(ended) + started_before,
            started_before,
        }
    }

    /// How many requests had been made before watching began, and were seen to end since.
    fn started_before(&self, since: &Counters) -> u64 {
        let early = monotonic_ns().saturating_sub(self.armed_ns) < GRACE_NS;
        if early && since[stats::IN_FLIGHT_FULL] == 0 {
            let now = unmatched_in(since);
            self.started_before.fetch_max(now, Ordering::Relaxed);
        }
        self.started_before.load(Ordering::Relaxed)
    }

    /// Its cells and rows, since watching began.
    pub(crate) fn cells(&self, probes: &Probes) -> Cells {
        probes.cells(self.slot).since(&self.cells)
    }

    /// What is under way now.
    pub(crate) fn in_flight(&self, probes: &Probes) -> InFlightReport {
        let requests = in_flight(&self.name).unwrap_or(0);
        if requests == 0 {
            return InFlightReport::default();
        }
        // The flush that the block layer makes is not counted, but whoever asked for it is.
        let mut known = probes.in_flight(self.slot);
        known.retain(|entry| entry.op != op::FLUSH || entry.flags & flag::FLUSH_PARENT != 0);
        oldest_of(requests, &known, monotonic_ns())
    }

    /// Looks for completions that no program was shown; their events. `thoroughly`: waits up to 20
    /// ms for them when some are missing.
    pub(crate) fn find_late(&mut self, probes: &mut Probes, thoroughly: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..if thoroughly { ATTEMPTS } else { 1 } {
            let now_ns = monotonic_ns();
            // In this order: the kernel counts a completion after the programs have run.
            let Some(stat) = read_stat(&self.name) else {
                break;
            };
            let kernel = stat.since(self.stat).requests + self.slack.requests;
            let since = self.since(probes);
            let seen = requests_in(&since) + self.sequences(&since).begun_before;
            let missing = kernel.saturating_sub(seen);
            if missing == 0 {
                self.late.all_there();
                break;
            }
            let idle = in_flight(&self.name) == Some(0);
            events.extend(self.late.find(probes, self.slot, missing, now_ns, idle));
            if thoroughly {
                thread::sleep(PAUSE);
            }
        }
        events
    }

    /// The probes' counts since watching began, found late included.
    fn since(&self, probes: &Probes) -> Counters {
        self.beyond(&probes.counters(self.slot))
    }

    fn beyond(&self, now: &Counters) -> Counters {
        let late = &self.late.counters;
        std::array::from_fn(|i| now[i].saturating_sub(self.counters[i]) + late[i])
    }

    /// Compares, if possible at a moment in which the disk is idle: looks for one so many times, a
    /// millisecond apart.
    pub(crate) fn audit(&self, probes: &Probes, attempts: u32) -> AuditReport {
        let mut counters = self.counters;
        let mut reading = Reading {
            stat: None,
            slack: DiskStat::default(),
        };
        for attempt in 0..attempts {
            reading = read_around(&self.name, || counters = probes.counters(self.slot));
            if reading.slack == DiskStat::default() || attempt + 1 >= attempts {
                break;
            }
            thread::sleep(PAUSE);
        }
        let since = self.beyond(&counters);
        let kernel = reading.stat.map(|now| now.since(self.stat));
        let slack = DiskStat {
            requests: reading.slack.requests + self.slack.requests,
            bytes: reading.slack.bytes + self.slack.bytes,
        };
        let misses = probes.recursion_misses().saturating_sub(self.misses);
        let mut report = judge(&since, kernel, misses, slack, self.sequences(&since));
        if self.layer == Layer::Requests && !probes.sees_starts() {
            report.finding += "; this kernel does not show when requests are made: their time in \
                               the queue and who made them are unknown";
        }
        report
    }
}

/// `known`: requests in flight as far as was seen, oldest first. Where these are more than the kernel
/// counts, the completion of the first was not shown.
fn oldest_of(requests: u64, known: &[InFlight], now_ns: u64) -> InFlightReport {
    let counted = usize::try_from(requests).unwrap_or(usize::MAX);
    let Some(oldest) = known.get(known.len().saturating_sub(counted)) else {
        return InFlightReport {
            requests,
            ..InFlightReport::default()
        };
    };
    let operation = op::NAMES
        .get(usize::from(oldest.op))
        .copied()
        .unwrap_or("other");
    let place = match oldest.sectors {
        0 => String::new(),
        n => format!(" of {n} sectors at sector {}", oldest.sector),
    };
    let by = match (ThreadName::from(oldest.comm).text().as_str(), oldest.tgid) {
        ("", _) => String::new(),
        (comm, 0) => format!(" by {comm}"),
        (comm, tgid) => format!(" by {comm} (process {tgid})"),
    };
    InFlightReport {
        requests,
        oldest_ns: now_ns.saturating_sub(began_ns(oldest)),
        oldest: format!("{operation}{place}{by}"),
    }
}

/// Reads the kernel's counts before and after doing something, and how much moved meanwhile.
fn read_around(disk: &str, act: impl FnOnce()) -> Reading {
    let (before, flying_before) = (read_stat(disk), in_flight(disk).unwrap_or(0));
    act();
    let (flying_after, after) = (in_flight(disk).unwrap_or(0), read_stat(disk));
    let flying = flying_before.max(flying_after);
    let moved = after.unwrap_or_default().since(before.unwrap_or_default());
    let slack = DiskStat {
        requests: moved.requests + flying,
        bytes: moved.bytes + flying * LARGEST_REQUEST,
    };
    Reading { stat: after, slack }
}

/// Completed requests, as the kernel's statistics count them.
fn requests_in(seen: &Counters) -> u64 {
    let sent: u64 = seen[stats::SEEN_REQUESTS..][..OPS].iter().sum();
    sent + seen[stats::FLUSH_PARENTS]
}

/// Requests whose start was not seen.
fn unmatched_in(seen: &Counters) -> u64 {
    seen[stats::DONE_WITHOUT_START] + seen[stats::ISSUE_WITHOUT_START]
}

/// Completed requests without an event.
fn untold_in(seen: &Counters) -> Vec<OwnerTotal> {
    let all = op::NAMES
        .iter()
        .enumerate()
        .map(|(op, operation)| OwnerTotal {
            owner: "unknown".to_owned(),
            operation: (*operation).to_owned(),
            requests: seen[stats::UNTOLD_REQUESTS + op],
            bytes: seen[stats::UNTOLD_BYTES + op],
        });
    all.filter(|total| total.requests > 0).collect()
}

/// Turns counts into a verdict. Pure.
fn judge(
    seen: &Counters,
    kernel: Option<DiskStat>,
    misses: u64,
    slack: DiskStat,
    sequences: Sequences,
) -> AuditReport {
    let counted = kernel.unwrap_or_default();
    let mut report = AuditReport {
        seen_requests: requests_in(seen) + sequences.begun_before,
        kernel_requests: counted.requests,
        seen_bytes: seen[stats::SEEN_BYTES..][..OPS].iter().sum(),
        kernel_bytes: counted.bytes,
        lost_events: seen[stats::RING_LOST],
        unmatched: unmatched_in(seen).saturating_sub(sequences.started_before),
        recursion_misses: misses,
        found_late: seen[stats::FOUND_LATE],
        in_flight_full: seen[stats::IN_FLIGHT_FULL],
        reissues: seen[stats::REISSUES],
        not_sampled: seen[stats::NOT_SAMPLED],
        untold: untold_in(seen),
        ..AuditReport::default()
    };
    let most = report.seen_requests + slack.requests;
    let least = report
        .seen_requests
        .saturating_sub(sequences.under_way + slack.requests);
    let agree = (least..=most).contains(&counted.requests)
        && report.seen_bytes.abs_diff(counted.bytes) <= slack.bytes;
    let mut findings = losses(&report);
    if kernel.is_none() {
        findings.push("the kernel's disk statistics cannot be read".to_owned());
    } else if !agree {
        findings.push(format!(
            "{} requests and {} bytes seen, {} and {} counted by the kernel",
            report.seen_requests, report.seen_bytes, counted.requests, counted.bytes
        ));
    }
    let skipped = format!("the kernel skipped a probe {misses} times");
    let lost = report.lost_events + report.unmatched + report.in_flight_full;
    report.complete = agree && kernel.is_some() && lost == 0;
    if !report.complete {
        findings.extend((misses > 0).then_some(skipped));
        report.finding = format!("incomplete: {}", findings.join("; "));
        return report;
    }
    report.finding = format!(
        "complete: {} requests seen, as the kernel counted",
        report.seen_requests
    );
    if report.found_late > 0 {
        report.finding += &format!(
            "; of {} of them the device time is unknown",
            report.found_late
        );
    }
    let behind = report.seen_requests.saturating_sub(counted.requests);
    let under_way = slack.requests.max(behind);
    if under_way > 0 {
        report.finding += &format!(", give or take {under_way} that were under way");
    }
    if misses > 0 {
        report.finding += &format!("; {skipped}, but for none of these");
    }
    let untold: u64 = report.untold.iter().map(|total| total.requests).sum();
    if untold > 0 {
        report.finding += &format!(
            "; {untold} without an event: owners, moves and seeks are at least what is said"
        );
    }
    report
}

/// Every kind of loss, in words.
fn losses(report: &AuditReport) -> Vec<String> {
    let mut findings = Vec::new();
    if report.lost_events > 0 {
        findings.push(format!(
            "{} events did not fit into the ring",
            report.lost_events
        ));
    }
    if report.unmatched > 0 {
        findings.push(format!(
            "the start of {} requests was not seen",
            report.unmatched
        ));
    }
    if report.in_flight_full > 0 {
        findings.push(format!(
            "{} requests did not fit into the table of those in flight",
            report.in_flight_full
        ));
    }
    findings
}
