//! The program as people run it: one binary, a module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod admin_failed;
mod bad_spots;
mod binary;
mod collector;
mod columns;
mod commands;
#[allow(dead_code, reason = "the service's own tests use the rest")]
#[path = "../../../server/tests/it/common/mod.rs"]
mod common;
mod config;
#[allow(dead_code, reason = "the service's own tests use the rest")]
#[path = "../../../server/tests/it/door/harness.rs"]
mod door;
mod every;
mod failing_disks;
mod hostile;
mod limits;
mod manual;
mod moving;
mod observing;
mod output;
mod packages;
mod privileges;
mod process;
mod secrets;
mod shutdown;
