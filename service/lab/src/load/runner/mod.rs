//! Runs the commands of a workload on a store and times each: through a real gRPC client, or on an
//! engine in this process.
//!
//! One client runs them one after the other, as the original benchmark does. Several take the
//! next command as soon as they are free; commands on the same lump keep their order, so a get
//! never overtakes its put.
//!
//! Only the call is timed: content is made before, and checked after it. On an engine a call ends
//! with its callback; waking the waiting thread is not counted.

mod content;
mod door;
mod engine;
mod files;
mod order;
mod perform;
mod s3;
mod service;
mod verify;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{SetOnce, watch};
use tokio::task::JoinSet;

use crate::stats::{Kind, Latencies, Timeline};
use crate::workload::CommandStream;
pub use content::{ContentRule, content};
use door::Door;
use engine::EngineDoor;
use files::FilesDoor;
use order::Schedule;
pub use s3::S3Bucket;
use s3::S3Door;
pub(crate) use s3::{REGION, random_word};
use service::ServiceDoor;
pub use verify::{Verified, delete_all, insist_on_empty, verify_survivors};

/// Failures that an acknowledged change survives.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut: data and record are on stable storage.
    #[default]
    Synced,
    /// The death of the process: data and record are written; the flush follows at once.
    Journaled,
}

/// The store.
#[derive(Clone)]
pub enum Target {
    /// Through gRPC.
    Service {
        /// The service, `http://host:port`.
        server: String,
        /// Name of the store.
        store: String,
        /// `None`: as the service is configured.
        durability: Option<Durability>,
    },
    /// In this process.
    Engine {
        /// The store.
        store: lumpscope_engine::Store,
        /// Failures that an acknowledged change survives.
        durability: Durability,
    },
    /// Every lump is a file, written with `O_DIRECT`.
    Files {
        /// An empty directory.
        dir: PathBuf,
        /// Failures that an acknowledged change survives.
        durability: Durability,
    },
    /// A bucket of an S3 server.
    S3(S3Bucket),
}

/// How to run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Requests in flight at a time; 0 counts as 1.
    pub clients: usize,
    /// Compare every byte read. Otherwise length and checksum of every lump read are compared.
    pub verify_bytes: bool,
    /// Which bytes lumps have.
    pub content: ContentRule,
    /// Length of a slot of the timeline.
    pub slot: Duration,
    /// So many commands at the begin are run and not counted. All of them are done before the
    /// first that counts.
    pub skip: usize,
    /// No command is begun when those that count have taken so long. The wall time then begins
    /// with the first that counts.
    pub time: Option<Duration>,
}

impl Default for RunOptions {
    /// One client, cheap content, checksums compared, slots of a second.
    fn default() -> RunOptions {
        RunOptions {
            clients: 1,
            verify_bytes: false,
            content: ContentRule::Fast,
            slot: Duration::from_secs(1),
            skip: 0,
            time: None,
        }
    }
}

/// Result of a run.
#[derive(Debug, Clone)]
pub struct RunOutcome {
    /// How long each call took.
    pub latencies: Latencies,
    /// Throughput over time.
    pub timeline: Timeline,
    /// Kind of each command that counts, by the id that the service gave its request; empty on a
    /// way without ids.
    pub requests: BTreeMap<u64, Kind>,
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
    /// The store refused a command, or the connection broke.
    #[error("{command}: {refusal}")]
    Refused {
        /// Command.
        command: String,
        /// Why.
        refusal: Refusal,
    },
    /// The store did not answer in time.
    #[error("{command}: no answer within {} s; the store hangs", waited.as_secs())]
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
        /// The difference.
        what: Mismatch,
    },
    /// A client task ended by a panic.
    #[error("a client task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Refusal of a store.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The service, or the connection to it.
    #[error("{0}")]
    Service(Box<lumpscope_client::Error>),
    /// Neither of them: a file system, an S3 server.
    #[error("{0}")]
    Peer(String),
    /// The engine.
    #[error(transparent)]
    Engine(Box<lumpscope_engine::Error>),
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
        /// Checksum of the bytes put.
        expected: u32,
        /// Checksum of the bytes read.
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
    /// This lump must live, and does not.
    Lost(u128),
    /// This lump must not live, and does.
    Extra(u128),
    /// The store holds this lump before anything was put.
    NotEmpty(u128),
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
            Mismatch::Lost(id) => write!(f, "lump {id:032x} must be there, and is not"),
            Mismatch::Extra(id) => write!(f, "lump {id:032x} is there, and must not be"),
            Mismatch::NotEmpty(id) => write!(
                f,
                "lump {id:032x} is there before anything was put: a workload runs on an empty \
                 store only, because it overwrites and deletes"
            ),
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
    content: ContentRule,
    slot: Duration,
    skip: usize,
    time: Option<Duration>,
    /// When the first command that counts was begun.
    begin: OnceLock<Instant>,
    /// How many of those that do not count are done.
    skipped: watch::Sender<usize>,
}

/// One client's way to the target.
async fn connect(target: &Target) -> Result<Door, RunError> {
    Ok(match target {
        Target::Service {
            server,
            store,
            durability,
        } => Door::Service(ServiceDoor::connect(server, store, *durability).await?),
        Target::Engine { store, durability } => Door::Engine(EngineDoor {
            store: store.clone(),
            durability: *durability,
        }),
        Target::Files { dir, durability } => Door::Files(FilesDoor::new(dir, *durability)),
        Target::S3(bucket) => Door::S3(S3Door::new(bucket.clone())),
    })
}

/// Runs all commands. `finished` counts them as they are done, for a progress bar.
///
/// Dropping the future stops the run.
///
/// # Errors
/// The first command that fails ends the run; the error names it.
pub async fn run(
    stream: &CommandStream,
    target: &Target,
    options: &RunOptions,
    finished: Arc<AtomicU64>,
) -> Result<RunOutcome, RunError> {
    let run = Run::new(stream, options, finished);
    let (end, clients) = (stream.commands.len(), options.clients);
    let done = run.until((end, clients), target).await?;
    Ok(RunOutcome {
        latencies: done.latencies,
        timeline: done.timeline,
        requests: done.requests,
        wall: run.wall(),
        bytes_put: stream.bytes_put(),
        bytes_got: stream.bytes_got(),
    })
}

/// A run in parts: between two of them nothing is under way.
pub(crate) struct Run(Arc<Shared>);

impl Run {
    pub(crate) fn new(
        stream: &CommandStream,
        options: &RunOptions,
        finished: Arc<AtomicU64>,
    ) -> Run {
        Run(Arc::new(Shared::new(stream, options, finished)))
    }

    /// Runs what is left of the first `end` commands, by so many clients.
    ///
    /// # Errors
    /// As [`run`].
    pub(crate) async fn part(
        &self,
        (end, clients): (usize, usize),
        target: &Target,
    ) -> Result<(), RunError> {
        self.until((end, clients), target).await.map(drop)
    }

    async fn until(
        &self,
        (end, clients): (usize, usize),
        target: &Target,
    ) -> Result<Done, RunError> {
        let mut doors = Vec::new();
        for _ in 0..clients.max(1) {
            doors.push(connect(target).await?);
        }
        let mut tasks = JoinSet::new();
        for door in doors {
            tasks.spawn(work(Arc::clone(&self.0), door, end));
        }
        let mut done = Done::new(self.0.slot);
        while let Some(ended) = tasks.join_next().await {
            done.merge(ended??);
        }
        Ok(done)
    }

    fn wall(&self) -> Duration {
        let begin = self.0.begin.get();
        begin.map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// Commands that one client has done, or all of them.
struct Done {
    latencies: Latencies,
    timeline: Timeline,
    requests: BTreeMap<u64, Kind>,
}

impl Done {
    fn new(slot: Duration) -> Done {
        Done {
            latencies: Latencies::default(),
            timeline: Timeline::new(slot),
            requests: BTreeMap::new(),
        }
    }

    fn merge(&mut self, other: Done) {
        self.latencies.merge(other.latencies);
        self.timeline.merge(&other.timeline);
        self.requests.extend(other.requests);
    }
}

/// One client: takes the next command until none is left before `end`, or the time is over.
async fn work(shared: Arc<Shared>, mut door: Door, end: usize) -> Result<Done, RunError> {
    let mut done = Done::new(shared.slot);
    // Who has taken a command performs it: others may wait for it.
    while !shared.is_over() {
        let index = shared.take(end);
        let Some((index, step)) = index.and_then(|i| Some((i, shared.schedule.step(i)?))) else {
            break;
        };
        let counts = index >= shared.skip;
        if counts {
            shared.begins().await;
        }
        for earlier in &step.after {
            shared.done[*earlier].wait().await;
        }
        let (latency, ended) = perform::perform(&mut door, index, step, &shared).await?;
        if counts {
            let kind = Kind::from(&step.command);
            let begin = shared.begin.get().copied().unwrap_or(ended);
            done.latencies.record(kind, latency);
            done.timeline.record(kind, ended - begin, latency);
            done.requests
                .extend(door.last_request().map(|id| (id, kind)));
        }
        // Only this client sets this one.
        let _ = shared.done[index].set(());
        shared.finished.fetch_add(1, Ordering::Relaxed);
        if !counts {
            shared.skipped.send_modify(|skipped| *skipped += 1);
        }
    }
    Ok(done)
}

impl Shared {
    fn new(stream: &CommandStream, options: &RunOptions, finished: Arc<AtomicU64>) -> Shared {
        let schedule = Schedule::new(&stream.commands);
        Shared {
            next: AtomicUsize::new(0),
            done: stream.commands.iter().map(|_| SetOnce::new()).collect(),
            checksums: (0..=schedule.highest_id())
                .map(|_| AtomicU64::new(0))
                .collect(),
            schedule,
            finished,
            verify_bytes: options.verify_bytes,
            content: options.content,
            slot: options.slot,
            skip: options.skip,
            time: options.time,
            begin: OnceLock::new(),
            skipped: watch::Sender::new(0),
        }
    }

    /// The next command of the first `end`.
    fn take(&self, end: usize) -> Option<usize> {
        let order = Ordering::Relaxed;
        let next = |next: usize| (next < end).then_some(next + 1);
        self.next.fetch_update(order, order, next).ok()
    }

    /// Waits for what does not count; the first one that has waited begins the time.
    async fn begins(&self) {
        let mut skipped = self.skipped.subscribe();
        // The sender is here: it cannot be closed.
        let _ = skipped.wait_for(|done| *done >= self.skip).await;
        self.begin.get_or_init(Instant::now);
    }

    fn is_over(&self) -> bool {
        match (self.time, self.begin.get()) {
            (Some(time), Some(begin)) => begin.elapsed() >= time,
            _ => false,
        }
    }
}
