//! An independent program counts the same block requests and bytes.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{LoopDevice, Watched, forced, mount_tracefs, ready, until_complete};
use lumpscope_needs::{Need, available};
use lumpscope_observer::{Flavour, Op, Purpose, StoreReport};

const MIB: u64 = 1 << 20;

/// Sum of a map's values of one disk in bpftrace's output, by operation or of all.
fn sum(output: &str, map: &str, disk: (u32, u32), operation: Option<&str>) -> u64 {
    let head = format!("{map}[{}, {}, ", disk.0, disk.1);
    let lines = output.lines();
    let values = lines.filter_map(|line| line.strip_prefix(&head)?.split_once("]: "));
    let values = values.filter(|(op, _)| operation.is_none_or(|wanted| wanted == *op));
    let number = |(_, value): (&str, &str)| value.trim().parse::<u64>().expect("a number");
    values.map(number).sum()
}

fn owners(report: &StoreReport, operation: &str) -> (u64, u64) {
    let owners = report.block.owners.iter();
    let of = owners.filter(|o| o.operation == operation);
    of.fold((0, 0), |sum, o| (sum.0 + o.requests, sum.1 + o.bytes))
}

#[test]
fn bpftrace_counts_the_same() {
    let Some(_one) = ready() else { return };
    if !available(&[Need::Tool("bpftrace")]) {
        return;
    }
    mount_tracefs();
    // The kernel does not run a program for every event on a busy machine: our audit says so of
    // ours, and of bpftrace's only that it was shown less than the kernel counted tells it.
    let shown_less = |both: &Both| both.sum("@requests", None) < both.report.audit.seen_requests;
    for attempt in 1..=ATTEMPTS {
        let mut both = None;
        until_complete(|| both.insert(count_with_both()).report.clone());
        let both = both.expect("it ran");
        if !shown_less(&both) {
            return both.are_the_same();
        }
        eprintln!("attempt {attempt}: not shown all: {}", both.counted);
    }
    panic!("bpftrace was not shown all in {ATTEMPTS} runs");
}

/// How often the whole is done again when bpftrace was not shown everything.
const ATTEMPTS: usize = 5;

/// Counts of one run.
struct Both {
    /// By us; complete.
    report: StoreReport,
    /// By bpftrace, as it prints it.
    counted: String,
    disk: (u32, u32),
}

impl Both {
    /// Of bpftrace.
    fn sum(&self, map: &str, operation: Option<&str>) -> u64 {
        sum(&self.counted, map, self.disk, operation)
    }

    fn are_the_same(&self) {
        let (report, counted) = (&self.report, &self.counted);
        let audit = &report.audit;
        let sums = |op| (self.sum("@requests", op), self.sum("@bytes", op));
        let seen = (audit.seen_requests, audit.seen_bytes);
        assert_eq!(sums(None), seen, "{counted}");
        for operation in ["read", "write", "flush"] {
            let (found, own) = (sums(Some(operation)), owners(report, operation));
            assert_eq!(found, own, "{operation}: {counted}");
        }
        if let Some(dir) = std::env::var_os("LUMPSCOPE_RECORD") {
            std::fs::write(Path::new(&dir).join("block-count.txt"), counted).expect("a copy");
        }
    }
}

/// A child that does not outlive the test, also when it panics.
struct ChildGuard(Child);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn count_with_both() -> Both {
    // No work in the background: what the file system writes of itself while bpftrace starts would be
    // seen by us alone.
    let settled = "lazy_itable_init=0,lazy_journal_init=0";
    let mounted = LoopDevice::mounted(512 * MIB, "mkfs.ext4", &["-q", "-F", "-E", settled]);
    let path = mounted.zeroed("store.lusf", 32 << 20);
    rustix::fs::syncfs(std::fs::File::open(&path).expect("the store")).expect("all is written");
    // bpftrace is a classic program: with a classic flavour both would skip for each other.
    let it = Watched::new(&path, forced(Flavour::TpBtf));
    let status = it.observer.store_status("it").expect("it");
    let disk = status.devno.expect("a disk");

    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bpftrace/block-count.bt");
    let counter = Command::new("bpftrace")
        .arg(script)
        .args([disk.0.to_string(), disk.1.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bpftrace");
    let mut counter = ChildGuard(counter);
    let mut output = BufReader::new(counter.0.stdout.take().expect("its output"));
    let mut line = String::new();
    while line.trim() != "ready" {
        line.clear();
        let read = output.read_line(&mut line).expect("a line");
        assert!(read > 0, "bpftrace ended early");
    }
    for id in 1..=30_u64 {
        it.write(id, id % 16 * 2 * MIB, 1 << 20);
        it.io(&[id], Purpose::Flush, Op::Flush, 0, 0);
        it.io(&[id], Purpose::Data, Op::Read, id % 16 * 2 * MIB, 64 << 10);
    }
    let report = it.report();
    let pid = rustix::process::Pid::from_child(&counter.0);
    // It is ready before it hears signals, and one that came too early may be lost.
    for _ in 0..20 {
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("bpftrace runs");
        std::thread::sleep(std::time::Duration::from_secs(1));
        if counter.0.try_wait().expect("its end").is_some() {
            break;
        }
    }
    let mut counted = String::new();
    output.read_to_string(&mut counted).expect("its counts");
    counter.0.wait().expect("its end");

    Both {
        report,
        counted,
        disk,
    }
}
