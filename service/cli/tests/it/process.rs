//! `lumpscope serve` as a process of its own, ended by its own process id.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_lumpscope");

/// The program, without the variables by which this repository's tests are told something.
pub(crate) fn program() -> Command {
    program_at(Path::new(PROGRAM))
}

/// Likewise, where it was installed.
pub(crate) fn program_at(path: &Path) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("LUMPSCOPE_") {
            command.env_remove(name);
        }
    }
    command
}

/// Runs the program with these bytes on its standard input.
pub(crate) fn run_with(arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"));
    fed(command.args(arguments), input)
}

/// Likewise, as this command.
pub(crate) fn fed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The program may refuse its arguments without reading anything.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// A service; killed when dropped.
pub(crate) struct Process {
    pub(crate) child: Child,
    pub(crate) grpc: String,
    pub(crate) metrics: std::net::SocketAddr,
    log: PathBuf,
}

impl Process {
    /// Starts it with these stores and arguments, without probes; its log goes to a file.
    pub(crate) fn start(folder: &Path, stores: &[(&str, &Path)], more: &[&str]) -> Self {
        Self::spawn(Command::new(PROGRAM).arg("serve"), folder, stores, more)
    }

    /// Starts this program, where it was installed.
    pub(crate) fn of(
        program: &Path,
        folder: &Path,
        stores: &[(&str, &Path)],
        more: &[&str],
    ) -> Self {
        Self::spawn(Command::new(program).arg("serve"), folder, stores, more)
    }

    /// Starts the service with a limit of `bytes` for each file: writes beyond fail, as on a bad
    /// disk.
    pub(crate) fn limited(
        folder: &Path,
        stores: &[(&str, &Path)],
        more: &[&str],
        bytes: u64,
    ) -> Self {
        let blocks = bytes / 512;
        let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$0\" serve \"$@\"");
        let mut command = Command::new("/bin/sh");
        Self::spawn(command.args(["-c", &script, PROGRAM]), folder, stores, more)
    }

    /// As [`Process::start`], with a command of which the first words are there.
    pub(crate) fn spawn(
        command: &mut Command,
        folder: &Path,
        stores: &[(&str, &Path)],
        more: &[&str],
    ) -> Self {
        let more = [&["--no-probes"], more].concat();
        Self::with_probes(command, folder, stores, &more)
    }

    /// As [`Process::spawn`], with probes unless `more` says otherwise.
    pub(crate) fn with_probes(
        command: &mut Command,
        folder: &Path,
        stores: &[(&str, &Path)],
        more: &[&str],
    ) -> Self {
        let log = folder.join("log");
        for (name, path) in stores {
            command.args(["--store", &format!("{name}={}", path.display())]);
        }
        for flag in ["--listen", "--metrics-listen"] {
            if !more.contains(&flag) {
                command.args([flag, "127.0.0.1:0"]);
            }
        }
        let mut child = command
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let said = |key| {
            let mut words = words.iter();
            let found = words.find_map(|word| word.strip_prefix(key));
            let log = || std::fs::read_to_string(&log);
            found.unwrap_or_else(|| panic!("not ready: {line:?}; {:?}", log()))
        };
        assert_eq!(words[..2], ["lumpscope", "ready"], "{line}");
        Self {
            grpc: format!("http://{}", said("grpc=")),
            metrics: said("metrics=").parse().unwrap(),
            child,
            log,
        }
    }

    /// Runs a command as a client of it.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.feed(arguments, b"")
    }

    /// Runs a command that reads this.
    pub(crate) fn feed(&self, arguments: &[&str], input: &[u8]) -> Output {
        run_with(&[arguments, &["--server", &self.grpc]].concat(), input)
    }

    /// Ends it in order.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.child.wait().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Lets files grow without bounds again: the disk is well.
    pub(crate) fn lift_limit(&self) {
        let (current, maximum) = (None, None);
        let pid = Some(Pid::from_child(&self.child));
        rustix::process::prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).unwrap();
    }

    /// From now on it can have only so many files open; `None`: as many as before.
    pub(crate) fn limit_files(&self, most: Option<u64>) {
        let pid = Some(Pid::from_child(&self.child));
        let now = rustix::process::getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: most.or(now.current),
            maximum: now.maximum,
        };
        rustix::process::prlimit(pid, Resource::Nofile, limit).unwrap();
    }

    /// Files it has open.
    pub(crate) fn files(&self) -> u64 {
        let folder = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(folder).unwrap().count() as u64
    }

    /// Waits for its end, which must come within `longest`.
    pub(crate) fn ended(&mut self, longest: Duration) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < longest, "it does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Log so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
