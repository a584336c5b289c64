//! Labs on real loop devices: what they are made of, and that nothing of them stays.
//!
//! Needs root. Without it the tests say so and pass, unless `CI=true`: then they fail.
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lumpscope_lab::disks::{Lab, LabOptions, StoreKind};
use lumpscope_needs::{Need, alone};
use lumpscope_platter::loops::LoopDevice;

const DISK_BYTES: u64 = 320 << 20;
const CHILD_DIR: &str = "LUMPSCOPE_TEST_LAB_DIR";

fn scratch() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("lumpscope-lab-test-")
        .tempdir_in("/var/tmp")
        .unwrap()
}

/// Lines of `losetup -a` for images in the directory.
fn loops_in(dir: &Path) -> Vec<String> {
    let output = Command::new("losetup").arg("-a").output().unwrap();
    let listing = String::from_utf8(output.stdout).unwrap();
    let dir = dir.to_str().unwrap();
    listing
        .lines()
        .filter(|line| line.contains(dir))
        .map(str::to_owned)
        .collect()
}

fn shows_a_lab(mounts: &str) -> bool {
    ["lumpscope-lab", "/lumpscope-ext4", "/lumpscope-xfs"]
        .iter()
        .any(|name| mounts.contains(name))
}

/// Nothing is left that anybody on the host could see.
fn assert_gone(dir: &Path) {
    let patience = Instant::now() + Duration::from_secs(10);
    while !loops_in(dir).is_empty() && Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(loops_in(dir), Vec::<String>::new(), "loop devices");
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!shows_a_lab(&mounts), "mounts:\n{mounts}");
    let files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(files.is_empty(), "files: {files:?}");
}

#[test]
fn three_disks_are_there_and_then_gone() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = scratch();
    let options = LabOptions {
        dir: Some(dir.path().to_owned()),
        ..LabOptions::new(DISK_BYTES)
    };
    let lab = Lab::create(&options).unwrap();
    let loops = loops_in(dir.path());
    assert_eq!(loops.len(), 3);
    for (store, line) in lab.stores().iter().zip(&loops) {
        assert!(
            loops
                .iter()
                .any(|line| line.contains(&format!("-{}.img", store.name))),
            "{line}"
        );
        let device = fs::metadata(&store.device).unwrap();
        assert!(device.file_type().is_block_device());
        assert_eq!(device.rdev(), store.devno);
        let queue = format!(
            "/sys/block/{}/queue/logical_block_size",
            base_name(&store.device)
        );
        assert_eq!(fs::read_to_string(queue).unwrap().trim(), "512");
    }
    // The host sees no mount; a child of the lab does, on the right device.
    assert!(
        !fs::read_to_string("/proc/self/mountinfo")
            .unwrap()
            .contains("lumpscope")
    );
    for kind in [StoreKind::Ext4, StoreKind::Xfs] {
        let store = lab.store(kind).unwrap();
        let mount = store.store_path.parent().unwrap();
        let output = lab
            .command(Path::new("stat"))
            .args(["-f", "-c", "%T"])
            .arg(mount)
            .output();
        let kind_found = String::from_utf8(output.unwrap().stdout).unwrap();
        let wanted = if kind == StoreKind::Ext4 {
            "ext2/ext3"
        } else {
            "xfs"
        };
        assert_eq!(kind_found.trim(), wanted);
        let output = lab
            .command(Path::new("stat"))
            .args(["-c", "%d"])
            .arg(mount)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(output.stdout).unwrap().trim(),
            store.devno.to_string()
        );
    }
    // So does a thread that entered.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            lab.enter_current_thread().unwrap();
            fs::write(&lab.store(StoreKind::Xfs).unwrap().store_path, b"here").unwrap();
        });
    });
    drop(lab);
    assert_gone(dir.path());
}

#[test]
fn ext4_has_a_journal_only_when_asked() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = scratch();
    for journal in [false, true] {
        let options = LabOptions {
            dir: Some(dir.path().to_owned()),
            ext4_journal: journal,
            kinds: vec![StoreKind::Ext4],
            ..LabOptions::new(64 << 20)
        };
        let lab = Lab::create(&options).unwrap();
        let device = &lab.stores()[0].device;
        let output = Command::new("dumpe2fs")
            .arg("-h")
            .arg(device)
            .output()
            .unwrap();
        let features = String::from_utf8(output.stdout).unwrap();
        assert_eq!(features.contains("has_journal"), journal);
    }
    assert_gone(dir.path());
}

#[test]
fn a_panic_leaves_nothing() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = scratch();
    let panicked = std::panic::catch_unwind(|| {
        let options = LabOptions {
            dir: Some(dir.path().to_owned()),
            ..LabOptions::new(DISK_BYTES)
        };
        let _lab = Lab::create(&options).unwrap();
        panic!("on purpose");
    });
    assert!(panicked.is_err());
    assert_gone(dir.path());
}

#[test]
fn a_failure_half_way_leaves_nothing() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = scratch();
    // Too small for an xfs: mkfs fails when the other two disks are ready.
    let options = LabOptions {
        dir: Some(dir.path().to_owned()),
        ..LabOptions::new(8 << 20)
    };
    let error = Lab::create(&options).unwrap_err().to_string();
    assert!(error.contains("mkfs.xfs"), "{error}");
    assert_gone(dir.path());
}

#[test]
fn a_full_directory_is_refused_before_anything_is_made() {
    let dir = scratch();
    let options = LabOptions {
        dir: Some(dir.path().to_owned()),
        expected_bytes: u64::MAX / 2,
        ..LabOptions::new(DISK_BYTES)
    };
    let error = Lab::create(&options).unwrap_err().to_string();
    assert!(
        error.contains("MiB free") && error.contains("--dir"),
        "{error}"
    );
}

#[test]
fn a_single_device() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = scratch();
    let device = LoopDevice::create(dir.path(), "one", 5000).unwrap();
    let mut sector = vec![7; 512];
    fs::OpenOptions::new()
        .write(true)
        .open(device.path())
        .unwrap()
        .write_all(&sector)
        .unwrap();
    let size = format!("/sys/block/{}/size", base_name(device.path()));
    assert_eq!(
        fs::read_to_string(size).unwrap().trim(),
        "16",
        "8 KiB in sectors"
    );
    sector.clear();
    drop(device);
    assert_gone(dir.path());
}

#[test]
fn kill_9_leaves_nothing() {
    let Some(_alone) = alone(&[Need::LoopDevices]) else {
        return;
    };
    let dir = scratch();
    let mut holder = Command::new(env::current_exe().unwrap())
        .args([
            "--exact",
            "disks::holds_a_lab_until_killed",
            "--nocapture",
            "--ignored",
        ])
        .env(CHILD_DIR, dir.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let grandchild = wait_for_grandchild(&mut holder);
    assert_eq!(loops_in(dir.path()).len(), 3);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_gone(dir.path());
    // It lets its files go, and with them the disks, a moment before it is gone itself.
    let deadline = Instant::now() + Duration::from_secs(10);
    while is_alive(grandchild) {
        assert!(Instant::now() < deadline, "the lab's child outlived it");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

fn wait_for_grandchild(holder: &mut Child) -> u32 {
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        if let Some((_, pid)) = line.split_once("holding ") {
            return pid.trim().parse().unwrap();
        }
    }
    panic!("the holder ended early");
}

/// Not a test by itself: the process that `kill_9_leaves_nothing` kills.
#[test]
#[ignore = "run by kill_9_leaves_nothing"]
fn holds_a_lab_until_killed() {
    let Some(dir) = env::var_os(CHILD_DIR) else {
        return;
    };
    let options = LabOptions {
        dir: Some(dir.into()),
        ..LabOptions::new(DISK_BYTES)
    };
    let lab = Lab::create(&options).unwrap();
    // A process that keeps a file on one of the mounts open, as a service would.
    let file = &lab.store(StoreKind::Ext4).unwrap().store_path;
    let mut child = lab
        .command(Path::new("sh"))
        .args(["-c", "exec 3>\"$0\"; exec sleep 60"])
        .arg(file)
        .spawn()
        .unwrap();
    println!("holding {}", child.id());
    child.wait().unwrap();
    drop(lab);
}

fn base_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}
