//! The file server: fifty clients that make, read, append to, look at, list and remove files of
//! 128 KiB on average, one lump a file.
//!
//! The model is filebench's fileserver. A file that is written anew is one put; appending is a get
//! and a put of the longer lump, because lumps do not grow. Every gRPC call counts as one
//! operation.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lumpscope_proto::v1;
use serde::Serialize;
use tonic::Status;

use super::FileserverBench;
use super::files::{Files, MEAN_FILE, StoredFile};
use crate::experiment::rotate;
use crate::failure::{call_failed, wrong_bytes};
use crate::human::as_float;
use crate::load::Meter;
use crate::load::grpc::content;
use crate::load::grpc::{self as client, Client, lump_id};
use crate::load::pace::{self, Pace, drive};
use crate::process::{SERVICE, STORE};
use crate::studies::observe::Mode;

/// Calls before those that are timed, as a part of a run's length.
const WARM_UP: f64 = 0.2;
/// Ids that one listing asks for.
const LISTED: u32 = 100;
/// Room that the files' blocks and their replacements take at most, as a multiple of their average.
const ROOM: u64 = 3;
/// How long a client waits after it was told to try again.
const AGAIN: Duration = Duration::from_millis(5);

/// Modes of the table: it knows no third.
const MODES: [Mode; 3] = [Mode::Off, Mode::Events, Mode::OffAgain];

/// Bytes of a store for this many files.
pub(super) fn store_bytes(files: usize) -> u64 {
    (files as u64 * MEAN_FILE * ROOM)
        .next_multiple_of(1 << 20)
        .max(512 << 20)
}

/// Makes the files that are there before the first run.
pub(super) async fn fill(
    bench: &FileserverBench<'_>,
    store: &Path,
    files: &Files,
) -> anyhow::Result<()> {
    let server = Mode::Off.start(bench.exe, store, bench.interrupt)?;
    let mut client = client::connect(SERVICE, &server.url).await?;
    for _ in 0..files.to_fill() {
        bench.interrupt.check()?;
        if let Some(file) = files.take_absent() {
            put(&mut client, file)
                .await
                .map_err(call_failed(SERVICE, "put"))?;
            files.give(file);
        }
    }
    Ok(())
}

/// One round: a run in every mode.
pub(super) async fn round(
    bench: &FileserverBench<'_>,
    store: &Path,
    files: &Arc<Files>,
    round: usize,
) -> anyhow::Result<Vec<ServerRun>> {
    let mut runs = Vec::new();
    for &mode in rotate(&MODES, round) {
        bench.interrupt.check()?;
        let server = mode.start(bench.exe, store, bench.interrupt)?;
        let done = run(bench, &server.url, files).await?;
        runs.push(ServerRun::new(mode, round, bench.args.seconds, &done));
    }
    Ok(runs)
}

/// Result of one run of the file server.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ServerRun {
    pub(super) mode: Mode,
    pub(super) round: usize,
    /// Mean time of an operation in milliseconds.
    pub(super) ms_per_op: f64,
    /// Bytes of files moved a second.
    pub(super) bytes_per_second: f64,
    /// Operations a second.
    pub(super) ops_per_second: f64,
    /// Operations a second by kind, in the order of [`Flowop::ALL`].
    pub(super) flowops_per_second: [f64; Flowop::ALL.len()],
}

impl ServerRun {
    fn new(mode: Mode, round: usize, seconds: f64, done: &Done) -> ServerRun {
        let of = |flowop: &Flowop| done.get(flowop).map_or(0, |meter| meter.latencies().len());
        let busy_ns: f64 = done.values().map(busy_ns).sum();
        let bytes: u64 = done.values().map(|meter| meter.finish().bytes).sum();
        let ops = as_float(Flowop::ALL.iter().map(of).sum());
        ServerRun {
            mode,
            round,
            ms_per_op: busy_ns / 1e6 / ops,
            bytes_per_second: as_float(bytes) / seconds,
            ops_per_second: ops / seconds,
            flowops_per_second: Flowop::ALL.map(|flowop| as_float(of(&flowop)) / seconds),
        }
    }
}

/// A kind of operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Flowop {
    /// A put of a file that is not there.
    Create,
    /// A get of a file, the first half of an append.
    AppendRead,
    /// A put of the longer file, the second half.
    AppendWrite,
    /// A get.
    Read,
    /// A head.
    Stat,
    /// A list of 100 ids.
    List,
    /// A delete.
    Delete,
}

impl Flowop {
    pub(super) const ALL: [Flowop; 7] = [
        Flowop::Create,
        Flowop::AppendRead,
        Flowop::AppendWrite,
        Flowop::Read,
        Flowop::Stat,
        Flowop::List,
        Flowop::Delete,
    ];
}

/// Calls of all clients in the timed part of a run.
type Done = BTreeMap<Flowop, Meter>;

/// Time spent in calls, all clients together.
fn busy_ns(meter: &Meter) -> f64 {
    let latencies = meter.latencies();
    latencies.mean() * as_float(latencies.len())
}

async fn run(bench: &FileserverBench<'_>, url: &str, files: &Arc<Files>) -> anyhow::Result<Done> {
    let mut connected = Vec::new();
    for _ in 0..bench.args.clients {
        connected.push(client::connect(SERVICE, url).await?);
    }
    let time = Duration::from_secs_f64(bench.args.seconds);
    let pace = Pace::after(time.mul_f64(WARM_UP), time);
    let done: Arc<Mutex<Done>> = Arc::default();
    let workers = connected.into_iter().map(|client| Worker {
        client,
        files: Arc::clone(files),
        pace: Arc::clone(&pace),
        done: Arc::clone(&done),
    });
    drive(workers, &pace).await?;
    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(std::mem::take(&mut *done))
}

/// One client.
struct Worker {
    client: Client,
    files: Arc<Files>,
    pace: Arc<Pace>,
    done: Arc<Mutex<Done>>,
}

impl pace::Worker for Worker {
    type Error = anyhow::Error;

    async fn step(&mut self, _pace: &Pace) -> anyhow::Result<bool> {
        self.make().await?;
        self.append().await?;
        self.read().await?;
        self.look().await?;
        self.remove().await?;
        Ok(true)
    }
}

impl Worker {
    /// Counts a call that has ended in the timed part.
    fn count(&self, flowop: Flowop, from: Instant, bytes: usize) {
        let now = Instant::now();
        if self.pace.counts(now) {
            let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
            let meter = done.entry(flowop).or_default();
            meter.request(bytes as u64, now - from);
        }
    }

    async fn put(&mut self, flowop: Flowop, file: StoredFile) -> anyhow::Result<()> {
        let from = Instant::now();
        put(&mut self.client, file)
            .await
            .map_err(call_failed(SERVICE, "put"))?;
        self.count(flowop, from, file.len);
        Ok(())
    }

    async fn get(&mut self, flowop: Flowop, file: StoredFile) -> anyhow::Result<()> {
        let from = Instant::now();
        let (_, pieces) = client::get(&mut self.client, file.id)
            .await
            .map_err(call_failed(SERVICE, "get"))?;
        self.count(flowop, from, file.len);
        if client::same(&pieces, &content::body(file.id, file.len)) {
            return Ok(());
        }
        Err(wrong_bytes(SERVICE, file.id))
    }

    async fn make(&mut self) -> anyhow::Result<()> {
        if let Some(file) = self.files.take_absent() {
            self.put(Flowop::Create, file).await?;
            self.files.give(file);
        }
        Ok(())
    }

    async fn append(&mut self) -> anyhow::Result<()> {
        if let Some(file) = self.files.take() {
            self.get(Flowop::AppendRead, file).await?;
            let longer = self.files.grown(file);
            self.put(Flowop::AppendWrite, longer).await?;
            self.files.give(longer);
        }
        Ok(())
    }

    async fn read(&mut self) -> anyhow::Result<()> {
        if let Some(file) = self.files.take() {
            self.get(Flowop::Read, file).await?;
            self.files.give(file);
        }
        Ok(())
    }

    async fn look(&mut self) -> anyhow::Result<()> {
        let Some(file) = self.files.take() else {
            return Ok(());
        };
        let from = Instant::now();
        let request = v1::HeadRequest {
            store: STORE.to_owned(),
            id: Some(lump_id(file.id)),
            ..v1::HeadRequest::default()
        };
        let head = self.client.head(request).await;
        head.map_err(call_failed(SERVICE, "head"))?;
        self.count(Flowop::Stat, from, 0);
        let from = Instant::now();
        let request = v1::ListRequest {
            store: STORE.to_owned(),
            page_size: LISTED,
            ..v1::ListRequest::default()
        };
        let listed = self.client.list(request).await;
        listed.map_err(call_failed(SERVICE, "list"))?;
        self.count(Flowop::List, from, 0);
        self.files.give(file);
        Ok(())
    }

    async fn remove(&mut self) -> anyhow::Result<()> {
        let Some(file) = self.files.take() else {
            return Ok(());
        };
        let from = Instant::now();
        let request = v1::DeleteRequest {
            store: STORE.to_owned(),
            id: Some(lump_id(file.id)),
            ..v1::DeleteRequest::default()
        };
        let gone = self.client.delete(request).await;
        gone.map_err(call_failed(SERVICE, "delete"))?;
        self.count(Flowop::Delete, from, 0);
        self.files.give_absent(file);
        Ok(())
    }
}

/// Puts a file; a service that is full for the moment is asked again.
async fn put(client: &mut Client, file: StoredFile) -> Result<(), Status> {
    loop {
        let body = content::body(file.id, file.len);
        match client::put(client, file.id, body).await {
            Err(status) if status.code() == tonic::Code::Unavailable => {
                tokio::time::sleep(AGAIN).await;
            }
            other => return other.map(|_| ()),
        }
    }
}
