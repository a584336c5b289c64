//! A server as a child process: started, ready, asked for its metrics, ended in order.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::{Interrupt, tie_to_parent};
use crate::failure::{cannot, cannot_do};

/// How long a start may take.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// How long an orderly end may take before the process is killed.
const STOP_PATIENCE: Duration = Duration::from_secs(20);
const LOG_LINES: usize = 12;
/// Linux counts the time of processes in hundredths of a second, whatever its own clock does.
pub(crate) const TICKS_PER_SECOND: f64 = 100.0;

/// How the service is called in messages.
pub(crate) const SERVICE: &str = "the service";
/// Name of its store where it has one.
pub(crate) const STORE: &str = "bench";

type Log = Arc<Mutex<VecDeque<String>>>;

/// A server; ended when dropped. Start it from a thread that lives as long: the kernel kills it
/// with that thread.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) who: &'static str,
    /// `http://127.0.0.1:PORT`.
    pub(crate) url: String,
    /// Where its metrics are, when it has some.
    metrics: Option<String>,
    /// `http://127.0.0.1:PORT` of its S3 endpoint, when it has one.
    pub(crate) s3: Option<String>,
    child: Child,
    log: Log,
}

/// Adds the arguments that serve these stores, by name and path, on free ports of this machine.
pub(crate) fn serve<'a>(
    command: &mut Command,
    stores: impl IntoIterator<Item = (&'a str, &'a Path)>,
    probes: bool,
) {
    command.arg("serve");
    for (name, path) in stores {
        let mut store = OsString::from(format!("{name}="));
        store.push(path);
        command.arg("--store").arg(store);
    }
    command.args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    if !probes {
        command.arg("--no-probes");
    }
}

/// The command that serves one store, called [`STORE`]. `exe`: the program that understands `serve`.
pub(crate) fn serve_one(exe: &Path, store: &Path, probes: bool) -> Command {
    let mut command = Command::new(exe);
    serve(&mut command, [(STORE, store)], probes);
    command
}

/// Makes a store by `lumpscope format`, of which `command` is the begin; never with `--force`.
pub(crate) fn format(
    mut command: Command,
    path: &Path,
    capacity: u64,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    tie_to_parent(&mut command, None);
    command.args(["--volatile", "--capacity", &capacity.to_string()]);
    command.arg(path);
    let ended = interrupt.output(command, Duration::MAX)?;
    // A terminal sends Ctrl-C to the child as well, which may end first.
    interrupt.check()?;
    if ended.status.success() {
        return Ok(());
    }
    let reason = ended.stderr.trim();
    let reason = match reason.strip_prefix("lumpscope: ").unwrap_or(reason) {
        "" => ended.status.to_string(),
        reason => reason.to_owned(),
    };
    bail!(
        "cannot format a store at {}: {reason}. (A measurement never overwrites anything: empty the disk \
         yourself if nothing on it is needed)",
        path.display()
    )
}

impl Server {
    /// Starts it and waits until it serves.
    pub(crate) fn start(
        who: &'static str,
        mut command: Command,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Server> {
        tie_to_parent(&mut command, None);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot_do(format!("start {who}")))?;
        let log = Log::default();
        if let Some(stderr) = child.stderr.take() {
            keep_last_lines(stderr, Arc::clone(&log));
        }
        let ready = child.stdout.take().map(read_ready_line);
        let mut server = Server {
            who,
            url: String::new(),
            metrics: None,
            s3: None,
            child,
            log,
        };
        let line = server.wait_until_ready(ready, interrupt)?;
        for word in line.split(' ') {
            match word.split_once('=') {
                Some(("grpc", address)) => server.url = format!("http://{address}"),
                Some(("s3", address)) => server.s3 = Some(format!("http://{address}")),
                Some(("metrics", address)) => server.metrics = Some(address.to_owned()),
                _ => {}
            }
        }
        Ok(server)
    }

    fn wait_until_ready(
        &mut self,
        ready: Option<Receiver<String>>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<String> {
        let patience = Instant::now() + START_PATIENCE;
        let Some(ready) = ready else {
            return Err(self.failed("has no standard output"));
        };
        loop {
            interrupt.check()?;
            match ready.recv_timeout(Duration::from_millis(20)) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    // Its last words may come a moment later.
                    let _ = self.child.wait();
                    return Err(self.failed("ended before it served"));
                }
                Err(RecvTimeoutError::Timeout) if Instant::now() > patience => {
                    return Err(self.failed("did not serve within a minute"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn failed(&self, what: &str) -> anyhow::Error {
        anyhow::anyhow!(
            "{} {what}. Its last words:\n{}",
            self.who,
            self.last_words()
        )
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last lines it logged, for a message.
    pub(crate) fn last_words(&self) -> String {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if log.is_empty() {
            return "(it logged nothing)".to_owned();
        }
        let lines = log.iter().map(|line| format!("  {line}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Processor time it has used so far, in seconds.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        cpu_seconds(&BTreeSet::from([self.pid()]))
    }

    /// Largest and present resident memory, in bytes.
    pub(crate) fn resident(&self) -> anyhow::Result<(u64, u64)> {
        let text = self.proc("status")?;
        let of = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key))?;
            let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
            Some(kib * 1024)
        };
        of("VmHWM:")
            .zip(of("VmRSS:"))
            .ok_or_else(|| self.failed("has a /proc entry that cannot be read"))
    }

    fn proc(&self, file: &str) -> anyhow::Result<String> {
        let path = format!("/proc/{}/{file}", self.child.id());
        std::fs::read_to_string(&path).map_err(|_| self.failed("has ended while it was measured"))
    }

    /// Value of a gauge or counter, all its lines together; `None`: it has none.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        let Some(address) = &self.metrics else {
            return Ok(None);
        };
        let text = http_get(address).map_err(cannot_do("read the metrics"))?;
        let values: Vec<f64> = text
            .lines()
            .filter(|line| line.split(['{', ' ']).next() == Some(name))
            .filter_map(|line| line.rsplit(' ').next()?.parse().ok())
            .collect();
        Ok((!values.is_empty()).then(|| values.iter().sum()))
    }
}

/// Processor time that these processes have used so far, in seconds.
pub(crate) fn cpu_seconds(pids: &BTreeSet<u32>) -> anyhow::Result<f64> {
    let mut all = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/stat");
        let text = std::fs::read_to_string(&path).map_err(cannot("read", Path::new(&path)))?;
        // The name in parentheses may hold blanks; the fields behind it do not.
        let fields = text.rsplit(')').next().unwrap_or("").split_whitespace();
        let ticks: Option<u64> = fields.skip(11).take(2).map(|n| n.parse::<u64>().ok()).sum();
        all += ticks.ok_or_else(|| anyhow!("{path} cannot be read"))?;
    }
    Ok(crate::human::as_float(all) / TICKS_PER_SECOND)
}

fn http_get(address: &str) -> Result<String, ureq::Error> {
    let request = ureq::get(format!("http://{address}/metrics")).config();
    let request = request.timeout_global(Some(START_PATIENCE)).build();
    request.call()?.body_mut().read_to_string()
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            let asked = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
            let patience = Instant::now() + STOP_PATIENCE;
            while asked && Instant::now() < patience {
                if let Ok(Some(_)) = self.child.try_wait() {
                    return;
                }
                thread::sleep(Duration::from_millis(10));
            }
            // Both fail only when it has ended meanwhile.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Passes on the ready line, then keeps reading so that the pipe never fills up.
fn read_ready_line(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if line.contains(" ready grpc=") {
                // Nobody waits any more after an interrupt.
                let _ = sender.send(line);
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
