//! The guard on real devices. What it says of itself is held against what another process can do.
//!
//! Where the kernel cannot guard, that must be said, and only that is tested; the environment
//! variable `LUMPSCOPE_EXPECT_GUARD=yes|no` makes the other outcome a failure.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lumpscope_needs::skipped;
use lumpscope_observer::{
    GuardPolicy, GuardReport, Level, Observer, ObserverOptions, Tuning, WatchedStore,
};

use crate::support::{ready, sh};

const MIB: u64 = 1 << 20;
/// For [`holder`]: the device that it guards until it is killed.
const HOLD: &str = "LUMPSCOPE_TEST_HOLD";

/// A loop device with two partitions (1 MiB to 3 MiB, and 4 MiB to 5 MiB); gone when dropped.
struct LoopDisk {
    path: PathBuf,
    dir: tempfile::TempDir,
}

impl LoopDisk {
    fn new(partitioned: bool) -> LoopDisk {
        let dir = tempfile::Builder::new()
            .prefix("lumpscope-")
            .tempdir_in("/var/tmp");
        let dir = dir.expect("a temporary directory");
        let image = dir.path().join("disk.img");
        let file = File::create(&image).expect("an image");
        file.set_len(8 * MIB).expect("its length");
        let mut table = [0_u8; 512];
        for (at, first, count) in [(446, 2048_u32, 4096_u32), (462, 8192, 2048)] {
            table[at + 4] = 0x83;
            table[at + 8..at + 12].copy_from_slice(&first.to_le_bytes());
            table[at + 12..at + 16].copy_from_slice(&count.to_le_bytes());
        }
        table[510..].copy_from_slice(&[0x55, 0xaa]);
        file.write_all_at(&table, 0).expect("a partition table");
        let image = image.to_str().expect("UTF-8");
        let args: &[&str] = if partitioned { &["-P"] } else { &[] };
        let path = sh("losetup", &[args, &["--show", "-f", image]].concat());
        let disk = LoopDisk {
            path: path.into(),
            dir,
        };
        // Not every kernel reads partition tables.
        if partitioned && !disk.numbers(Some(1)).exists() {
            sh("partx", &["-a", disk.path()]);
        }
        disk
    }

    fn path(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// As sysfs calls it.
    fn name(&self) -> &str {
        let name = self.path.file_name().expect("a name");
        name.to_str().expect("UTF-8")
    }

    fn numbers(&self, partition: Option<u32>) -> PathBuf {
        let name = self.name();
        let inner = partition.map_or_else(String::new, |n| format!("{name}p{n}/"));
        format!("/sys/block/{name}/{inner}dev").into()
    }

    /// A node of our own for the device or one of its partitions (from 1).
    fn node(&self, partition: Option<u32>) -> PathBuf {
        let numbers = std::fs::read_to_string(self.numbers(partition));
        let numbers = numbers.expect("known to sysfs");
        let (major, minor) = numbers.trim().split_once(':').expect("numbers");
        let name = format!("node-{}", partition.unwrap_or(0));
        let at = self.dir.path().join(name);
        if !at.exists() {
            sh("mknod", &[at.to_str().expect("UTF-8"), "b", major, minor]);
        }
        at
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("-d").arg(&self.path).status();
    }
}

fn store(name: &str, path: &Path, guard: GuardPolicy) -> WatchedStore {
    WatchedStore {
        name: name.to_owned(),
        path: path.to_owned(),
        guard,
    }
}

fn observer(stores: Vec<WatchedStore>, enabled: bool) -> Observer {
    Observer::start(ObserverOptions {
        stores,
        enabled,
        tuning: Tuning::default(),
        ..ObserverOptions::default()
    })
}

/// Whether another process can open this for writing (nothing is written).
fn others_can_write(path: &Path) -> bool {
    can("exec 3>>\"$0\"", path)
}

fn others_can_read(path: &Path) -> bool {
    can("head -c 512 \"$0\" | wc -c | grep -q 512", path)
}

fn can(script: &str, path: &Path) -> bool {
    let mut shell = Command::new("sh");
    let ran = shell.arg("-c").arg(script).arg(path);
    let ended = ran.stderr(Stdio::null()).status();
    ended.expect("a shell").success()
}

fn we_can_write(path: &Path) -> bool {
    OpenOptions::new().read(true).write(true).open(path).is_ok()
}

fn until(holds: impl Fn() -> bool, otherwise: &str) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{otherwise}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The report when the guard works here; otherwise it says why not, and the rest is skipped.
fn effective(observer: &Observer, name: &str) -> Option<GuardReport> {
    let report = observer.guard(name).expect("the store");
    let expected = std::env::var("LUMPSCOPE_EXPECT_GUARD").unwrap_or_default();
    assert_eq!(report.effective, report.why_not.is_empty(), "{report:?}");
    if report.effective {
        assert_ne!(expected, "no", "{report:?}");
        return Some(report);
    }
    assert_ne!(expected, "yes", "{report:?}");
    skipped(&report.why_not);
    None
}

#[test]
fn what_it_says_is_what_others_find() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(true);
    let observer = observer(vec![store("a", &disk.path, GuardPolicy::Deny)], true);
    let report = observer.guard("a").expect("the store");
    assert_eq!(report.policy, GuardPolicy::Deny);
    let denied = !others_can_write(&disk.path);
    assert_eq!(denied, report.effective, "{report:?}");
    assert!(others_can_read(&disk.path) && we_can_write(&disk.path));
    // The guard and the probes do not depend on each other.
    let index = observer.add_store(store("b", &disk.path, GuardPolicy::Off));
    assert_eq!(observer.store_status("a"), observer.store_status("b"));
    observer.remove_store(index);
    if effective(&observer, "a").is_none() {
        assert_eq!((report.denied, report.allowed), (0, 0));
    }
    observer.shutdown();
    assert!(others_can_write(&disk.path), "free after the end");
    let after = observer.guard("a").expect("the report stays");
    assert_eq!(after.denied, u64::from(report.effective), "{after:?}");
    assert!(!after.effective && !after.why_not.is_empty());
}

#[test]
fn every_way_to_the_bytes_is_denied_to_others() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(true);
    let ways = [disk.node(None), disk.node(Some(1)), disk.node(Some(2))];
    let observer = observer(vec![store("a", &disk.path, GuardPolicy::Deny)], false);
    let Some(before) = effective(&observer, "a") else {
        return;
    };
    // The trial is not told as an open by others.
    assert_eq!((before.denied, before.allowed), (0, 0), "{before:?}");
    for way in &ways {
        assert!(!others_can_write(way), "{}", way.display());
        let ours = others_can_read(way) && we_can_write(way);
        assert!(ours, "{}", way.display());
    }
    assert!(!others_can_write(&disk.path));
    let report = observer.guard("a").expect("the store");
    assert_eq!((report.denied, report.allowed), (4, 0), "{report:?}");
    let last = report.recent.last().expect("the last one");
    let own = disk.name();
    assert_eq!((last.device.as_str(), last.process.as_str()), (own, "sh"));
    assert!(last.denied && last.uid == 0 && last.pid != std::process::id());
    assert_eq!(report.recent[1].device, format!("{own}p1"));
    observer.remove_store(0);
    assert!(ways.iter().all(|way| others_can_write(way)), "let go");
}

#[test]
fn an_audit_allows_and_counts() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(true);
    let observer = observer(vec![store("a", &disk.path, GuardPolicy::Audit)], false);
    if effective(&observer, "a").is_none() {
        return;
    }
    for _ in 0..40 {
        assert!(others_can_write(&disk.path) && we_can_write(&disk.path));
    }
    let report = observer.guard("a").expect("the store");
    assert_eq!((report.denied, report.allowed), (0, 40), "{report:?}");
    assert_eq!(report.recent.len(), 16, "the list is bounded");
    assert!(report.recent.iter().all(|open| !open.denied));
}

#[test]
fn a_store_on_a_partition_guards_the_disk_and_not_its_neighbour() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(true);
    let (first, second) = (disk.node(Some(1)), disk.node(Some(2)));
    let observer = observer(vec![store("a", &first, GuardPolicy::Deny)], false);
    if effective(&observer, "a").is_none() {
        return;
    }
    assert!(!others_can_write(&first) && !others_can_write(&disk.path));
    assert!(others_can_write(&second));
    // A second store on the neighbour, that only wants to know: the disk stays denied.
    let index = observer.add_store(store("b", &second, GuardPolicy::Audit));
    assert!(observer.guard("b").expect("the store").effective);
    assert!(others_can_write(&second) && !others_can_write(&disk.path));
    let told = |name| observer.guard(name).map(|r| (r.denied, r.allowed));
    assert_eq!((told("a"), told("b")), (Some((3, 0)), Some((1, 1))));
    // When the strict one is gone, the other's policy holds for the disk.
    observer.remove_store(0);
    assert!(others_can_write(&first) && others_can_write(&disk.path));
    assert_eq!(told("b"), Some((1, 2)));
    observer.remove_store(index);
    assert!(others_can_write(&second));
}

#[test]
fn a_partition_made_later_is_guarded_too() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(false);
    let observer = observer(vec![store("a", &disk.path, GuardPolicy::Deny)], false);
    if effective(&observer, "a").is_none() {
        return;
    }
    sh("partx", &["-a", disk.path()]);
    let made = disk.node(Some(1));
    until(|| !others_can_write(&made), "never guarded");
    observer.shutdown();
    assert!(others_can_write(&made));
    sh("partx", &["-d", disk.path()]);
}

/// Not a test of its own: guards a device until it is killed.
#[test]
fn holder() {
    let Some(path) = std::env::var_os(HOLD) else {
        return;
    };
    let observer = observer(vec![store("a", Path::new(&path), GuardPolicy::Deny)], false);
    let report = observer.guard("a").expect("the store");
    println!("\nHOLDING {} {}", report.effective, report.why_not);
    std::thread::sleep(Duration::from_secs(600));
}

/// Another process that guards the device; whether it does, once it says so.
fn hold(path: &Path, capabilities: Option<&str>) -> (Child, bool) {
    let own = std::env::current_exe().expect("this program");
    let mut command = match capabilities {
        Some(bounding) => {
            let mut command = Command::new("setpriv");
            command.args(["--bounding-set", bounding]).arg(own);
            command
        }
        None => Command::new(own),
    };
    command.args(["guard::holder", "--exact", "--nocapture"]);
    let child = command.env(HOLD, path).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("a process");
    let mut said = BufReader::new(child.stdout.take().expect("its output")).lines();
    let line = said.find_map(|line| {
        let line = line.expect("text");
        line.strip_prefix("HOLDING ").map(str::to_owned)
    });
    let line = line.expect("it says how it went");
    (child, line.starts_with("true"))
}

#[test]
fn a_killed_process_leaves_nothing_behind() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(true);
    let (mut child, guards) = hold(&disk.path, None);
    let denied = !others_can_write(&disk.path);
    let ours = we_can_write(&disk.path);
    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    assert_eq!(denied, guards);
    assert_eq!(ours, !guards, "we are no more than others");
    if !guards {
        skipped("the guard does not work on this kernel");
        return;
    }
    // The kernel takes the program away after the last descriptor is gone.
    until(|| others_can_write(&disk.path), "it is still there");
}

#[test]
fn what_a_unit_of_systemd_leaves_is_enough() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(true);
    // No node of its own can be made with these: the trial is on the device itself.
    let few = "-all,+bpf,+perfmon,+dac_override";
    let (mut child, guards) = hold(&disk.path, Some(few));
    let denied = !others_can_write(&disk.path);
    child.kill().expect("SIGKILL");
    child.wait().expect("its end");
    assert_eq!(denied, guards);
    if !guards {
        let expected = std::env::var("LUMPSCOPE_EXPECT_GUARD");
        assert_ne!(expected.as_deref(), Ok("yes"));
        skipped("the guard does not work on this kernel");
    }
}

#[test]
fn a_file_is_not_guarded_and_says_so() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let observer = observer(vec![store("a", file.path(), GuardPolicy::Deny)], false);
    let report = observer.guard("a").expect("the store");
    assert!(!report.effective);
    let why = "not a block device: the file is locked, its disk belongs to the file system";
    assert_eq!(report.why_not, why);
    assert_eq!(observer.guard("b"), None);
    let index = observer.add_store(store("b", file.path(), GuardPolicy::Off));
    assert_eq!(observer.guard("b"), Some(GuardReport::default()));
    observer.remove_store(index);
}

#[test]
fn the_doctor_says_the_same() {
    let Some(_one) = ready() else { return };
    let disk = LoopDisk::new(false);
    let mode = std::fs::metadata(&disk.path).expect("a device").mode();
    assert_eq!(mode & 0o170_000, 0o060_000);
    let findings = Observer::doctor();
    let finding = findings.iter().find(|finding| finding.topic == "guard");
    let finding = finding.expect("a finding on the guard");
    let observer = observer(vec![store("a", &disk.path, GuardPolicy::Deny)], false);
    let works = observer.guard("a").expect("the store").effective;
    let level = if works { Level::Good } else { Level::Degraded };
    assert_eq!(finding.level, level, "{finding:?}");
}
