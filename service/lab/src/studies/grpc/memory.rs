//! Memory of the service while many clients put large lumps at once.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::load::grpc::{Call, Clients, Length, Room, Setting};
use crate::process::{Interrupt, SERVICE, Server, serve_one};

/// Connections, each with one put of 4 MiB at a time.
pub(super) const CLIENTS: usize = 64;
/// Most resident memory of the service.
pub(super) const GOAL_BYTES: u64 = 256 << 20;
/// Time before which every client has begun, and the service has met them all together.
const LEAST: Duration = Duration::from_secs(5);
/// Bytes of the store: all ids, one lump of each client that is not safe yet, and some.
pub(super) const STORE_BYTES: u64 = 1 << 30;
/// Ids that are used.
const IDS: u64 = 96;

/// The observation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct MemoryView {
    pub(super) clients: usize,
    pub(super) seconds: f64,
    pub(super) puts: u64,
    /// Puts answered "try again"; a client does.
    pub(super) refused: u64,
    /// Resident before the first put.
    pub(super) idle_bytes: u64,
    /// Largest resident memory from the start of the process.
    pub(super) peak_bytes: u64,
    /// Resident after the last put.
    pub(super) after_bytes: u64,
}

/// A service of its own, because the kernel notes the peak of a process.
pub(super) async fn measure(
    exe: &Path,
    store: &Path,
    time: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<MemoryView> {
    let server = Server::start(SERVICE, serve_one(exe, store, false), interrupt)?;
    let idle_bytes = server.resident()?.1;
    let putting = Setting {
        call: Call::Put,
        mib: 4,
        connections: CLIENTS,
    };
    let room = Room {
        filled: 0,
        puts: IDS,
    };
    let length = Length {
        calls: 1,
        time: time.max(LEAST),
        patient: true,
    };
    let connected = Clients::connect(&server, CLIENTS).await?;
    let outcome = connected.run(&server, putting, room, length).await?;
    interrupt.check()?;
    let (peak_bytes, after_bytes) = server.resident()?;
    Ok(MemoryView {
        clients: CLIENTS,
        seconds: outcome.measured.seconds,
        puts: outcome.measured.requests,
        refused: outcome.measured.errors,
        idle_bytes,
        peak_bytes,
        after_bytes,
    })
}
