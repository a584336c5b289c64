//! Runs the commands of a workload through a real gRPC client and times each.
//!
//! One client runs them one after the other, as the original benchmark does. Several take the
//! next command as soon as they are free; commands on the same lump keep their order, so a get
//! never overtakes its put.
//!
//! What is timed is the call alone: content is made before, and checked after it.

mod client;
mod content;
mod order;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::SetOnce;
use tokio::task::JoinSet;

use crate::stats::{Kind, Latencies};
use crate::workload::{Command, CommandStream};
use client::StoreClient;
use order::Schedule;

/// How to run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The service, `http://host:port`.
    pub server: String,
    /// Name of the store.
    pub store: String,
    /// Requests in flight at a time; 0 counts as 1.
    pub clients: usize,
    /// Compare every byte read. Otherwise length and checksum of every lump read are compared.
    pub verify_bytes: bool,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// How long each call took.
    pub latencies: Latencies,
    /// First call to end of the last, by the clock on the wall; includes making and checking
    /// content.
    pub wall: Duration,
    /// Bytes of lumps put.
    pub bytes_put: u64,
    /// Bytes of lumps read.
    pub bytes_got: u64,
}

/// Why a run ended early. `command` is the command's number, counted from 1, and its text.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The address cannot be parsed, or nobody answers there.
    #[error("cannot reach the service at {server}: {reason}")]
    Connect {
        /// Address.
        server: String,
        /// The whole chain of reasons.
        reason: String,
    },
    /// The service refused a command, or the connection broke.
    #[error("{command}: {} ({:?})", status.message(), status.code())]
    Refused {
        /// Command.
        command: String,
        /// What the service said.
        status: Box<tonic::Status>,
    },
    /// The service did not answer in time.
    #[error("{command}: no answer within {} s; the service hangs", waited.as_secs())]
    TimedOut {
        /// Command.
        command: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The answer contradicts what was done before: the store, or the way to it, is broken.
    #[error("{command}: wrong answer: {what}")]
    Wrong {
        /// Command.
        command: String,
        /// What is wrong with it.
        what: Mismatch,
    },
    /// A client task ended by a panic.
    #[error("a client task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// How an answer differs from what must be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// Length in bytes.
    Length {
        /// Put.
        expected: u64,
        /// Read.
        found: u64,
    },
    /// CRC32C of the lump.
    Checksum {
        /// Of what was put.
        expected: u32,
        /// Of what was read.
        found: u32,
    },
    /// First byte that differs.
    Byte {
        /// Its offset in the lump.
        offset: usize,
    },
    /// A new lump existed already, or an old one did not.
    Existed(bool),
    /// Number of lumps that a range delete removed.
    Deleted {
        /// Alive.
        expected: u64,
        /// Removed.
        found: u64,
    },
    /// A stream without the header that must come first.
    NoHeader,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Length { expected, found } => {
                write!(f, "{found} bytes were read where {expected} were put")
            }
            Mismatch::Checksum { expected, found } => {
                write!(
                    f,
                    "CRC32C of the bytes is {found:08x}, of what was put {expected:08x}"
                )
            }
            Mismatch::Byte { offset } => {
                write!(f, "byte {offset} is not the byte that was put")
            }
            Mismatch::Existed(true) => write!(f, "the lump was there before it was put"),
            Mismatch::Existed(false) => write!(f, "the lump is gone although it was never deleted"),
            Mismatch::Deleted { expected, found } => {
                write!(f, "{found} lumps were deleted where {expected} were alive")
            }
            Mismatch::NoHeader => write!(f, "the stream does not begin with a header"),
        }
    }
}

/// State that the clients share.
struct Shared {
    schedule: Schedule,
    next: AtomicUsize,
    /// One a command: set when it is done.
    done: Vec<SetOnce<()>>,
    /// CRC32C of the lump's bytes, by id.
    checksums: Vec<AtomicU64>,
    finished: Arc<AtomicU64>,
    verify_bytes: bool,
}

/// Runs all commands. `finished` counts them as they are done, for a progress bar.
///
/// Dropping the future stops the run.
///
/// # Errors
/// The first command that fails ends the run; the error names it.
pub async fn run(
    stream: &CommandStream,
    options: &RunOptions,
    finished: Arc<AtomicU64>,
) -> Result<RunOutcome, RunError> {
    let schedule = Schedule::new(&stream.commands);
    let shared = Arc::new(Shared {
        next: AtomicUsize::new(0),
        done: stream.commands.iter().map(|_| SetOnce::new()).collect(),
        checksums: (0..=schedule.highest_id())
            .map(|_| AtomicU64::new(0))
            .collect(),
        schedule,
        finished,
        verify_bytes: options.verify_bytes,
    });
    let mut clients = Vec::new();
    for _ in 0..options.clients.max(1) {
        clients.push(StoreClient::connect(&options.server, &options.store).await?);
    }
    let begin = Instant::now();
    let mut tasks = JoinSet::new();
    for client in clients {
        tasks.spawn(work(Arc::clone(&shared), client));
    }
    let mut latencies = Latencies::default();
    while let Some(ended) = tasks.join_next().await {
        latencies.merge(ended??);
    }
    let wall = begin.elapsed();
    let got = stream.commands.iter().filter_map(|command| match command {
        Command::Get { size, .. } => Some(*size),
        _ => None,
    });
    Ok(RunOutcome {
        latencies,
        wall,
        bytes_put: stream.bytes_put(),
        bytes_got: got.sum(),
    })
}

/// One client: takes the next command until none is left.
async fn work(shared: Arc<Shared>, mut client: StoreClient) -> Result<Latencies, RunError> {
    let mut latencies = Latencies::default();
    loop {
        let index = shared.next.fetch_add(1, Ordering::Relaxed);
        let Some(step) = shared.schedule.step(index) else {
            return Ok(latencies);
        };
        for earlier in &step.after {
            shared.done[*earlier].wait().await;
        }
        let latency = client.perform(index, step, &shared).await?;
        latencies.record(Kind::from(&step.command), latency);
        // Only this client sets this one.
        let _ = shared.done[index].set(());
        shared.finished.fetch_add(1, Ordering::Relaxed);
    }
}
