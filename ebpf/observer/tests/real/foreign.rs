//! Other processes on the store's own sectors, their flushes, and their names.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lumpscope_observer::{Flavour, Op, Purpose, StoreReport, Tuning};

use lumpscope_needs::{Need, available};

use crate::submissions::io_in_ring;
use crate::support::{
    LoopDevice, STORE, Watched, forced, mount_tracefs, owned, ready, sh, until_complete,
};

const MIB: u64 = 1 << 20;
/// Few enough that all are kept and can be explained.
const REQUESTS: u64 = 24;

/// Another process that does something again and again, until it is dropped.
struct Stranger(Child);

impl Stranger {
    fn repeats(command: &str) -> Stranger {
        let text = format!("for i in $(seq 20000); do {command} || exit 1; done");
        let mut sh = Command::new("sh");
        sh.args(["-c", &text]).stderr(Stdio::null());
        Stranger(sh.spawn().expect("a shell"))
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ways to ask for I/O: the engine's two, and fio's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Threads,
    Ring,
}

const WAYS: [(By, By); 4] = [
    (By::Threads, By::Threads),
    (By::Threads, By::Ring),
    (By::Ring, By::Threads),
    (By::Ring, By::Ring),
];

/// Waits until strangers have done something.
fn seen(it: &Watched, operation: &str) {
    for _ in 0..1000 {
        let seen = it.observer.glance(STORE).expect("the store");
        if owned(&seen, "other", operation).0 > 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Every request reads or writes the sectors that dd reads or writes all the time.
fn beside_dd(path: &Path, (flavour, op, by): (Flavour, Op, By)) -> StoreReport {
    let it = Watched::new(path, forced(flavour));
    let path = path.to_str().expect("UTF-8");
    let dd = match op {
        Op::Write => format!("if=/dev/zero of={path} oflag=direct conv=notrunc"),
        _ => format!("if={path} of=/dev/null iflag=direct"),
    };
    let stranger = Stranger::repeats(&format!("dd {dd} bs=64k count=128"));
    seen(&it, if op == Op::Write { "write" } else { "read" });
    for request in 1..=REQUESTS {
        let at = request % 8 * MIB;
        it.request(request, "get", MIB, || {
            for _ in 0..4 {
                match by {
                    By::Threads => it.io(&[request], Purpose::Data, op, at, 1 << 20),
                    By::Ring => io_in_ring(&it, request, Purpose::Data, op, (at, 1 << 20)),
                }
            }
        });
    }
    drop(stranger);
    let report = it.report();
    for request in 1..=REQUESTS {
        let told = it.observer.explain(request).expect("kept");
        let (doubted, certain): (Vec<_>, Vec<_>) = told.blocks.iter().partition(|b| b.uncertain);
        assert!(certain.iter().all(|b| b.process != "dd"), "{told:#?}");
        let bytes: u64 = certain.iter().map(|b| b.own_bytes).sum();
        assert!(bytes <= 4 * MIB, "{told:#?}");
        assert!(bytes == 4 * MIB || !told.incomplete.is_empty(), "{told:#?}");
        assert_eq!(doubted.is_empty(), !told.incomplete.contains("not certain"));
    }
    report
}

/// Where each request is known exactly, nothing is left to doubt. Classic programs tell requests
/// apart by their places, and strangers have the same: what may be theirs is counted as ambiguous,
/// and an audit that differs from the kernel's count is incomplete. Nor is all exact where the
/// kernel merged dd's I/O with a request's, or showed a completion to no program, so that the next
/// user of its memory tells of it, perhaps after the report: such a run is repeated.
fn dd_gives_nothing_to_the_requests(path: &Path, cases: &[(Flavour, By)]) {
    for (flavour, by) in cases.iter().copied() {
        for (op, named) in [(Op::Read, "read"), (Op::Write, "write")] {
            let run = || beside_dd(path, (flavour, op, by));
            let exact = flavour != Flavour::Classic;
            let report = if exact {
                let mut runs = (0..10).map(|_| until_complete(run));
                let plain = |r: &StoreReport| r.audit.merged == [0; 3] && r.audit.found_late == 0;
                runs.find(plain)
                    .expect("ten runs, and none without merges and late completions")
            } else {
                run()
            };
            let case = format!("{}, {flavour:?}, {by:?}, {named}", path.display());
            let audit = &report.audit;
            let told = audit.finding.contains("; the owner of ");
            assert_eq!(told, audit.ambiguous > 0, "{case}: {audit:?}");
            let counted = audit.seen_bytes == audit.kernel_bytes;
            let about = !audit.complete || audit.finding.contains("give or take");
            assert!(counted || about, "{case}: {audit:?}");
            if exact {
                assert_eq!(audit.ambiguous, 0, "{case}: {audit:?}");
                assert_eq!(report.block.own_bytes, REQUESTS * 4 * MIB, "{case}");
            }
            assert!(owned(&report, "other", named).0 > 0, "{case}: {audit:?}");
        }
    }
}

#[test]
fn dd_on_the_same_sectors_gives_nothing_to_the_requests() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let device = LoopDevice::new(64 * MIB);
    let cases = [
        (Flavour::TpBtf, By::Threads),
        (Flavour::RawTp, By::Ring),
        (Flavour::Classic, By::Threads),
    ];
    dd_gives_nothing_to_the_requests(&device.path, &cases);
}

#[test]
fn dd_on_the_store_s_own_file_gives_nothing_to_the_requests() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for mkfs in ["mkfs.ext4", "mkfs.xfs"] {
        let mounted = LoopDevice::mounted(512 * MIB, mkfs, &["-q"]);
        let file = mounted.zeroed("store", 8 << 20);
        let cases = [(Flavour::TpBtf, By::Ring), (Flavour::Classic, By::Threads)];
        dd_gives_nothing_to_the_requests(&file, &cases);
    }
}

/// fio, which writes and flushes a MiB behind the places of the requests and does nothing else.
fn flushes_again_and_again(path: &Path, by: By) -> Stranger {
    let engine = match by {
        By::Threads => "psync",
        By::Ring => "io_uring",
    };
    let mut fio = Command::new("fio");
    fio.args(["--name=strangers", "--thread", "--rw=write", "--bs=4k"])
        .args(["--fsync=1", "--time_based", "--runtime=300", "--direct=1"])
        .args(["--offset=1m", "--size=64k", "--allow_file_create=0"])
        .arg(format!("--ioengine={engine}"))
        .arg(format!("--filename={}", path.display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Stranger(fio.spawn().expect("fio"))
}

/// Every request flushes once, beside a process that does nothing else; the flushes that are each
/// one's for certain.
fn flush_beside_others(
    path: &Path,
    strangers: &Path,
    (by, theirs): (By, By),
    flavour: Flavour,
) -> StoreReport {
    let it = Watched::new(path, forced(flavour));
    let _stranger = flushes_again_and_again(strangers, theirs);
    seen(&it, "write");
    for request in 1..=REQUESTS {
        it.request(request, "put", 4096, || {
            it.write(request, request * 8192, 4096);
            match by {
                By::Threads => it.io(&[request], Purpose::Flush, Op::Flush, 0, 0),
                By::Ring => io_in_ring(&it, request, Purpose::Flush, Op::Flush, (0, 0)),
            }
        });
    }
    let report = it.report();
    let shown = format!("; the owner of {} block request", report.audit.ambiguous);
    let said = report.audit.finding.contains(&shown);
    assert_eq!(said, report.audit.ambiguous > 0, "{:?}", report.audit);
    for request in 1..=REQUESTS {
        let told = it.observer.explain(request).expect("kept");
        let flushes = told.blocks.iter().filter(|b| b.operation == "flush");
        let (doubted, certain): (Vec<_>, Vec<_>) = flushes.partition(|b| b.uncertain);
        assert_eq!(doubted.is_empty(), !told.incomplete.contains("not certain"));
        assert!(certain.len() <= 1, "{by:?} beside {theirs:?}: {told:#?}");
        if report.audit.ambiguous == 0 && path == strangers {
            assert_eq!(certain.len(), 1, "{by:?} beside {theirs:?}: {told:#?}");
        }
    }
    report
}

#[test]
fn a_put_on_a_disk_that_others_flush_has_the_flush_it_asked_for() {
    let Some(_one) = ready() else { return };
    if !available(&[Need::Tool("fio")]) {
        return;
    }
    mount_tracefs();
    let exact = WAYS.map(|ways| (ways, Flavour::TpBtf));
    let others = [Flavour::RawTp, Flavour::Classic].map(|flavour| (WAYS[3], flavour));
    for (ways, flavour) in exact.into_iter().chain(others) {
        let device = LoopDevice::new(64 * MIB);
        let report = flush_beside_others(&device.path, &device.path, ways, flavour);
        let exact = flavour != Flavour::Classic;
        let doubted = report.audit.ambiguous;
        assert!(!exact || doubted == 0, "{ways:?}: {:?}", report.audit);
        assert!(owned(&report, "other", "flush").0 > 0, "{:?}", report.block);
    }
}

#[test]
fn a_put_on_a_file_system_that_others_flush_has_at_most_the_flush_it_asked_for() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    if !available(&[Need::Tool("fio")]) {
        return;
    }
    for mkfs in ["mkfs.ext4", "mkfs.xfs"] {
        let mounted = LoopDevice::mounted(512 * MIB, mkfs, &["-q"]);
        let file = mounted.zeroed("store", 8 << 20);
        let other = mounted.zeroed("other", 2 << 20);
        for ways in WAYS {
            flush_beside_others(&file, &other, ways, Flavour::TpBtf);
        }
        flush_beside_others(&file, &other, WAYS[1], Flavour::Classic);
    }
}

fn named(dir: &Path, name: &str) -> PathBuf {
    let to = dir.join(name);
    std::fs::copy(sh("which", &["dd"]), &to).expect("a copy of dd");
    to
}

#[test]
fn a_program_with_the_name_of_a_kernel_thread_is_another_process() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let dir = tempfile::tempdir().expect("a folder");
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        let report = until_complete(|| {
            let device = LoopDevice::new(64 * MIB);
            let it = Watched::new(&device.path, forced(flavour));
            let of = format!("of={}", device.path.display());
            for name in ["ext4magic", "xfsadump", "jbd2evil", "kworker_bk"] {
                let program = named(dir.path(), name);
                let args = ["if=/dev/zero", &of, "bs=4k", "count=8", "oflag=direct"];
                sh(program.to_str().expect("UTF-8"), &args);
            }
            it.report()
        });
        assert_eq!(owned(&report, "other", "write").0, 32, "{:?}", report.block);
        for owner in ["fs-journal", "fs-metadata", "writeback"] {
            assert_eq!(owned(&report, owner, "write").0, 0, "{owner}: {flavour:?}");
        }
    }
}

/// Starts on a busy disk and reports in each: a few, or with `./dev soak starts` 1,000 reports.
fn starts() -> (u64, u64) {
    match std::env::var_os("LUMPSCOPE_SOAK") {
        Some(_) => (20, 50),
        None => (4, 20),
    }
}

/// Starts beside four writers that flush, again and again: no report under load says that it is
/// incomplete, and at rest none does. Under load one may be settling: what it misses then must be
/// found soon.
fn starts_leave_no_doubt(path: &Path, strangers: &str, at: &str) {
    let mut doubts = Vec::new();
    let mut flapped = Vec::new();
    let (starts, reports) = starts();
    for _ in 0..starts {
        let strangers: Vec<Stranger> = (0..4).map(|_| Stranger::repeats(strangers)).collect();
        let it = Watched::new(path, Tuning::default());
        for round in 0..reports {
            it.write(1, round % 100 * 8192, 4096);
            it.io(&[1], Purpose::Flush, Op::Flush, 0, 0);
            let audit = it.observer.glance(STORE).expect("the store").audit;
            flapped.extend((!audit.complete && !audit.settling).then_some(audit.told.finding));
        }
        drop(strangers);
        sh("sync", &["-f", at]);
        let audit = it.report().audit;
        doubts.extend((!audit.complete).then_some(audit.told.finding));
    }
    assert!(doubts.is_empty(), "{at}, of {starts}: {doubts:#?}");
    let all = starts * reports;
    assert!(flapped.is_empty(), "{at}, of {all} reports: {flapped:#?}");
}

#[test]
fn a_start_on_a_busy_file_system_leaves_no_doubt_at_rest() {
    let Some(_one) = ready() else { return };
    for mkfs in ["mkfs.ext4", "mkfs.xfs"] {
        let mounted = LoopDevice::mounted(512 * MIB, mkfs, &["-q"]);
        let file = mounted.zeroed("store", 8 << 20);
        let at = mounted.at.join("other");
        let at = at.to_str().expect("UTF-8");
        let dd = format!("dd if=/dev/zero of={at} bs=4k count=4 oflag=append");
        starts_leave_no_doubt(&file, &format!("{dd} conv=notrunc,fsync"), at);
    }
}

#[test]
fn a_start_on_a_busy_disk_leaves_no_doubt_at_rest() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(64 * MIB);
    let at = device.path.to_str().expect("UTF-8");
    let dd = format!("dd if=/dev/zero of={at} bs=4k seek=4096 count=4");
    starts_leave_no_doubt(&device.path, &format!("{dd} conv=notrunc,fsync"), at);
}

/// A cgroup of its own, in the hierarchy of version 2, which is mounted where it is not.
struct Cgroup {
    dir: PathBuf,
    mount: Option<tempfile::TempDir>,
}

impl Cgroup {
    fn new(name: &str) -> Cgroup {
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let line = mounts.lines().find(|line| line.contains(" - cgroup2 "));
        let at = line.and_then(|line| line.split(' ').nth(4));
        let mount = at.is_none().then(|| {
            let at = tempfile::tempdir().expect("a folder");
            let path = at.path().to_str().expect("UTF-8");
            sh("mount", &["-t", "cgroup2", "cgroup2", path]);
            at
        });
        let root = mount.as_ref().map_or_else(
            || PathBuf::from(at.unwrap_or("/")),
            |at| at.path().to_owned(),
        );
        let dir = root.join(name);
        std::fs::create_dir(&dir).expect("a cgroup");
        Cgroup { dir, mount }
    }

    /// Has a process of the cgroup run a command.
    fn run(&self, command: &str) {
        let procs = self.dir.join("cgroup.procs");
        let text = format!("echo $$ > {} && exec {command}", procs.display());
        sh("sh", &["-c", &text]);
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The process that was in it may be gone for a moment only.
        for _ in 0..100 {
            if std::fs::remove_dir(&self.dir).is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        if let Some(at) = &self.mount {
            let _ = Command::new("umount").arg(at.path()).status();
        }
    }
}

/// Reads a disk through the page cache, from a cgroup.
fn read_in(cgroup: &Cgroup, flavour: Flavour) -> StoreReport {
    let device = LoopDevice::new(4 * MIB);
    let it = Watched::new(&device.path, forced(flavour));
    cgroup.run(&format!("cat {} > /dev/null", device.path.display()));
    it.report()
}

#[test]
fn a_process_is_known_by_its_cgroup() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let name = format!("lumpscope-test-{}", std::process::id());
    let cgroup = Cgroup::new(&name);
    let inode = std::fs::metadata(&cgroup.dir).expect("there").ino();
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        let report = until_complete(|| read_in(&cgroup, flavour));
        let processes = &report.block.processes;
        let mut found = processes.iter().filter(|one| one.cgroup_id == inode);
        let Some(cat) = found.next() else {
            panic!("{flavour:?}: {processes:#?}")
        };
        assert_eq!(found.next(), None, "{flavour:?}");
        assert_eq!(cat.cgroup, format!("/{name}"), "{flavour:?}");
        assert_eq!(cat.process, "cat", "{flavour:?}");
        assert!(cat.read_bytes >= MIB && cat.written_bytes == 0, "{cat:?}");
        // What is told by process is what is told by owner.
        let by_process: u64 = processes.iter().map(|one| one.requests).sum();
        let by_owner: u64 = report.block.owners.iter().map(|one| one.requests).sum();
        assert_eq!(by_process, by_owner, "{:#?}", report.block);
    }
}

/// Has the cgroups below the root account for memory and I/O, until it is dropped. `None`: this machine
/// has one of the two controllers in version 1, or not at all.
struct Accounts {
    at: PathBuf,
    added: Vec<&'static str>,
}

impl Accounts {
    fn of(cgroup: &Cgroup) -> Option<Accounts> {
        let root = cgroup.dir.parent().expect("the root");
        let has = |file: &str, controller: &str| {
            let all = std::fs::read_to_string(root.join(file)).unwrap_or_default();
            all.split_whitespace().any(|one| one == controller)
        };
        let mut accounts = Accounts {
            at: root.join("cgroup.subtree_control"),
            added: Vec::new(),
        };
        for controller in ["memory", "io"] {
            if has("cgroup.subtree_control", controller) {
                continue;
            }
            let there = has("cgroup.controllers", controller);
            if !there || std::fs::write(&accounts.at, format!("+{controller}")).is_err() {
                return None;
            }
            accounts.added.push(controller);
        }
        Some(accounts)
    }
}

impl Drop for Accounts {
    fn drop(&mut self) {
        for controller in &self.added {
            let _ = std::fs::write(&self.at, format!("-{controller}"));
        }
    }
}

/// A process of the cgroup writes 4 MiB to memory, and others have them written to the disk.
fn written_back(cgroup: &Cgroup, flavour: Flavour, mkfs: &str) -> StoreReport {
    let mounted = LoopDevice::mounted(512 * MIB, mkfs, &["-q"]);
    let it = Watched::new(&mounted.zeroed("store", 1 << 20), forced(flavour));
    let pages = mounted.at.join("pages");
    let pages = pages.display();
    cgroup.run(&format!("dd if=/dev/zero of={pages} bs=1M count=4"));
    let at = std::fs::File::open(&mounted.at).expect("there");
    rustix::fs::syncfs(at).expect("a disk");
    it.report()
}

#[test]
fn pages_that_are_written_back_are_of_the_cgroup_that_wrote_them() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let cgroup = Cgroup::new(&format!("lumpscope-pages-{}", std::process::id()));
    let inode = std::fs::metadata(&cgroup.dir).expect("there").ino();
    let accounts = Accounts::of(&cgroup);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    let is_free = cgroup.mount.is_some() && !mounts.contains(" - cgroup ");
    // Nobody else has the controllers then.
    assert!(accounts.is_some() || !is_free);
    for (flavour, mkfs) in [
        (Flavour::TpBtf, "mkfs.ext4"),
        (Flavour::RawTp, "mkfs.xfs"),
        (Flavour::Classic, "mkfs.ext4"),
    ] {
        let report = until_complete(|| written_back(&cgroup, flavour, mkfs));
        let processes = &report.block.processes;
        let bytes = |are_its: bool| -> u64 {
            let found = processes.iter().filter(|one| {
                one.process.starts_with("kworker") && (one.cgroup_id == inode) == are_its
            });
            found.map(|one| one.written_bytes).sum()
        };
        // The classic records do not name the bio.
        let told = accounts.is_some() && flavour != Flavour::Classic;
        let is_right = bytes(told) >= 4 * MIB && (told || bytes(true) == 0);
        assert!(is_right, "{flavour:?}: {processes:#?}");
    }
}
