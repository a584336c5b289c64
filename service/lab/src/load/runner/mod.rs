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
mod order;
mod perform;
mod verify;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{SetOnce, watch};

use super::pace::{Pace, Worker, drive};
use super::target::StoreClient;
pub use super::target::{Durability, Mismatch, RadosPool, Refusal, S3Bucket, Target, WeedVolumes};
pub(crate) use super::target::{REGION, random_word};
use crate::stats::{Kind, Latencies};
use crate::workload::CommandStream;
pub use content::content;
use order::Schedule;
pub use verify::{Verified, delete_all, verify_survivors};

/// Clients, checks and limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunOptions {
    /// Requests in flight; 0 counts as 1.
    pub clients: usize,
    /// Compare every byte read. Otherwise length and checksum of every lump read are compared.
    pub verify_bytes: bool,
    /// So many commands at the begin are run and not counted. All of them are done before the
    /// first that counts.
    pub skip: usize,
    /// No command is begun when those that count have taken so long. The wall time then begins
    /// with the first that counts.
    pub time: Option<Duration>,
}

impl Default for RunOptions {
    /// One client, checksums compared.
    fn default() -> RunOptions {
        RunOptions {
            clients: 1,
            verify_bytes: false,
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
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum RunError {
    /// The address cannot be parsed, or nobody answers there.
    #[error("cannot reach the service at {server}: {reason}")]
    Connect { server: String, reason: String },
    /// The store refused a command, or the connection broke.
    #[error("{command}: {refusal}")]
    Refused { command: String, refusal: Refusal },
    /// The store did not answer in time.
    #[error("{command}: no answer within {} s; the store hangs", waited.as_secs())]
    TimedOut {
        command: String,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The answer contradicts what was done before: the store, or the way to it, is broken.
    #[error("{command}: wrong answer: {what}")]
    Wrong { command: String, what: Mismatch },
}

/// State that the clients share.
struct Shared {
    schedule: Schedule,
    next: AtomicUsize,
    /// One a command: set when it is done.
    done: Vec<SetOnce<()>>,
    /// CRC32C of the lump's bytes, by id.
    checksums: Vec<AtomicU64>,
    verify_bytes: bool,
    skip: usize,
    /// How many of those that do not count are done.
    skipped: watch::Sender<usize>,
}

/// A client of the target.
async fn connect(target: &Target) -> Result<Box<dyn StoreClient>, RunError> {
    target.connect().await.map_err(|error| RunError::Connect {
        server: match target {
            Target::Service { service, .. } => service.server.clone(),
            _ => String::new(),
        },
        reason: error.to_string(),
    })
}

/// Runs all commands.
///
/// Dropping the future stops the run.
///
/// # Errors
/// The first command that fails ends the run; the error names it.
pub async fn run(
    stream: &CommandStream,
    target: &Target,
    options: &RunOptions,
) -> Result<RunOutcome, RunError> {
    let run = Run::new(stream, options);
    let (end, clients) = (stream.commands.len(), options.clients);
    let done = run.until((end, clients), target).await?;
    Ok(RunOutcome {
        latencies: done.latencies,
        requests: done.requests,
        wall: run.wall(),
        bytes_put: stream.bytes_put(),
        bytes_got: stream.bytes_got(),
    })
}

/// A run in parts: between two of them nothing is in flight.
pub(crate) struct Run {
    shared: Arc<Shared>,
    /// Begins with the first command that counts.
    pace: Arc<Pace>,
}

impl Run {
    pub(crate) fn new(stream: &CommandStream, options: &RunOptions) -> Run {
        Run {
            shared: Arc::new(Shared::new(stream, options)),
            pace: Pace::lasting(options.time),
        }
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
        let mut workers = Vec::new();
        for _ in 0..clients.max(1) {
            workers.push(Commands {
                shared: Arc::clone(&self.shared),
                client: connect(target).await?,
                end,
                done: Done::default(),
            });
        }
        let mut done = Done::default();
        for worker in drive(workers, &self.pace).await? {
            done.merge(worker.done);
        }
        Ok(done)
    }

    fn wall(&self) -> Duration {
        let begin = self.pace.begun();
        begin.map_or(Duration::ZERO, |begin| begin.elapsed())
    }
}

/// Commands that one client has done, or all of them.
#[derive(Default)]
struct Done {
    latencies: Latencies,
    requests: BTreeMap<u64, Kind>,
}

impl Done {
    fn merge(&mut self, other: Done) {
        self.latencies.merge(other.latencies);
        self.requests.extend(other.requests);
    }
}

/// One client: takes the next command until none is left before `end`.
struct Commands {
    shared: Arc<Shared>,
    client: Box<dyn StoreClient>,
    end: usize,
    done: Done,
}

impl Worker for Commands {
    type Error = RunError;

    /// Who has taken a command performs it: others may wait for it.
    async fn step(&mut self, pace: &Pace) -> Result<bool, RunError> {
        let shared = &self.shared;
        let index = shared.take(self.end);
        let Some((index, step)) = index.and_then(|i| Some((i, shared.schedule.step(i)?))) else {
            return Ok(false);
        };
        let counts = index >= shared.skip;
        if counts {
            shared.all_skipped().await;
            // The first one that has waited begins the time.
            pace.begin();
        }
        for earlier in &step.after {
            shared.done[*earlier].wait().await;
        }
        let client = self.client.as_mut();
        let latency = perform::perform(client, index, step, shared).await?;
        if counts {
            let kind = Kind::from(&step.command);
            self.done.latencies.record(kind, latency);
            let id = self.client.last_request();
            self.done.requests.extend(id.map(|id| (id, kind)));
        }
        // Only this client sets this one.
        let _ = shared.done[index].set(());
        if !counts {
            shared.skipped.send_modify(|skipped| *skipped += 1);
        }
        Ok(true)
    }
}

impl Shared {
    fn new(stream: &CommandStream, options: &RunOptions) -> Shared {
        let schedule = Schedule::new(&stream.commands);
        Shared {
            next: AtomicUsize::new(0),
            done: stream.commands.iter().map(|_| SetOnce::new()).collect(),
            checksums: (0..=schedule.highest_id())
                .map(|_| AtomicU64::new(0))
                .collect(),
            schedule,
            verify_bytes: options.verify_bytes,
            skip: options.skip,
            skipped: watch::Sender::new(0),
        }
    }

    /// The next command of the first `end`.
    fn take(&self, end: usize) -> Option<usize> {
        let order = Ordering::Relaxed;
        let next = |next: usize| (next < end).then_some(next + 1);
        self.next.fetch_update(order, order, next).ok()
    }

    /// Waits for the commands that do not count.
    async fn all_skipped(&self) {
        let mut skipped = self.skipped.subscribe();
        // The sender is here: it cannot be closed.
        let _ = skipped.wait_for(|done| *done >= self.skip).await;
    }
}
