//! Loads, and what they measure.
//!
//! [`target`] is one small trait with four stores behind it: the service, the engine, files, S3.
//! [`pace`] says when clients make requests and when they end. Who makes them: [`runner`] the
//! commands of a workload, [`mix`] random puts, gets and deletes, `grpc` calls without our client,
//! [`Load`] puts and gets of an engine without a network.

pub(crate) mod fio;
pub(crate) mod grpc;
mod measured;
pub mod mix;
pub(crate) mod pace;
pub mod runner;
mod spec;
pub mod target;

pub use measured::{Latency, Measured, Meter};
pub use pace::Pace;
pub use spec::{Engine, Load, Promise};

use std::time::Duration;

/// Longest time a child may take whose timed parts take `timed`.
pub(crate) fn limit(timed: Duration) -> Duration {
    timed * 20 + Duration::from_secs(60)
}
