//! Workloads, runner, statistics and the lab of loop devices.

pub mod compare;
pub mod human;
pub mod lab;
pub mod runner;
pub mod stats;
pub mod workload;
