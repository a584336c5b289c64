//! What the service says about itself: metrics and logs.

mod collector;
mod exposition;
mod heat;
pub mod logs;
pub mod metrics;
pub mod names;
mod store_stats;

pub use collector::{ServiceCollector, Sources};
