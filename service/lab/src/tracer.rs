//! The scripts in `ebpf/bpftrace`, run as a person would run them; `block-count.bt` is a second opinion
//! on what a disk did.
//!
//! They share no code with the probes of the service. What a script cannot see stands in its head.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use rustix::process::{Pid, Signal, kill_process};

use crate::process::{ChildGuard, tie_to_parent};

/// The shell line that becomes bpftrace. It runs in a mount namespace of its own, so that nothing
/// stays mounted where tracefs was not; without `-B none` bpftrace keeps its lines to itself.
const SHELL: &str = "[ -d /sys/kernel/tracing/events ] \
     || mount -t tracefs tracefs /sys/kernel/tracing; exec bpftrace -B none \"$@\"";

/// How long bpftrace may take to end before it is told again.
const STOP_AGAIN: Duration = Duration::from_secs(3);

/// For `map_err`: bpftrace cannot be run or talked to.
fn cannot<E: std::fmt::Display>(what: &'static str) -> impl FnOnce(E) -> anyhow::Error {
    move |error| {
        anyhow!(
            "cannot {what}: {error}; bpftrace and util-linux must be installed, and root run them"
        )
    }
}

/// Counts by operation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct OperationCounts(BTreeMap<String, (u64, u64)>);

impl OperationCounts {
    /// Requests and bytes of `read`, `write`, `flush`, `flush-asked`, `discard` or `other`.
    #[must_use]
    pub fn of(&self, operation: &str) -> (u64, u64) {
        self.0.get(operation).copied().unwrap_or_default()
    }

    /// Requests and bytes of all operations.
    #[must_use]
    pub fn all(&self) -> (u64, u64) {
        self.0
            .values()
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let (name, rest) = line.split_once('[')?;
        let (keys, value) = rest.split_once("]: ")?;
        let operation = keys.rsplit(", ").next()?;
        let value: u64 = value.trim().parse().ok()?;
        let entry = self.0.entry(operation.to_owned()).or_default();
        match name {
            "@requests" => entry.0 += value,
            "@bytes" => entry.1 += value,
            _ => return None,
        }
        Some(())
    }
}

/// A running count of the block requests of one disk. Ends with the thread that started it.
#[derive(Debug)]
pub struct Tracer {
    script: PathBuf,
    child: ChildGuard,
    output: BufReader<ChildStdout>,
}

impl Tracer {
    /// Starts to count on the whole disk with this number; returns when it counts.
    ///
    /// # Errors
    /// bpftrace is missing or refuses.
    pub fn start(script: &Path, major: u32, minor: u32) -> anyhow::Result<Tracer> {
        Tracer::start_with(script, [major.to_string(), minor.to_string()])
    }

    /// Starts any of the scripts with what it wants to be told; returns when it has said `ready`.
    ///
    /// # Errors
    /// bpftrace is missing or refuses.
    pub fn start_with<I, S>(script: &Path, arguments: I) -> anyhow::Result<Tracer>
    where
        I: IntoIterator<Item = S>,
        S: AsRef<OsStr>,
    {
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", SHELL, "sh"])
            .arg(script)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        tie_to_parent(&mut command, None);
        let mut child = ChildGuard(command.spawn().map_err(cannot("run unshare"))?);
        let stdout = child
            .0
            .stdout
            .take()
            .ok_or_else(|| cannot("read from bpftrace")("it has no standard output"))?;
        let mut tracer = Tracer {
            script: script.to_owned(),
            child,
            output: BufReader::new(stdout),
        };
        let mut line = String::new();
        while line.trim() != "ready" {
            line.clear();
            let read = tracer.output.read_line(&mut line);
            if read.map_err(cannot("read from bpftrace"))? == 0 {
                return Err(tracer.refusal());
            }
        }
        Ok(tracer)
    }

    /// Number of its process.
    #[must_use]
    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    fn refusal(&mut self) -> anyhow::Error {
        let mut said = String::new();
        if let Some(stderr) = &mut self.child.0.stderr {
            // What cannot be read is not said.
            let _ = stderr.take(1 << 16).read_to_string(&mut said);
        }
        let last = said.trim().lines().last().unwrap_or("it said nothing");
        anyhow!("bpftrace does not run {}: {last}", self.script.display())
    }

    /// Stops it as Ctrl-C would, and reads what it counted.
    ///
    /// # Errors
    /// It printed something else.
    pub fn finish(self) -> anyhow::Result<OperationCounts> {
        let script = self.script.clone();
        let text = self.finish_text()?;
        let mut counted = OperationCounts::default();
        for line in text.lines().filter(|line| line.starts_with('@')) {
            counted
                .add(line)
                .with_context(|| format!("{} does not print counts: '{line}'", script.display()))?;
        }
        Ok(counted)
    }
}

impl Tracer {
    /// Stops it as Ctrl-C would; what it has printed since it was ready.
    ///
    /// bpftrace 0.17 only notices a signal that finds it waiting for events. One that comes while it
    /// prints is lost, so it is sent again, though not so soon that it would disturb the printing
    /// of what is left.
    ///
    /// # Errors
    /// It cannot be stopped or read.
    pub fn finish_text(self) -> anyhow::Result<String> {
        let pid = Pid::from_child(&self.child.0);
        // The number stays this child's: nobody waits for it before `self` is dropped.
        let stop = || kill_process(pid, Signal::INT);
        stop().map_err(|errno| cannot("stop bpftrace")(errno))?;
        let (ended, wait) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                while wait.recv_timeout(STOP_AGAIN) == Err(RecvTimeoutError::Timeout) {
                    // It may have ended in this moment.
                    let _ = stop();
                }
            });
            let mut tracer = self;
            let text = tracer.read_to_end();
            drop(ended);
            text
        })
    }

    /// Waits until it ends by itself; what it has printed since it was ready.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn wait_text(mut self) -> anyhow::Result<String> {
        self.read_to_end()
    }

    fn read_to_end(&mut self) -> anyhow::Result<String> {
        let mut text = String::new();
        self.output
            .read_to_string(&mut text)
            .map_err(cannot("read from bpftrace"))?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_s_lines_are_counts() {
        let mut counted = OperationCounts::default();
        for line in [
            "@requests[7, 0, read]: 30",
            "@bytes[7, 0, read]: 4096",
            "@requests[7, 0, flush-asked]: 2",
        ] {
            counted.add(line).expect("a line of the script");
        }
        assert_eq!(counted.of("read"), (30, 4096));
        assert_eq!(counted.all(), (32, 4096));
        assert_eq!(counted.of("write"), (0, 0));
        for line in [
            "@other[7, 0, read]: 1",
            "@requests[7, 0, read]: many",
            "@requests",
        ] {
            assert_eq!(counted.add(line), None, "{line}");
        }
    }
}
