//! The laboratory on real loop devices, a real engine and a gRPC server in memory: one binary, a
//! module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod blocks;
mod disks;
mod goldens;
mod language;
mod orders;
mod programs;
mod runner;
mod survivors;
mod watched;
