//! Waiting for memory.

use std::time::Duration;

use lumpscope_server::request::{Memory, Reservation};
use s3s::S3Result;

use super::error;

/// Waits for memory for a body, at most so long.
///
/// # Errors
/// `SlowDown`.
pub(super) async fn reserve(memory: &Memory, bytes: u64, wait: Duration) -> S3Result<Reservation> {
    match tokio::time::timeout(wait, memory.reserve(bytes)).await {
        Ok(reserved) => reserved.map_err(|refusal| error::refused(&refusal)),
        Err(_) => Err(error::slow_down(
            "there is no memory for the body: others are under way".to_owned(),
            wait,
        )),
    }
}
