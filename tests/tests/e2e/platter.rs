//! Emulated disks as users make them: file systems, stores, refusals, and every way to end. None of it depends on how
//! fast the machine is: what is compared is the disk's own virtual time with the model's.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use lumpscope_lab::disks::{Lab, LabDrive, LabOptions, StoreKind};
use lumpscope_platter::disk::Request;
use lumpscope_platter::live::{Attached, LiveOptions, Log};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{LISTEN, Service, binary, format_stores, run, run_ok, words};
use rustix::process::{Pid, Signal};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    Need::Tool("e2fsck"),
    Need::Tool("xfs_repair"),
];
const DRIVE: &str = "st1000dm003";
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// A small disk, five times as fast, that needs little memory.
fn options(bytes: u64, memory: u64) -> LiveOptions {
    LiveOptions {
        bytes: Some(bytes),
        scale: 5,
        memory_bytes: Some(memory),
        ..LiveOptions::new(DRIVE)
    }
}

/// A lab of emulated disks.
fn emulated(options: LiveOptions, kinds: &[StoreKind]) -> Lab {
    let exe = binary().to_owned();
    let lab = LabOptions {
        drive: Some(LabDrive { exe, options }),
        kinds: kinds.to_vec(),
        ..LabOptions::new(0)
    };
    Lab::create(&lab).expect("a lab of emulated disks")
}

/// A disk of the command line, given up however the test ends.
struct Disk {
    path: PathBuf,
}

impl Disk {
    fn attach(more: &[&str]) -> Disk {
        let mut args = vec!["platter", "attach", "--drive", DRIVE, "--scale", "5"];
        args.extend(more);
        let path = PathBuf::from(run_ok(&args).trim());
        Disk { path }
    }

    fn name(&self) -> &str {
        self.path.to_str().expect("names of devices are plain")
    }

    fn listed(&self) -> Option<Value> {
        let listed = run_ok(&["platter", "status", "--json"]);
        let listed: Value = serde_json::from_str(&listed).expect("JSON");
        let mut disks = listed.as_array().expect("a list").iter();
        disks.find(|disk| disk["device"] == self.name()).cloned()
    }

    fn pid(&self) -> Pid {
        let listed = self.listed().expect("it is listed");
        let pid = listed["pid"].as_i64().expect("a process id");
        let pid = i32::try_from(pid).expect("a process id");
        Pid::from_raw(pid).expect("a process id")
    }

    fn detach(&self) -> Result<(), String> {
        let output = run(&["platter", "detach", self.name()]);
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a test that went well there is nothing to give up.
        if self.listed().is_some() {
            run(&["platter", "detach", "--force", self.name()]);
        }
    }
}

/// A mount that goes however the test ends.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(device: &Path, kind: &str) -> Mounted {
        let folder = tempfile::tempdir().expect("a folder");
        let [device, place] = [device, folder.path()].map(|path| path.to_str().expect("plain"));
        sh("mount", &["-t", kind, device, place]);
        Mounted(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let umount = |more: Option<&str>| {
            let status = Command::new("umount")
                .args(more)
                .arg(self.0.path())
                .status();
            status.is_ok_and(|status| status.success())
        };
        let _ = umount(None) || umount(Some("--lazy"));
    }
}

fn sh(program: &str, args: &[&str]) {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:/usr/sbin:/sbin");
    let output = Command::new(program).args(args).env("PATH", path).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {said}");
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < EVENTUALLY, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let noise = std::iter::repeat_with(|| random.u8(..));
    noise.take(bytes).collect()
}

/// The kernel's loop devices over files whose names begin so.
fn devices_named(begin: &str) -> Vec<String> {
    let blocks = std::fs::read_dir("/sys/block").expect("sysfs");
    let files = blocks
        .flatten()
        .map(|block| block.path().join("loop/backing_file"));
    let names = files.filter_map(|file| std::fs::read_to_string(file).ok());
    names.filter(|name| name.contains(begin)).collect()
}

/// No answer came before its time; and a model that is asked for the same at the same times needs the same time.
fn assert_follows_model(options: &LiveOptions, log: &Log) {
    assert_eq!(log.missing, 0);
    let mut model = options.model().expect("a model");
    let (mut live, mut fresh) = (0, 0);
    for logged in &log.requests {
        if let Some(replied) = logged.replied_ns {
            assert!(replied >= logged.due_ns, "{logged:?}");
        }
        let request = Request {
            op: logged.op,
            fua: false,
            sector: logged.sector,
            sectors: logged.sectors,
        };
        let served = model.serve(logged.arrived_ns, &request);
        let served = served.expect("a request of the disk");
        live += logged.due_ns - logged.arrived_ns;
        fresh += served.done_ns - logged.arrived_ns;
    }
    let requests = log.requests.len();
    assert!(requests > 20 && live > 0, "{requests} requests");
    let near = live.abs_diff(fresh) * 100 <= fresh * 3;
    assert!(near, "live {live} ns, model {fresh} ns");
}

#[test]
fn file_systems_live_on_it_and_keep_their_bytes() {
    let Some(_alone) = alone(NEEDS) else { return };
    let disk = Disk::attach(&["--size", "2G", "--memory", "512M"]);
    for (kind, force, check, look) in [
        ("ext4", "-F", "e2fsck", "-fn"),
        ("xfs", "-f", "xfs_repair", "-n"),
    ] {
        let device = disk.name();
        sh(&format!("mkfs.{kind}"), &["-q", force, device]);
        let content = noise(3_000_001, 7);
        {
            let mounted = Mounted::new(&disk.path, kind);
            let mut file = File::create(mounted.path().join("file")).expect("a file");
            file.write_all(&content).expect("it is written");
            file.sync_all().expect("it is synced");
            let refused = disk.detach().expect_err("it is mounted");
            assert!(refused.contains("in use: mounted on"), "{refused}");
        }
        {
            let mounted = Mounted::new(&disk.path, kind);
            let mut read = Vec::new();
            let mut file = File::open(mounted.path().join("file")).expect("the file");
            file.read_to_end(&mut read).expect("it is read");
            assert!(read == content, "{kind}: other bytes");
            stress(mounted.path());
        }
        sh(check, &[look, device]);
    }
    let listed = disk.listed().expect("it is listed");
    let counts = &listed["status"]["counts"];
    assert!(counts["reads"].as_u64() > Some(10), "{listed}");
    assert!(counts["flushes"].as_u64() > Some(0), "{listed}");
    let queue = |file: &str| {
        let name = disk.path.file_name().expect("a name").display();
        std::fs::read_to_string(format!("/sys/block/{name}/queue/{file}")).expect("sysfs")
    };
    assert_eq!(queue("rotational").trim(), "1");
    assert_eq!(queue("discard_max_bytes").trim(), "0");
    let open = File::open(&disk.path).expect("the device");
    let refused = disk.detach();
    // This process itself is seen by the command, which is another.
    assert!(refused.expect_err("it is open").contains("open in process"));
    drop(open);
    disk.detach().expect("nobody uses it");
    assert!(disk.listed().is_none());
}

/// Two writers that sync, one that does not, a reader and much metadata, for two seconds.
fn stress(folder: &Path) {
    let end = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for writer in 0..3_u64 {
            scope.spawn(move || {
                let data = noise(64 << 10, writer);
                let file = File::create(folder.join(format!("w{writer}"))).expect("a file");
                let mut at = 0;
                while Instant::now() < end {
                    let written = file.write_all_at(&data, at % (32 * MIB));
                    written.expect("it is written");
                    at += 64 << 10;
                    if writer < 2 {
                        file.sync_data().expect("it is synced");
                    } else {
                        std::thread::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        scope.spawn(move || {
            let mut number = 0;
            while Instant::now() < end {
                let name = folder.join(format!("m{}", number % 50));
                std::fs::write(&name, b"metadata").expect("a small file");
                std::fs::rename(&name, folder.join("renamed")).expect("it is renamed");
                number += 1;
            }
        });
    });
}

#[test]
fn stores_on_it_are_served_with_probes_and_the_times_are_the_models() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = emulated(options(2 << 30, 256 * MIB), &StoreKind::ALL);
    format_stores(&lab, "64M");
    let service = Service::start(&lab, &[]);
    let content = noise(700_000, 3);
    let folder = tempfile::tempdir().expect("a folder");
    let (put, got) = (folder.path().join("put"), folder.path().join("got"));
    std::fs::write(&put, &content).expect("a file");
    for store in lab.stores() {
        for id in ["1", "2", "3", "4", "5", "6"] {
            let server = ["--server", &service.grpc, store.name, id];
            run_ok(&[&["put"][..], &server, &[put.to_str().expect("plain")]].concat());
            run_ok(&[&["get"][..], &server, &[got.to_str().expect("plain")]].concat());
            let read = std::fs::read(&got).expect("a lump");
            assert!(read == content, "{}: other bytes", store.name);
        }
    }
    let metrics = service.scrape();
    let probed = metrics
        .lines()
        .any(|line| line.starts_with("lumpscope_probe_attached{") && line.ends_with(" 1"));
    assert!(service.stop(), "an orderly end");
    for (name, status) in lab.emulated().expect("three disks") {
        if probed {
            let seen = block_requests(&metrics, name);
            assert!(seen > 0, "{name}: the probes saw nothing");
        }
        let store = lab.stores().iter().find(|store| store.name == name);
        let log = lab.log(store.expect("a store").kind);
        let log = log.expect("its disk lives").expect("it is emulated");
        assert!(status.counts.writes > 0, "{name}: {status:?}");
        assert!(status.counts.flushes > 0, "{name}: {status:?}");
        assert_follows_model(&status.options, &log);
    }
}

fn block_requests(metrics: &str, store: &str) -> u64 {
    let label = format!("store=\"{store}\"");
    let begin = "lumpscope_block_requests_total{";
    let lines = metrics.lines().filter(|line| line.starts_with(begin));
    let counts = lines.filter(|line| line.contains(&label));
    let counts = counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    counts.sum()
}

#[test]
fn a_disk_whose_process_is_killed_is_named_and_cleaned_up() {
    let Some(_alone) = alone(NEEDS) else { return };
    let disk = Disk::attach(&["--size", "1G", "--memory", "128M"]);
    sh("mkfs.ext4", &["-q", "-F", disk.name()]);
    {
        let mounted = Mounted::new(&disk.path, "ext4");
        std::fs::write(mounted.path().join("lost"), noise(1 << 20, 1)).expect("it is cached");
        rustix::process::kill_process(disk.pid(), Signal::KILL).expect("it runs");
        until("I/O never fails", || {
            let file = File::create(mounted.path().join("more"));
            file.and_then(|file| file.sync_all()).is_err()
        });
        let listed = disk.listed().expect("it is listed");
        let problem = listed["problem"].as_str().expect("a problem");
        assert!(problem.contains("is gone"), "{listed}");
        assert!(listed["status"].is_null(), "{listed}");
        assert!(disk.detach().is_err(), "it is mounted");
    }
    disk.detach().expect("nobody uses it");
    assert!(disk.listed().is_none());
    let again = disk.detach().expect_err("it is gone");
    assert!(again.contains("is no disk that"), "{again}");
    // One that was let go by other means leaves its record, and its device's number is the next one's.
    let lost = Disk::attach(&["--size", "1G", "--memory", "128M"]);
    rustix::process::kill_process(lost.pid(), Signal::KILL).expect("it runs");
    sh("losetup", &["--detach", lost.name()]);
    let next = Disk::attach(&["--size", "1G", "--memory", "128M"]);
    assert_eq!(next.name(), lost.name());
    next.detach().expect("it is the next one's");
}

#[test]
fn a_lab_that_is_killed_leaves_no_emulated_disk() {
    let Some(_alone) = alone(NEEDS) else { return };
    let mut command = Command::new(binary());
    command.args(["lab", "--drive", DRIVE, "--size", "512M", "--"]);
    command.args(LISTEN);
    let service = Service::spawn(command);
    let name = format!("lumpscope-{}-", service.pid());
    assert_eq!(devices_named(&name).len(), 3);
    let disks = children(service.pid());
    assert!(disks.len() >= 3, "{disks:?}");
    service.kill9();
    until("loop devices are left", || devices_named(&name).is_empty());
    until("processes are left", || {
        let lives = |pid: &u32| Path::new(&format!("/proc/{pid}/fd/0")).exists();
        !disks.iter().any(lives)
    });
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let lists = tasks.flatten().map(|task| task.path().join("children"));
    let lists = lists.map(|list| std::fs::read_to_string(list).unwrap_or_default());
    let all: String = lists.collect();
    let pids = all.split_whitespace();
    pids.filter_map(|pid| pid.parse().ok()).collect()
}

#[test]
fn a_full_memory_is_a_full_disk_and_no_more() {
    let Some(_alone) = alone(NEEDS) else { return };
    let mut disk = Attached::start(binary(), &options(1 << 30, 16 * MIB)).expect("a disk");
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).expect("a flag");
    let mut opening = OpenOptions::new();
    opening.read(true).write(true).custom_flags(direct);
    let device = opening.open(disk.path()).expect("the device");
    // Direct I/O wants whole pages.
    let mut memory = vec![7_u8; (1 << 20) + 4096];
    let aligned = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[aligned..aligned + (1 << 20)];
    let mut written = 0;
    let refused = loop {
        match device.write_all_at(buffer, written) {
            Ok(()) => written += MIB,
            Err(error) => break error,
        }
        assert!(written <= 16 * MIB, "there is no bound");
    };
    assert_eq!(refused.kind(), std::io::ErrorKind::StorageFull, "{refused}");
    assert!(written >= 14 * MIB);
    buffer.fill(0);
    let read = device.read_exact_at(buffer, written - MIB);
    read.expect("reads work");
    assert!(buffer.iter().all(|byte| *byte == 7));
    let status = disk.status().expect("it lives");
    assert!(status.counts.refused > 0, "{status:?}");
    assert!(status.memory_used <= 16 * MIB, "{status:?}");
    drop(device);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |args: &[&str]| {
        let output = run(&[&["platter", "attach"][..], args].concat());
        assert!(!output.status.success(), "{args:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let unknown = refused(&["--drive", "nothing"]);
    assert!(unknown.contains("no such drive"), "{unknown}");
    for size in ["512", "4097", "2T"] {
        let said = refused(&["--drive", DRIVE, "--size", size]);
        assert!(said.contains("--size"), "{said}");
    }
    for scale in ["0", "6"] {
        let said = refused(&["--drive", DRIVE, "--scale", scale]);
        assert!(said.contains("1 to 5"), "{said}");
    }
    let said = refused(&["--drive", DRIVE, "--memory", "100T"]);
    assert!(said.contains("four fifths"), "{said}");
    let output = run(&["platter", "detach", "/dev/null"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("is no disk that"), "{said}");
}

#[test]
fn without_privileges_it_says_what_is_needed() {
    let Some(_alone) = alone(&[Need::Root, Need::Fuse, Need::Tool("setpriv")]) else {
        return;
    };
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_admin", "--inh-caps=-sys_admin"])
        .arg(binary())
        .args(["platter", "attach", "--drive", DRIVE])
        .output()
        .expect("setpriv starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");
}

#[test]
fn the_kinds_of_a_lab_have_disks_of_their_own() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = emulated(options(1 << 30, 64 * MIB), &[StoreKind::Raw]);
    let name = format!("lumpscope-{}-", std::process::id());
    assert!(!devices_named(&name).is_empty());
    let device = lab.stores()[0].device.clone();
    drop(lab);
    let device = device.file_name().expect("a name").display();
    let backing = format!("/sys/block/{device}/loop/backing_file");
    let backing = std::fs::read_to_string(backing).unwrap_or_default();
    assert!(!backing.contains(&name), "{backing}");
}

#[test]
fn live_disks_are_compared_with_their_model() {
    let Some(_alone) = alone(NEEDS) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let json = folder.path().join("check.json");
    let file = format!("--output={}", json.display());
    let check = words("platter check --rounds 2 --requests 12");
    let said = run_ok(&[&check[..], &[&file]].concat());
    let text = std::fs::read_to_string(&json).expect("what was measured");
    let measured: Value = serde_json::from_str(&text).expect("JSON");
    let list = |name: &str| measured[name].as_array().cloned().expect("a list");
    let (figures, trials) = (list("figures"), list("trials"));
    let live = figures.iter().filter(|it| it["column"] == "live/model");
    let names: Vec<&str> = live.filter_map(|figure| figure["name"].as_str()).collect();
    assert_eq!((names.len(), trials.len()), (9, 18));
    for name in names {
        let (name, _) = name.split_once(':').expect("a name and a title");
        assert!(said.contains(name), "{name} in {said}");
        let rounds = trials.iter().filter(|trial| trial["pattern"] == name);
        let rounds: Vec<&Value> = rounds.collect();
        assert_eq!(rounds[0]["model_ns"], rounds[1]["model_ns"], "{name}");
        assert!(rounds[0]["model_ns"].as_u64() > Some(0), "{name}");
        for trial in rounds {
            let [asked, taken, seen] = ["asked", "taken", "seen"].map(|key| trial[key].as_u64());
            assert_eq!((asked, taken), (Some(12), Some(12)), "{trial}");
            // The kernel may skip a probe, but says so.
            let missing = trial["trust"]["missing"].as_u64();
            assert_eq!(seen.zip(missing).map(|(a, b)| a + b), Some(12), "{trial}");
        }
    }
    let refused = run(&["platter", "check", "--only", "nothing"]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("read-4k-anywhere"), "{said}");
}
