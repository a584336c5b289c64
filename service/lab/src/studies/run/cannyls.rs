//! A workload on the original engine, run by a program of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::RunStats;
use crate::failure::peer_failed;
use crate::load::runner::{RunOptions, RunOutcome, Verified};
use crate::process::Interrupt;
use crate::stats::{Kind, Latencies};
use crate::studies::engine::{PEER_PROGRAM, Peer};
use crate::workload::{CommandStream, WorkloadArgs};

/// Longest that a workload may take: the largest of the published ones takes minutes on a slow
/// disk.
const LIMIT: Duration = Duration::from_secs(12 * 3600);

/// Job of the program.
#[derive(Debug, Clone)]
pub struct CannylsJob {
    /// The workload.
    pub workload: WorkloadArgs,
    /// A file that is not there yet and is made as the crate makes it, or a file or block device
    /// that is overwritten.
    pub path: PathBuf,
    /// Bytes of the storage: [`Sizing::original_bytes`](crate::workload::Sizing::original_bytes)
    /// as the original benchmark has it.
    pub capacity: u64,
    /// Bytes of a block: the original benchmark has 512.
    pub block_size: u16,
    /// With one client. To verify is to compare every byte of every get, and at the end, reopened, all
    /// that lives.
    pub options: RunOptions,
    /// Sync the journal, and with it the data, within each put and delete, which the original
    /// benchmark does not.
    pub sync: bool,
}

/// Output of the program: one line of JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CannylsRun {
    /// Name and version of the engine.
    pub engine: String,
    /// Failures that an acknowledged put survives.
    pub durability: String,
    /// First command that counts to end of the last, with what is not timed between them.
    pub wall_ns: u64,
    /// For each command that counts, in order, how long the call took.
    pub latency_ns: Vec<u64>,
    /// Lumps and bytes that were compared after reopening; `None`: it was not asked for.
    pub survivors: Option<(u64, u64)>,
}

/// Runs a workload with the crate's defaults: `FileNvm` with `O_DIRECT`, journal ratio 0.01, a
/// sync of the journal every 4096 records.
///
/// `stream` is what the job's workload comes to. The program is started by the calling thread, and
/// sees the mounts that this thread sees.
///
/// # Errors
/// It fails, or what it says does not fit the stream.
pub(crate) fn on_cannyls(
    peer: &Peer,
    stream: &CommandStream,
    job: &CannylsJob,
    interrupt: &Interrupt,
) -> anyhow::Result<RunStats> {
    let printed = interrupt.run(command(peer.path(), job), LIMIT)?;
    let wrong = |why: String| peer_failed(PEER_PROGRAM, why);
    let run: CannylsRun = serde_json::from_str(&printed)
        .map_err(|error| wrong(format!("not its JSON: {error}; is it of this version?")))?;
    let options = &job.options;
    let count = stream.commands.len().saturating_sub(options.skip);
    let found = run.latency_ns.len();
    let complete = found == count || (options.time.is_some() && found < count);
    if !complete {
        return Err(wrong(format!(
            "it ran {found} commands where the workload has {count}"
        )));
    }
    let mut latencies = Latencies::default();
    let counted = stream.commands.iter().skip(options.skip);
    for (command, latency) in counted.zip(&run.latency_ns) {
        latencies.record(Kind::from(command), Duration::from_nanos(*latency));
    }
    Ok(RunStats {
        engine: run.engine,
        durability: run.durability,
        outcome: RunOutcome {
            latencies,
            requests: BTreeMap::new(),
            wall: Duration::from_nanos(run.wall_ns),
            bytes_put: stream.bytes_put(),
            bytes_got: stream.bytes_got(),
        },
        verified: run
            .survivors
            .map(|(lumps, bytes)| Verified { lumps, bytes }),
    })
}

fn command(program: &Path, job: &CannylsJob) -> Command {
    let mut command = Command::new(program);
    command.args(["workload", &job.workload.workload]);
    command.arg("--file").arg(&job.path);
    for (option, value) in [
        ("--scale", job.workload.scale.to_string()),
        ("--capacity", job.capacity.to_string()),
        ("--block-size", job.block_size.to_string()),
    ] {
        command.args([option, &value]);
    }
    if let Some(seed) = job.workload.seed {
        command.args(["--seed", &seed.to_string()]);
    }
    command.args(["--skip", &job.options.skip.to_string()]);
    if let Some(time) = job.options.time {
        command.args(["--milliseconds", &time.as_millis().to_string()]);
    }
    for (flag, wanted) in [("--verify", job.options.verify_bytes), ("--sync", job.sync)] {
        if wanted {
            command.arg(flag);
        }
    }
    command
}
