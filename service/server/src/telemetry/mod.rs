//! Metrics, logs and traces of the service.

mod collector;
mod ended;
mod exposition;
mod heat;
pub mod logs;
pub mod metrics;
pub mod names;
mod native;
mod observing;
pub mod otlp;
mod plain;
mod process;
mod registry;
pub mod store_stats;

pub(crate) use collector::MetricsFormat;
pub use collector::Sources;
pub(crate) use ended::Reporter;
pub(crate) use process::status_bytes;
pub(crate) use registry::Metrics;
