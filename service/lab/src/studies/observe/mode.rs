//! Modes of observation that are compared.

use anyhow::{Context as _, bail};
use serde::Serialize;

use crate::human::as_float;
use crate::process::{Interrupt, SERVICE, Server, TICKS_PER_SECOND};
use crate::studies::grpc::Transport;
use crate::studies::grpc::service;

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
}

impl Mode {
    pub(super) const ALL: [Mode; 4] = [Mode::Off, Mode::Histograms, Mode::OffAgain, Mode::Events];

    pub(super) fn name(self) -> &'static str {
        match self {
            Mode::Off => "not loaded",
            Mode::OffAgain => "not loaded, again",
            Mode::Histograms => "histograms only",
            Mode::Events => "with events",
        }
    }

    /// Begins to measure what a service in this mode takes of the processors.
    pub(super) fn meter(self, server: &Server) -> anyhow::Result<Option<Meter<'_>>> {
        self.probes().then(|| Meter::begin(server)).transpose()
    }

    fn probes(self) -> bool {
        matches!(self, Mode::Histograms | Mode::Events)
    }

    /// Starts the service in this mode, and makes sure that it is.
    pub(super) fn start(
        self,
        exe: &std::path::Path,
        store: &std::path::Path,
        transport: Transport,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Server> {
        let mut command = service(exe, store, transport, self.probes());
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
    server: &'a Server,
    observing: f64,
    busy: f64,
}

impl<'a> Meter<'a> {
    fn begin(server: &'a Server) -> anyhow::Result<Self> {
        Ok(Self {
            server,
            observing: observing(server)?,
            busy: busy()?,
        })
    }

    /// The share that observation has had since.
    pub(super) fn share(self) -> anyhow::Result<f64> {
        let busy = busy()? - self.busy;
        Ok((observing(self.server)? - self.observing) / busy)
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
}
