//! Changes between two reports of one store.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use lumpscope_client::v1;
use lumpscope_server::buckets::{self, Bucket, quantile};
use lumpscope_units::human::{self, as_float, ratio};
use serde::Serialize;

/// Processes that are shown: those with the most block requests.
const PROCESSES: usize = 5;

/// One store over one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct StoreView {
    pub(super) store: String,
    pub(super) device: String,
    pub(super) methods: Vec<MethodView>,
    /// Of the disk below, whoever asked for them; `None`, as all below: it is not observed.
    pub(super) block_requests_per_second: Option<f64>,
    pub(super) block_bytes_per_second: Option<f64>,
    /// Share of the time in which any block request was under way, as iostat's %util; `None`: the kernel
    /// does not count it.
    pub(super) util: Option<f64>,
    /// Mean number of block requests under way, as iostat's aqu-sz; `None`: as above.
    pub(super) aqu_sz: Option<f64>,
    /// Share of the reads and writes; `None`: there were none.
    pub(super) sequential_share: Option<f64>,
    /// Median of |seek distance|, estimated within its bucket.
    pub(super) seek_median_bytes: Option<u64>,
    pub(super) travel_bytes_per_second: Option<f64>,
    /// The processes behind the block requests of the disk below, as far as these had events.
    pub(super) processes: Vec<ProcessView>,
    /// By the class of the others; a second can hold more than a second, of several requests.
    pub(super) lost_ns_per_second: BTreeMap<String, f64>,
    /// Share of our bytes that are tied to requests, or to the store's own work.
    pub(super) attributed_share: Option<f64>,
    pub(super) lost_events: Option<u64>,
    /// Block requests of the disk below that are under way at the end; `None`: a recording does not say.
    pub(super) in_flight: Option<u64>,
    /// How long the oldest of them has been; 0: there is none, or that was not seen.
    pub(super) oldest_in_flight_ns: u64,
    /// The oldest, in words.
    pub(super) oldest_in_flight: String,
    /// Possible gaps, in words; empty: none.
    pub(super) incomplete: String,
}

/// One process in one cgroup over one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct ProcessView {
    /// Empty: unknown.
    pub(super) process: String,
    /// 0: unknown.
    pub(super) pid: u32,
    /// Path; empty: unknown.
    pub(super) cgroup: String,
    /// Empty: none, or unknown.
    pub(super) container: String,
    pub(super) per_second: f64,
    pub(super) read_bytes_per_second: f64,
    pub(super) written_bytes_per_second: f64,
}

/// One method over one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct MethodView {
    pub(super) method: String,
    pub(super) per_second: f64,
    pub(super) errors_per_second: f64,
    pub(super) bytes_per_second: f64,
    /// `None`: none ended.
    pub(super) mean_ns: Option<u64>,
    /// Estimated within its bucket; `None`: none ended, or the service does not say.
    pub(super) p99_ns: Option<u64>,
}

/// `seconds`: between the two reports, more than 0.
pub(super) fn between(
    before: &v1::StoreReport,
    after: &v1::StoreReport,
    seconds: f64,
) -> StoreView {
    let empty = v1::BlockReport::default();
    let (was, is) = (
        before.block.as_ref().unwrap_or(&empty),
        after.block.as_ref().unwrap_or(&empty),
    );
    let rate = |was: u64, is: u64| {
        let more = after.observed.then(|| is.saturating_sub(was))?;
        Some(as_float(more) / seconds)
    };
    let part_of_time = |of: fn(&v1::BlockReport) -> Option<u64>| {
        let more = of(is)?.saturating_sub(of(was)?);
        Some(as_float(more) / (seconds * 1e9))
    };
    let sum = |b: &v1::BlockReport, of: fn(&v1::OwnerTotal) -> u64| b.owners.iter().map(of).sum();
    let travel = |b: &v1::BlockReport| b.moves.iter().map(|m| m.travel_bytes).sum();
    let share = |part: fn(&v1::BlockReport) -> u64, whole: fn(&v1::BlockReport) -> u64| {
        let more = |of: fn(&v1::BlockReport) -> u64| of(is).saturating_sub(of(was));
        ratio(more(part), more(whole))
    };
    let seeks = difference(&was.seeks, &is.seeks);
    StoreView {
        store: after.store.clone(),
        device: after.device.clone(),
        methods: methods(before, after, seconds),
        block_requests_per_second: rate(sum(was, |o| o.requests), sum(is, |o| o.requests)),
        block_bytes_per_second: rate(sum(was, |o| o.bytes), sum(is, |o| o.bytes)),
        util: part_of_time(|b| b.busy_ns).map(|share| share.min(1.0)),
        aqu_sz: part_of_time(|b| b.under_way_ns),
        sequential_share: share(|b| b.sequential, |b| b.data_requests),
        seek_median_bytes: quantile(&seeks, 1, 2),
        travel_bytes_per_second: rate(travel(was), travel(is)),
        processes: processes(was, is, seconds),
        lost_ns_per_second: lost(was, is, seconds),
        attributed_share: share(tied, ours),
        lost_events: (after.observed).then(|| events(after).saturating_sub(events(before))),
        in_flight: is.busy_ns.map(|_| is.in_flight),
        oldest_in_flight_ns: is.oldest_in_flight_ns,
        oldest_in_flight: is.oldest_in_flight.clone(),
        incomplete: incomplete(before, after),
    }
}

/// Bytes of ours that are tied to requests, or to the store's own work.
fn tied(block: &v1::BlockReport) -> u64 {
    block.attributed_bytes + block.shared_bytes
}

/// Bytes of ours.
fn ours(block: &v1::BlockReport) -> u64 {
    tied(block) + block.unattributed_bytes
}

fn events(report: &v1::StoreReport) -> u64 {
    report.audit.as_ref().map_or(0, |audit| audit.lost_events)
}

fn methods(before: &v1::StoreReport, after: &v1::StoreReport, seconds: f64) -> Vec<MethodView> {
    let none = v1::OperationReport::default();
    let view = |is: &v1::OperationReport| {
        let was = before.operations.iter().find(|o| o.method == is.method);
        let was = was.unwrap_or(&none);
        let more = |of: fn(&v1::OperationReport) -> u64| of(is).saturating_sub(of(was));
        let rate = |of: fn(&v1::OperationReport) -> u64| as_float(more(of)) / seconds;
        let count = more(|o| o.count);
        let latency = difference(&was.latency, &is.latency);
        MethodView {
            method: is.method.clone(),
            per_second: rate(|o| o.count),
            errors_per_second: rate(|o| o.errors),
            bytes_per_second: rate(|o| o.bytes),
            mean_ns: more(|o| o.total_ns).checked_div(count),
            p99_ns: quantile(&latency, 99, 100),
        }
    };
    let all = after.operations.iter().map(view);
    all.filter(|method| method.per_second > 0.0).collect()
}

fn processes(was: &v1::BlockReport, is: &v1::BlockReport, seconds: f64) -> Vec<ProcessView> {
    let key = |p: &v1::ProcessTotal| (p.pid, p.cgroup_id, p.process.clone());
    let before: BTreeMap<_, _> = was.processes.iter().map(|p| (key(p), p)).collect();
    let none = v1::ProcessTotal::default();
    let view = |is: &v1::ProcessTotal| {
        let was = before.get(&key(is)).copied().unwrap_or(&none);
        let rate =
            |of: fn(&v1::ProcessTotal) -> u64| as_float(of(is).saturating_sub(of(was))) / seconds;
        ProcessView {
            process: is.process.clone(),
            pid: is.pid,
            cgroup: is.cgroup.clone(),
            container: is.container.clone(),
            per_second: rate(|p| p.requests),
            read_bytes_per_second: rate(|p| p.read_bytes),
            written_bytes_per_second: rate(|p| p.written_bytes),
        }
    };
    // One row is for all that are remembered no longer: what was added to it was done long ago.
    let is_nobody = |p: &v1::ProcessTotal| (p.pid, p.cgroup_id, &*p.process) == (0, 0, "");
    let all = is.processes.iter().filter(|p| !is_nobody(p)).map(view);
    let mut active: Vec<ProcessView> = all.filter(|p| p.per_second > 0.0).collect();
    active.sort_by_key(|p| Reverse(human::whole(p.per_second * 1000.0)));
    active.truncate(PROCESSES);
    active
}

fn lost(was: &v1::BlockReport, is: &v1::BlockReport, seconds: f64) -> BTreeMap<String, f64> {
    let before: BTreeMap<&str, u64> = was.lost.iter().map(|l| (&*l.owner, l.ns)).collect();
    let rate = |l: &v1::LostTime| {
        let more =
            l.ns.saturating_sub(before.get(&*l.owner).copied().unwrap_or(0));
        (l.owner.clone(), as_float(more) / seconds)
    };
    let all = is.lost.iter().map(rate);
    all.filter(|(_, ns)| *ns > 0.0).collect()
}

/// Counts added between two reports, by bucket.
fn difference(was: &[v1::Bucket], is: &[v1::Bucket]) -> Vec<Bucket> {
    let edges = |b: &v1::Bucket| (b.from, b.to, b.count);
    buckets::difference(was.iter().map(edges), is.iter().map(edges))
}

/// Possible gaps since the service started: a count that was wrong once stays wrong.
fn incomplete(before: &v1::StoreReport, after: &v1::StoreReport) -> String {
    if !after.observed {
        return format!("not observed: {}", after.not_observed_because);
    }
    let mut told = Vec::new();
    if let Some(audit) = after.audit.as_ref().filter(|audit| !audit.complete) {
        told.push(audit.finding.clone());
    }
    let left_out = |r: &v1::StoreReport| r.audit.as_ref().map_or(0, |audit| audit.not_sampled);
    let skipped = left_out(after).saturating_sub(left_out(before));
    if skipped > 0 {
        told.push(format!(
            "{} counted only, as the event policy says",
            human::counted(skipped, "block request")
        ));
    }
    told.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(from: u64, to: u64, count: u64) -> v1::Bucket {
        v1::Bucket { from, to, count }
    }

    fn report(puts: u64, seeks: Vec<v1::Bucket>, latency: Vec<v1::Bucket>) -> v1::StoreReport {
        v1::StoreReport {
            store: "fast".into(),
            observed: true,
            operations: vec![v1::OperationReport {
                method: "put".into(),
                count: puts,
                total_ns: puts * 1_000_000,
                bytes: puts << 20,
                latency,
                ..Default::default()
            }],
            block: Some(v1::BlockReport {
                data_requests: puts * 4,
                busy_ns: Some(puts * 2_500_000),
                under_way_ns: Some(puts * 7_500_000),
                sequential: puts,
                attributed_bytes: puts * 900,
                unattributed_bytes: puts * 100,
                seeks,
                processes: vec![v1::ProcessTotal {
                    process: "dd".into(),
                    pid: 4711,
                    requests: puts,
                    read_bytes: puts << 12,
                    ..Default::default()
                }],
                lost: vec![v1::LostTime {
                    owner: "fs-journal".into(),
                    ns: puts * 1000,
                }],
                ..Default::default()
            }),
            audit: Some(v1::AuditReport {
                complete: true,
                lost_events: puts / 100,
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    #[test]
    fn only_what_lies_between_counts() {
        let before = report(
            100,
            vec![bucket(0, 1, 90), bucket(1024, 2048, 10)],
            vec![bucket(1000, 1100, 100)],
        );
        let after = report(
            300,
            vec![bucket(0, 1, 95), bucket(1024, 2048, 205)],
            vec![bucket(1000, 1100, 290), bucket(9000, 9500, 10)],
        );
        let view = between(&before, &after, 2.0);
        let put = &view.methods[0];
        assert!((put.per_second - 100.0).abs() < 1e-9);
        assert_eq!((put.mean_ns, put.p99_ns), (Some(1_000_000), Some(9399)));
        assert_eq!(view.seek_median_bytes, Some(1024 + 1023 * 95 / 195));
        assert_eq!(view.sequential_share, Some(0.25));
        assert_eq!(view.attributed_share, Some(0.9));
        assert!((view.lost_ns_per_second["fs-journal"] - 100_000.0).abs() < 1e-6);
        let dd = &view.processes[0];
        assert_eq!((&*dd.process, dd.pid), ("dd", 4711));
        assert!((dd.per_second - 100.0).abs() < 1e-9);
        assert!((dd.read_bytes_per_second - 409_600.0).abs() < 1e-6);
        assert_eq!((view.lost_events, view.incomplete.as_str()), (Some(2), ""));
        // 500 ms of 2 s, in which 3 requests were under way at once.
        assert_eq!((view.util, view.aqu_sz), (Some(0.25), Some(0.75)));
    }

    #[test]
    fn what_was_done_by_processes_that_are_forgotten_is_no_rate() {
        let before = report(100, Vec::new(), Vec::new());
        let mut after = report(300, Vec::new(), Vec::new());
        let block = after.block.as_mut().unwrap();
        block.processes.push(v1::ProcessTotal {
            requests: 10_000_000,
            ..Default::default()
        });
        let view = between(&before, &after, 1.0);
        assert_eq!(view.processes.len(), 1, "{:?}", view.processes);
        assert_eq!(view.processes[0].pid, 4711);
    }

    #[test]
    fn a_quiet_store_shows_nothing_and_says_what_is_missing() {
        let mut after = report(100, Vec::new(), Vec::new());
        let quiet = between(&after.clone(), &after, 1.0);
        assert!(quiet.methods.is_empty());
        assert!(quiet.processes.is_empty());
        assert!(quiet.lost_ns_per_second.is_empty());
        assert_eq!(quiet.seek_median_bytes, None);
        assert_eq!(quiet.attributed_share, None);
        let before = after.clone();
        let audit = after.audit.as_mut().unwrap();
        audit.complete = false;
        audit.finding = "3 events were lost".into();
        audit.not_sampled = 7;
        let told = between(&before, &after, 1.0).incomplete;
        let words = "3 events were lost; 7 block requests counted";
        assert!(told.starts_with(words), "{told}");
        after.observed = false;
        after.not_observed_because = "no privileges".into();
        let view = between(&before, &after, 1.0);
        assert_eq!(view.incomplete, "not observed: no privileges");
        let numbers = [view.block_requests_per_second, view.travel_bytes_per_second];
        assert_eq!((numbers, view.lost_events), ([None; 2], None));
    }
}
