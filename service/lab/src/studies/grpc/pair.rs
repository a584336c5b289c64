//! The service and its peer, side by side with the same settings of HTTP/2.

use std::path::Path;
use std::process::Command;

use super::args::Transport;
use super::peer::PEER;
use crate::load::grpc::STORE;
use crate::process::{Interrupt, SERVICE, Server, serve};

/// The command that serves `store`.
pub(crate) fn service(exe: &Path, store: &Path, transport: Transport, probes: bool) -> Command {
    let mut command = Command::new(exe);
    serve(&mut command, [(STORE, store)], probes);
    windows(&mut command, transport);
    command
}

/// The command of the peer.
fn peer(exe: &Path, transport: Transport, working: bool) -> Command {
    let mut command = Command::new(exe);
    command.args(["bench", "grpc-peer"]);
    command.args(working.then_some("--working"));
    windows(&mut command, transport);
    command
}

fn windows(command: &mut Command, transport: Transport) {
    for (flag, value) in [
        ("--stream-window", transport.stream_window),
        ("--connection-window", transport.connection_window),
        ("--frame-size", transport.frame_size),
    ] {
        command.arg(flag).arg(value.to_string());
    }
}

/// Both servers; only one is asked at a time.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) ours: Server,
    pub(super) peer: Server,
}

impl Pair {
    pub(super) fn start(
        exe: &Path,
        store: &Path,
        transport: Transport,
        (probes, working_peer): (bool, bool),
        interrupt: &Interrupt,
    ) -> anyhow::Result<Pair> {
        let peer = peer(exe, transport, working_peer);
        Ok(Pair {
            ours: Server::start(SERVICE, service(exe, store, transport, probes), interrupt)?,
            peer: Server::start(PEER, peer, interrupt)?,
        })
    }
}
