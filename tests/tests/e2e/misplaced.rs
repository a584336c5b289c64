//! Data that would go to the wrong place, with the program and real disks: a misspelt device, memory, a store found by
//! its UUID wherever its disk is now, a disk that is not empty.

use std::path::{Path, PathBuf};

use lumpscope_platter::loops::LoopDevice;
use lumpscope_tests::needs::{ROOT, alone};
use lumpscope_tests::service::{run, run_ok};

fn folder() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("lumpscope-")
        .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
        .expect("a folder")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Refused, with these words on standard error.
fn refused(args: &[&str], wanted: &str) {
    let output = run(args);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{args:?} was not refused");
    assert!(message.contains(wanted), "{wanted:?} in {message}");
}

#[test]
fn a_misspelt_device_is_no_file_to_create() {
    let Some(_alone) = alone(ROOT) else { return };
    let none = "/dev/lumpscope-misspelt";
    let words = format!("there is no device {none}; lsblk lists them");
    refused(&["format", none], &words);
    refused(
        &["format", none, "--capacity", "16M", "--force", "--volatile"],
        &words,
    );
    assert!(!Path::new(none).exists());
}

/// The UUID that `format` has printed.
fn uuid_of(said: &str) -> String {
    let uuid = said.split([' ', ',']).find(|word| word.len() == 36);
    uuid.expect("format prints the UUID").to_owned()
}

#[test]
fn a_store_is_found_by_its_uuid_and_only_there() {
    let Some(_alone) = alone(ROOT) else { return };
    let folder = folder();
    let disk = |name| LoopDevice::create(folder.path(), name, 64 << 20).expect("a loop device");
    let (one, two) = (disk("one"), disk("two"));
    let make = |path: &Path, name| uuid_of(&run_ok(&["format", text(path), "--name", name]));
    let uuid = make(one.path(), "fast");
    make(two.path(), "cold");
    let check = |store: &str| run(&["serve", "--check-config", "--no-probes", "--store", store]);
    let found = check(&format!("fast=uuid:{uuid}"));
    assert!(found.status.success(), "{found:?}");
    let shown = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(shown.contains(&format!("fast=uuid:{uuid}")), "{shown}");
    let none = "fast=uuid:00000000-0000-4000-8000-000000000000";
    let lost = check(none);
    assert!(!lost.status.success());
    let said = String::from_utf8_lossy(&lost.stderr);
    assert!(said.contains("no block device"), "{said}");
    let serve = |store: &str, wanted: &str| {
        let listen = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
        refused(
            &[&["serve", "--no-probes", "--store", store], &listen[..]].concat(),
            wanted,
        );
    };
    serve(
        &format!("fast={}", text(two.path())),
        "is store \"cold\", not \"fast\"",
    );
    serve(none, "no block device");
    // The disk under another name: a link, as below /dev/disk/by-id.
    let link: PathBuf = folder.path().join("by-id");
    std::os::unix::fs::symlink(one.path(), &link).expect("a link");
    let found = check(&format!("fast={}", text(&link)));
    assert!(found.status.success(), "{found:?}");
}
