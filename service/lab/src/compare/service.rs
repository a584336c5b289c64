//! The real service, as a child process.

use anyhow::anyhow;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::cannot_do;

use rustix::process::{Pid, Signal, kill_process};

use super::place::Places;
use crate::interrupt::Interrupt;

/// How long the service may take until it serves: it replays three fresh stores and loads probes.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long an orderly end may take before the service is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
const LOG_LINES: usize = 12;
const READY: &str = "lumpscope ready grpc=";

type Log = Arc<Mutex<VecDeque<String>>>;

/// The service; ended when dropped.
#[derive(Debug)]
pub(super) struct Service {
    child: Child,
    log: Log,
    /// `http://127.0.0.1:PORT`.
    pub(super) server: String,
}

impl Service {
    /// Starts it on all places and waits until it serves.
    pub(super) fn start(
        exe: &Path,
        places: &Places,
        no_probes: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Service> {
        let mut command = places.command(exe);
        command.arg("serve");
        for place in &places.places {
            let mut store = std::ffi::OsString::from(format!("{}=", place.kind.name()));
            store.push(&place.path);
            command.arg("--store").arg(store);
        }
        command.args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
        if no_probes {
            command.arg("--no-probes");
        }
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot_do(format!("run {}", exe.display())))?;
        let log = Log::default();
        let lines = child.stdout.take().map(read_ready_line);
        if let Some(stderr) = child.stderr.take() {
            keep_last_lines(stderr, Arc::clone(&log));
        }
        let mut service = Service {
            child,
            log,
            server: String::new(),
        };
        service.server = service.wait_until_ready(lines, interrupt)?;
        Ok(service)
    }

    fn wait_until_ready(
        &mut self,
        ready: Option<Receiver<String>>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<String> {
        let failed =
            |what: String, log: String| anyhow!("the service {what}. Its last words:\n{log}");
        let Some(ready) = ready else {
            return Err(failed("has no standard output".to_owned(), String::new()));
        };
        let patience = Instant::now() + START_PATIENCE;
        loop {
            interrupt.check()?;
            match ready.recv_timeout(Duration::from_millis(50)) {
                Ok(address) => return Ok(format!("http://{address}")),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.end(STOP_PATIENCE);
                    let what = match status {
                        Some(status) => format!("ended before it served ({status})"),
                        None => "closed its standard output before it served".to_owned(),
                    };
                    return Err(failed(what, self.last_words()));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > patience => {
                    let what = format!("did not serve within {} s", START_PATIENCE.as_secs());
                    return Err(failed(what, self.last_words()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// The last lines it logged.
    pub(super) fn last_words(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_empty() {
            return "(it logged nothing)".to_owned();
        }
        log.iter()
            .map(|line| format!("  {line}"))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Waits for its end; `None`: it did not end in time.
    fn end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let patience = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if Instant::now() < patience => {
                    thread::sleep(Duration::from_millis(10));
                }
                Ok(None) | Err(_) => return None,
            }
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let asked = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
            if asked && self.end(STOP_PATIENCE).is_some() {
                return;
            }
            // Both fail only when it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Passes on the address in the ready line, then keeps reading so that the pipe never fills up.
fn read_ready_line(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(rest) = line.strip_prefix(READY) {
                let address = rest.split(' ').next().unwrap_or(rest);
                // Nobody waits any more after an interrupt.
                let _ = sender.send(address.to_owned());
            }
        }
    });
    receiver
}

fn keep_last_lines(stderr: impl Read + Send + 'static, log: Log) {
    thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            if log.len() == LOG_LINES {
                log.pop_front();
            }
            log.push_back(line);
        }
    });
}
