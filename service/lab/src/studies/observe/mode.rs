//! Modes of observation that are compared.

use anyhow::bail;
use serde::Serialize;

use crate::process::Interrupt;
use crate::process::{SERVICE, Server};
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
