use super::*;

fn seen(requests: u64, bytes: u64) -> Counters {
    let mut counters = [0; stats::COUNT];
    counters[stats::SEEN_REQUESTS + usize::from(op::WRITE)] = requests;
    counters[stats::SEEN_BYTES + usize::from(op::WRITE)] = bytes;
    counters
}

fn stat(requests: u64, bytes: u64) -> DiskStat {
    DiskStat {
        requests,
        bytes,
        ..DiskStat::default()
    }
}

/// Counts on an idle disk.
fn idle(seen: Counters, kernel: DiskStat) -> Compared {
    let kernel = CountsReading {
        before: kernel,
        after: kernel,
        flying: 0,
    };
    Compared {
        layer: Layer::Requests,
        seen,
        kernel: Some(kernel),
        slack: DiskStat::default(),
        sequences: Sequences::default(),
    }
}

/// The verdict when the counts have not changed for long.
fn at_rest(compared: &Compared) -> AuditReport {
    judge(compared, 0, true)
}

#[test]
fn equal_counts_are_complete() {
    let mut counters = seen(3, 4096);
    counters[stats::FLUSH_PARENTS] = 1;
    let report = at_rest(&idle(counters, stat(4, 4096)));
    assert!(report.complete, "{report:?}");
    let expected = "complete: 4 requests seen, as the kernel counted";
    assert_eq!(report.finding, expected);
}

#[test]
fn what_has_no_owner_yet_is_said() {
    let mut counters = seen(3, 4096);
    counters[stats::FLUSH_PARENTS] = 1;
    let told = |requests| {
        let mut report = at_rest(&idle(counters, stat(4, 4096)));
        report.tell_unread(&[OwnerTotal {
            requests,
            ..OwnerTotal::default()
        }]);
        report
    };
    assert_eq!(told(1).unread, 2);
    let words = "of 2 of them the owner is not known yet";
    let words = format!("complete: 4 requests seen, as the kernel counted; {words}");
    assert_eq!(told(1).finding, words);
    let expected = AuditReport {
        unread: 0,
        ..at_rest(&idle(counters, stat(4, 4096)))
    };
    assert_eq!(told(3), expected);
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
    let expected = "write of 8 sectors at sector 64 by dd (process 7)";
    assert_eq!(report.oldest, expected);
    // The kernel counts one: the first has ended unseen.
    assert_eq!(oldest_of(1, &known, 1000).oldest_ns, 700);
    let unseen = oldest_of(3, &[], 1000);
    assert_eq!((unseen.requests, unseen.oldest_ns), (3, 0));
}

#[test]
fn a_device_mapper_counts_the_flush_that_it_is_given() {
    let entry = |op, flags| InFlight {
        op,
        flags,
        ..InFlight::default()
    };
    let (flush, asked) = (entry(op::FLUSH, 0), entry(op::FLUSH, flag::FLUSH_PARENT));
    assert!(is_counted("dm-3", Layer::Bios, &flush));
    // One that has requests, as a disk.
    assert!(!is_counted("dm-3", Layer::Requests, &flush));
    assert!(!is_counted("sda", Layer::Requests, &flush));
    assert!(!is_counted("md0", Layer::Bios, &flush));
    assert!(is_counted("sda", Layer::Requests, &asked));
    assert!(is_counted("sda", Layer::Requests, &entry(op::WRITE, 0)));
}

/// Three were seen, of which the kernel had counted as many before and after the probes were read,
/// and so many were under way.
fn busy(before: u64, after: u64, flying: u64) -> Compared {
    let reading = CountsReading {
        before: stat(before, 4096),
        after: stat(after, 4096),
        flying,
    };
    Compared {
        kernel: Some(reading),
        ..idle(seen(3, 4096), DiskStat::default())
    }
}

#[test]
fn the_kernel_may_be_ahead_by_what_it_counted_after_the_probes_were_read() {
    let report = at_rest(&busy(3, 5, 0));
    assert!(report.complete, "{report:?}");
    assert!(report.finding.contains("give or take 2"), "{report:?}");
    // However much is under way: all that it had counted before was shown to the probes.
    let lost = busy(4, 6, 9);
    assert_eq!(lost.difference(), Difference::Missing);
    let (soon, later) = (judge(&lost, 0, false), at_rest(&lost));
    assert!(!soon.complete && soon.settling, "{soon:?}");
    assert!(soon.finding.starts_with("settling: 3 requests"), "{soon:?}");
    assert!(!later.complete && !later.settling, "{later:?}");
    assert!(later.finding.starts_with("incomplete: "), "{later:?}");
}

#[test]
fn the_probes_may_be_ahead_by_what_is_under_way() {
    assert_eq!(busy(1, 1, 2).difference(), Difference::None);
    // A processor may be kept from counting what it has traced, but not for ever.
    let ahead = busy(1, 2, 0);
    assert_eq!(ahead.difference(), Difference::Ahead);
    let (soon, later) = (judge(&ahead, 0, false), at_rest(&ahead));
    assert!(soon.complete && soon.settling, "{soon:?}");
    assert!(soon.finding.contains("give or take 1"), "{soon:?}");
    assert!(!later.complete && !later.settling, "{later:?}");
}

#[test]
fn what_was_under_way_when_watching_began_may_be_counted_by_either() {
    for (kernel, complete) in [(0, false), (1, true), (5, true), (6, false)] {
        let compared = Compared {
            slack: stat(2, 0),
            ..idle(seen(3, 4096), stat(kernel, 4096))
        };
        assert_eq!(at_rest(&compared).complete, complete, "{kernel}");
    }
}

#[test]
fn nothing_is_looked_for_within_what_was_under_way_when_watching_began() {
    let with = |kernel, slack| Compared {
        slack: stat(slack, 0),
        ..idle(seen(3, 0), stat(kernel, 0))
    };
    assert_eq!(with(3, 1).missing(), 0);
    assert_eq!(with(4, 1).missing(), 0);
    assert_eq!(with(5, 1).missing(), 1);
    assert_eq!(with(4, 0).missing(), 1);
}

#[test]
fn what_was_found_late_is_there_with_its_time_unknown() {
    let mut counters = seen(3, 4096);
    counters[stats::FOUND_LATE] = 2;
    counters[stats::REISSUES] = 4;
    counters[stats::NOT_SAMPLED] = 2;
    counters[stats::UNTOLD_REQUESTS + usize::from(op::WRITE)] = 2;
    counters[stats::UNTOLD_BYTES + usize::from(op::WRITE)] = 1024;
    counters[stats::UNTOLD_PLACED] = 2;
    counters[stats::UNTOLD_SEQUENTIAL] = 1;
    counters[stats::UNTOLD_TRAVEL] = 8;
    let report = at_rest(&idle(counters, stat(3, 4096)));
    assert!(report.complete, "{report:?}");
    assert_eq!(
        report.finding,
        "complete: 3 requests seen, as the kernel counted; of 2 of them the device time is \
         unknown; 2 without an event: their owners and what they cost others are unknown"
    );
    let untold = OwnerTotal {
        owner: "unknown".to_owned(),
        operation: "write".to_owned(),
        requests: 2,
        bytes: 1024,
    };
    assert_eq!(report.untold, [untold]);
    let moves = report.untold_moves.as_ref().expect("they moved the head");
    assert_eq!(moves.requests, 2);
    assert_eq!(moves.seeks, 1);
    assert_eq!(moves.travel_bytes, 4096);
    let counted = (report.found_late, report.reissues, report.not_sampled);
    assert_eq!(counted, (2, 4, 2));
    // One that was found twice would be one too many.
    assert!(!at_rest(&idle(counters, stat(2, 4096))).complete);
}

#[test]
fn what_was_skipped_may_have_been_for_what_is_not_known() {
    let finding = |counter: Option<usize>, begun_before| {
        let mut counters = seen(3, 4096);
        if let Some(counter) = counter {
            counters[counter] = 1;
        }
        let sequences = Sequences {
            begun_before,
            ..Sequences::default()
        };
        let kernel = stat(3 + begun_before, 4096);
        let compared = Compared {
            sequences,
            ..idle(counters, kernel)
        };
        let report = judge(&compared, 2, true);
        assert!(report.complete, "{report:?}");
        report.told.finding
    };
    let (skipped, none) = (
        "the kernel skipped a probe 2 times",
        "but for none of these",
    );
    assert!(finding(None, 0).ends_with(&format!("{skipped}, {none}")));
    assert!(finding(None, 1).ends_with(skipped));
    assert!(finding(Some(stats::FOUND_LATE), 0).ends_with(skipped));
    let unsent = "; 1 of them were not seen being sent: device time and distance are unknown";
    assert!(finding(Some(stats::UNSENT), 0).ends_with(&format!("{unsent}; {skipped}")));
}

#[test]
fn a_full_table_makes_it_incomplete() {
    let mut counters = seen(3, 4096);
    counters[stats::IN_FLIGHT_FULL] = 2;
    counters[stats::DONE_WITHOUT_START] = 2;
    // At once: it does not pass.
    let report = judge(&idle(counters, stat(3, 4096)), 0, false);
    assert!(!report.complete && !report.settling, "{report:?}");
    let words = "incomplete: the start of 2 requests was not seen; 2 requests did not fit into the \
                 table of those in flight";
    assert_eq!(report.finding, words);
    assert_eq!((report.unmatched, report.in_flight_full), (2, 2));
}

#[test]
fn every_lack_is_said() {
    let report = judge(&idle(seen(3, 4096), stat(5, 8192)), 2, true);
    assert!(!report.complete);
    let words = "incomplete: 3 requests and 4,096 bytes seen, 5 and 8,192 counted by the kernel; \
                 the kernel skipped a probe 2 times";
    assert_eq!(report.finding, words);
    let mut counters = seen(3, 4096);
    counters[stats::RING_LOST] = 1;
    let report = judge(&idle(counters, stat(3, 4096)), 0, false);
    assert!(!report.complete, "{report:?}");
    assert!(report.finding.contains("1 event did not fit"), "{report:?}");
    let unread = Compared {
        kernel: None,
        ..idle(seen(0, 0), DiskStat::default())
    };
    assert!(!judge(&unread, 0, false).complete);
}

/// 7 seen by the probes, so many counted by the kernel.
fn judged(kernel: u64, sequences: Sequences) -> AuditReport {
    at_rest(&Compared {
        sequences,
        ..idle(seen(7, 4096), stat(kernel, 4096))
    })
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

/// Counts of an idle disk without requests: bytes read, written, and discarded.
fn bios(seen: [u64; 3], zeroed: u64, requests: u64, kernel: [u64; 3]) -> Compared {
    let mut counters = [0; stats::COUNT];
    let kinds = [op::READ, op::WRITE, op::DISCARD, op::OTHER];
    for (kind, bytes) in kinds.into_iter().zip(seen.into_iter().chain([zeroed])) {
        counters[stats::SEEN_BYTES + usize::from(kind)] = bytes;
        counters[stats::SEEN_REQUESTS + usize::from(kind)] = bytes / 4096;
    }
    let stat = DiskStat {
        by_kind: kernel,
        ..stat(requests, kernel.iter().sum())
    };
    Compared {
        layer: Layer::Bios,
        ..idle(counters, stat)
    }
}

#[test]
fn a_driver_that_counts_bios_its_own_way_is_complete_by_bytes() {
    // A device mapper splits, and counts the flush before data apart.
    let split = at_rest(&bios([4096, 8192, 0], 0, 7, [4096, 8192, 0]));
    assert!(split.complete, "{split:?}");
    // zram does not count discards.
    let zram = at_rest(&bios([4096, 8192, 1 << 20], 0, 3, [4096, 8192, 0]));
    assert!(zram.complete, "{zram:?}");
    let words = "complete: 259 requests seen, with as many bytes as the kernel counted; what the kernel does \
                 not count on this disk: discard (1,048,576 bytes)";
    assert_eq!(zram.finding, words);
    // Others count nothing.
    let none = at_rest(&bios([4096, 8192, 0], 0, 0, [0; 3]));
    assert!(none.complete, "{none:?}");
    let words = "read (4,096 bytes), write";
    assert!(none.finding.contains(words), "{none:?}");
    // What writes zeroes is counted by some.
    for written in [8192, 8192 + 65_536] {
        let report = at_rest(&bios([0, 8192, 0], 65_536, 2, [0, written, 0]));
        assert!(report.complete, "{report:?}");
    }
}

#[test]
fn a_bio_that_was_not_seen_is_missing_by_its_bytes() {
    let lost = bios([4096, 8192, 0], 0, 4, [4096, 12_288, 0]);
    assert_eq!(lost.difference(), Difference::Missing);
    assert_eq!(lost.missing(), 8);
    assert!(!at_rest(&lost).complete);
    let ahead = bios([4096, 8192, 0], 0, 2, [4096, 4096, 0]);
    assert_eq!(ahead.difference(), Difference::Ahead);
    assert!(!at_rest(&ahead).complete);
}
