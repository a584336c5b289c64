//! Waiting for memory.

use std::time::Duration;

use lumpscope_engine::Payer;
use lumpscope_server::request::{Budget, Reserved};
use s3s::S3Result;

use super::error;

/// Waits for memory for the first bytes of a body, at most so long.
///
/// # Errors
/// `SlowDown`.
pub(super) async fn begin(
    memory: &Budget,
    payer: Payer,
    bytes: u64,
    wait: Duration,
) -> S3Result<Reserved> {
    let begun = tokio::time::timeout(wait, memory.begin(payer, bytes)).await;
    begun.map_err(|_| none(wait))
}

/// Waits until a body has memory for `bytes`, at most so long.
///
/// # Errors
/// `SlowDown`.
pub(super) async fn cover(memory: &mut Reserved, bytes: u64, wait: Duration) -> S3Result<()> {
    let covered = tokio::time::timeout(wait, memory.cover(bytes)).await;
    covered.map(drop).map_err(|_| none(wait))
}

/// No memory came free in time.
pub(super) fn none(wait: Duration) -> s3s::S3Error {
    error::slow_down(
        "there is no memory for the body: others are under way".to_owned(),
        wait,
    )
}
