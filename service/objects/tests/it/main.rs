//! Objects over one store, on simulated disks: one binary, a module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod block_growth;
mod blocks;
mod cannyls;
mod common;
mod crash;
mod model;
mod objects;
mod records;
mod settings;
mod uploads;
