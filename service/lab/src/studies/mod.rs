//! The studies: each declares its cases and goals, runs them in rounds, and fills one report.

pub mod compare;
pub mod engine;
pub mod fidelity;
pub mod grpc;
mod host;
pub mod lab_service;
pub mod observe;
pub mod orders;
pub mod peers;
mod predict;
pub mod run;
pub mod seeds;
pub mod watch;
