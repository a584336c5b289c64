//! Known I/O, and every block request of it.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::support::{
    Aligned, LoopDevice, Watched, dd, forced, mount_tracefs, owned, ready, until_complete,
};
use lumpscope_observer::{FailureTotal, Flavour, HeatCell, Op, Purpose, StoreReport, Tuning};

const MIB: u64 = 1 << 20;
const KIB: usize = 1 << 10;

/// Known writes, reads and a flush on a raw device.
fn known_io(flavour: Flavour) -> StoreReport {
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, forced(flavour));
    let status = it.observer.store_status("it").expect("it");
    assert_eq!(status.mode, flavour.name());
    it.request(1, "put", 64 << 10, || it.write(1, MIB, 64 * KIB));
    it.request(2, "put", 4 << 10, || it.write(2, 8 * MIB, 4 * KIB));
    it.request(3, "put", 4 << 10, || {
        it.write(3, 8 * MIB + 4096, 4 * KIB);
        it.io(&[3, 77], Purpose::Flush, Op::Flush, 0, 0);
    });
    it.request(4, "get", 64 << 10, || {
        it.io(&[4], Purpose::Data, Op::Read, MIB, 64 * KIB)
    });
    it.io(&[], Purpose::Header, Op::Write, 0, 4 * KIB);
    it.report()
}

/// Every block request of the known I/O, its bytes and its seek.
fn byte_exact(flavour: Flavour) {
    let report = until_complete(|| known_io(flavour));
    assert_eq!(report.audit.seen_bytes, (64 + 4 + 4 + 64 + 4) << 10);
    assert!(report.audit.owned > 0 && report.audit.unread == 0);

    let block = &report.block;
    assert_eq!((block.data_requests, block.sequential), (5, 1), "{block:?}");
    assert_eq!(block.own_bytes, 140 << 10);
    assert_eq!(block.attributed_bytes, 140 << 10);
    assert_eq!((block.shared_bytes, block.unattributed_bytes), (0, 0));
    assert_eq!(owned(&report, "request", "write"), (3, 72 << 10));
    assert_eq!(owned(&report, "request", "read"), (1, 64 << 10));
    assert_eq!(owned(&report, "store", "write"), (1, 4 << 10));
    assert_eq!(owned(&report, "request", "flush"), (1, 0));

    let of = |id: u64| {
        let slow = report.slowest.iter().find(|s| s.request_id == id);
        let slow = slow.expect("among the slowest");
        assert!(!slow.sentence.is_empty());
        slow.blocks.clone()
    };
    let at = |id: u64| {
        let it = &of(id)[0];
        (it.sector, it.sectors, it.own_bytes, it.seek_bytes)
    };
    assert_eq!(at(1), (2048, 128, 64 << 10, None));
    assert_eq!(at(2), (16384, 8, 4096, Some((7 << 20) - (64 << 10))));
    assert_eq!(at(3), (16392, 8, 4096, Some(0)));
    assert_eq!(at(4), (2048, 128, 64 << 10, Some(-(7 << 20) - (8 << 10))));
    assert_eq!(of(2)[0].previous_owner, "request 1");
    assert_eq!(of(4)[0].previous_owner, "request 3");
    let flush = &of(3)[1];
    assert_eq!(flush.operation.as_str(), "flush");
    assert_eq!(flush.purpose.as_str(), "flush");
    assert!(flush.shared, "two requests waited for it");

    // All data requests but the first have a seek.
    let cells: u64 = report.heat.iter().map(|cell| cell.count).sum();
    assert_eq!(cells, 4, "{:?}", report.heat);
    shapes_are_exact(&report);
    for operation in &report.operations {
        let stages: u64 = operation.stages.iter().map(|s| s.total_ns).sum();
        assert_eq!(stages, operation.total_ns, "{operation:?}");
    }
}

/// The kernel side's sums and small histograms, against its cells and the events.
fn shapes_are_exact(report: &StoreReport) {
    let shape = |operation: &str| {
        let mut found = report.shapes.iter();
        let found = found.find(|s| s.operation == operation && s.owner == "request");
        found.expect("it occurred")
    };
    let sizes = |operation: &str| {
        let sizes = shape(operation).sizes.iter();
        sizes.map(|s| (s.from, s.count)).collect::<Vec<_>>()
    };
    assert_eq!(sizes("write"), [(4 << 10, 3), (64 << 10, 1)]);
    assert_eq!(sizes("read"), [(64 << 10, 1)]);
    assert_eq!(sizes("flush"), [(0, 1)]);
    let bytes = (shape("write").bytes, shape("read").bytes);
    assert_eq!(bytes, (76 << 10, 64 << 10));
    for (operation, requests) in [("write", 4), ("read", 1)] {
        let queued: u64 = shape(operation).queue.iter().map(|b| b.count).sum();
        assert_eq!(queued, requests, "{:?}", shape(operation));
        assert!(shape(operation).queue_ns > 0);
    }
    let flushes: u64 = shape("flush").unplaced.iter().map(|b| b.count).sum();
    assert!(flushes == 1 && shape("flush").unplaced_ns > 0);
    let travel: u64 = report.shapes.iter().map(|s| s.travel_bytes).sum();
    let moved: u64 = report.block.moves.iter().map(|m| m.travel_bytes).sum();
    assert_eq!(travel, moved);
    let seeks = report.shapes.iter().flat_map(|s| &s.seeks);
    let device_ns: u64 = seeks.map(|s| s.device_ns).sum();
    let within = |edge: fn(&HeatCell) -> u64| report.heat.iter().map(|c| edge(c) * c.count).sum();
    assert!((within(|c| c.device_from_ns)..within(|c| c.device_to_ns)).contains(&device_ns));
}

#[test]
fn btf_tracepoints_are_byte_exact() {
    let Some(_one) = ready() else { return };
    byte_exact(Flavour::TpBtf);
}

#[test]
fn raw_tracepoints_are_byte_exact() {
    let Some(_one) = ready() else { return };
    byte_exact(Flavour::RawTp);
}

#[test]
fn classic_tracepoints_are_byte_exact() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    byte_exact(Flavour::Classic);
}

#[test]
fn a_split_write_is_one_request_s_and_in_many_threads_nothing_is_mixed_up() {
    let Some(_one) = ready() else { return };
    let report = until_complete(|| {
        let device = LoopDevice::new(1024 * MIB);
        let it = Watched::new(&device.path, Tuning::default());
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let it = &it;
                scope.spawn(move || {
                    for round in 0..8_u64 {
                        let id = 1 + thread * 100 + round;
                        let at = (thread * 8 + round) * 16 * MIB;
                        it.request(id, "put", 4 * MIB, || it.write(id, at, 4 << 20));
                        let back = || it.io(&[id + 50], Purpose::Data, Op::Read, at, 4 << 20);
                        it.request(id + 50, "get", 4 * MIB, back);
                    }
                });
            }
        });
        it.report()
    });
    let bytes = 64 * 4 * MIB;
    let audit = &report.audit;
    assert_eq!(audit.agreements, report.block.data_requests, "{audit:?}");
    assert_eq!(audit.submission_unknown, 0, "{audit:?}");
    let block = &report.block;
    assert_eq!(block.own_bytes, 2 * bytes);
    assert_eq!(block.attributed_bytes, 2 * bytes, "{block:?}");
    let (writes, written) = owned(&report, "request", "write");
    assert!(writes > 64, "4 MiB do not fit into one block request");
    assert_eq!(written, bytes);
    let cells: u64 = report.heat.iter().map(|cell| cell.count).sum();
    // The disk's first request has no distance, and one that was found late no device time.
    let (late, missing) = (audit.found_late, block.data_requests - cells);
    let fits = (late.max(1)..=late + 1).contains(&missing);
    assert!(fits, "{missing} are missing: {audit:?}");
    for slow in &report.slowest {
        let own: u64 = slow.blocks.iter().map(|b| b.own_bytes).sum();
        assert_eq!(own, 4 * MIB, "{slow:?}");
    }
}

#[test]
fn failed_and_merged_requests_are_counted_as_the_kernel_counts_them() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        let report = until_complete(|| {
            let device = LoopDevice::new(64 * MIB);
            let before = merged(&device.path);
            let it = Watched::new(&device.path, forced(flavour));
            it.write(1, MIB, 4 * KIB);
            let of = format!("of={}", device.path.display());
            dd(&format!("if=/dev/zero {of} bs=1M count=4 conv=fsync"));
            device.empty();
            it.request(7, "get", 4096, || {
                for _ in 0..3 {
                    it.declared(&[7], Purpose::Data, Op::Read, (MIB, 4 * KIB), |_| {
                        let read = it.file.read_at(Aligned::new(4 * KIB).get(), MIB);
                        let error = read.expect_err("it is gone").raw_os_error();
                        assert_eq!(error, Some(libc::EIO));
                    });
                }
            });
            let mut report = it.report();
            let told = it.observer.explain(7).expect("kept");
            if report.audit.complete {
                let why = told.blocks.iter().map(|b| (b.failed, &*b.failure));
                assert!(why.eq([(true, "io"); 3]), "{told:#?}");
            }
            let after = merged(&device.path);
            let since = std::array::from_fn(|i| after[i] - before[i]);
            report.audit.complete &= report.audit.merged == since;
            report
        });
        assert_eq!(report.audit.failed, 3, "{report:?}");
        let failure = FailureTotal {
            operation: "read".to_owned(),
            failure: "io".to_owned(),
            requests: 3,
        };
        assert_eq!(report.block.failures, [failure]);
    }
}

/// What the kernel says it has merged into requests of a disk.
fn merged(device: &Path) -> [u64; 3] {
    let name = device.file_name().and_then(|name| name.to_str());
    let stat = format!("/sys/block/{}/stat", name.expect("a device"));
    let stat = std::fs::read_to_string(stat).expect("its statistics");
    let fields = stat.split_whitespace();
    let fields: Vec<u64> = fields
        .map(|field| field.parse().expect("a number"))
        .collect();
    [1, 5, 12].map(|at| fields.get(at).copied().unwrap_or(0))
}

#[test]
fn what_nobody_declared_is_not_guessed() {
    let Some(_one) = ready() else { return };
    let report = until_complete(|| {
        let device = LoopDevice::new(64 * MIB);
        let it = Watched::new(&device.path, Tuning::default());
        it.undeclared(Op::Write, MIB, 8 * KIB);
        let of = format!("of={}", device.path.display());
        dd(&format!(
            "if=/dev/zero {of} bs=64k count=2 oflag=direct conv=notrunc"
        ));
        it.report()
    });
    assert_eq!(report.block.unattributed_bytes, 8 << 10);
    assert_eq!(report.block.own_bytes, 8 << 10);
    assert_eq!(report.block.attributed_bytes, 0);
    let others = owned(&report, "other", "write");
    assert_eq!(others, (2, 128 << 10), "{:?}", report.block);
}

#[test]
fn lost_events_are_counted_exactly() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(64 * MIB);
    let tuning = Tuning {
        ring_bytes: Some(4096),
        paused: true,
        ..Tuning::default()
    };
    let it = Watched::new(&device.path, tuning);
    for id in 1..=500 {
        it.write(id, id * 8192, 4 * KIB);
    }
    let report = it.report();
    let audit = &report.audit;
    assert_eq!(audit.seen_requests, 500, "{audit:?}");
    assert_eq!(audit.kernel_requests, 500, "{audit:?}");
    assert!(audit.lost_events > 400, "{audit:?}");
    assert_eq!(report.block.data_requests, 500, "{audit:?}");
    let told = owned(&report, "request", "write").0;
    assert_eq!(told + audit.lost_events, 500, "{audit:?}");
    let is_said = audit.finding.contains("did not fit into the ring");
    assert!(!audit.complete && is_said, "{audit:?}");
    let cells: u64 = report.heat.iter().map(|cell| cell.count).sum();
    // The first has no distance, one that was found late no device time.
    let (late, missing) = (audit.found_late, 500 - cells);
    let fits = (late.max(1)..=late + 1).contains(&missing);
    assert!(
        fits,
        "the kernel's histogram loses nothing: {cells} cells, {audit:?}"
    );
}

/// With `LUMPSCOPE_RECORD=DIR` a recording is left there.
fn recorded(name: &str) -> Tuning {
    let dir = std::env::var_os("LUMPSCOPE_RECORD").map(PathBuf::from);
    Tuning {
        record: dir.map(|dir| dir.join(format!("{name}.jsonl"))),
        ..Tuning::default()
    }
}

/// Puts into a zero-written file: all data bytes are the requests', the rest the file system's.
fn file_store(mkfs: &str, args: &[&str]) {
    let report = until_complete(|| {
        let mounted = LoopDevice::mounted(512 * MIB, mkfs, args);
        let path = mounted.zeroed("store.lusf", 128 << 20);
        let it = Watched::new(&path, recorded(&mkfs.replace('.', "-")));
        let status = it.observer.store_status("it").expect("it");
        // The loop device, not the image's disk.
        let name = mounted.device.path.file_name().expect("a name");
        assert_eq!(status.device.as_deref(), name.to_str());
        for id in 1..=20_u64 {
            let at = (id * 37 % 120) * MIB;
            it.request(id, "put", MIB, || {
                it.write(id, at, 1 << 20);
                it.io(&[id], Purpose::Flush, Op::Flush, 0, 0);
            });
        }
        it.report()
    });
    let block = &report.block;
    assert_eq!(block.own_bytes, 20 * MIB, "{block:?}");
    assert_eq!(block.attributed_bytes, 20 * MIB, "{block:?}");
    assert_eq!(owned(&report, "request", "write").1, 20 * MIB);
    let flushes = owned(&report, "request", "flush").0;
    // Without a journal older kernels send no flush when only data has changed: the audit, which is
    // complete, has compared that with the kernel's own count.
    let none = flushes == 0 && args.contains(&"^has_journal");
    assert!(flushes >= 20 || none, "{block:?}");
    assert_eq!(owned(&report, "other", "write"), (0, 0), "{block:?}");
}

#[test]
fn a_file_on_ext4_is_attributed_through_its_extents() {
    let Some(_one) = ready() else { return };
    file_store("mkfs.ext4", &["-q", "-F"]);
}

#[test]
fn a_file_on_ext4_without_journal_is_attributed_too() {
    let Some(_one) = ready() else { return };
    file_store("mkfs.ext4", &["-q", "-F", "-O", "^has_journal"]);
}

#[test]
fn a_file_on_xfs_is_attributed_through_its_extents() {
    let Some(_one) = ready() else { return };
    file_store("mkfs.xfs", &["-q"]);
}

/// With `LUMPSCOPE_RECORD=DIR` it leaves the recordings that `replay.rs` reads.
fn busy_file_system(kind: &str, args: &[&str]) {
    let report = until_complete(|| {
        let mounted = LoopDevice::mounted(512 * MIB, &format!("mkfs.{kind}"), args);
        let path = mounted.zeroed("store.lusf", 64 << 20);
        let it = Watched::new(&path, recorded(kind));
        for id in 1..=6_u64 {
            it.request(id, "put", MIB, || {
                it.write(id, (id * 37 % 60) * MIB, 1 << 20);
                it.io(&[id, id + 1000], Purpose::Journal, Op::Write, 0, 4 * KIB);
                it.io(&[id, id + 1000], Purpose::Flush, Op::Flush, 0, 0);
            });
            let of = format!("of={}/other-{id}", mounted.at.display());
            dd(&format!("if=/dev/zero {of} bs=64k count=4 conv=fsync"));
        }
        it.report()
    });
    let block = &report.block;
    let journal = 6 * 4 * KIB as u64;
    assert_eq!(block.attributed_bytes, 6 * MIB, "{block:?}");
    assert_eq!(block.shared_bytes, journal, "{block:?}");
    assert_eq!(block.unattributed_bytes, 0);
    assert_eq!(block.own_bytes, 6 * MIB + journal);
    assert_eq!(owned(&report, "request", "write").1, 6 * MIB + journal);
    // dd's data, and a commit for each fsync.
    let written = |owner| owned(&report, owner, "write");
    assert_eq!(written("other").1, 6 * (256 << 10), "{block:?}");
    assert!(written("fs-journal").0 >= 6, "{block:?}");
}

#[test]
fn a_busy_ext4_s_own_io_is_told_apart() {
    let Some(_one) = ready() else { return };
    busy_file_system("ext4", &["-q", "-F"]);
}

#[test]
fn a_busy_xfs_s_own_io_is_told_apart() {
    let Some(_one) = ready() else { return };
    busy_file_system("xfs", &["-q"]);
}

#[test]
fn reports_stay_after_shutdown() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(64 * MIB);
    let it = Watched::new(&device.path, Tuning::default());
    it.request(1, "put", 4096, || it.write(1, MIB, 4 * KIB));
    let before = it.report();
    it.observer.shutdown();
    it.undeclared(Op::Write, MIB, 4 * KIB);
    let after = it.observer.report("it").expect("it");
    assert_eq!(before.audit, after.audit);
    assert_eq!(before.block, after.block);
}

#[test]
fn eight_clients_on_a_file_with_strangers_keep_their_bytes() {
    let Some(_one) = ready() else { return };
    let report = until_complete(|| {
        let mounted = LoopDevice::mounted(1024 * MIB, "mkfs.ext4", &["-q", "-F"]);
        let path = mounted.zeroed("store.lusf", 256 << 20);
        let it = Watched::new(&path, Tuning::default());
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let it = &it;
                scope.spawn(move || {
                    for round in 0..25_u64 {
                        let id = 1 + thread * 100 + round;
                        let at = thread * 32 * MIB + (round * 7 % 31) * MIB;
                        it.request(id, "put", MIB, || {
                            it.write(id, at, 1 << 20);
                            it.io(&[id], Purpose::Flush, Op::Flush, 0, 0);
                        });
                        let back = || it.io(&[id + 50], Purpose::Data, Op::Read, at, 1 << 20);
                        it.request(id + 50, "get", MIB, back);
                    }
                });
            }
            for round in 0..5 {
                let of = format!("of={}/other-{round}", mounted.at.display());
                dd(&format!("if=/dev/zero {of} bs=64k count=16 conv=fsync"));
            }
        });
        it.report()
    });
    let block = &report.block;
    assert_eq!(block.own_bytes, 400 * MIB, "{block:?}");
    assert_eq!(block.attributed_bytes, 400 * MIB, "{block:?}");
    assert_eq!(block.unattributed_bytes, 0);
    assert_eq!(report.operations.iter().map(|o| o.count).sum::<u64>(), 400);
}

/// Reads that go back and forth between the halves of a disk: each is measured from the one before in
/// its own half, and was moved there by it.
fn access_ranges_are_told_apart(flavour: Flavour) {
    const HALF: u64 = 32 * MIB;
    const STEPS: u64 = 20;
    let report = until_complete(|| {
        let device = LoopDevice::new(2 * HALF);
        let tuning = Tuning {
            access_ranges: vec![0, HALF / 512],
            ..forced(flavour)
        };
        let it = Watched::new(&device.path, tuning);
        let read = |request: u64, at: u64, len: usize| {
            it.request(request, "get", len as u64, || {
                it.io(&[request], Purpose::Data, Op::Read, at, len);
            });
        };
        for step in 0..STEPS {
            read(1 + 2 * step, step * 8192, 4096);
            read(2 + 2 * step, HALF + step * 8192, 4096);
        }
        // What lies in both is the first one's: a real disk is given two.
        read(99, HALF - 4096, 8192);
        read(100, HALF + STEPS * 8192, 4096);
        let report = it.report();
        for (request, before, seek) in [(39, 37, 4096), (40, 38, 4096), (100, 40, 4096)] {
            let told = it.observer.explain(request).expect("kept");
            assert_eq!(told.blocks.len(), 1, "{told:#?}");
            let block = &told.blocks[0];
            assert_eq!(block.seek_bytes, Some(seek), "{flavour:?}: {told:#?}");
            assert_eq!(block.previous_owner, format!("request {before}"));
        }
        report
    });
    let [moves] = &report.block.moves[..] else {
        panic!("only requests moved it: {:?}", report.block.moves);
    };
    let far = HALF - 4096 - ((STEPS - 1) * 8192 + 4096);
    assert_eq!(moves.requests, 2 * STEPS, "the first of each has none");
    assert_eq!(moves.travel_bytes, (2 * STEPS - 1) * 4096 + far);
}

#[test]
fn access_ranges_of_a_disk_are_told_apart() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        access_ranges_are_told_apart(flavour);
    }
}
