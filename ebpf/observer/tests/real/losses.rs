//! Losses of a busy machine and of full tables, forced: they are counted exactly.

use std::time::Duration;

use lumpscope_observer::{
    AuditReport, EVERY_EVENT, EventPolicy, Flavour, Op, OwnerTotal, Purpose, StoreReport, Tuning,
};

use lumpscope_units::human;

use crate::submissions::reads_at_once;
use crate::support::{
    LoopDevice, Watched, dd, forced, mount_tracefs, owned, ready, until_complete,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const THREADS: u64 = 4;
const ROUNDS: u64 = 150;

/// Four threads write, read and flush places of their own.
fn mixed_io(it: &Watched) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let at = thread * 8 * MIB + round * 8 * KIB;
                    it.write(1, at, 4096);
                    it.io(&[1], Purpose::Data, Op::Read, at, 4096);
                    if round % 10 == 0 {
                        it.io(&[1], Purpose::Flush, Op::Flush, 0, 0);
                    }
                }
            });
        }
    });
}

/// One completion in 20 is overlooked.
fn overlooked(flavour: Flavour) -> StoreReport {
    let device = LoopDevice::new(64 * MIB);
    let tuning = Tuning {
        overlook_one_in: 20,
        ..forced(flavour)
    };
    let it = Watched::new(&device.path, tuning);
    mixed_io(&it);
    it.report()
}

/// As [`until_complete`], but what was made unseen is enough where the audit says how much that is:
/// from 7.0 on the kernel skips these programs where a thread is interrupted in them, so that nobody
/// can know who made a request.
fn until_only_starts_lack(mut scenario: impl FnMut() -> StoreReport) -> StoreReport {
    for _ in 1..=5 {
        let report = scenario();
        let audit = &report.audit;
        assert_eq!(audit.conflicts, 0, "{audit:?}");
        let (unseen, skipped) = (audit.unmatched, audit.recursion_misses);
        let said = format!(
            "incomplete: the start of {} was not seen; the kernel skipped a probe {}",
            human::counted(unseen, "request"),
            human::counted(skipped, "time")
        );
        let admitted = audit.finding.starts_with(&said) && unseen <= skipped;
        if audit.complete || admitted {
            return report;
        }
        eprintln!("{}", audit.finding);
    }
    panic!("five runs, and in each something else was incomplete");
}

fn all_is_counted(flavour: Flavour) {
    let report = until_only_starts_lack(|| overlooked(flavour));
    let audit = &report.audit;
    assert_eq!(audit.seen_requests, audit.kernel_requests, "{audit:?}");
    assert_eq!(audit.seen_bytes, audit.kernel_bytes, "{audit:?}");
    assert!(audit.seen_requests > 2 * THREADS * ROUNDS, "{audit:?}");
    assert!(audit.found_late > 10, "{audit:?}");
    assert_eq!(audit.lost_events, 0, "{audit:?}");
    let known = audit.agreements + audit.unmatched;
    assert_eq!(known, 2 * THREADS * ROUNDS, "{audit:?}");
    let said = format!("of {} of them the device time is unknown", audit.found_late);
    let said = !audit.complete || audit.finding.contains(&said);
    assert!(said, "{}", audit.finding);
    let (block, each) = (&report.block, THREADS * ROUNDS);
    assert_eq!(block.data_requests, 2 * each, "{block:?}");
    assert_eq!(owned(&report, "request", "write").0, each, "{block:?}");
    let cells: u64 = report.heat.iter().map(|cell| cell.count).sum();
    assert!(cells < 2 * each, "unknown times are in no histogram");
}

#[test]
fn completions_that_btf_programs_were_not_shown_are_found() {
    let Some(_one) = ready() else { return };
    all_is_counted(Flavour::TpBtf);
}

#[test]
fn completions_that_raw_programs_were_not_shown_are_found() {
    let Some(_one) = ready() else { return };
    all_is_counted(Flavour::RawTp);
}

#[test]
fn completions_that_classic_programs_were_not_shown_are_found() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    all_is_counted(Flavour::Classic);
}

#[test]
fn a_full_table_of_requests_in_flight_is_counted() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(64 * MIB);
    let tuning = Tuning {
        in_flight: Some(1),
        ..Tuning::default()
    };
    let it = Watched::new(&device.path, tuning);
    mixed_io(&it);
    let audit = it.report().audit;
    assert!(audit.in_flight_full > 10, "{audit:?}");
    assert!(!audit.complete, "{audit:?}");
    let said = format!(
        "{} did not fit into the table",
        human::counted(audit.in_flight_full, "request")
    );
    assert!(audit.finding.contains(&said), "{}", audit.finding);
}

/// A quarter of a table of 64 may keep its entries: the requests of a loop device use the memory of
/// more than 16, so some stay and some go.
fn a_small_table_is_enough(flavour: Flavour) {
    let report = until_only_starts_lack(|| {
        let device = LoopDevice::new(64 * MIB);
        let tuning = Tuning {
            in_flight: Some(64),
            ..forced(flavour)
        };
        let it = Watched::new(&device.path, tuning);
        // The first request has no seek distance, and is in no cell that is reported.
        it.write(1, 0, 4096);
        mixed_io(&it);
        it.report()
    });
    let (audit, each) = (report.audit, THREADS * ROUNDS);
    assert_eq!(audit.seen_requests, audit.kernel_requests, "{audit:?}");
    assert_eq!(audit.in_flight_full, 0, "{audit:?}");
    assert_eq!(report.block.data_requests, 1 + 2 * each, "{audit:?}");
    let cells: u64 = report.heat.iter().map(|cell| cell.count).sum();
    let counted = cells + audit.found_late + audit.unsent;
    assert!(counted >= 2 * each, "{counted}: {audit:?}");
}

#[test]
fn a_small_table_keeps_some_entries_for_btf_and_counts_all() {
    let Some(_one) = ready() else { return };
    a_small_table_is_enough(Flavour::TpBtf);
}

#[test]
fn a_small_table_keeps_some_entries_for_raw_and_counts_all() {
    let Some(_one) = ready() else { return };
    a_small_table_is_enough(Flavour::RawTp);
}

/// Two threads read one place all the time, one of them more of it: the classic programs' keys are
/// the same.
#[test]
fn requests_of_different_length_at_one_place_are_counted_exactly() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let lengths = [4096, 65_536];
    let report = until_complete(|| {
        let device = LoopDevice::new(64 * MIB);
        let it = Watched::new(&device.path, forced(Flavour::Classic));
        std::thread::scope(|scope| {
            for len in lengths {
                let it = &it;
                scope.spawn(move || {
                    for _ in 0..4 * ROUNDS {
                        it.io(&[1], Purpose::Data, Op::Read, 0, len);
                    }
                });
            }
        });
        let report = it.report();
        alone_are_certain(&it, &report.audit);
        report
    });
    let audit = &report.audit;
    let bytes = 4 * ROUNDS * lengths.iter().sum::<usize>() as u64;
    assert_eq!((audit.seen_requests, audit.seen_bytes), (8 * ROUNDS, bytes));
    let told: u64 = report.block.owners.iter().map(|owner| owner.bytes).sum();
    assert_eq!(told, bytes, "{audit:?}");
}

/// Of those that come after them each is told as if they had never been. A completion that the kernel
/// did not show leaves its request there.
fn alone_are_certain(it: &Watched, before: &AuditReport) {
    if !before.complete || before.found_late > 0 {
        return;
    }
    for _ in 0..ROUNDS {
        it.io(&[1], Purpose::Data, Op::Read, 0, 4096);
    }
    let audit = it.report().audit;
    assert_eq!(audit.agreements - before.agreements, ROUNDS, "{audit:?}");
    assert_eq!(audit.ambiguous, before.ambiguous, "{audit:?}");
}

#[test]
fn requests_of_one_place_made_before_one_is_sent_are_each_seen_being_sent() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    until_complete(|| {
        let device = LoopDevice::new(64 * MIB);
        let it = Watched::new(&device.path, forced(Flavour::Classic));
        for _ in 0..ROUNDS {
            reads_at_once(&it, &[1, 2, 3, 4], (0, 4096));
        }
        let report = it.report();
        let audit = &report.audit;
        assert_eq!(audit.reissues, 0, "{audit:?}");
        assert!(!audit.complete || audit.unsent == 0, "{audit:?}");
        alone_are_certain(&it, audit);
        report
    });
}

fn is_data(total: &&OwnerTotal) -> bool {
    ["read", "write"].contains(&total.operation.as_str())
}

fn events_and_cells(it: &Watched) -> (AuditReport, u64, u64) {
    let report = it.report();
    let cells = report.heat.iter().map(|cell| cell.count).sum();
    let untold = report.audit.untold.iter().filter(is_data);
    let untold: u64 = untold.map(|total| total.requests).sum();
    (report.audit, report.block.data_requests - untold, cells)
}

#[test]
fn the_event_policy_takes_events_and_nothing_else() {
    let Some(_one) = ready() else { return };
    let report = until_complete(|| {
        let device = LoopDevice::new(64 * MIB);
        let it = Watched::new(&device.path, Tuning::default());
        assert_eq!(it.observer.events(), EVERY_EVENT);
        it.write(1, 0, 4096);
        let set = |one_in, slower_than_ns| {
            let policy = EventPolicy {
                one_in,
                slower_than_ns,
            };
            it.observer.set_events(policy).expect("attached");
            assert_eq!(it.observer.events(), policy);
        };
        set(0, 0);
        mixed_io(&it);
        let each = 2 * THREADS * ROUNDS;
        let (audit, events, cells) = events_and_cells(&it);
        assert_eq!(events, 1, "no event: {audit:?}");
        if !audit.complete {
            return it.report();
        }
        assert!(cells + audit.found_late >= each, "every cell: {audit:?}");
        assert!(audit.not_sampled > each, "{audit:?}");

        set(4, 0);
        mixed_io(&it);
        let (audit, events, cells) = events_and_cells(&it);
        assert!(events > 1 + each / 16, "{events}: {audit:?}");
        assert!(events < each / 2, "{events}: {audit:?}");
        assert!(cells + audit.found_late >= 2 * each, "{audit:?}");

        set(0, 3_600_000_000_000);
        it.write(1, 0, 4096);
        assert_eq!(events_and_cells(&it).1, events, "nothing takes an hour");
        set(0, 1);
        it.write(1, 0, 4096);
        // All takes a nanosecond.
        assert_eq!(events_and_cells(&it).1, events + 1);
        it.report()
    });
    assert_eq!(report.audit.seen_requests, report.audit.kernel_requests);
}

/// What one thread's I/O amounts to, added up by the test itself.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sums {
    requests: u64,
    bytes: u64,
    sequential: u64,
    seeks: u64,
    travel_bytes: u64,
    own_bytes: u64,
}

/// Reads and writes of one thread in pairs that lie behind one another, the pairs far apart; another
/// process reads now and then.
fn pairs(it: &Watched, device: &LoopDevice) -> Sums {
    let mut sums = Sums::default();
    let mut end = None;
    let mut went = |at: u64, bytes: u64| {
        sums.requests += 1;
        sums.bytes += bytes;
        if let Some(end) = end.replace(at + bytes) {
            sums.sequential += u64::from(at == end);
            sums.seeks += u64::from(at != end);
            sums.travel_bytes += at.abs_diff(end);
        }
    };
    let mut foreign = 0;
    for round in 0..ROUNDS {
        let at = (round * 37 % ROUNDS) * 64 * KIB;
        let op = if round % 2 == 0 { Op::Write } else { Op::Read };
        it.request(1 + round, "put", 8 * KIB, || {
            for at in [at, at + 4 * KIB] {
                it.io(&[1 + round], Purpose::Data, op, at, 4096);
                went(at, 4 * KIB);
            }
        });
        if round % 10 == 0 {
            let (path, skip) = (device.path.display(), 3 * round);
            dd(&format!(
                "if={path} of=/dev/null bs=4k count=1 iflag=direct skip={skip}"
            ));
            went(3 * round * 4 * KIB, 4 * KIB);
            foreign += 4 * KIB;
        }
    }
    sums.own_bytes = sums.bytes - foreign;
    sums
}

fn counted(report: &StoreReport) -> Sums {
    let block = &report.block;
    let parts = [
        block.attributed_bytes,
        block.shared_bytes,
        block.unattributed_bytes,
        block.unknown_bytes,
    ];
    assert_eq!(parts.iter().sum::<u64>(), block.own_bytes, "{block:?}");
    Sums {
        requests: block.data_requests,
        bytes: block.owners.iter().filter(is_data).map(|o| o.bytes).sum(),
        sequential: block.sequential,
        seeks: block.moves.iter().map(|m| m.seeks).sum(),
        travel_bytes: block.moves.iter().map(|m| m.travel_bytes).sum(),
        own_bytes: block.own_bytes,
    }
}

/// The report when the moves whose predecessor never shows up are counted, too.
fn with_all_moves(it: &Watched, wanted: &Sums) -> StoreReport {
    for _ in 0..500 {
        let report = it.report();
        if counted(&report).seeks >= wanted.seeks {
            return report;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    it.report()
}

/// `untold`: whether some of the events are kept from the observer.
fn every_series_is_exact_or_a_lower_bound(tuning: Tuning, one_in: u32, untold: bool) {
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, tuning);
    let slower_than_ns = 0;
    let policy = EventPolicy {
        one_in,
        slower_than_ns,
    };
    it.observer.set_events(policy).expect("attached");
    let wanted = pairs(&it, &device);
    let report = with_all_moves(&it, &wanted);
    assert_eq!(counted(&report), wanted, "{report:?}");
    let (block, audit) = (&report.block, &report.audit);
    assert_eq!(audit.kernel_requests, wanted.requests, "{audit:?}");
    let missing: u64 = audit.untold.iter().map(|o| o.requests).sum();
    assert_eq!(missing, audit.not_sampled + audit.lost_events, "{audit:?}");
    assert_eq!(missing > wanted.requests / 2, untold, "{audit:?}");
    let unknown = |named: &str| u64::from(named == "unknown");
    let moves = block.moves.iter().map(|m| unknown(&m.owner) * m.requests);
    let moves: u64 = moves.sum();
    // The first of all has no distance.
    assert!((missing.saturating_sub(1)..=missing).contains(&moves));
    assert_eq!(block.unknown_bytes > 0, untold, "{block:?}");
    assert_eq!(block.lost_gaps > 0, untold, "{block:?}");
    assert!(block.lost_gaps >= missing, "{block:?}");
}

#[test]
fn without_all_events_every_series_is_exact_or_says_at_least() {
    let Some(_one) = ready() else { return };
    every_series_is_exact_or_a_lower_bound(Tuning::default(), 1, false);
    every_series_is_exact_or_a_lower_bound(Tuning::default(), 10, true);
    let ring = Tuning {
        ring_bytes: Some(4096),
        paused: true,
        ..Tuning::default()
    };
    every_series_is_exact_or_a_lower_bound(ring, 1, true);
}
