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
//!
//! Of a disk that makes no requests the bytes alone are compared: its driver counts what it splits as
//! several, a flush before data apart, and some kinds not at all.
//!
//! The programs run before the kernel counts. So all that the kernel had counted *before* the
//! probes' counts are read must be among these: whatever is missing was lost, however busy the disk
//! is. The probes are ahead by what was being completed when they were read. Neither verdict is
//! final at once: a completion that no program was shown is looked for, and a processor may be
//! kept from counting what it has traced. Only a difference that outlasts [`SETTLE_NS`] is one.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use lumpscope_ebpf_common::{InFlight, flag, op, stats};
use lumpscope_proto::v1;
use lumpscope_units::human::{count, counted};

use crate::clock::monotonic_ns;
use crate::device::{Layer, StoreDisk};
use crate::disk_stat::{DiskStat, LARGEST_REQUEST, in_flight, read_stat};
use crate::event::Event;
use crate::heat::{Cells, began_ns};
use crate::kernel::Release;
use crate::late::Late;
use crate::name::ThreadName;
use crate::probes::{Counters, Probes};
use crate::report::{AuditReport, HeadMove, InFlightReport, OwnerTotal};
use crate::slots::Slot;

/// How often [`look`] looks, and the time between two looks.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);
/// After this time nothing is in flight any more that was when watching began.
const GRACE_NS: u64 = 5_000_000_000;
/// The two counts may differ for so long before that is a loss. The longest search is that for the
/// end of a sequence of flushes, which begins after a second.
const SETTLE_NS: u64 = 3_000_000_000;
const OPS: usize = op::COUNT as usize;
/// Before this a device mapper counts the bytes behind a flush with the flush, and again.
const FLUSH_APART: Release = Release {
    major: 5,
    minor: 18,
};

/// Looks again and again for up to 20 ms, until there is what is looked for: on a busy disk, a
/// moment in which it is idle.
pub(crate) fn look<T>(mut once: impl FnMut() -> Option<T>) -> Option<T> {
    (0..ATTEMPTS).find_map(|attempt| {
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        once()
    })
}

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
    /// Of the program that sees requests being made.
    start_misses: u64,
    late: Late,
    /// Requests and bytes under way when watching began: the counts may differ by as much.
    slack: DiskStat,
    armed_ns: u64,
    /// Requests whose start was not seen because it was before watching began.
    started_before: AtomicU64,
    /// Sequences that were under way when watching began and have ended, as far as is known.
    begun_before: AtomicU64,
    /// Since when the two counts have differed whenever they were compared; 0: they agree.
    differ_ns: AtomicU64,
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
#[derive(Debug, Clone, Copy, Default)]
struct CountsReading {
    before: DiskStat,
    after: DiskStat,
    /// Requests that were under way before or after.
    flying: u64,
}

/// Both counts since watching began.
#[derive(Debug)]
struct Compared {
    layer: Layer,
    seen: Counters,
    /// `None`: the kernel's statistics cannot be read.
    kernel: Option<CountsReading>,
    /// Requests and bytes under way when watching began: the counts may differ by as much.
    slack: DiskStat,
    sequences: Sequences,
}

/// How the two counts differ beyond what was under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Difference {
    None,
    /// The kernel had counted what the probes have not seen.
    Missing,
    /// The probes have seen what the kernel has not counted.
    Ahead,
}

impl WatchedDisk {
    /// Begins to watch, and to compare at a moment in which the disk is idle, if there is one. It is
    /// watched before: whatever was made when it was not would be half known.
    pub(crate) fn arm(
        probes: &mut Probes,
        target: &StoreDisk,
        slot: Slot,
    ) -> Result<WatchedDisk, aya::maps::MapError> {
        let (name, dev, layer) = (&target.disk, target.placement.dev, target.layer);
        probes.prepare(slot.number, &target.placement.ranges())?;
        let cells = if slot.used {
            probes.renew(slot.number)
        } else {
            Cells::default()
        };
        let slot = slot.number;
        probes.watch(dev, slot, layer)?;
        let (mut counters, mut reading) = ([0; stats::COUNT], CountsReading::default());
        let at_rest = look(|| {
            let around = read_around(name, || counters = probes.counters(slot));
            reading = around.unwrap_or_default();
            (reading.is_idle() && stays(name, reading.after)).then_some(())
        });
        Ok(WatchedDisk {
            name: name.clone(),
            dev,
            layer,
            slot,
            stat: reading.after,
            counters,
            cells,
            misses: probes.recursion_misses(),
            start_misses: probes.start_misses(),
            late: Late::default(),
            slack: reading
                .slack()
                .and(at_rest.map_or_else(being_counted, |()| 0)),
            armed_ns: monotonic_ns(),
            started_before: AtomicU64::new(0),
            begun_before: AtomicU64::new(0),
            differ_ns: AtomicU64::new(0),
        })
    }

    /// The sequences in a reading of the probes' counts. `skipped`: so many starts were not shown.
    fn sequences(&self, since: &Counters, skipped: u64) -> Sequences {
        if self.layer == Layer::Bios {
            return Sequences::default();
        }
        let begun = since[stats::WRAPPED];
        let ended = since[stats::SEQUENCE_ENDS];
        let started_before = self.started_before(since, skipped);
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

    /// How many requests had been made before watching began, and were seen to end since: all that
    /// were made unseen, but for as many as the kernel has kept from the program since.
    fn started_before(&self, since: &Counters, skipped: u64) -> u64 {
        let early = monotonic_ns().saturating_sub(self.armed_ns) < GRACE_NS;
        if early && since[stats::IN_FLIGHT_FULL] == 0 {
            let now = unmatched_in(since).saturating_sub(skipped);
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
        let stat = read_stat(&self.name).filter(|stat| stat.requests > 0);
        let time = stat.map(|stat| stat.time);
        if requests == 0 {
            return InFlightReport {
                time,
                ..InFlightReport::default()
            };
        }
        let mut known = probes.in_flight(self.slot);
        known.retain(|entry| is_counted(&self.name, self.layer, entry));
        InFlightReport {
            time,
            ..oldest_of(requests, &known, monotonic_ns())
        }
    }

    /// Looks once for completions that no program was shown: their events; `None`: none is missing.
    pub(crate) fn find_late(&mut self, probes: &mut Probes) -> Option<Vec<Event>> {
        let now_ns = monotonic_ns();
        let compared = self.compare(probes);
        let kernel = compared.kernel?;
        self.lasts(compared.difference());
        let missing = compared.missing();
        if missing == 0 {
            self.late.all_there();
            return None;
        }
        // What the driver has done and the block layer has not ended is in the second alone.
        let idle = in_flight(&self.name) == Some(0) && kernel.after.under_way == 0;
        Some(self.late.find(probes, self.slot, missing, now_ns, idle))
    }

    /// True: an audit now compares at a moment in which the disk is idle.
    pub(crate) fn is_idle(&self, probes: &Probes) -> bool {
        let kernel = self.compare(probes).kernel;
        kernel.is_some_and(|kernel| kernel.is_idle())
    }

    /// The probes' counts since watching began, found late included.
    fn beyond(&self, now: &Counters) -> Counters {
        let late = &self.late.counters;
        std::array::from_fn(|i| now[i].saturating_sub(self.counters[i]) + late[i])
    }

    fn compare(&self, probes: &Probes) -> Compared {
        let mut counters = self.counters;
        let kernel = read_around(&self.name, || counters = probes.counters(self.slot));
        let seen = self.beyond(&counters);
        let skipped = probes.start_misses().saturating_sub(self.start_misses);
        let sequences = self.sequences(&seen, skipped);
        let mut slack = self.slack;
        if self.layer == Layer::Bios && Release::running() < FLUSH_APART {
            slack.bytes += seen[stats::WRAPPED];
        }
        Compared {
            layer: self.layer,
            seen,
            kernel: kernel.map(|reading| reading.since(self.stat)),
            slack,
            sequences,
        }
    }

    /// Whether there has been a difference for so long that it is not a passing one.
    fn lasts(&self, difference: Difference) -> bool {
        if difference == Difference::None {
            self.differ_ns.store(0, Ordering::Relaxed);
            return false;
        }
        let now_ns = monotonic_ns();
        let first =
            self.differ_ns
                .compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
        first.is_err_and(|since_ns| now_ns.saturating_sub(since_ns) >= SETTLE_NS)
    }

    /// Whether completions are missing now.
    pub(crate) fn is_missing(&self, probes: &Probes) -> bool {
        self.compare(probes).difference() == Difference::Missing
    }

    pub(crate) fn audit(&self, probes: &Probes) -> AuditReport {
        let compared = self.compare(probes);
        let lasts = self.lasts(compared.difference());
        let misses = probes.recursion_misses().saturating_sub(self.misses);
        let mut report = judge(&compared, misses, lasts);
        if self.layer != Layer::Bios && !probes.sees(|hook| hook.tells_start) {
            report.finding += "; this kernel does not show when requests are made: their time in \
                               the queue and who made them are unknown";
        }
        report
    }
}

impl CountsReading {
    /// Requests and bytes under way meanwhile; 0 on an idle disk.
    fn slack(&self) -> DiskStat {
        let moved = self.after.since(self.before);
        let moved = DiskStat {
            requests: moved.requests,
            bytes: moved.bytes,
            ..DiskStat::default()
        };
        moved.and(self.flying)
    }

    fn is_idle(&self) -> bool {
        self.slack() == DiskStat::default()
    }

    fn since(self, begin: DiskStat) -> CountsReading {
        CountsReading {
            before: self.before.since(begin),
            after: self.after.since(begin),
            flying: self.flying,
        }
    }
}

impl Compared {
    fn seen_requests(&self) -> u64 {
        requests_in(&self.seen) + self.sequences.begun_before
    }

    fn seen_bytes(&self) -> u64 {
        self.seen[stats::SEEN_BYTES..][..OPS].iter().sum()
    }

    /// Names and bytes of what the driver of a disk without requests has never counted.
    fn uncounted(&self) -> Vec<(&'static str, u64)> {
        let Some(kernel) = self.kernel.filter(|_| self.layer == Layer::Bios) else {
            return Vec::new();
        };
        let kinds = [op::READ, op::WRITE, op::DISCARD].map(usize::from);
        let all = kinds.into_iter().zip(kernel.after.by_kind);
        let seen = all.map(|(kind, counted)| (kind, self.seen[stats::SEEN_BYTES + kind], counted));
        let none = seen.filter(|(_, seen, counted)| *seen > 0 && *counted == 0);
        none.map(|(kind, seen, _)| (op::NAMES[kind], seen))
            .collect()
    }

    /// Bytes that the kernel should have counted, at least and at most: whether the driver of a disk
    /// without requests counts what writes zeroes is not known.
    fn countable_bytes(&self) -> (u64, u64) {
        let uncounted: u64 = self.uncounted().iter().map(|(_, bytes)| bytes).sum();
        let most = self.seen_bytes() - uncounted;
        match self.layer {
            Layer::Requests | Layer::Paths => (most, most),
            Layer::Bios => {
                let other = self.seen[stats::SEEN_BYTES + usize::from(op::OTHER)];
                (most - other, most)
            }
        }
    }

    /// Requests that were not seen, whatever was under way when watching began. Beyond these
    /// nothing is looked for: what the driver has done may be kept from being traced for long, and
    /// would be counted twice.
    fn missing(&self) -> u64 {
        let counted = self.kernel.unwrap_or_default().before;
        match self.layer {
            Layer::Requests | Layer::Paths => {
                let seen = self.seen_requests() + self.slack.requests;
                counted.requests.saturating_sub(seen)
            }
            // At least a sector each.
            Layer::Bios => {
                let seen = self.countable_bytes().1 + self.slack.bytes;
                counted.bytes.saturating_sub(seen).div_ceil(512)
            }
        }
    }

    fn difference(&self) -> Difference {
        let (requests, (least, most)) = (self.seen_requests(), self.countable_bytes());
        let Some(kernel) = &self.kernel else {
            return Difference::None;
        };
        if self.missing() > 0 || kernel.before.bytes > most + self.slack.bytes {
            return Difference::Missing;
        }
        let bound = DiskStat {
            requests: kernel.after.requests
                + kernel.flying
                + self.sequences.under_way
                + self.slack.requests,
            bytes: kernel.after.bytes + kernel.flying * LARGEST_REQUEST + self.slack.bytes,
            ..DiskStat::default()
        };
        let more = self.layer != Layer::Bios && requests > bound.requests;
        if more || least > bound.bytes {
            return Difference::Ahead;
        }
        Difference::None
    }
}

/// True: the kernel's number of those in flight has it. The flush that the block layer makes is not counted,
/// but whoever asked for it is. A device mapper without requests counts the flush that it is given.
fn is_counted(disk: &str, layer: Layer, entry: &InFlight) -> bool {
    entry.op != op::FLUSH
        || entry.flags & flag::FLUSH_PARENT != 0
        || (layer == Layer::Bios && disk.starts_with("dm-"))
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
        time: None,
    }
}

/// Whether nothing is counted for a while. Before 6.16 neither number of what is under way has what is
/// being completed: what was traced and is counted later would be in one of the two counts alone.
fn stays(disk: &str, stat: DiskStat) -> bool {
    thread::sleep(PAUSE);
    read_stat(disk) == Some(stat)
}

/// So many completions may have been traced and not yet counted: one on each processor.
fn being_counted() -> u64 {
    let processors = aya::util::online_cpus().map_or(1, |all| all.len());
    u64::try_from(processors).unwrap_or(u64::MAX)
}

/// Reads the kernel's counts before and after doing something; `None`: they cannot be read.
fn read_around(disk: &str, act: impl FnOnce()) -> Option<CountsReading> {
    let (before, flying_before) = (read_stat(disk), in_flight(disk).unwrap_or(0));
    act();
    let (flying_after, after) = (in_flight(disk).unwrap_or(0), read_stat(disk));
    let (before, after) = before.zip(after)?;
    let flying = [
        before.under_way,
        flying_before,
        flying_after,
        after.under_way,
    ];
    Some(CountsReading {
        before,
        after,
        flying: flying.into_iter().max().unwrap_or(0),
    })
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

/// Those of them that have a seek distance.
fn untold_moves_in(seen: &Counters) -> Option<HeadMove> {
    let requests = seen[stats::UNTOLD_PLACED];
    (requests > 0).then(|| HeadMove {
        owner: "unknown".to_owned(),
        moved_by: "unknown".to_owned(),
        requests,
        seeks: requests.saturating_sub(seen[stats::UNTOLD_SEQUENTIAL]),
        travel_bytes: seen[stats::UNTOLD_TRAVEL].saturating_mul(512),
    })
}

/// Turns counts into a verdict. `lasts`: they have differed for long. Pure.
fn judge(compared: &Compared, misses: u64, lasts: bool) -> AuditReport {
    let seen = &compared.seen;
    let kernel = compared.kernel.unwrap_or_default();
    let told = v1::AuditReport {
        seen_requests: compared.seen_requests(),
        kernel_requests: kernel.after.requests,
        seen_bytes: compared.seen_bytes(),
        kernel_bytes: kernel.after.bytes,
        lost_events: seen[stats::RING_LOST],
        unmatched: unmatched_in(seen).saturating_sub(compared.sequences.started_before),
        recursion_misses: misses,
        found_late: seen[stats::FOUND_LATE],
        in_flight_full: seen[stats::IN_FLIGHT_FULL],
        reissues: seen[stats::REISSUES],
        not_sampled: seen[stats::NOT_SAMPLED],
        ..v1::AuditReport::default()
    };
    let mut report = AuditReport {
        told,
        owned: seen[stats::SEEN_REQUESTS..][..OPS].iter().sum(),
        unsent: seen[stats::UNSENT],
        failed: seen[stats::ERRORS],
        merged: kernel.after.merged,
        untold: untold_in(seen),
        untold_moves: untold_moves_in(seen),
        untold_own_bytes: seen[stats::UNTOLD_OWN_BYTES],
        ..AuditReport::default()
    };
    let difference = compared.difference();
    let differs = match difference {
        Difference::None => false,
        Difference::Missing => true,
        Difference::Ahead => lasts,
    };
    let mut findings = losses(&report);
    if compared.kernel.is_none() {
        findings.push("the kernel's disk statistics cannot be read".to_owned());
    }
    report.settling = findings.is_empty() && difference != Difference::None && !lasts;
    if differs {
        findings.push(format!(
            "{} and {} seen, {} and {} counted by the kernel",
            counted(report.seen_requests, "request"),
            counted(report.seen_bytes, "byte"),
            count(kernel.after.requests),
            count(kernel.after.bytes)
        ));
    }
    report.complete = findings.is_empty();
    if report.complete {
        let under_way = kernel.slack().requests + compared.slack.requests;
        report.finding = agreement(&report, under_way, compared);
        return report;
    }
    findings.extend((misses > 0).then(|| skipped(misses)));
    let verdict = if report.settling {
        "settling"
    } else {
        "incomplete"
    };
    report.finding = format!("{verdict}: {}", findings.join("; "));
    report
}

/// A complete audit in words. `slack`: so many requests were under way.
fn agreement(report: &AuditReport, slack: u64, compared: &Compared) -> String {
    let requests = counted(report.seen_requests, "request");
    let uncounted = compared.uncounted();
    let mut finding = match compared.layer {
        Layer::Requests | Layer::Paths => {
            format!("complete: {requests} seen, as the kernel counted")
        }
        Layer::Bios => {
            format!("complete: {requests} seen, with as many bytes as the kernel counted")
        }
    };
    let of = |(kind, bytes): &(&str, u64)| format!("{kind} ({})", counted(*bytes, "byte"));
    let uncounted: Vec<String> = uncounted.iter().map(of).collect();
    if !uncounted.is_empty() {
        let kinds = uncounted.join(", ");
        finding += &format!("; what the kernel does not count on this disk: {kinds}");
    }
    if report.found_late > 0 {
        finding += &format!(
            "; of {} of them the device time is unknown",
            report.found_late
        );
    }
    if report.unsent > 0 {
        finding += &format!(
            "; {} of them were not seen being sent: device time and distance are unknown",
            report.unsent
        );
    }
    let behind = match compared.layer {
        Layer::Bios => 0,
        _ => report.seen_requests.saturating_sub(report.kernel_requests),
    };
    let under_way = slack.max(behind);
    if under_way > 0 {
        finding += &format!(", give or take {under_way} that were under way");
    }
    if report.recursion_misses > 0 {
        finding += &format!("; {}", skipped(report.recursion_misses));
        if report.found_late + report.unsent + compared.sequences.begun_before == 0 {
            finding += ", but for none of these";
        }
    }
    let untold: u64 = report.untold.iter().map(|total| total.requests).sum();
    if untold > 0 {
        finding += &format!(
            "; {untold} without an event: their owners and what they cost others are unknown"
        );
    }
    finding
}

impl AuditReport {
    /// Says of how many block requests the owner is not among `told` yet: their events are being
    /// read, or who asked for a flush is being found.
    pub(crate) fn tell_unread(&mut self, told: &[OwnerTotal]) {
        let told: u64 = told.iter().map(|total| total.requests).sum();
        self.unread = self.owned.saturating_sub(told);
        if self.complete && self.unread > 0 {
            self.told.finding +=
                &format!("; of {} of them the owner is not known yet", self.unread);
        }
    }
}

fn skipped(misses: u64) -> String {
    format!("the kernel skipped a probe {}", counted(misses, "time"))
}

/// Every kind of loss, in words.
fn losses(report: &AuditReport) -> Vec<String> {
    let mut findings = Vec::new();
    if report.lost_events > 0 {
        findings.push(format!(
            "{} did not fit into the ring",
            counted(report.lost_events, "event")
        ));
    }
    if report.unmatched > 0 {
        findings.push(format!(
            "the start of {} was not seen",
            counted(report.unmatched, "request")
        ));
    }
    if report.in_flight_full > 0 {
        findings.push(format!(
            "{} did not fit into the table of those in flight",
            counted(report.in_flight_full, "request")
        ));
    }
    findings
}
