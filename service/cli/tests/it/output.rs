//! Standard output of every command: a full disk is an error, a closed pipe is none.

use std::process::{Output, Stdio};

use crate::every::{RECORDING, Scene, command, words};

/// Commands for which a test needs no service and no store.
fn more() -> Vec<Vec<String>> {
    let lines: [&[&str]; 8] = [
        &["--help"],
        &["--version"],
        &["help", "put"],
        &["admin", "--help"],
        &["completions", "bash"],
        &["explain", "--replay", RECORDING, "--json"],
        &["trace", "--replay", RECORDING, "--json"],
        &["top", "--replay", RECORDING, "--json"],
    ];
    lines.iter().map(|line| words(line)).collect()
}

/// Runs a command whose standard output this is.
fn into(stdout: Stdio, server: &str, line: &[String]) -> Output {
    let child = command(server, line)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn();
    child.unwrap().wait_with_output().unwrap()
}

#[track_caller]
fn cannot_write(server: &str, line: &[String]) {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let ended = into(full.into(), server, line);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{line:?}: {said}");
    let why = "standard output: No space left on device";
    assert!(said.contains(why), "{line:?}: {said}");
}

#[track_caller]
fn ends_quietly(server: &str, line: &[String]) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = into(writer.into(), server, line);
    let said = String::from_utf8_lossy(&ended.stderr);
    // The machine of a test may lack something.
    let fine = ended.status.success() || line[0] == "doctor";
    assert!(fine, "{line:?}: {ended:?}");
    assert!(!said.contains("ipe"), "{line:?}: {said}");
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let scene = Scene::new();
    // Bytes without a line's end stay in the buffers that most programs have.
    std::fs::write(scene.at("text"), "no line").unwrap();
    let put = words(&["put", "hdd", "7", &scene.at("text")]);
    assert!(crate::every::run(scene.server(), &put).status.success());
    cannot_write(scene.server(), &words(&["get", "hdd", "7"]));
    scene.each(cannot_write);
    for line in more() {
        cannot_write("", &line);
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let scene = Scene::new();
    let put = words(&["put", "hdd", "7", &scene.at("a")]);
    assert!(crate::every::run(scene.server(), &put).status.success());
    ends_quietly(scene.server(), &words(&["get", "hdd", "7"]));
    scene.each(ends_quietly);
    for line in more() {
        ends_quietly("", &line);
    }
}
