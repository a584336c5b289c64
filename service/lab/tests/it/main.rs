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

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Tests on loop devices run one after the other: some assert that nothing of the kind is left.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
