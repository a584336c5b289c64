//! The client beside a service that does as it is told.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod common;
