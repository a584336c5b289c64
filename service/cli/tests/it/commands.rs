//! The client commands as scripts use them: JSON, pipes, exit codes.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::{Running, body, folder, store_file};
use crate::process::{PROGRAM, fed};
use lumpscope_engine::crc32c;
use serde_json::Value;

const STORE: &str = "disk";

struct Setup {
    running: Running,
    dir: tempfile::TempDir,
}

impl Setup {
    async fn new() -> Self {
        let dir = folder();
        let path = store_file(dir.path(), STORE, 64 << 20, 512, 0.1);
        let running = Running::start(&[(STORE, &path)]).await;
        Self { running, dir }
    }

    fn feed(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = Command::new(PROGRAM);
        command.env("LUMPSCOPE_SERVER", &self.running.grpc);
        fed(command.env("LUMPSCOPE_RETRIES", "0").args(arguments), input)
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.feed(&[arguments, &["--json"]].concat(), b"");
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Health is looked at four times a second.
    #[track_caller]
    fn becomes(&self, code: i32, arguments: &[&str]) {
        let patience = Instant::now() + Duration::from_secs(30);
        while self.feed(arguments, b"").status.code() != Some(code) {
            assert!(Instant::now() < patience, "{arguments:?} is never {code}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    #[track_caller]
    fn ends(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.feed(arguments, b"bytes");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{said}");
        said
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_json_when_asked_for() {
    let setup = Setup::new().await;
    let big = setup.dir.path().join("big");
    let bytes = body(3, 9 << 20);
    std::fs::write(&big, &bytes).unwrap();
    let stored = setup.json(&["put", STORE, "1", big.to_str().unwrap(), "--if-absent"]);
    assert_eq!(stored["length"], 9 << 20);
    assert_eq!(stored["created"], true);
    assert_eq!(stored["durability"], "synced");
    assert_eq!(stored["crc32c"], format!("{:08x}", crc32c::of(&bytes)));
    let journaled = setup.json(&["put", STORE, "2", "--journaled", "--embedded"]);
    assert_eq!(journaled["length"], 0);
    let out = setup.dir.path().join("out");
    let got = setup.json(&["get", STORE, "1", out.to_str().unwrap()]);
    assert_eq!(got["crc32c"], stored["crc32c"]);
    assert!(std::fs::read(&out).unwrap() == bytes);
    assert_eq!(
        setup.json(&["get", STORE, "1", "--head"])["placement"],
        "data"
    );
    let listed = setup.feed(&["list", STORE, "--json"], b"").stdout;
    let lines = String::from_utf8(listed).unwrap();
    let ids: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(ids[1]["id"], format!("{:032x}", 2));
    assert_eq!(setup.json(&["stores"])["state"], "serving");
    let stat = setup.json(&["stat", STORE]);
    assert_eq!(stat["lumps"], 2);
    assert_eq!(stat["usage"]["lumps"], 2);
    let part = setup.json(&["stat", STORE, "--start", "2", "--end", "3"]);
    assert_eq!(
        (&part["lumps"], &part["usage"]["lumps"]),
        (&2.into(), &1.into())
    );
    assert!(stat["numbers"].as_object().unwrap().len() > 5, "{stat}");
    setup.json(&["sync", STORE]);
    assert!(setup.json(&["admin", "gc", STORE])["used_bytes"].is_u64());
    setup.json(&["admin", "scrub", STORE, "--start", "--rate", "64M"]);
    let scrub = setup.json(&["admin", "scrub", STORE]);
    assert_eq!(scrub["bytes_per_second"], 64 << 20, "{scrub}");
    setup.json(&["admin", "scrub", STORE, "--stop"]);
    let service = setup.json(&["admin", "service"]);
    assert_eq!(service["pid"], std::process::id());
    assert!(!service["settings"].as_object().unwrap().is_empty());
    assert_eq!(setup.json(&["delete", STORE, "1"])["existed"], true);
    let range = ["delete", STORE, "--start", "0", "--end", "9"];
    assert_eq!(setup.json(&range)["deleted"], 1);
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stores_are_drained_removed_and_added() {
    let setup = Setup::new().await;
    let path = setup.json(&["stores"])["path"].as_str().unwrap().to_owned();
    assert_eq!(setup.json(&["admin", "drain", STORE])["under_way"], 0);
    let said = setup.ends(1, &["put", STORE, "1"]);
    assert!(said.contains("UNAVAILABLE"), "{said}");
    setup.becomes(1, &["health", STORE]);
    setup.becomes(1, &["health"]);
    setup.ends(3, &["health", "nothing"]);
    setup.json(&["admin", "resume", STORE]);
    setup.becomes(0, &["health", STORE]);
    setup.becomes(0, &["health"]);
    assert!(setup.feed(&["put", STORE, "1"], b"x").status.success());
    setup.json(&["admin", "remove-store", STORE, "--wait", "30"]);
    setup.ends(3, &["get", STORE, "1"]);
    let pair = format!("{STORE}={path}");
    for words in [&[STORE, &path][..], &[&pair]] {
        let added = setup.json(&[&["admin", "add-store"], words].concat());
        assert_eq!(added["state"], "serving");
        assert_eq!(setup.feed(&["get", STORE, "1"], b"").stdout, b"x");
        setup.json(&["admin", "remove-store", STORE, "--wait", "30"]);
    }
    let said = setup.ends(1, &["admin", "add-store", STORE]);
    assert!(said.contains("NAME=PATH"), "{said}");
    setup.json(&["admin", "add-store", &pair]);
    // A text answer of each that has one.
    for words in [
        &["stat", STORE][..],
        &["admin", "scrub", STORE],
        &["admin", "gc", STORE],
        &["admin", "service"],
        &["admin", "drain"],
        &["admin", "resume"],
        &["sync", STORE],
    ] {
        let output = setup.feed(words, b"");
        assert!(output.status.success(), "{output:?}");
        assert!(
            !output.stdout.is_empty() && output.stdout[0] != b'{',
            "{output:?}"
        );
    }
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_say_what_happened() {
    let setup = Setup::new().await;
    let put = ["put", STORE, "1", "--if-absent"];
    assert!(setup.feed(&put, b"first").status.success());
    assert!(setup.ends(1, &put).contains("ALREADY_EXISTS"));
    assert_eq!(setup.feed(&["get", STORE, "1", "-"], b"").stdout, b"first");
    let several = setup.feed(&["delete", STORE, "1", "2"], b"").stdout;
    let several = String::from_utf8(several).unwrap();
    let words = "1 deleted";
    assert!(
        several.lines().next().unwrap().ends_with(words),
        "{several}"
    );
    let words = "no such lump";
    assert!(several.lines().nth(1).unwrap().contains(words), "{several}");
    assert!(setup.ends(3, &["get", STORE, "1"]).contains("NOT_FOUND"));
    setup.ends(3, &["get", STORE, "1", "--head"]);
    setup.ends(2, &["get", STORE, "1", "file", "--head"]);
    setup.ends(3, &["list", "tape"]);
    setup.ends(2, &["get", STORE, "not hexadecimal"]);
    setup.ends(2, &["delete", STORE]);
    setup.ends(2, &["delete", STORE, "--start", "0"]);
    setup.ends(2, &["delete", STORE, "1", "--start", "0", "--end", "9"]);
    setup.ends(2, &["get", STORE, "1", "--json"]);
    setup.ends(2, &["put", STORE, "1", "--cert", "x"]);
    setup.ends(1, &["stores", "--server", "ftp://x"]);
    let missing = ["stores", "--token-file", "/nowhere/at/all"];
    assert!(setup.ends(1, &missing).contains("/nowhere/at/all"));
    let token = setup.dir.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let token = token.to_str().unwrap();
    let said = setup.ends(
        1,
        &[
            "stores",
            "--server",
            "http://10.0.0.1:1",
            "--token-file",
            token,
        ],
    );
    assert!(said.contains("unencrypted"), "{said}");
    assert!(!said.contains("s3cret"), "{said}");
    // A get that fails leaves the file that was there, and nothing else.
    let out = setup.dir.path().join("kept");
    std::fs::write(&out, "old").unwrap();
    let before = std::fs::read_dir(setup.dir.path()).unwrap().count();
    setup.ends(3, &["get", STORE, "9", out.to_str().unwrap()]);
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "old");
    assert_eq!(std::fs::read_dir(setup.dir.path()).unwrap().count(), before);
    setup.running.stop().await;
}

/// The program with little memory.
fn with_little_memory(setup: &Setup, arguments: &[&str]) -> Output {
    Command::new("/bin/sh")
        .args(["-c", "ulimit -v 1048576; exec \"$0\" \"$@\"", PROGRAM])
        .args(arguments)
        .env("LUMPSCOPE_SERVER", &setup.running.grpc)
        .env("LUMPSCOPE_RETRIES", "0")
        .stdin(std::fs::File::open("/dev/zero").unwrap())
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_end_is_refused_as_a_file_that_is_too_large() {
    let setup = Setup::new().await;
    let big = setup.dir.path().join("big");
    let file = std::fs::File::create(&big).unwrap();
    file.set_len(1 << 30).unwrap();
    for from in ["-", "/dev/zero", big.to_str().unwrap()] {
        let output = with_little_memory(&setup, &["put", STORE, "1", from]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{from}: {said}");
        assert!(said.contains("OUT_OF_RANGE"), "{from}: {said}");
    }
    let output = with_little_memory(&setup, &["put", "none", "1"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    // A pipe with more than is read at first.
    let bytes = body(1, 12 << 20);
    let output = setup.feed(&["put", STORE, "1"], &bytes);
    assert!(output.status.success(), "{output:?}");
    assert!(setup.feed(&["get", STORE, "1"], b"").stdout == bytes);
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_the_connection_are_no_endless_files() {
    let setup = Setup::new().await;
    let ca = setup.dir.path().join("ca.pem");
    std::fs::write(&ca, "").unwrap();
    let (ca, zero) = (ca.to_str().unwrap(), "/dev/zero");
    for arguments in [
        &["--token-file", zero][..],
        &["--ca", zero, "--server", "https://localhost:1"],
        &[
            "--ca",
            ca,
            "--cert",
            zero,
            "--key",
            ca,
            "--server",
            "https://localhost:1",
        ],
        &[
            "--ca",
            ca,
            "--cert",
            ca,
            "--key",
            zero,
            "--server",
            "https://localhost:1",
        ],
    ] {
        let output = with_little_memory(&setup, &[&["stores"], arguments].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("larger than 4M"), "{arguments:?}: {said}");
    }
}
