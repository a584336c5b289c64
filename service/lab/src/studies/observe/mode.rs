//! Modes of observation that are compared.

use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context as _, bail};
use lumpscope_observer::{number_in, program_statistics};
use serde::Serialize;

use crate::human::as_float;
use crate::process::{Interrupt, SERVICE, Server, TICKS_PER_SECOND, serve_one};
use crate::tracer::Tracer;

/// How a service observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mode {
    /// No probe is loaded.
    Off,
    /// Off again: its difference from [`Mode::Off`] is noise.
    OffAgain,
    /// Probes are loaded, and hand out no event.
    Histograms,
    /// Probes are loaded, and hand out every event.
    Events,
    /// No probe is loaded; a script of bpftrace watches instead.
    Bpftrace,
}

impl Mode {
    pub(super) const ALL: [Mode; 4] = [Mode::Off, Mode::Histograms, Mode::OffAgain, Mode::Events];
    /// In the order of the table.
    pub(super) const EVERY: [Mode; 5] = [
        Mode::Off,
        Mode::OffAgain,
        Mode::Histograms,
        Mode::Events,
        Mode::Bpftrace,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Off => "not loaded",
            Mode::OffAgain => "not loaded, again",
            Mode::Histograms => "histograms only",
            Mode::Events => "with events",
            Mode::Bpftrace => "a script of bpftrace",
        }
    }

    /// Begins to measure what a service in this mode takes of the processors.
    pub(super) fn meter(self, server: &Server) -> anyhow::Result<Option<Meter<'_>>> {
        let begin = || Meter::begin(Observer::Probes(server));
        self.probes().then(begin).transpose()
    }

    fn probes(self) -> bool {
        matches!(self, Mode::Histograms | Mode::Events)
    }

    /// Starts the service in this mode, and makes sure that it is.
    pub(crate) fn start(
        self,
        exe: &Path,
        store: &Path,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Server> {
        let mut command = serve_one(exe, store, self.probes());
        if self.probes() {
            command.arg("--program-statistics");
        }
        if self == Mode::Histograms {
            command.args(["--event-one-in", "0"]);
        }
        let server = Server::start(SERVICE, command, interrupt)?;
        let observed = server.metric("lumpscope_probe_attached")?.unwrap_or(0.0) > 0.0;
        if observed == self.probes() {
            Ok(server)
        } else {
            bail!(
                "the service's disk is not observed as asked: `lumpscope doctor` says what is \
                 missing (root is needed)"
            )
        }
    }
}

/// Processor time: of the programs in the kernel and of the observer's thread, and of everything
/// that the machine did meanwhile.
pub(super) struct Meter<'a> {
    observer: Observer<'a>,
    observing: f64,
    busy: f64,
}

/// Whose processor time is measured.
#[derive(Clone, Copy)]
enum Observer<'a> {
    Probes(&'a Server),
    Bpftrace(&'a Bpftrace),
}

impl Observer<'_> {
    /// Seconds of its programs and its thread so far.
    fn seconds(self) -> anyhow::Result<f64> {
        match self {
            Observer::Probes(server) => observing(server),
            Observer::Bpftrace(script) => script.seconds(),
        }
    }
}

/// A script of bpftrace that watches a disk.
pub(super) struct Bpftrace {
    tracer: Tracer,
    /// The kernel counts what programs take while this is open.
    _statistics: OwnedFd,
}

impl Bpftrace {
    /// Has it watch this disk; returns when it does.
    pub(super) fn watch(script: &Path, disk: &Path) -> anyhow::Result<Self> {
        let number = rustix::fs::stat(disk)?.st_rdev;
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        // 0 seconds: until it is stopped.
        let arguments = [0, major, minor].map(|number| number.to_string());
        Ok(Self {
            tracer: Tracer::start_with(script, arguments)?,
            _statistics: program_statistics()
                .context("the kernel does not count what BPF programs take")?,
        })
    }

    pub(super) fn meter(&self) -> anyhow::Result<Meter<'_>> {
        Meter::begin(Observer::Bpftrace(self))
    }

    fn seconds(&self) -> anyhow::Result<f64> {
        let mut ns = 0;
        for descriptor in std::fs::read_dir(format!("/proc/{}/fdinfo", self.tracer.id()))? {
            let info = std::fs::read_to_string(descriptor?.path())?;
            // Only a program's descriptor has it.
            ns += number_in(&info, "run_time_ns").unwrap_or(0);
        }
        Ok(as_float(ns) / 1e9)
    }
}

impl<'a> Meter<'a> {
    fn begin(observer: Observer<'a>) -> anyhow::Result<Self> {
        Ok(Self {
            observer,
            observing: observer.seconds()?,
            busy: busy()?,
        })
    }

    /// The share that observation has had since.
    pub(super) fn share(self) -> anyhow::Result<f64> {
        let busy = busy()? - self.busy;
        Ok((self.observer.seconds()? - self.observing) / busy)
    }
}

/// Seconds of the programs and of the observer's thread so far.
fn observing(server: &Server) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    for metric in [
        "lumpscope_probe_program_run_seconds_total",
        "lumpscope_observer_cpu_seconds_total",
    ] {
        let told = server.metric(metric)?;
        seconds += told.with_context(|| format!("the service has no {metric}"))?;
    }
    Ok(seconds)
}

/// Seconds that all processors have worked since the machine was started.
fn busy() -> anyhow::Result<f64> {
    let text = std::fs::read_to_string("/proc/stat")?;
    busy_ticks(&text)
        .map(|ticks| as_float(ticks) / TICKS_PER_SECOND)
        .context("/proc/stat does not begin with the time of all processors")
}

/// Fields: user, nice, system, idle, waiting for I/O, interrupts, softirqs.
fn busy_ticks(stat: &str) -> Option<u64> {
    let all = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Result<Vec<u64>, _> = all.split_whitespace().map(str::parse).collect();
    let fields = fields.ok()?;
    [0, 1, 2, 5, 6].iter().map(|at| fields.get(*at)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_everything_but_waiting() {
        let stat = "cpu  10 20 30 4000 500 6 7 80 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(73));
        assert_eq!((busy_ticks("cpu 1 2"), busy_ticks("")), (None, None));
    }

    #[test]
    fn programs_say_what_they_take() {
        let info = "pos:\t0\nprog_type:\t5\nrun_time_ns:\t1200\nrun_cnt:\t3\n";
        assert_eq!(number_in(info, "run_time_ns"), Some(1200));
        assert_eq!(number_in("pos:\t0\nmap_type:\t2\n", "run_time_ns"), None);
    }
}
