//! `lumpscope format` and `lumpscope serve` against devices that are not ours: refused with a reason, and not one byte changed.

use std::path::Path;
use std::process::Command;

use lumpscope_platter::loops::LoopDevice;
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{LISTEN, good, run, run_ok};
use sha2::{Digest, Sha256};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    Need::Tool("sfdisk"),
];

/// A loop device over a file in a folder, both of which go however the test ends.
fn disk(name: &str, bytes: u64) -> (tempfile::TempDir, LoopDevice) {
    let mut folder = tempfile::Builder::new();
    let folder = folder
        .prefix("lumpscope-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    let folder = folder.expect("a folder");
    let device = LoopDevice::create(folder.path(), name, bytes);
    (folder, device.expect("a loop device"))
}

fn checksum(device: &Path) -> [u8; 32] {
    let mut file = std::fs::File::open(device).expect("the device can be read");
    // What went past the page cache must be seen too.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .expect("the cache can be dropped");
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).expect("the device can be read");
    hash.finalize().into()
}

#[track_caller]
fn tool(name: &str, args: &[&str]) {
    let output = Command::new(name).args(args).output();
    good(&output.unwrap_or_else(|error| panic!("{name}: {error}")));
}

/// Formats must be refused, name what was found, and change nothing.
fn refused(path: &Path, force: bool, wanted: &str) {
    let before = checksum(path);
    let text = path.to_str().expect("UTF-8");
    let mut args = vec!["format", text];
    if force {
        args.push("--force");
    }
    let output = run(&args);
    let message = String::from_utf8_lossy(&output.stderr).to_lowercase();
    assert!(!output.status.success(), "{args:?} was not refused");
    assert!(
        message.contains(wanted),
        "{args:?}: the message does not name '{wanted}': {message}"
    );
    assert!(message.contains(text), "no device's name: {message}");
    assert_eq!(checksum(path), before, "{args:?} changed the device");
}

fn served(path: &Path) {
    let before = checksum(path);
    let store = format!("x={}", path.display());
    let serve = ["serve", "--no-probes", "--store", &store];
    let accepted = run(&[&serve[..], &LISTEN].concat()).status.success();
    assert!(!accepted, "serve accepted a device that holds no store");
    let found = checksum(path);
    assert_eq!(found, before, "serve changed a device that holds no store");
}

#[test]
fn a_disk_that_is_not_ours_is_left_alone() {
    let Some(_alone) = alone(NEEDS) else { return };
    let (folder, device) = disk("refused", 512 << 20);
    let path = device.path().to_owned();
    let text = path.to_str().expect("UTF-8").to_owned();

    tool("mkfs.ext4", &["-q", &text]);
    refused(&path, false, "ext4");
    served(&path);

    let mount = folder.path().join("mnt");
    std::fs::create_dir(&mount).expect("a folder");
    let mount_text = mount.to_str().expect("UTF-8");
    tool("mount", &["-o", "ro,noload", &text, mount_text]);
    let mounted = std::panic::catch_unwind(|| {
        for force in [false, true] {
            refused(&path, force, "mounted");
        }
    });
    tool("umount", &[mount_text]);
    assert!(mounted.is_ok(), "see above");

    tool("mkfs.xfs", &["-q", "-f", &text]);
    refused(&path, false, "xfs");

    tool("wipefs", &["-q", "-a", &text]);
    let table = "printf 'label: gpt\\n,100M\\n' | sfdisk -q --no-tell-kernel";
    tool("sh", &["-c", &format!("{table} {text}")]);
    refused(&path, false, "gpt");
}

#[test]
fn force_takes_over_a_disk_that_is_free() {
    let Some(_alone) = alone(&NEEDS[..2]) else {
        return;
    };
    let (_folder, device) = disk("forced", 256 << 20);
    let path = device.path().to_owned();
    tool("mkfs.ext4", &["-q", path.to_str().expect("UTF-8")]);
    run_ok(&["format", path.to_str().expect("UTF-8"), "--force"]);
    refused(&path, false, "minfs");
    let found = Command::new("blkid")
        .args(["-p", "-o", "value", "-s", "TYPE"])
        .arg(&path)
        .output()
        .expect("blkid");
    let shown = String::from_utf8_lossy(&found.stdout);
    assert!(shown.is_empty(), "the old file system: {shown}");
}
