use super::*;

fn seen(requests: u64, bytes: u64) -> Counters {
    let mut counters = [0; stats::COUNT];
    counters[stats::SEEN_REQUESTS + usize::from(op::WRITE)] = requests;
    counters[stats::SEEN_BYTES + usize::from(op::WRITE)] = bytes;
    counters
}

const NONE: DiskStat = DiskStat {
    requests: 0,
    bytes: 0,
};

#[test]
fn equal_counts_are_complete() {
    let mut counters = seen(3, 4096);
    counters[stats::FLUSH_PARENTS] = 1;
    let report = judge(
        &counters,
        Some(DiskStat {
            requests: 4,
            bytes: 4096,
        }),
        0,
        NONE,
        Sequences::default(),
    );
    assert!(report.complete, "{report:?}");
    assert_eq!(
        report.finding,
        "complete: 4 requests seen, as the kernel counted"
    );
}

#[test]
fn the_oldest_under_way_is_none_whose_end_was_not_shown() {
    let sent = |queue_ns, sector| InFlight {
        queue_ns,
        issue_ns: queue_ns + 1,
        sector,
        sectors: 8,
        op: op::WRITE,
        tgid: 7,
        comm: *b"dd\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        ..InFlight::default()
    };
    let known = [sent(100, 64), sent(300, 128)];
    let report = oldest_of(2, &known, 1000);
    assert_eq!((report.requests, report.oldest_ns), (2, 900));
    assert_eq!(
        report.oldest,
        "write of 8 sectors at sector 64 by dd (process 7)"
    );
    // The kernel counts one: the first has ended unseen.
    assert_eq!(oldest_of(1, &known, 1000).oldest_ns, 700);
    let unseen = oldest_of(3, &[], 1000);
    assert_eq!((unseen.requests, unseen.oldest_ns), (3, 0));
}

#[test]
fn a_busy_disk_may_differ_by_what_is_under_way() {
    let kernel = Some(DiskStat {
        requests: 5,
        bytes: 8192,
    });
    let slack = DiskStat {
        requests: 2,
        bytes: 4096,
    };
    let report = judge(&seen(3, 4096), kernel, 0, slack, Sequences::default());
    assert!(
        report.complete && report.finding.contains("give or take 2"),
        "{report:?}"
    );
    assert!(!judge(&seen(2, 4096), kernel, 0, slack, Sequences::default()).complete);
}

#[test]
fn what_was_found_late_is_there_with_its_time_unknown() {
    let mut counters = seen(3, 4096);
    counters[stats::FOUND_LATE] = 2;
    counters[stats::REISSUES] = 4;
    counters[stats::NOT_SAMPLED] = 2;
    counters[stats::UNTOLD_REQUESTS + usize::from(op::WRITE)] = 2;
    counters[stats::UNTOLD_BYTES + usize::from(op::WRITE)] = 1024;
    let kernel = |requests| {
        Some(DiskStat {
            requests,
            bytes: 4096,
        })
    };
    let report = judge(&counters, kernel(3), 0, NONE, Sequences::default());
    assert!(report.complete, "{report:?}");
    assert_eq!(
        report.finding,
        "complete: 3 requests seen, as the kernel counted; of 2 of them the device time is \
         unknown; 2 without an event: owners, moves and seeks are at least what is said"
    );
    let untold = OwnerTotal {
        owner: "unknown".to_owned(),
        operation: "write".to_owned(),
        requests: 2,
        bytes: 1024,
    };
    assert_eq!(report.untold, [untold]);
    let counted = (report.found_late, report.reissues, report.not_sampled);
    assert_eq!(counted, (2, 4, 2));
    // One that was found twice would be one too many.
    assert!(!judge(&counters, kernel(2), 0, NONE, Sequences::default()).complete);
}

#[test]
fn a_full_table_makes_it_incomplete() {
    let mut counters = seen(3, 4096);
    counters[stats::IN_FLIGHT_FULL] = 2;
    counters[stats::DONE_WITHOUT_START] = 2;
    let kernel = DiskStat {
        requests: 3,
        bytes: 4096,
    };
    let report = judge(&counters, Some(kernel), 0, NONE, Sequences::default());
    assert!(!report.complete, "{report:?}");
    assert_eq!(
        report.finding,
        "incomplete: the start of 2 requests was not seen; 2 requests did not fit into the \
         table of those in flight"
    );
    assert_eq!((report.unmatched, report.in_flight_full), (2, 2));
}

#[test]
fn every_lack_is_said() {
    let report = judge(
        &seen(3, 4096),
        Some(DiskStat {
            requests: 5,
            bytes: 8192,
        }),
        2,
        NONE,
        Sequences::default(),
    );
    assert!(!report.complete);
    assert_eq!(
        report.finding,
        "incomplete: 3 requests and 4096 bytes seen, 5 and 8192 counted by the kernel; \
         the kernel skipped a probe 2 times"
    );
    let mut counters = seen(3, 4096);
    counters[stats::RING_LOST] = 1;
    let report = judge(
        &counters,
        Some(DiskStat {
            requests: 3,
            bytes: 4096,
        }),
        0,
        NONE,
        Sequences::default(),
    );
    assert!(
        !report.complete && report.finding.contains("1 events did not fit"),
        "{report:?}"
    );
    assert!(!judge(&seen(0, 0), None, 0, NONE, Sequences::default()).complete);
}

/// 7 seen by the probes, so many counted by the kernel.
fn judged(kernel: u64, sequences: Sequences) -> AuditReport {
    let kernel = DiskStat {
        requests: kernel,
        bytes: 4096,
    };
    judge(&seen(7, 4096), Some(kernel), 0, NONE, sequences)
}

#[test]
fn the_kernel_counts_a_sequence_of_flushes_when_it_has_ended() {
    let two_under_way = Sequences {
        under_way: 2,
        ..Sequences::default()
    };
    for (kernel, complete) in [(4, false), (5, true), (7, true), (8, false)] {
        assert_eq!(judged(kernel, two_under_way).complete, complete, "{kernel}");
    }
    // At rest, a disk that was busy when watching began.
    let three_before = Sequences {
        begun_before: 3,
        ..Sequences::default()
    };
    for (kernel, complete) in [(9, false), (10, true), (11, false)] {
        let report = judged(kernel, three_before);
        assert_eq!((report.complete, report.seen_requests), (complete, 10));
    }
}
