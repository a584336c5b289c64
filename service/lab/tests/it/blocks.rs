//! The recorder of block requests on a real loop disk: it must count what the kernel counts, and
//! what bpftrace counts.
//!
//! Needs root; the comparison with bpftrace needs bpftrace. Without, the tests say so and pass,
//! unless `CI=true`: then they fail.
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use lumpscope_engine::buffer::BufferPool;
use lumpscope_lab::blocks::{Counted, Recorded, Recorder};
use lumpscope_lab::tracer::Tracer;
use lumpscope_needs::{Need, available};
use lumpscope_platter::loops::LoopDevice;
use lumpscope_platter::trace::Op;
use rustix::fs::{OFlags, major, minor};

const DISK_BYTES: u64 = 64 << 20;
/// How often a run is done again in which the kernel skipped a program.
const ATTEMPTS: usize = 5;

/// Fields of /sys/block/DISK/stat: reads, sectors read, writes, sectors written, flushes.
fn kernel_counts(device: &Path) -> [u64; 5] {
    let name = device.file_name().unwrap().to_str().unwrap();
    let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
    let fields: Vec<u64> = text
        .split_whitespace()
        .map(|field| field.parse().unwrap())
        .collect();
    [0, 2, 4, 6, 15].map(|at| fields.get(at).copied().unwrap_or(0))
}

fn direct(device: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(i32::try_from(OFlags::DIRECT.bits()).unwrap())
        .open(device)
        .unwrap()
}

/// 200 writes of 4 KiB far apart, one of 1 MiB, a rewrite of one sector, 20 reads, two flushes.
fn work(device: &Path) {
    let mut buffer = BufferPool::new(4096).zeroed(1 << 20);
    let file = direct(device);
    for at in 0..200 {
        file.write_all_at(&buffer[..4096], at * 64 * 1024).unwrap();
    }
    file.sync_data().unwrap();
    file.write_all_at(&buffer, 32 << 20).unwrap();
    file.write_all_at(&buffer[..512], (33 << 20) - 512).unwrap();
    for at in 0..20 {
        file.read_exact_at(&mut buffer[..8192], at * 1_000_448)
            .unwrap();
    }
    file.sync_data().unwrap();
}

struct Seen {
    recorded: Recorded,
    kernel: [u64; 5],
    bpftrace: Option<(u64, u64)>,
}

fn run(device: &LoopDevice, script: Option<&Path>) -> Seen {
    let devno = device.devno();
    let tracer = script.map(|script| Tracer::start(script, major(devno), minor(devno)).unwrap());
    let before = kernel_counts(device.path());
    let recorder = Recorder::start(&[device.path()]).unwrap();
    work(device.path());
    let recorded = recorder.finish().remove(0);
    let after = kernel_counts(device.path());
    Seen {
        recorded,
        kernel: std::array::from_fn(|i| after[i] - before[i]),
        bpftrace: tracer.map(|tracer| tracer.finish().unwrap().all()),
    }
}

/// On a busy machine the kernel now and then skips a program; the recorder says so.
fn complete_run(device: &LoopDevice, script: Option<&Path>) -> Seen {
    for _ in 0..ATTEMPTS {
        let seen = run(device, script);
        if seen.recorded.trust().complete {
            return seen;
        }
        eprintln!("again: {}", seen.recorded.audit.finding);
    }
    panic!("never complete in {ATTEMPTS} runs");
}

#[test]
fn the_recorder_counts_what_the_kernel_counts() {
    if !available(&[Need::LoopDevices]) {
        return;
    }
    let _alone = crate::alone();
    let device = LoopDevice::create(Path::new("/var/tmp"), "blocks", DISK_BYTES).unwrap();
    let seen = complete_run(&device, None);
    let counted = Counted::of(&seen.recorded.trace);
    let [reads, read_sectors, writes, written_sectors, flushes] = seen.kernel;
    assert_eq!(
        counted.own_reads.requests + counted.other_reads.requests,
        reads
    );
    assert_eq!(
        counted.own_reads.sectors + counted.other_reads.sectors,
        read_sectors
    );
    // The kernel counts the empty writes that ask for a flush as writes, and what it then sends as
    // flushes.
    let asked = writes - (counted.own_writes.requests + counted.other_writes.requests);
    assert_eq!((asked, flushes), (2, 2));
    assert_eq!(counted.flushes, flushes);
    assert_eq!(
        counted.own_writes.sectors + counted.other_writes.sectors,
        written_sectors
    );
    // And what the program did: nobody else uses the disk.
    assert_eq!(counted.own_writes.sectors, 200 * 8 + 2048 + 1);
    assert_eq!(counted.own_reads.sectors, 20 * 16);
    assert_eq!((counted.overlaps, counted.small), (1, 1));
    assert_eq!(counted.sub_block_rewrites, 1);
    let trace = &seen.recorded.trace.requests;
    assert!(trace.is_sorted_by_key(|request| request.issue_ns));
    for request in trace {
        assert!(request.queue_ns <= request.issue_ns && request.issue_ns <= request.done_ns);
        assert!(request.own || request.op == Op::Flush, "{request:?}");
        assert!(!request.fua);
    }
}

#[test]
fn the_recorder_counts_what_bpftrace_counts() {
    if !available(&[Need::LoopDevices, Need::Tool("bpftrace")]) {
        return;
    }
    let _alone = crate::alone();
    let script =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ebpf/bpftrace/block-count.bt");
    let device = LoopDevice::create(Path::new("/var/tmp"), "blocks", DISK_BYTES).unwrap();
    for attempt in 1..=ATTEMPTS {
        let seen = complete_run(&device, Some(&script));
        let counted = Counted::of(&seen.recorded.trace);
        // bpftrace also counts the two empty writes that asked for the flushes.
        let requests = counted.data_requests() + 2 * counted.flushes;
        let (reads, writes) = (counted.own_reads, counted.own_writes);
        let bytes = 512 * (reads.sectors + writes.sectors);
        let bpftrace = seen.bpftrace.unwrap();
        if bpftrace == (requests, bytes) {
            return;
        }
        eprintln!(
            "run {attempt}: {bpftrace:?} by bpftrace, {:?} here",
            (requests, bytes)
        );
    }
    panic!("the two never agree in {ATTEMPTS} runs");
}
