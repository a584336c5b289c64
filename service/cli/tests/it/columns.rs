//! The text of the real commands: in 80 columns where they are all there is, else a line a record.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::folder;
use crate::process::{PROGRAM, Process};
use lumpscope_needs::{Need, alone};
use rustix::process::{Pid, Signal};

const COLUMNS: usize = 80;
const UNITS: [&str; 12] = [
    "B", "KiB", "MiB", "GiB", "TiB", "ns", "us", "µs", "ms", "s", "min", "%",
];
/// A recording of a service on an ext4.
const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../ebpf/observer/testdata/ext4.jsonl"
);

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

fn ask(server: &str, arguments: &[&str]) {
    let output = Command::new(PROGRAM)
        .args(arguments)
        .env("LUMPSCOPE_SERVER", server)
        .env("COLUMNS", "80")
        .output()
        .unwrap();
    narrow(arguments, &output);
}

#[test]
fn clients_and_tools_need_eighty_columns() {
    let dir = folder();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (first, second) = (at("first"), at("second"));
    for path in [&first, &second] {
        ask("", &["format", path, "--capacity", "64M"]);
    }
    let stores = [("hdd", Path::new(&first)), ("more", Path::new(&second))];
    let mut service = Process::start(dir.path(), &stores, &[]);
    std::fs::write(at("a"), vec![7; 100_000]).unwrap();
    let load = "load --store hdd --lumps 20 --seconds 1 --keep".split(' ');
    let load: Vec<&str> = load.collect();
    for words in [
        &["put", "hdd", "1", &at("a")][..],
        &["put", "hdd", "ffffffffffffffffffffffffffffffff", &at("a")],
        &["head", "hdd", "1"],
        &["list", "hdd"],
        &["usage", "hdd"],
        &load,
        &["delete", "hdd", "1", "2"],
        &["delete-range", "hdd", "5", "9"],
        &["stores"],
        &["stat", "hdd"],
        &["health", "hdd"],
        &["sync", "hdd"],
        &["top", "--count", "1"],
        &["explain"],
        &["evacuate", "hdd", "more"],
        &["admin", "service"],
        &["admin", "observer"],
        &["admin", "events"],
        &["admin", "reload"],
        &["admin", "remove-store", "more"],
        &["admin", "add-store", "more", &second],
        &["admin", "scrub-start", "hdd", "--rate", "64M"],
        &["admin", "scrub", "hdd"],
        &["admin", "scrub-stop", "hdd"],
        &["admin", "gc", "hdd"],
        &["admin", "drain", "hdd"],
        &["admin", "resume", "hdd"],
    ] {
        ask(&service.grpc, words);
    }
    service.signal(Signal::TERM);
    service.ended(std::time::Duration::from_secs(30));
    for words in [
        &["inspect", &first][..],
        &["inspect", &first, "--lumps"],
        &["inspect", &first, "--records"],
        &["check", &first],
        &["check", &first, "--salvage"],
        &["grow", &first, "--capacity", "80M"],
        &["doctor"],
        &["doctor", "--all"],
        &["token"],
        &["trace", "--replay", RECORDING],
        &["explain", "--replay", RECORDING],
        &["top", "--replay", RECORDING],
    ] {
        ask("", words);
    }
}

#[test]
fn a_record_is_one_line_where_programs_read() {
    let lines = |more: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(["trace", "--replay", RECORDING])
            .args(more)
            .env_remove("COLUMNS")
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count()
    };
    assert!(lines(&[]) > 10);
    assert_eq!(lines(&[]), lines(&["--json"]) + 1, "one more for the head");
}

#[cfg(feature = "lab")]
#[test]
fn the_lab_needs_eighty_columns() {
    let summary = ["bench", "commands", "rand1", "--summary"];
    for words in [
        &["platter", "drives"][..],
        &["platter", "drives", "st1000dm003"],
        &["platter", "replay", RECORDING],
        &["platter", "status"],
        &["bench", "orders", "--requests", "50", "--rounds", "2"],
        &summary,
    ] {
        ask("", words);
    }
    let Some(_alone) = alone(&[Need::LoopDevices, Need::Tool("mkfs.xfs")]) else {
        return;
    };
    for words in [
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
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        ask("", &words);
    }
    let dir = folder();
    let file = dir.path().join("a").to_str().unwrap().to_owned();
    let watched = Command::new(PROGRAM)
        .args([
            "watch",
            "--",
            "dd",
            "if=/dev/zero",
            "bs=64K",
            "count=4",
            "oflag=sync",
        ])
        .arg(format!("of={file}"))
        .env("COLUMNS", "80")
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
fn the_steps_of_the_lab_need_eighty_columns() {
    use std::io::{BufRead as _, BufReader};

    let Some(_alone) = alone(&[Need::LoopDevices, Need::Tool("mkfs.xfs")]) else {
        return;
    };
    let mut child = Command::new(PROGRAM)
        .args(["lab", "--size", "512M", "--", "--no-probes"])
        .args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"])
        .args(["--log", "error"])
        .env("COLUMNS", "80")
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
    let told = Output {
        status: ended.status,
        stdout: steps.into_bytes(),
        stderr: Vec::new(),
    };
    narrow(&["lab"], &told);
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
    let Some(_alone) = alone(&needs) else {
        return;
    };
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
