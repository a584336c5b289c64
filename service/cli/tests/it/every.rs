//! Every command with arguments that make it print something.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::common::folder;
use crate::process::{Process, program};

/// A recording of a service on an ext4.
pub(crate) const RECORDING: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../ebpf/observer/testdata/ext4.jsonl"
);

/// A service with the stores `hdd` and `more`, and files for the commands.
pub(crate) struct Scene {
    dir: tempfile::TempDir,
    service: Process,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let dir = folder();
        let at = |name: &str| dir.path().join(name);
        files(dir.path());
        let (first, second) = (at("first"), at("second"));
        let stores = [("hdd", first.as_path()), ("more", second.as_path())];
        let service = Process::start(dir.path(), &stores, &[]);
        Self { dir, service }
    }

    pub(crate) fn server(&self) -> &str {
        &self.service.grpc
    }

    /// Runs `each` with all commands: those of a client first, then those that need no service.
    pub(crate) fn each(mut self, each: impl Fn(&str, &[String])) {
        for line in online(self.dir.path()) {
            each(&self.service.grpc, &line);
        }
        self.service.signal(Signal::TERM);
        self.service.ended(Duration::from_secs(30));
        for line in offline(self.dir.path()) {
            each("", &line);
        }
    }

    pub(crate) fn at(&self, name: &str) -> String {
        path(&self.dir.path().join(name)).to_owned()
    }
}

/// Makes the files that the commands use.
pub(crate) fn files(dir: &Path) {
    let at = |name: &str| dir.join(name);
    for name in ["first", "second"] {
        let file = at(name);
        let made = run("", &words(&["format", path(&file), "--capacity", "64M"]));
        assert!(made.status.success(), "{made:?}");
    }
    std::fs::write(at("a"), vec![7; 100_000]).unwrap();
}

/// Commands that ask a service with the stores `hdd` and `more`.
pub(crate) fn online(dir: &Path) -> Vec<Vec<String>> {
    let at = |name: &str| path(&dir.join(name)).to_owned();
    let (a, second) = (at("a"), at("second"));
    let recording = at("made.jsonl");
    let most = "ffffffffffffffffffffffffffffffff";
    let lines: &[&[&str]] = &[
        &["put", "hdd", "1", &a],
        &["put", "hdd", most, &a],
        &["get", "hdd", "1", "--head"],
        &["list", "hdd"],
        #[cfg(feature = "lab")]
        &["load", "--store=hdd", "--lumps=20", "--seconds=1", "--keep"],
        &["delete", "hdd", "1", "2"],
        &["delete", "hdd", "--start", "5", "--end", "9"],
        &["stores"],
        &["stat", "hdd"],
        &["health", "hdd"],
        &["sync", "hdd"],
        &["top", "--count", "1"],
        &["explain"],
        &["record", &recording, "--seconds", "1"],
        &["evacuate", "hdd", "more"],
        &["admin", "service"],
        &["admin", "observer"],
        &["admin", "service", "--reload"],
        &["admin", "remove-store", "more"],
        &["admin", "add-store", "more", &second],
        &["admin", "scrub", "hdd", "--start", "--rate", "64M"],
        &["admin", "scrub", "hdd"],
        &["admin", "scrub", "hdd", "--stop"],
        &["admin", "gc", "hdd"],
        &["admin", "drain", "hdd"],
        &["admin", "resume", "hdd"],
    ];
    lines.iter().map(|line| words(line)).collect()
}

/// Commands that need no service.
pub(crate) fn offline(dir: &Path) -> Vec<Vec<String>> {
    let at = |name: &str| path(&dir.join(name)).to_owned();
    let (first, made) = (at("first"), at("made"));
    let (pages, store) = (at("pages"), format!("a={first}"));
    let lines: &[&[&str]] = &[
        &["format", &made, "--capacity", "16M"],
        &["serve", "--check-config", "--no-probes", "--store", &store],
        &["check", &first, "--quick"],
        &["check", &first, "--lumps"],
        &["check", &first, "--journal"],
        &["check", &first, "--salvage", "--quick"],
        &["check", &first],
        &["check", &first, "--salvage"],
        &["grow", &first, "--capacity", "80M"],
        &["rename", &made, "cold"],
        &["doctor"],
        &["doctor", "--all"],
        &["token"],
        &["trace", "--replay", RECORDING],
        &["export", RECORDING, "--format", "blkparse"],
        &["bpftrace", "head-mover"],
        &["explain", "--replay", RECORDING],
        &["top", "--replay", RECORDING],
        &["man", &pages],
        #[cfg(feature = "lab")]
        &["platter", "drives"],
        #[cfg(feature = "lab")]
        &["platter", "drives", "st1000dm003"],
        #[cfg(feature = "lab")]
        &["platter", "replay", RECORDING],
        #[cfg(feature = "lab")]
        &["platter", "status"],
        #[cfg(feature = "lab")]
        &["bench", "run", "rand1", "--print", "summary"],
        #[cfg(feature = "lab")]
        &["bench", "orders", "--requests", "50", "--rounds", "2"],
    ];
    lines.iter().map(|line| words(line)).collect()
}

/// Commands that ask for root, tools or much time, or whose output is no text: other tests run them.
const ELSEWHERE: [&str; 16] = [
    "completions",
    "compare",
    "demo",
    "lab",
    "watch",
    "platter attach",
    "platter detach",
    "platter check",
    "bench engine",
    "bench grpc",
    "bench observe",
    "bench seeds cannyls",
    "bench seeds diskbenchi",
    "bench seeds fileserver",
    "bench peers",
    "serve",
];

/// No command is forgotten here: the manual has a page for each.
#[test]
fn every_command_is_run() {
    let dir = folder();
    files(dir.path());
    let pages = dir.path().join("pages");
    let made = run("", &words(&["man", path(&pages)]));
    assert!(made.status.success(), "{made:?}");
    let pages = std::fs::read_dir(&pages).unwrap();
    let names = pages.map(|page| page.unwrap().file_name().into_string().unwrap());
    let of_command = |page: String| {
        let command = page.strip_prefix("lumpscope-")?.strip_suffix(".1")?;
        Some(command.to_owned())
    };
    let mut pages: Vec<String> = names.filter_map(of_command).collect();
    pages.sort();
    let lines: Vec<Vec<String>> = [online(dir.path()), offline(dir.path())].concat();
    let lines: Vec<String> = lines.iter().map(|line| line.join("-")).collect();
    let is_group = |page: &String| {
        let begin = format!("{page}-");
        pages.iter().any(|other| other.starts_with(&begin))
    };
    let is_elsewhere = |page: &String| ELSEWHERE.iter().any(|name| name.replace(' ', "-") == *page);
    let is_run = |page: &String| {
        let runs = |line: &String| line == page || line.starts_with(&format!("{page}-"));
        lines.iter().any(runs)
    };
    assert!(pages.len() > 30, "{pages:?}");
    let forgotten = |page: &&String| !is_group(page) && !is_elsewhere(page) && !is_run(page);
    let forgotten: Vec<&String> = pages.iter().filter(forgotten).collect();
    assert!(forgotten.is_empty(), "{forgotten:?}");
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|word| (*word).to_owned()).collect()
}

/// The command, as a client of this service.
pub(crate) fn command(server: &str, arguments: &[String]) -> Command {
    let mut command = program();
    command
        .args(arguments)
        .env("LUMPSCOPE_SERVER", server)
        .env("LUMPSCOPE_RETRIES", "0")
        .env("LUMPSCOPE_TIMEOUT", "10")
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .stdin(Stdio::null());
    command
}

pub(crate) fn run(server: &str, arguments: &[String]) -> Output {
    command(server, arguments).output().unwrap()
}

/// Runs the command with its standard output on a terminal.
pub(crate) fn on_terminal(server: &str, arguments: &[String]) -> Output {
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOCTTY)
        .open(OsStr::from_bytes(name.as_bytes()))
        .unwrap();
    // The command has the terminal open until it is dropped.
    let child = command(server, arguments)
        .env("NO_COLOR", "1")
        .stdout(terminal)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let reading = std::thread::spawn(move || {
        let mut said = Vec::new();
        // Ends with an error when nobody has the terminal open any more.
        let _ = File::from(main).read_to_end(&mut said);
        said
    });
    let mut output = child.wait_with_output().unwrap();
    let said = String::from_utf8(reading.join().unwrap()).unwrap();
    output.stdout = said.replace("\r\n", "\n").into_bytes();
    output
}
