//! S3 over a real service on a real socket: one binary, a module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod chunks;
mod common;
mod documents;
mod early;
mod forms;
mod hosts;
mod parameters;
mod probes;
mod reads;
mod settings;
mod signatures;
mod slow;
mod stores;
mod uploads;
