//! The `.proto` files: every field is documented, and what has been promised is kept.

use std::path::Path;
use std::process::{Command, Output};

use lumpscope_tests::needs::{Need, available, find_tool};

/// The descriptors of v1 as they were recorded.
const RECORDED: &str = "lumpscope.v1.binpb";

fn protos() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto")
}

fn buf(folder: &Path, args: &[&str]) -> Output {
    let program = find_tool("buf").expect("it was found before");
    Command::new(program)
        .args(args)
        .current_dir(folder)
        .output()
        .expect("buf starts")
}

fn good(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{failed}");
}

#[test]
fn lint_finds_nothing() {
    if available(&[Need::Tool("buf")]) {
        good(&buf(&protos(), &["lint"]));
    }
}

#[test]
fn v1_is_what_was_recorded_and_nothing_of_it_is_broken() {
    if !available(&[Need::Tool("buf")]) {
        return;
    }
    good(&buf(&protos(), &["breaking", "--against", RECORDED]));
    let bare = ["build", "--exclude-source-info", "--output", "-"];
    let now = buf(&protos(), &bare);
    let recorded = buf(&protos(), &[&bare[..], &[RECORDED]].concat());
    good(&now);
    good(&recorded);
    assert!(
        now.stdout == recorded.stdout,
        "something was added to v1: `./dev protos` checks and records it"
    );
}

#[test]
fn a_broken_promise_is_noticed() {
    if !available(&[Need::Tool("buf")]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let inside = folder.path().join("lumpscope/v1");
    std::fs::create_dir_all(&inside).expect("a folder can be made");
    let copy = |from: &Path, to: &Path| {
        std::fs::copy(from, to).expect("a file can be copied");
    };
    copy(&protos().join("buf.yaml"), &folder.path().join("buf.yaml"));
    for file in ["types", "lump_store", "admin", "observe"] {
        let name = format!("{file}.proto");
        copy(
            &protos().join("lumpscope/v1").join(&name),
            &inside.join(&name),
        );
    }
    let recorded = protos().join(RECORDED);
    let recorded = recorded.to_str().expect("the path is UTF-8");
    good(&buf(folder.path(), &["breaking", "--against", recorded]));

    let types = inside.join("types.proto");
    let text = std::fs::read_to_string(&types).expect("a file can be read");
    let broken = text.replace("bytes raw = 1;", "bytes raw = 3;");
    assert_ne!(broken, text);
    std::fs::write(&types, broken).expect("a file can be written");
    let output = buf(folder.path(), &["breaking", "--against", recorded]);
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("LumpId"), "{said}");
}
