//! What the service says about itself: metrics and logs.

mod collector;
mod exposition;
mod heat;
pub mod logs;
pub mod metrics;
pub mod names;
mod observing;
pub mod otlp;
pub mod store_stats;
pub mod usdt;

pub use collector::{ServiceCollector, Sources};
