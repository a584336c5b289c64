//! The text of the real commands: in 80 columns on a terminal, a line for each record elsewhere.

use std::process::{Command, Output, Stdio};

use crate::common::folder;
use crate::every::{RECORDING, Scene, on_terminal, run, words};
use crate::process::PROGRAM;
use lumpscope_needs::{Need, alone};
use rustix::process::{Pid, Signal};

const COLUMNS: usize = 80;
const UNITS: [&str; 12] = [
    "B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "µs", "ms", "s", "min", "%",
];
/// First bytes of a colour.
const COLOUR: &str = "\x1b[";

/// Ends if a line is too wide or a number was parted from its unit. Only a path that somebody gave
/// may be wider, alone in its line, and the head of a list of commands, which programs read.
#[track_caller]
fn narrow(arguments: &[&str], output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(!said.trim().is_empty(), "{arguments:?}: {why}");
    assert!(!said.contains(COLOUR), "{arguments:?}: {said}");
    let mut number_before = false;
    for line in said.lines() {
        let mut words = line.split_whitespace();
        let (first, more) = (words.next().unwrap_or(""), words.next().is_some());
        let path = first == "#" || first.contains('/') && !more;
        let width = line.chars().count();
        assert!(
            width <= COLUMNS || path,
            "{arguments:?}: {width}: {line}\n{said}"
        );
        let unit = first.trim_end_matches([',', ';', ':', '.', ')']);
        assert!(
            !(number_before && UNITS.contains(&unit)),
            "{arguments:?}: {line}\n{said}"
        );
        number_before = line.ends_with(|c: char| c.is_ascii_digit());
    }
}

/// Escape sequences by which `top` draws.
const DRAWING: [&str; 4] = ["\x1b[2J", "\x1b[H", "\x1b[K", "\x1b[J"];

fn ask(server: &str, line: &[String]) {
    let mut output = on_terminal(server, line);
    if line[0] == "top" {
        let said = String::from_utf8(output.stdout).unwrap();
        let plain = DRAWING
            .iter()
            .fold(said, |said, part| said.replace(part, ""));
        output.stdout = plain.into_bytes();
    }
    let words: Vec<&str> = line.iter().map(String::as_str).collect();
    narrow(&words, &output);
}

#[test]
fn clients_and_tools_need_eighty_columns() {
    Scene::new().each(ask);
}

/// Lines of what a command prints into a pipe.
#[track_caller]
fn piped(server: &str, line: &[&str]) -> Vec<String> {
    let output = run(server, &words(line));
    assert!(output.status.success(), "{line:?}: {output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.lines().map(str::to_owned).collect()
}

#[test]
fn without_a_terminal_each_record_is_one_line() {
    let scene = Scene::new();
    let (server, a) = (scene.server(), scene.at("a"));
    let id = "f".repeat(32);
    let other = "e".repeat(32);
    for (line, records) in [
        (&["put", "hdd", &id, &a][..], 1),
        (&["get", "hdd", &id, "--head"], 1),
        (&["stores"], 1 + 2),
        (&["evacuate", "hdd", "more"], 2),
        (&["delete", "hdd", &id, &other], 2),
        (&["admin", "gc", "hdd"], 1),
        (&["doctor"], 5),
    ] {
        let said = piped(server, line);
        // The machine of a test may lack something.
        let fine = said.len() == records || line[0] == "doctor" && said.len() <= records;
        assert!(fine, "{line:?}: {said:#?}");
    }
    let lines = |line: &[&str]| piped("", line).len();
    let trace = ["trace", "--replay", RECORDING, "--json"];
    assert_eq!(lines(&trace[..3]), 1 + lines(&trace));
    // The notes on a block request stand in its line.
    let explain = piped("", &["explain", "--replay", RECORDING, "--slowest", "1"]);
    let blocks = explain
        .iter()
        .filter(|line| line.contains("there before: "));
    let beside = blocks.filter(|line| {
        line.split("there before: ")
            .next()
            .unwrap()
            .trim()
            .is_empty()
    });
    assert_eq!(beside.count(), 0, "{explain:#?}");
}

#[cfg(feature = "lab")]
#[test]
fn the_lab_needs_eighty_columns() {
    let summary = ["bench", "run", "rand1", "--print", "summary"];
    for line in [
        &["platter", "drives"][..],
        &["platter", "drives", "st1000dm003"],
        &["platter", "replay", RECORDING],
        &["platter", "status"],
        &["bench", "orders", "--requests", "50", "--rounds", "2"],
        &summary,
    ] {
        ask("", &words(line));
    }
    let Some(_alone) = alone(&[Need::LoopDevices, Need::Tool("mkfs.xfs")]) else {
        return;
    };
    for words in [
        "demo",
        "compare --scale 0.001 --block-size 512,4096",
        "bench engine --only 4_KiB,_depth_8 --rounds 1 --seconds 0.02 --capacity 64M --count 20",
        "bench seeds cannyls --scale 0.0004 --workload seq1 --engine lumpscope --rounds 1",
        "bench seeds diskbenchi --count 8 --rounds 1",
        "bench seeds fileserver --rounds 1 --seconds 0.2 --files 100",
        "platter check --rounds 1 --requests 4",
        "bench run rand1 --scale 0.0005",
        "bench grpc --only 1_MiB --rounds 1 --seconds 0.1",
        "bench observe --rounds 1 --seconds 0.2 --only objects",
        "bench peers --only engine,files-xfs --rounds 1 --seconds 0.1 --capacity 64M",
    ] {
        let words: Vec<String> = words
            .split(' ')
            .map(|word| word.replace('_', " "))
            .collect();
        ask("", &words);
    }
    let dir = folder();
    let watched = Command::new(PROGRAM)
        .current_dir(dir.path())
        .args("watch -- dd if=/dev/zero bs=64K count=4 oflag=sync of=a".split(' '))
        .output()
        .unwrap();
    // What is watched has standard output for itself.
    let told = Output {
        stdout: watched.stderr.clone(),
        ..watched
    };
    narrow(&["watch"], &told);
}

/// What a lab says until it is told to end, and that it tells where the page is.
#[cfg(feature = "lab")]
#[test]
fn the_steps_of_the_lab_are_a_line_each() {
    use std::io::{BufRead as _, BufReader};

    let Some(_alone) = alone(&[Need::LoopDevices, Need::Tool("mkfs.xfs")]) else {
        return;
    };
    let mut child = Command::new(PROGRAM)
        .args(["lab", "--size", "512M", "--", "--no-probes"])
        .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
        .args(["--log", "error"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut steps = String::new();
    for line in BufReader::new(child.stderr.take().unwrap()).lines() {
        steps += &(line.unwrap() + "\n");
        if steps.contains("lab: page: ") {
            rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        }
    }
    let ended = child.wait_with_output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let ready = String::from_utf8(ended.stdout).unwrap();
    let metrics = ready
        .split_whitespace()
        .find_map(|word| word.strip_prefix("metrics="));
    let page = format!("lab: page: http://{}/\n", metrics.unwrap());
    assert!(steps.contains(&page), "{steps}");
    let steps_only = steps.lines().all(|line| line.starts_with("lab: "));
    assert!(steps_only, "{steps}");
}

/// `compare` alone has colours: on a terminal, unless they are not wanted, and in a pipe only if they
/// are asked for.
#[cfg(feature = "lab")]
#[test]
fn colours_are_for_terminals_and_for_those_who_ask() {
    let needs = [
        Need::LoopDevices,
        Need::Tool("mkfs.xfs"),
        Need::Tool("script"),
    ];
    let Some(_alone) = alone(&needs) else { return };
    let compare = |color: &str| {
        format!("{PROGRAM} --color {color} compare --scale 0.0005 --block-size 512 2>/dev/null")
    };
    let coloured = |shell: &mut Command| {
        let output = shell.env("TERM", "xterm").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("ext4"), "{shell:?}: {output:?}");
        said.contains(COLOUR)
    };
    let piped = |color| coloured(Command::new("/bin/sh").args(["-c", &compare(color)]));
    let terminal = |color, no_color: bool| {
        let mut script = Command::new("script");
        script.args([
            "--quiet",
            "--return",
            "--command",
            &compare(color),
            "/dev/null",
        ]);
        script.env_remove("NO_COLOR").stdin(Stdio::null());
        if no_color {
            script.env("NO_COLOR", "1");
        }
        coloured(&mut script)
    };
    assert!(piped("always"), "asked for");
    assert!(terminal("auto", false), "a terminal");
    assert!(!terminal("auto", true), "NO_COLOR");
    assert!(!terminal("never", false), "refused");
    assert!(
        terminal("always", true),
        "the flag is stronger than the environment"
    );
}
