//! Workloads, runner, statistics and the lab of loop devices.
//!
//! | module | what it is |
//! |---|---|
//! | [`workload`] | the language of the original benchmark, and the exact commands that come of it |
//! | [`commands`] | prints these commands |
//! | [`runner`] | runs them through a real gRPC client or on an engine in this process, checks every answer, times every call |
//! | [`run`] | one workload on one store, on our engine, our service or the original engine |
//! | [`peers`] | the same puts and gets on whatever is installed, in alternating rounds |
//! | [`stats`] | percentiles and totals by the rules of the published tables |
//! | [`lab`] | three disks of loop devices that vanish with their holder, even on `kill -9` |
//! | [`lab_service`] | such a lab, served until somebody ends it |
//! | [`compare`] | all of it together: raw, ext4 and xfs side by side, and what the disks did |
//! | [`engine`] | the engine without a network, against fio and the original, in alternating rounds |
//! | [`grpc`] | the service through gRPC, against a service that stores nothing |
//! | [`observe`] | what observation costs: probes not loaded, histograms only, with events, in alternating runs |
//! | [`blocks`] | the block requests of a disk recorded by the probes, as a trace, and what is in one |
//! | [`seeds`] | the published tables, repeated and explained |
//! | [`orders`] | the engine's orders of waiting gets on an emulated disk, in virtual time |
//! | [`tracer`] | the block requests of a disk counted by bpftrace, for a second opinion |
//! | [`report`] | what a bench found, as one HTML file that needs no other |
//! | [`fidelity`] | how well a live emulated disk of this machine keeps to its model |
//!
//! `compare` and `grpc` know the service only through `lumpscope.v1` and its command line; only
//! [`engine`], [`runner`] and [`run`] link the engine, from which `grpc` takes nothing but aligned memory.

use lumpscope_units::human;

pub mod blocks;
pub mod commands;
pub mod compare;
pub mod engine;
mod failure;
pub mod fidelity;
pub mod grpc;
mod interrupt;
pub mod lab;
pub mod lab_service;
mod machine;
pub mod observe;
pub mod orders;
pub mod peers;
pub mod report;
pub mod run;
pub mod runner;
pub mod seeds;
pub mod stats;
pub mod tracer;
pub mod workload;

pub use failure::message;
