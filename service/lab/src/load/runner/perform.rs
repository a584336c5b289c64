//! One command: content before it, the call, and a look at the answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;

use super::content::content;
use super::order::{Step, position};
use super::{Mismatch, RunError, Shared};
use crate::load::target::{Answer, Failure, StoreClient};
use crate::workload::Command;
use lumpscope_engine::{Placement, crc32c};

/// Longest that one call may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Performs one command, checks the answer, and returns how long the call took.
pub(super) async fn perform(
    client: &mut dyn StoreClient,
    index: usize,
    step: &Step,
    shared: &Shared,
) -> Result<Duration, RunError> {
    let command = || format!("command {} ({})", index + 1, step.command);
    match tokio::time::timeout(PATIENCE, call(client, step, shared)).await {
        Ok(Ok(latency)) => Ok(latency),
        Ok(Err(failure)) => Err(failure.of(command())),
        Err(_) => Err(RunError::TimedOut {
            command: command(),
            waited: PATIENCE,
        }),
    }
}

impl Failure {
    /// The error of the command with this text.
    pub(super) fn of(self, command: String) -> RunError {
        match self {
            Failure::Refused(refusal) => RunError::Refused { command, refusal },
            Failure::Wrong(what) => RunError::Wrong { command, what },
        }
    }
}

async fn call(
    client: &mut dyn StoreClient,
    step: &Step,
    shared: &Shared,
) -> Result<Duration, Failure> {
    match step.command {
        Command::Put { id, size } => put(client, (id, size, Placement::Data), step, shared).await,
        Command::Embed { id, size } => {
            put(client, (id, size, Placement::Embedded), step, shared).await
        }
        Command::Get { id, size } => {
            let Answer { value, latency } = client.get(id.into()).await?;
            let expected = shared.checksums[position(id)].load(Ordering::Acquire);
            check_content(&value, size, expected)?;
            if shared.verify_bytes {
                check_bytes(&value, &content(id, step.version, size))?;
            }
            Ok(latency)
        }
        Command::Delete { id, .. } => {
            let Answer { value, latency } = client.delete(id.into()).await?;
            if value == Some(false) {
                return Err(Mismatch::Existed(false).into());
            }
            Ok(latency)
        }
        Command::DeleteRange { start, end, count } => {
            let Answer { value, latency } = client.delete_range(start.into(), end.into()).await?;
            if value != count {
                return Err(Mismatch::Deleted {
                    expected: count,
                    found: value,
                }
                .into());
            }
            Ok(latency)
        }
    }
}

async fn put(
    client: &mut dyn StoreClient,
    (id, size, placement): (u64, u64, Placement),
    step: &Step,
    shared: &Shared,
) -> Result<Duration, Failure> {
    let body = content(id, step.version, size);
    let checksum = u64::from(crc32c::of(&body));
    shared.checksums[position(id)].store(checksum, Ordering::Release);
    let Answer { value, latency } = client.put(id.into(), body, placement).await?;
    let new = step.version == 1;
    if value.is_some_and(|created| created != new) {
        return Err(Mismatch::Existed(new).into());
    }
    Ok(latency)
}

fn check_content(chunks: &[Bytes], size: u64, expected: u64) -> Result<(), Mismatch> {
    check_length(chunks, size)?;
    let found = chunks
        .iter()
        .fold(0, |crc, chunk| crc32c::append(crc, chunk));
    if u64::from(found) != expected {
        let expected = u32::try_from(expected).unwrap_or(u32::MAX);
        return Err(Mismatch::Checksum { expected, found });
    }
    Ok(())
}

/// Insists that the pieces together have this many bytes.
pub(super) fn check_length(chunks: &[Bytes], size: u64) -> Result<(), Mismatch> {
    let length: usize = chunks.iter().map(Bytes::len).sum();
    let found = u64::try_from(length).unwrap_or(u64::MAX);
    if found != size {
        return Err(Mismatch::Length {
            expected: size,
            found,
        });
    }
    Ok(())
}

/// Insists that the pieces, of the right length, are these bytes.
pub(super) fn check_bytes(chunks: &[Bytes], expected: &[u8]) -> Result<(), Mismatch> {
    let mut offset = 0;
    for chunk in chunks {
        let wanted = expected.get(offset..offset + chunk.len()).unwrap_or(&[]);
        if chunk != wanted {
            let same = chunk.iter().zip(wanted).take_while(|(a, b)| a == b).count();
            return Err(Mismatch::Byte {
                offset: offset + same,
            });
        }
        offset += chunk.len();
    }
    Ok(())
}
