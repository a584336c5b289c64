//! Every clause of `explain` under load, held to the kernel's own tracer and to the times that the
//! askers took.
//!
//! A new clause is added to [`clauses`] and [`truth`], or the test says that nobody checks it.

mod clauses;
mod ftrace;
mod truth;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lumpscope_needs::{Need, available, skipped};
use lumpscope_observer::{EndedRequest, Op, Purpose, SlowRequest, TraceContext, Tuning};

use crate::bios::Mapped;
use crate::submissions::io_in_ring;
use crate::support::{LoopDevice, Mounted, Watched, mount_tracefs, now, ready, sh};
use ftrace::{Ftrace, FtraceRequest};
use truth::Truth;

const MIB: u64 = 1 << 20;
const THREADS: u64 = 4;
const ROUNDS: u64 = 25;
/// Bytes of the store: a MiB for each request, and journal records behind them.
const STORE: u64 = 112 * MIB;
/// How often a run is done again in which something went unseen, which the audit said.
const ATTEMPTS: usize = 5;

/// Where a store lies.
enum StoreTarget {
    Raw(LoopDevice),
    File(Mounted),
    /// A disk that is given bios and makes no requests.
    Bios(Mapped),
}

impl StoreTarget {
    fn new(kind: &str) -> StoreTarget {
        match kind {
            "raw" => StoreTarget::Raw(LoopDevice::new(256 * MIB)),
            "mapped" => StoreTarget::Bios(Mapped::new(256 * MIB).expect("a mapped disk")),
            "ext4" => StoreTarget::File(LoopDevice::mounted(
                384 * MIB,
                "mkfs.ext4",
                &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
            )),
            _ => StoreTarget::File(LoopDevice::mounted(384 * MIB, "mkfs.xfs", &["-q", "-f"])),
        }
    }

    /// The store's path.
    fn store(&self) -> PathBuf {
        match self {
            StoreTarget::Raw(device) => device.path.clone(),
            StoreTarget::Bios(mapped) => mapped.path(),
            StoreTarget::File(mounted) => {
                let path = mounted.zeroed("store.lusf", usize::try_from(STORE).expect("fits"));
                std::fs::File::create(mounted.at.join("other")).expect("a file");
                let file = std::fs::File::open(&path).expect("the store");
                rustix::fs::syncfs(file).expect("all is written");
                path
            }
        }
    }

    /// Another process that writes to the same disk.
    fn disturbed(&self) -> Disturber {
        let (to, seek) = match self {
            StoreTarget::File(mounted) => (mounted.at.join("other"), 0),
            _ => (self.store(), STORE / MIB * 4),
        };
        let to = format!("of={}", to.display());
        let child = Command::new("dd")
            .args(["if=/dev/zero", &to, "bs=256K", "count=200", "oflag=direct"])
            .args(["conv=notrunc", &format!("seek={seek}")])
            .stderr(Stdio::null())
            .spawn();
        Disturber(child.expect("dd runs"))
    }

    /// First byte, sector, and bytes of each extent of the store.
    fn extents(&self, store: &Path) -> Vec<(u64, u64, u64)> {
        if !matches!(self, StoreTarget::File(_)) {
            return vec![(0, 0, STORE)];
        }
        let listed = sh("filefrag", &["-b512", "-v", store.to_str().expect("UTF-8")]);
        let extent = |line: &str| {
            let mut parts = line.split(':');
            parts.next()?.trim().parse::<u64>().ok()?;
            let first = |text: &str| text.split("..").next()?.trim().parse::<u64>().ok();
            let (logical, physical) = (first(parts.next()?)?, first(parts.next()?)?);
            let sectors: u64 = parts.next()?.trim().parse().ok()?;
            Some((logical * 512, physical, sectors * 512))
        };
        listed.lines().filter_map(extent).collect()
    }
}

/// Ended at the latest when dropped.
struct Disturber(Child);

impl Drop for Disturber {
    fn drop(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Does a declared I/O of a request: purpose, operation, place.
type Io<'a> = dyn Fn(u64, Purpose, Op, (u64, usize)) + Sync + 'a;

/// One request, with all stages that it can have.
fn request(it: &Watched, io: &Io<'_>, number: u64) {
    let id = 1 + number;
    let kind = number % 4;
    let (op, method) = if kind == 2 {
        (Op::Read, "get")
    } else {
        (Op::Write, "put")
    };
    let length = [4096, 64 << 10, 256 << 10][usize::try_from(number % 3).expect("small")];
    let pieces = 1 + number / 3 % 3;
    let begin_ns = now();
    let piece = |n: u64| {
        let place = number * MIB + n * 320 * 1024;
        io(id, Purpose::Data, op, (place, length))
    };
    if kind == 0 {
        (1..pieces).for_each(piece);
    }
    let received_ns = now();
    if kind != 0 {
        (1..pieces).for_each(piece);
    }
    piece(0);
    if kind == 3 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let data_ended_ns = now();
    if kind < 2 {
        let record = (100 * MIB + number * 8192, 4096);
        io(id, Purpose::Journal, Op::Write, record);
    }
    let written_ns = now();
    if kind < 2 {
        io(id, Purpose::Flush, Op::Flush, (0, 0));
    }
    if kind == 1 {
        std::thread::sleep(Duration::from_millis(2));
    }
    let flushed_ns = now();
    if kind == 2 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let end_ns = now();
    let receiving_ns = received_ns - begin_ns;
    let data_ns = data_ended_ns - received_ns;
    let replying_ns = end_ns - flushed_ns;
    it.observer.request_done(EndedRequest {
        request: id,
        store: it.index,
        method: method.into(),
        bytes: pieces * length as u64,
        begin_ns,
        end_ns,
        ok: true,
        stages_ns: [receiving_ns, 0, 0, data_ns, 0, replying_ns],
        commit_ns: [0, written_ns - data_ended_ns, flushed_ns - written_ns],
        trace: Some(TraceContext {
            trace_id: u128::from(id),
            span_id: id,
            parent_span_id: 0,
        }),
        ..EndedRequest::default()
    });
}

/// What one run left.
struct RunTrace {
    told: Vec<SlowRequest>,
    traced: Vec<FtraceRequest>,
    recorded: String,
    extents: Vec<(u64, u64, u64)>,
    /// Block requests of which nobody knows how long the disk worked on them: all others of that time say so.
    found_late: u64,
}

/// `Err`: not all was seen, by whom.
fn run(target: &StoreTarget, in_ring: bool) -> Result<RunTrace, String> {
    let store = target.store();
    let dir = tempfile::tempdir().expect("a folder");
    let record = dir.path().join("inputs.jsonl");
    let tuning = Tuning {
        record: Some(record.clone()),
        ..Tuning::default()
    };
    let it = Watched::new(&store, tuning);
    let status = it.observer.store_status("it").expect("the store");
    let tracer = Ftrace::start(status.devno.expect("a disk")).ok_or("no tracepoints")?;
    let disturber = target.disturbed();
    let by_thread = |id: u64, purpose, op, (offset, len): (u64, usize)| {
        it.io(&[id], purpose, op, offset, len);
    };
    let by_ring = |id, purpose, op, at| io_in_ring(&it, id, purpose, op, at);
    let io: &Io<'_> = if in_ring { &by_ring } else { &by_thread };
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let it = &it;
            scope.spawn(move || {
                (0..ROUNDS).for_each(|round| request(it, io, thread * ROUNDS + round));
            });
        }
    });
    drop(disturber);
    let report = it.report();
    let explained = |id| it.observer.explain(id);
    let told: Vec<SlowRequest> = (1..=THREADS * ROUNDS).filter_map(explained).collect();
    let traced = tracer.finish();
    it.observer.shutdown();
    if !report.audit.complete {
        return Err(report.audit.told.finding);
    }
    Ok(RunTrace {
        told,
        traced,
        recorded: std::fs::read_to_string(&record).expect("a recording"),
        extents: target.extents(&store),
        found_late: report.audit.found_late,
    })
}

/// Holds all clauses of a run; how many there were, and those of them that are wrong.
fn check(run: &RunTrace) -> Result<(usize, Vec<String>), String> {
    let truth = Truth::new(&run.recorded, &run.traced, &run.extents)?;
    let (mut held, mut wrong) = (0, Vec::new());
    for told in run.told.iter().filter(|told| told.incomplete.is_empty()) {
        let of = truth.of(told.request_id);
        let mut clauses = clauses::clauses(&told.sentence);
        if let Err(unknown) = &clauses {
            wrong.push(format!("nobody checks {unknown:?}: {}", told.sentence));
            clauses = Ok(Vec::new());
        }
        for clause in clauses.unwrap_or_default() {
            held += 1;
            if let Err(why) = of.holds(&clause) {
                wrong.push(format!("{clause:?}: {why}: {}", told.sentence));
            }
        }
        for step in &told.steps {
            let Some((block, times)) = step.text.split_once(": queued ") else {
                continue;
            };
            held += 1;
            if let Err(why) = of.holds_step(block, &format!("queued {times}")) {
                wrong.push(format!("{}: {why}", step.text));
            }
        }
    }
    Ok((held, wrong))
}

fn held_to_ftrace(kind: &str) {
    let Some(_one) = ready() else { return };
    if !available(&[Need::Tool("dd"), Need::Tool("filefrag")]) {
        return;
    }
    mount_tracefs();
    for in_ring in [false, true] {
        let attempt = |_| {
            let target = StoreTarget::new(kind);
            let run = run(&target, in_ring)
                .inspect_err(|why| eprintln!("again: {why}"))
                .ok()?;
            let checked = check(&run)
                .inspect_err(|why| eprintln!("again: {why}"))
                .ok()?;
            let mut doubts = BTreeMap::<String, usize>::new();
            for told in &run.told {
                *doubts.entry(told.incomplete.clone()).or_default() += 1;
            }
            let sure = doubts.remove("").unwrap_or(0);
            Some((checked, sure, run, doubts))
        };
        let found = (0..ATTEMPTS).find_map(attempt);
        let ((held, wrong), sure, run, doubts) = found.expect("one run in which all was seen");
        eprintln!(
            "{kind}, ring {in_ring}: {held} clauses of {sure} requests, {} wrong",
            wrong.len()
        );
        let told = run.told.len();
        assert_eq!(told as u64, THREADS * ROUNDS);
        assert!(
            sure * 2 > told || run.found_late > 0,
            "{sure} of {told} have no doubt: {doubts:#?}"
        );
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }
}

#[test]
fn every_clause_is_true_on_a_raw_disk() {
    held_to_ftrace("raw");
}

#[test]
fn every_clause_is_true_on_ext4() {
    held_to_ftrace("ext4");
}

#[test]
fn every_clause_is_true_on_xfs() {
    held_to_ftrace("xfs");
}

#[test]
fn every_clause_is_true_on_a_mapped_disk() {
    let ready = ready().filter(|_| Mapped::new(MIB).is_none());
    if ready.is_some() {
        return skipped("this kernel has no device mapper");
    }
    held_to_ftrace("mapped");
}
