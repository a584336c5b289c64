//! A real browser: the scenarios of `tests/browser`, each run by Node against a service that is up, with lines of JSON
//! between it and the test.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use lumpscope_lab::tie_to_parent;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::needs::{Need, find_tool};

/// Needs of every test with a browser.
pub const BROWSER: &[Need] = &[Need::Tool("chromium"), Need::Tool("browser-node")];

/// Longest time without a word from a scenario. Its own waits are shorter.
const SILENT_FOR: Duration = Duration::from_secs(600);
/// Longest that a browser whose driver was killed may take to end by itself.
const GONE_WITHIN: Duration = Duration::from_secs(20);

/// A scenario under way. Dropping it ends Node, the browser and whatever the browser has started.
#[derive(Debug)]
pub struct Scenario {
    name: String,
    node: Child,
    answers: ChildStdin,
    lines: Receiver<String>,
    checked: Vec<String>,
    /// Where the browser keeps its profile: that it is in a command line tells whose process it is.
    folder: tempfile::TempDir,
}

impl Scenario {
    /// Starts `tests/browser/scenarios/NAME.mjs` in a browser, with further variables of the environment. Ends when the
    /// calling thread does.
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(name: &str, variables: &[(&str, &str)]) -> Scenario {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
        let folder = tempfile::Builder::new()
            .prefix("lumpscope-browser-")
            .tempdir()
            .expect("a folder can be made");
        let mut command = Command::new(find_tool("browser-node").expect("it was found before"));
        tie_to_parent(&mut command, None);
        let chromium = find_tool("chromium").expect("it was found before");
        command
            .arg(scripts.join("run.mjs"))
            .arg(name)
            .envs(variables.iter().copied())
            .env("LUMPSCOPE_CHROMIUM", chromium)
            .env("TMPDIR", folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut node = command.spawn().expect("Node starts");
        let answers = node.stdin.take().expect("stdin is piped");
        let stdout = node.stdout.take().expect("stdout is piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Scenario {
            name: name.to_owned(),
            node,
            answers,
            lines,
            checked: Vec::new(),
            folder,
        }
    }

    /// Goes on until the scenario asks for something to be done to the service; none: it has ended, and all was good.
    ///
    /// # Panics
    /// When the scenario fails, ends without a word, or is silent for minutes.
    pub fn asks(&mut self) -> Option<String> {
        loop {
            let line = self.lines.recv_timeout(SILENT_FOR);
            let (name, checked) = (&self.name, &self.checked);
            let line = line.unwrap_or_else(|error| panic!("{name}: {error} after {checked:#?}"));
            let said: Value = serde_json::from_str(&line).expect("each line is JSON");
            if let Some(what) = said["checked"].as_str() {
                eprintln!("{}: {what}", self.name);
                self.checked.push(what.to_owned());
            } else if let Some(what) = said["ask"].as_str() {
                return Some(what.to_owned());
            } else {
                let error = &said["summary"]["error"];
                let good = said["summary"].is_object() && error.is_null();
                let why = error.as_str().unwrap_or(&line);
                assert!(good, "{name}: {why} after {checked:#?}");
                let status = self.node.wait().expect("it can be waited for");
                assert!(status.success(), "{}: {status}", self.name);
                assert!(!self.checked.is_empty(), "{} checks nothing", self.name);
                return None;
            }
        }
    }

    /// Says that it is done.
    ///
    /// # Panics
    /// When the scenario has ended.
    pub fn answer(&mut self, what: &Value) {
        writeln!(self.answers, "{what}").expect("the scenario waits for the answer");
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it fails, or asks for something.
    pub fn end(mut self) {
        let asked = self.asks();
        assert_eq!(asked, None, "the scenario asks, and nobody was to answer");
    }

    /// Where its browser keeps what it keeps.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Process id of Node.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.node.id()
    }
}

impl Drop for Scenario {
    fn drop(&mut self) {
        // Already ended: each of these fails, and that is what was wanted.
        let _ = kill_process_group(Pid::from_child(&self.node), Signal::KILL);
        let _ = self.node.wait();
        // The browser is in a session of its own. It ends by itself when the pipe to its driver closes.
        if !gone(self.folder.path()) {
            for pid in processes_with(self.folder.path()) {
                let _ = kill_process(pid, Signal::KILL);
            }
            gone(self.folder.path());
        }
    }
}

/// Waits until no process has a folder in its command line or environment; false: some still have.
fn gone(folder: &Path) -> bool {
    let end = Instant::now() + GONE_WITHIN;
    while Instant::now() < end {
        if processes_with(folder).is_empty() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Processes that have a folder in their command line or their environment, as the browser and its helpers have their
/// profile's. Those that are dead and not yet waited for have neither.
#[must_use]
pub fn processes_with(folder: &Path) -> Vec<Pid> {
    let folder = folder.as_os_str().as_encoded_bytes();
    let names = |file: &Path| {
        fs::read(file).is_ok_and(|text| text.windows(folder.len()).any(|part| part == folder))
    };
    let Ok(all) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    all.filter_map(Result::ok)
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let process = entry.path();
            let ours = names(&process.join("cmdline")) || names(&process.join("environ"));
            ours.then(|| Pid::from_raw(pid)).flatten()
        })
        .collect()
}
