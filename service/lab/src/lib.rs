//! The laboratory: disks that vanish, loads, and studies that compare.
//!
//! | module | contents |
//! |---|---|
//! | [`workload`] | the language of the original benchmark, and the exact commands it comes to |
//! | [`commands`] | prints these commands |
//! | [`disks`] | three disks of loop devices that vanish with their holder, even on `kill -9` |
//! | `process` | children: tied to this process, ended in time and on a signal; the service as a child |
//! | [`load`] | loads and what they measure; [`load::runner`] runs a workload through gRPC, S3, files or the engine, checks every answer and times every call |
//! | `stats` | percentiles and totals by the rules of the published tables |
//! | [`blocks`] | the block requests of a disk, recorded by the probes as a trace |
//! | [`tracer`] | the block requests of a disk counted by bpftrace, for a second opinion |
//! | `experiment` | the frame of all studies: a [`report`] of figures, as text, JSON and HTML |
//! | `studies` | the studies themselves, below |
//!
//! | study | compares |
//! |---|---|
//! | [`compare`] | raw, ext4 and xfs side by side, with what the disks did |
//! | [`run`] | nothing: one workload on one store of our engine, our service or the original engine |
//! | [`engine`] | the engine without a network with fio and the original |
//! | [`grpc`] | the service through gRPC with a service that stores nothing |
//! | [`peers`] | the same puts and gets on whatever is installed |
//! | [`observe`] | probes not loaded, histograms only, with events |
//! | [`orders`] | the engine's orders of waiting gets on an emulated disk, in virtual time |
//! | [`seeds`] | the published tables with their repetition |
//! | [`fidelity`] | a live emulated disk of this machine with its model |
//! | [`watch`] | nothing: what any program makes a disk do, by file and by kind |
//! | [`lab_service`] | nothing: the three disks, served until somebody ends it |
//!
//! `compare` and `grpc` know the service only through `lumpscope.v1` and its command line.

#![deny(clippy::print_stdout, clippy::print_stderr)]

use lumpscope_units::human;

pub mod blocks;
pub mod commands;
pub mod disks;
mod experiment;
mod failure;
pub mod load;
mod process;
mod stats;
mod studies;
pub mod tracer;
pub mod workload;

pub use experiment::{JsonArgs, OutputArgs, StudyArgs, report};
pub use failure::message;
pub use process::tie_to_parent;
pub use studies::{
    compare, engine, fidelity, grpc, lab_service, observe, orders, peers, run, seeds, watch,
};
