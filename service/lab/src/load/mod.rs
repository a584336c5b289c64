//! Loads, and the results of one run: on an engine, through gRPC, or through any door of [`runner`].

pub(crate) mod fio;
pub(crate) mod grpc;
mod measured;
pub mod runner;
mod spec;

pub use measured::{Latency, Measured, Meter};
pub use spec::{Load, Promise, SAMPLES};

use std::time::Duration;

/// Longest time a child may take whose timed parts take `timed`.
pub(crate) fn limit(timed: Duration) -> Duration {
    timed * 20 + Duration::from_secs(60)
}
