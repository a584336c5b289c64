//! What strangers and broken clients do to a service, over real sockets. After each abuse the
//! service answers, holds nothing, has not grown, and its store has exactly the lumps that it
//! acknowledged.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;

mod bodies;
mod floods;
mod harness;
mod idle;
mod random;
mod resets;
mod wire;
