//! `lumpscope format` and `lumpscope serve` against devices that are not ours: refused with a reason, and not one byte changed.

use std::path::Path;
use std::process::Command;

use lumpscope_platter::loops::LoopDevice;
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::run;
use sha2::{Digest, Sha256};

fn checksum(device: &Path) -> [u8; 32] {
    let mut file = std::fs::File::open(device).expect("the device can be read");
    // What went past the page cache must be seen too.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .expect("the cache can be dropped");
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).expect("the device can be read");
    hash.finalize().into()
}

fn tool(name: &str, args: &[&str]) {
    let output = Command::new(name)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(
        output.status.success(),
        "{name} {args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Formats must be refused, name what was found, and change nothing.
fn refused(path: &Path, force: bool, wanted: &str) {
    let before = checksum(path);
    let mut args = vec!["format", path.to_str().expect("UTF-8")];
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
    assert!(
        message.contains(path.to_str().expect("UTF-8")),
        "the message does not name the device: {message}"
    );
    assert_eq!(checksum(path), before, "{args:?} changed the device");
}

fn served(path: &Path) {
    let before = checksum(path);
    let store = format!("x={}", path.display());
    let output = run(&[
        "serve",
        "--store",
        &store,
        "--listen",
        "127.0.0.1:0",
        "--metrics-listen",
        "127.0.0.1:0",
        "--no-probes",
    ]);
    assert!(
        !output.status.success(),
        "serve accepted a device that holds no store"
    );
    let found = checksum(path);
    assert_eq!(found, before, "serve changed a device that holds no store");
}

#[test]
fn a_disk_that_is_not_ours_is_left_alone() {
    let Some(_alone) = alone(&[
        Need::Root,
        Need::Tool("mkfs.ext4"),
        Need::Tool("mkfs.xfs"),
        Need::Tool("sfdisk"),
    ]) else {
        return;
    };
    let folder = tempfile::Builder::new()
        .prefix("lumpscope-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a folder");
    let device = LoopDevice::create(folder.path(), "refused", 512 << 20).expect("a loop device");
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
    tool(
        "sh",
        &[
            "-c",
            &format!("printf 'label: gpt\\n,100M\\n' | sfdisk -q --no-tell-kernel {text}"),
        ],
    );
    refused(&path, false, "gpt");
}

#[test]
fn force_takes_over_a_disk_that_is_free() {
    let Some(_alone) = alone(&[Need::Root, Need::Tool("mkfs.ext4")]) else {
        return;
    };
    let folder = tempfile::Builder::new()
        .prefix("lumpscope-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a folder");
    let device = LoopDevice::create(folder.path(), "forced", 256 << 20).expect("a loop device");
    let path = device.path().to_owned();
    tool("mkfs.ext4", &["-q", path.to_str().expect("UTF-8")]);
    let output = run(&["format", path.to_str().expect("UTF-8"), "--force"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    refused(&path, false, "minfs");
    let found = Command::new("blkid")
        .args(["-p", "-o", "value", "-s", "TYPE"])
        .arg(&path)
        .output()
        .expect("blkid");
    assert!(
        found.stdout.is_empty(),
        "the old file system still shows: {}",
        String::from_utf8_lossy(&found.stdout)
    );
}
