//! Memory of the service while many clients put large lumps at once.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::args::Transport;
use super::service;
use crate::failure::call_failed;
use crate::load::grpc::content::LARGE_BIT;
use crate::load::grpc::{self as client, content};
use crate::process::Interrupt;
use crate::process::{SERVICE, Server};

/// Size of each lump.
const SIZE: usize = 4 << 20;
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
    transport: Transport,
    clients: usize,
    time: Duration,
    interrupt: &Interrupt,
) -> anyhow::Result<MemoryView> {
    let server = Server::start(SERVICE, service(exe, store, transport, false), interrupt)?;
    let idle_bytes = server.resident()?.1;
    let mut connected = Vec::new();
    for _ in 0..clients {
        connected.push(client::connect(SERVICE, &server.url).await?);
    }
    let begin = Instant::now();
    let end = begin + time.max(LEAST);
    let mut tasks = tokio::task::JoinSet::new();
    for (number, mut client) in connected.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut id = number as u64;
            let (mut puts, mut refused) = (0, 0);
            while Instant::now() < end {
                let body = content::body(id, SIZE);
                match client::put(&mut client, LARGE_BIT | (id % IDS), body).await {
                    Ok(_) => puts += 1,
                    Err(status) if status.code() == tonic::Code::Unavailable => {
                        refused += 1;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                    Err(status) => return Err(call_failed(SERVICE, "put")(status)),
                }
                id += clients as u64;
            }
            Ok((puts, refused))
        });
    }
    let (mut puts, mut refused) = (0, 0);
    for counted in client::finish(tasks).await? {
        puts += counted.0;
        refused += counted.1;
    }
    interrupt.check()?;
    let (peak_bytes, after_bytes) = server.resident()?;
    Ok(MemoryView {
        clients,
        seconds: begin.elapsed().as_secs_f64(),
        puts,
        refused,
        idle_bytes,
        peak_bytes,
        after_bytes,
    })
}
