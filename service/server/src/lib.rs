//! The Lumpscope service: stores over gRPC and HTTP, and the page. S3 is `service/s3`, the command
//! line is `service/cli`.
//!
//! ```text
//! client ── gRPC ──▶ grpc/ ──▶ engine (one owner thread a store) ──▶ disk
//!                      │            │ each disk I/O, declared: stores/sink.rs
//!                      │            ▼
//!                      └──────▶ observer ──▶ Observe.Report, /metrics (telemetry/, http/)
//! ```
//!
//! The engine does the work on threads of its own; the runtime here only moves messages. Nothing
//! in this crate blocks a thread of the runtime on a disk.

pub mod buckets;
pub mod check;
pub mod config;
mod connection_memory;
pub mod door;
pub mod error;
mod files;
pub mod grpc;
mod heap;
pub mod http;
pub mod json;
mod listen;
pub mod log_rate;
mod memory_sum;
pub mod observed;
pub mod privileges;
pub mod refusal;
pub mod request;
pub mod scrub;
pub mod serve;
mod stopping;
pub mod stores;
pub mod telemetry;
pub mod usdt;

pub use memory_sum::{S3_XML, memory_sum};
