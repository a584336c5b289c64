//! Standard output of every command: a full disk is an error, a closed pipe is none.

use std::process::{Output, Stdio};

use crate::every::{RECORDING, Scene, command, words};
#[cfg(feature = "lab")]
use lumpscope_needs::{Need, alone};

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
    let full = std::fs::File::options().write(true).open("/dev/full");
    let ended = into(full.unwrap().into(), server, line);
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

/// The laboratory has one frame: what holds for these holds for the others.
#[cfg(feature = "lab")]
#[test]
fn results_of_the_lab_that_cannot_be_written_are_errors() {
    let needs = [Need::LoopDevices, Need::Tool("mkfs.xfs")];
    let Some(_alone) = alone(&needs) else { return };
    let dir = crate::common::folder();
    let file = dir.path().join("a");
    let of = file.display().to_string();
    let lines: [&[&str]; 4] = [
        &["bench", "run", "rand1", "--scale", "0.0005"],
        &["bench", "seeds", "diskbenchi", "--count=8", "--rounds=1"],
        &["compare", "--scale", "0.0005", "--block-size", "512"],
        &["bench", "seeds", "diskbenchi", "--count", "1", "--of", &of],
    ];
    for line in lines {
        cannot_write("", &words(line));
        let _ = std::fs::remove_file(&file);
        ends_quietly("", &words(line));
        let _ = std::fs::remove_file(&file);
    }
    // Steps that nobody can read stop nothing.
    let full = std::fs::File::options().write(true).open("/dev/full");
    let line = words(&["bench", "run", "rand1", "--scale", "0.0005"]);
    let ended = command("", &line).stderr(full.unwrap()).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// Every exit code has one meaning, which the help tells.
#[test]
fn an_exit_code_means_the_same_in_every_command() {
    let help = crate::every::run("", &words(&["--help"]));
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, codes) = help.split_once("Exit codes:\n").unwrap();
    let code = |line: &str| line.split_whitespace().next().unwrap().to_owned();
    let codes: Vec<String> = codes.lines().map(code).collect();
    assert_eq!(codes, ["0", "1", "2", "3", "4", "130"], "{help}");

    let scene = Scene::new();
    let (server, first, a) = (scene.server(), scene.at("first"), scene.at("a"));
    let nowhere = "http://127.0.0.1:1";
    for (wanted, server, line) in [
        (0, server, &["stores"][..]),
        (1, nowhere, &["stores"]),
        (1, "", &["check", &first]),
        (1, "", &["check", &a]),
        (1, "", &["check", "/nowhere", "--salvage"]),
        (1, "", &["format", &first]),
        (1, "", &["serve", "--check-config"]),
        (1, "", &["explain", "--replay", &a]),
        (2, server, &["get", "hdd", "no id"]),
        (2, server, &["admin", "scrub", "hdd", "--rate", "1M"]),
        (2, "", &["check"]),
        (2, "", &["no-command"]),
        (3, server, &["get", "hdd", "99"]),
        (0, server, &["delete", "hdd", "99"]),
        (3, server, &["stat", "tape"]),
        (3, server, &["delete", "tape", "99"]),
        (3, server, &["evacuate", "hdd", "tape"]),
        (3, server, &["evacuate", "tape", "hdd"]),
        (3, server, &["health", "tape"]),
        (3, server, &["explain", "99999999"]),
        (3, "", &["explain", "99999999", "--replay", RECORDING]),
    ] {
        let ended = crate::every::run(server, &words(line));
        assert_eq!(ended.status.code(), Some(wanted), "{line:?}: {ended:?}");
    }
}

#[test]
fn an_old_name_tells_the_new_one() {
    for (old, new) in [
        (&["inspect", "/dev/sdX"][..], "check --quick"),
        (&["usage", "hdd"], "stat"),
        (
            &["admin", "scrub-start", "hdd"],
            "admin scrub STORE --start",
        ),
        (&["admin", "scrub-stop", "hdd"], "admin scrub STORE --stop"),
        (&["trace", "--export", "csv"], "export FILE"),
        (&["delete-range", "hdd", "0", "9"], "delete STORE --start"),
        (&["head", "hdd", "1"], "get STORE ID --head"),
        (&["admin", "events"], "admin observer"),
        (&["admin", "reload"], "admin service --reload"),
        (&["check", "a", "--records"], "check --journal"),
    ] {
        let new = format!("lumpscope {new}");
        let ended = crate::every::run("", &words(old));
        assert_eq!(ended.status.code(), Some(2), "{old:?}: {ended:?}");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(said.contains(&new), "{old:?}: {said}");
    }
}

/// Options of the connection stand before or behind a command, and in the help of the program alone.
#[test]
fn options_of_the_connection_are_global() {
    let scene = Scene::new();
    for line in [
        ["--server", scene.server(), "stores"],
        ["stores", "--server", scene.server()],
    ] {
        let ended = crate::every::run("http://127.0.0.1:1", &words(&line));
        assert!(ended.status.success(), "{line:?}: {ended:?}");
    }
    let help = |line: &[&str]| {
        let ended = crate::every::run("", &words(line));
        String::from_utf8(ended.stdout).unwrap()
    };
    assert!(help(&["--help"]).contains("\nConnection:\n"));
    assert!(!help(&["put", "--help"]).contains("--tls-name"));
    assert!(!help(&["check", "--help"]).contains("connection"));
}
