//! The observer's numbers as metrics: the disks, head moves, the cost of the probes, and the audit.

use std::fmt;

use lumpscope_observer::{AuditReport, DiskTime, GuardPolicy, StoreReport};

use super::collector::{Snapshot, Sources};
use super::exposition::Out;
use super::heat::{self, float, seconds};
use super::names::{self, Metric};
use crate::observed::{WatchKind, Watches};

pub(super) fn encode(
    out: &mut Out<'_, '_>,
    stores: &[Snapshot<'_>],
    sources: &Sources,
) -> fmt::Result {
    programs(out, sources)?;
    watches(out, &sources.watches)?;
    block(out, stores)?;
    heads(out, stores)?;
    out.of_stores(&names::KEPT_SLOW, stores, |s| s.kept)?;
    attribution(out, stores)?;
    audit(out, stores)?;
    guard(out, stores)
}

fn programs(out: &mut Out<'_, '_>, sources: &Sources) -> fmt::Result {
    let programs = sources.observer.programs();
    let labels = || programs.iter().map(|p| (vec![&*p.name, &*p.hook], p));
    out.numbers(
        &names::PROGRAM_ATTACHED,
        labels().map(|(l, p)| (l, float(u64::from(p.attached)))),
    )?;
    out.numbers(
        &names::PROGRAM_RUNS,
        labels().map(|(l, p)| (l, float(p.runs))),
    )?;
    out.numbers(
        &names::PROGRAM_TIME,
        labels().map(|(l, p)| (l, seconds(p.run_ns))),
    )?;
    out.numbers(
        &names::PROGRAM_MISSES,
        labels().map(|(l, p)| (l, float(p.recursion_misses))),
    )?;
    let policy = sources.observer.events();
    let one_in = float(policy.one_in.into());
    out.numbers(&names::EVENTS_ONE_IN, [(vec![], one_in)])?;
    let slower = seconds(policy.slower_than_ns);
    out.numbers(&names::EVENTS_SLOWER, [(vec![], slower)])?;
    let punted = sources.observer.punted().into_iter();
    let punted = punted.flat_map(|p| {
        [
            ("flush", p.flushes),
            ("data", p.data),
            ("unknown", p.unknown),
        ]
    });
    let punted = punted.map(|(operation, ios)| (vec![operation], float(ios)));
    out.numbers(&names::PUNTED_IOS, punted)?;
    let unchecked = float(sources.observer.submissions_refused());
    out.numbers(&names::SUBMISSIONS_UNCHECKED, [(vec![], unchecked)])
}

fn watches(out: &mut Out<'_, '_>, watches: &Watches) -> fmt::Result {
    let open = |kind: WatchKind| (vec![kind.name()], float(watches.open(kind)));
    out.numbers(&names::WATCHES, WatchKind::ALL.map(open))?;
    let dropped = |kind: WatchKind| (vec![kind.name()], float(watches.dropped(kind)));
    out.numbers(&names::WATCHES_DROPPED, WatchKind::ALL.map(dropped))
}

/// Head moves, and their cost for others.
fn heads(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    let moves = || {
        stores.iter().flat_map(|s| {
            let moves = s.report.block.moves.iter();
            moves.map(move |m| (vec![&*s.named.name, &*m.owner, &*m.moved_by], m))
        })
    };
    out.numbers(
        &names::HEAD_MOVES,
        moves().map(|(l, m)| (l, float(m.seeks))),
    )?;
    out.numbers(
        &names::HEAD_TRAVEL,
        moves().map(|(l, m)| (l, float(m.travel_bytes))),
    )?;
    out.numbers(
        &names::INTERFERENCE,
        stores.iter().flat_map(|s| {
            let lost = s.report.block.lost.iter();
            lost.map(|l| (vec![&*s.named.name, &*l.owner], seconds(l.ns)))
        }),
    )?;
    out.of_stores(&names::INTERFERENCE_GAPS, stores, |s| {
        s.report.block.lost_gaps
    })
}

/// A number of an audit.
type Count = fn(&AuditReport) -> u64;

fn guard(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    let asked = stores.iter();
    out.numbers(
        &names::GUARD_POLICY,
        asked.map(|s| (vec![&*s.named.name, s.guard.policy.word()], 1.0)),
    )?;
    let on = stores.iter().filter(|s| s.guard.policy != GuardPolicy::Off);
    out.numbers(
        &names::GUARD_EFFECTIVE,
        on.map(|s| {
            let effective = u64::from(s.guard.effective);
            (vec![&*s.named.name], float(effective))
        }),
    )?;
    out.of_stores(&names::GUARD_DENIED, stores, |s| s.guard.denied)?;
    out.of_stores(&names::GUARD_ALLOWED, stores, |s| s.guard.allowed)
}

fn block(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    out.numbers(
        &names::PROBE_ATTACHED,
        stores.iter().map(|s| {
            let labels = vec![&*s.named.name, &*s.report.device, &*s.mode];
            (labels, float(u64::from(s.report.observed)))
        }),
    )?;
    let owners = || {
        stores.iter().flat_map(|s| {
            let owners = s.report.block.owners.iter();
            owners.map(move |o| (vec![&*s.named.name, &*o.owner, &*o.operation], o))
        })
    };
    out.numbers(
        &names::BLOCK_REQUESTS,
        owners().map(|(l, o)| (l, float(o.requests))),
    )?;
    out.numbers(
        &names::BLOCK_BYTES,
        owners().map(|(l, o)| (l, float(o.bytes))),
    )?;
    out.of_stores(&names::BLOCK_DATA_REQUESTS, stores, |s| {
        s.report.block.data_requests
    })?;
    out.of_stores(&names::BLOCK_SEQUENTIAL, stores, |s| {
        s.report.block.sequential
    })?;
    out.histogram(&names::SEEK_DISTANCE, stores, heat::seek_distance)?;
    out.histogram(&names::SIGNED_SEEK, stores, heat::signed_seek)?;
    out.histogram(&names::DEVICE_TIME, stores, heat::device_time)?;
    out.histogram(&names::SEEK_DEVICE_TIME, stores, heat::seek_device_time)?;
    out.histogram(&names::FLUSH_TIME, stores, heat::flush_time)?;
    out.histogram(&names::DISCARD_TIME, stores, heat::discard_time)?;
    out.histogram(&names::FLAGGED_TIME, stores, heat::flagged_time)?;
    out.histogram(&names::QUEUE_TIME, stores, heat::queue_time)?;
    out.histogram(&names::BLOCK_SIZE, stores, heat::size)?;
    out.of_stores(&names::BLOCK_IN_FLIGHT, stores, |s| {
        s.report.in_flight.requests
    })?;
    let oldest = |s: &Snapshot<'_>| seconds(s.report.in_flight.oldest_ns);
    out.numbers(
        &names::BLOCK_OLDEST,
        stores.iter().map(|s| (vec![&*s.named.name], oldest(s))),
    )?;
    disk_time(out, &names::BLOCK_BUSY, stores, |time| time.busy_ns)?;
    disk_time(out, &names::BLOCK_UNDER_WAY, stores, |time| {
        time.under_way_ns
    })?;
    failures(out, stores)
}

/// Absent where the kernel does not count.
fn disk_time(
    out: &mut Out<'_, '_>,
    metric: &Metric,
    stores: &[Snapshot<'_>],
    of: fn(DiskTime) -> u64,
) -> fmt::Result {
    let told = stores.iter().filter_map(|s| {
        let time = s.report.in_flight.time?;
        Some((vec![&*s.named.name], seconds(of(time))))
    });
    out.numbers(metric, told)
}

fn failures(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    out.of_stores(&names::BLOCK_FAILED, stores, |s| s.report.audit.failed)?;
    out.numbers(
        &names::BLOCK_FAILURES,
        stores.iter().flat_map(|s| {
            let failures = s.report.block.failures.iter();
            failures.map(|f| {
                let labels = vec![&*s.named.name, &*f.operation, &*f.failure];
                (labels, float(f.requests))
            })
        }),
    )?;
    out.numbers(
        &names::BLOCK_MERGED,
        stores.iter().flat_map(|s| {
            let merged = ["read", "write", "discard"].into_iter();
            let merged = merged.zip(s.report.audit.merged);
            merged.map(|(operation, n)| (vec![&*s.named.name, operation], float(n)))
        }),
    )
}

fn attribution(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    let results = || {
        stores.iter().flat_map(|s| {
            let b = &s.report.block;
            // What the share of those without an event would be is not known.
            let all = b.attributed_bytes + b.shared_bytes + b.unattributed_bytes;
            [
                ("attributed", b.attributed_bytes, all),
                ("shared", b.shared_bytes, all),
                ("unattributed", b.unattributed_bytes, all),
                ("unknown", b.unknown_bytes, 0),
            ]
            .map(|(result, bytes, of)| (vec![&*s.named.name, result], bytes, of))
        })
    };
    out.numbers(
        &names::ATTRIBUTION_BYTES,
        results().map(|(labels, bytes, _)| (labels, float(bytes))),
    )?;
    out.numbers(
        &names::ATTRIBUTION_RATIO,
        results()
            .filter(|(_, _, all)| *all > 0)
            .map(|(labels, bytes, all)| (labels, float(bytes) / float(all))),
    )
}

fn audit(out: &mut Out<'_, '_>, stores: &[Snapshot<'_>]) -> fmt::Result {
    let both = |probes: fn(&StoreReport) -> u64, kernel: fn(&StoreReport) -> u64| {
        stores.iter().flat_map(move |s| {
            [("probes", probes(&s.report)), ("kernel", kernel(&s.report))]
                .map(|(source, n)| (vec![&*s.named.name, source], float(n)))
        })
    };
    out.numbers(
        &names::AUDIT_REQUESTS,
        both(|r| r.audit.seen_requests, |r| r.audit.kernel_requests),
    )?;
    out.numbers(
        &names::AUDIT_BYTES,
        both(|r| r.audit.seen_bytes, |r| r.audit.kernel_bytes),
    )?;
    out.of_stores(&names::AUDIT_COMPLETE, stores, |s| {
        u64::from(s.report.audit.complete)
    })?;
    out.of_stores(&names::LOST_EVENTS, stores, |s| s.report.audit.lost_events)?;
    let more: [(&Metric, Count); 8] = [
        (&names::AUDIT_FOUND_LATE, |a| a.found_late),
        (&names::AUDIT_IN_FLIGHT_FULL, |a| a.in_flight_full),
        (&names::AUDIT_REISSUES, |a| a.reissues),
        (&names::AUDIT_NOT_SAMPLED, |a| a.not_sampled),
        (&names::AUDIT_AGREEMENTS, |a| a.agreements),
        (&names::AUDIT_CONFLICTS, |a| a.conflicts),
        (&names::AUDIT_UNKNOWN, |a| a.submission_unknown),
        (&names::AUDIT_AMBIGUOUS, |a| a.ambiguous),
    ];
    for (metric, of) in more {
        out.of_stores(metric, stores, |s| of(&s.report.audit))?;
    }
    out.of_stores(&names::UNMATCHED, stores, |s| s.report.audit.unmatched)?;
    out.of_stores(&names::RECURSION_MISSES, stores, |s| {
        s.report.audit.recursion_misses
    })
}
