//! The recorder of block requests on a real loop disk: it must count what the kernel counts, and
//! what bpftrace counts.
//!
//! Needs root; the comparison with bpftrace needs bpftrace. Without, the tests say so and pass,
//! unless `CI=true`: then they fail.
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lumpscope_engine::buffer::BufferPool;
use lumpscope_lab::blocks::{Recorded, Recorder, TraceCounts};
use lumpscope_lab::disks::{Lab, LabOptions, StoreKind};
use lumpscope_lab::load::runner::{RunOptions, S3Bucket, Target, run};
use lumpscope_lab::tracer::Tracer;
use lumpscope_lab::workload::Workload;
use lumpscope_needs::{Need, alone, find_tool, skipped};
use lumpscope_platter::loops::LoopDevice;
use lumpscope_platter::trace::Op;
use rustix::fs::{OFlags, major, minor};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::watched;

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

struct ObservedWork {
    recorded: Recorded,
    kernel: [u64; 5],
    bpftrace: Option<(u64, u64)>,
}

fn recorded(device: &LoopDevice, script: Option<&Path>) -> ObservedWork {
    let devno = device.devno();
    let tracer = script.map(|script| Tracer::start(script, major(devno), minor(devno)).unwrap());
    let before = kernel_counts(device.path());
    let recorder = Recorder::start(&[device.path()]).unwrap();
    work(device.path());
    let recorded = recorder.finish().remove(0);
    let after = kernel_counts(device.path());
    ObservedWork {
        recorded,
        kernel: std::array::from_fn(|i| after[i] - before[i]),
        bpftrace: tracer.map(|tracer| tracer.finish().unwrap().all()),
    }
}

/// On a busy machine the kernel now and then skips a program; the recorder says so.
fn complete_run(device: &LoopDevice, script: Option<&Path>) -> ObservedWork {
    for _ in 0..ATTEMPTS {
        let seen = recorded(device, script);
        if seen.recorded.trust().complete {
            return seen;
        }
        eprintln!("again: {}", seen.recorded.audit.finding);
    }
    panic!("never complete in {ATTEMPTS} runs");
}

#[test]
fn the_recorder_counts_what_the_kernel_counts() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let device = LoopDevice::create(Path::new("/var/tmp"), "blocks", DISK_BYTES).unwrap();
    let seen = complete_run(&device, None);
    let counted = TraceCounts::of(&seen.recorded.trace);
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
    let Some(_alone) = alone(&[Need::LoopDevices, Need::Tool("bpftrace")]) else {
        return;
    };
    let script =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ebpf/bpftrace/block-count.bt");
    let device = LoopDevice::create(Path::new("/var/tmp"), "blocks", DISK_BYTES).unwrap();
    for attempt in 1..=ATTEMPTS {
        let seen = complete_run(&device, Some(&script));
        let counted = TraceCounts::of(&seen.recorded.trace);
        // bpftrace also counts the two empty writes that asked for the flushes.
        let (reads, writes) = (counted.own_reads, counted.own_writes);
        let data = reads.requests + writes.requests + counted.other_requests();
        let requests = data + 2 * counted.flushes;
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

/// Python's SQLite: a transaction each, whose rollback journal comes and goes.
const PROGRAM: &str = "import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('create table t (n integer, b blob)')
for n in range(40):
    db.execute('insert into t values (?, zeroblob(3000))', (n,))
    db.commit()
";

/// What `lumpscope watch` says of a command on a folder, and what bpftrace counted beside it.
fn watched(folder: &Path, command: &[&OsStr]) -> (Value, lumpscope_lab::tracer::OperationCounts) {
    let script =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../ebpf/bpftrace/block-count.bt");
    let devno = fs::metadata(folder).unwrap().dev();
    // Nothing is left to be written or read when the two begin to look.
    let listed = Command::new("find").arg(folder).output().unwrap();
    assert!(listed.status.success());
    rustix::fs::syncfs(File::open(folder).unwrap()).unwrap();
    let tracer = Tracer::start(&script, major(devno), minor(devno)).unwrap();
    let report = watched::report(folder, command);
    (report, tracer.finish().unwrap())
}

/// The first of several runs of which watch says that it is complete, and bpftrace has counted as
/// much: the file system may write between the begin of the one and of the other.
fn counted_alike(
    runs: impl FnMut(usize) -> (Value, lumpscope_lab::tracer::OperationCounts),
) -> Value {
    let mut seen = Vec::new();
    for (report, counted) in (0..ATTEMPTS).map(runs) {
        let reads = (sum(&report, "reads"), sum(&report, "read_bytes"));
        let writes = (sum(&report, "writes"), sum(&report, "written_bytes"));
        let here = [reads, writes, (sum(&report, "flushes"), 0)];
        let flushes = (counted.of("flush").0, 0);
        let there = [counted.of("read"), counted.of("write"), flushes];
        let complete = report["disks"][0]["trust"]["complete"] == true;
        if complete && here == there {
            return report;
        }
        seen.push((complete, here, there));
    }
    panic!("never complete and counted alike: {seen:?}")
}

fn rows(report: &Value) -> &Vec<Value> {
    report["disks"][0]["rows"].as_array().unwrap()
}

fn sum(report: &Value, what: &str) -> u64 {
    rows(report)
        .iter()
        .map(|row| row[what].as_u64().unwrap())
        .sum()
}

fn writes_of(report: &Value, kind: &str) -> u64 {
    let row = rows(report).iter().find(|row| row["name"] == kind);
    row.map_or(0, |row| row["writes"].as_u64().unwrap())
}

#[test]
fn what_a_program_makes_its_disk_do_is_what_bpftrace_counts() {
    let needs = [
        Need::LoopDevices,
        Need::Tool("bpftrace"),
        Need::Tool("python3"),
        Need::Tool("mkfs.ext4"),
        Need::Tool("mkfs.xfs"),
    ];
    let Some(_alone) = alone(&needs) else {
        return;
    };
    let lab = Lab::create(&LabOptions {
        dir: Some(PathBuf::from("/var/tmp")),
        ..LabOptions::new(320 << 20)
    })
    .unwrap();
    lab.enter_current_thread().unwrap();
    for kind in [StoreKind::Ext4, StoreKind::Xfs] {
        let folder = lab.store(kind).unwrap().store_path.parent().unwrap();
        let report = counted_alike(|attempt| {
            let database = folder.join(format!("{attempt}.db"));
            let program = ["python3", "-c", PROGRAM].map(OsStr::new);
            watched(folder, &[&program[..], &[database.as_os_str()]].concat())
        });
        let writes_of = |kind| writes_of(&report, kind);
        // Each transaction writes the database and its rollback journal, which is gone at once, and
        // makes the file system write its own.
        assert!(writes_of("files") >= 40, "{report:#}");
        assert!(
            writes_of("files") + writes_of("files that are gone") >= 80,
            "{report:#}"
        );
        assert!(
            writes_of("fs-journal") >= 40 && sum(&report, "flushes") >= 40,
            "{report:#}"
        );
        let disk = &report["disks"][0];
        let file = &disk["files"][0];
        assert!(file["name"].as_str().unwrap().contains(".db"), "{report:#}");
        assert!(disk["modelled_ns"].as_u64() > disk["transfer_ns"].as_u64());
    }
}

/// Starts MinIO, on behalf of who watches: its number goes to the first file, its words to the second.
const MINIO: &str = "echo $$ >$1 && exec $2 server --quiet --address $3 $4 >$1.log 2>&1";
const OBJECTS: u64 = 20;

/// Puts objects of 1 MiB as soon as MinIO serves, and ends it, whatever came of them.
fn put_objects(bucket: S3Bucket, number: &Path) -> Result<(), String> {
    let patience = Instant::now() + Duration::from_secs(60);
    let mut made = bucket.create();
    while made.is_err() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(50));
        made = bucket.create();
    }
    let text = format!("Command {{ {OBJECTS}.times {{ New(1M); }}; }}");
    let stream = Workload::parse(&text).unwrap().generate().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let target = Target::S3(bucket);
    let options = RunOptions::default();
    let put = made.and_then(|()| {
        let put = runtime.block_on(run(&stream, &target, &options));
        put.map(drop).map_err(|error| error.to_string())
    });
    let text = fs::read_to_string(number).map_err(|error| error.to_string())?;
    let number = text.trim().parse().ok().and_then(Pid::from_raw);
    kill_process(number.ok_or("no process")?, Signal::TERM).map_err(|error| error.to_string())?;
    put
}

#[test]
fn what_minio_makes_its_disk_do_is_what_bpftrace_counts() {
    let needs = [
        Need::LoopDevices,
        Need::Tool("bpftrace"),
        Need::Tool("mkfs.xfs"),
    ];
    let Some(minio) = find_tool("minio") else {
        return skipped("there is no minio; it takes long to build: ./dev bench peers");
    };
    let Some(_alone) = alone(&needs) else {
        return;
    };
    let lab = Lab::create(&LabOptions {
        dir: Some(PathBuf::from("/var/tmp")),
        kinds: vec![StoreKind::Xfs],
        // MinIO uses no disk of less than 900 MiB.
        ..LabOptions::new(2 << 30)
    })
    .unwrap();
    lab.enter_current_thread().unwrap();
    let folder = lab.store(StoreKind::Xfs).unwrap().store_path.parent();
    let folder = folder.unwrap();
    let beside = tempfile::tempdir().unwrap();
    let report = counted_alike(|attempt| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let keys = [
            "MINIO_ROOT_USER=somebody",
            "MINIO_ROOT_PASSWORD=a-secret-of-one-run",
        ];
        let word = |assigned: &'static str| assigned.split('=').nth(1).unwrap();
        let endpoint = format!("http://{address}");
        let bucket = S3Bucket::new(&endpoint, "lumps", word(keys[0]), word(keys[1])).unwrap();
        let data = folder.join(format!("data{attempt}"));
        fs::create_dir(&data).unwrap();
        let number = beside.path().join(format!("number{attempt}"));
        let home = format!("HOME={}", beside.path().display());
        let mut command: Vec<&OsStr> = ["env", keys[0], keys[1], &home].map(OsStr::new).to_vec();
        command.extend(["sh", "-c", MINIO, "sh"].map(OsStr::new));
        let address = OsStr::new(&address);
        command.extend([
            number.as_os_str(),
            minio.as_os_str(),
            address,
            data.as_os_str(),
        ]);
        std::thread::scope(|scope| {
            let putting = scope.spawn(|| put_objects(bucket, &number));
            let seen = watched(folder, &command);
            putting.join().unwrap().unwrap();
            seen
        })
    });
    assert!(sum(&report, "written_bytes") >= OBJECTS << 20, "{report:#}");
    // It syncs each object and its record.
    assert!(writes_of(&report, "files") >= 2 * OBJECTS, "{report:#}");
    assert!(writes_of(&report, "fs-journal") >= OBJECTS, "{report:#}");
    assert!(sum(&report, "flushes") >= OBJECTS, "{report:#}");
}
