//! The service and its program, over real sockets: one binary, a module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abuse;
mod admin;
mod admin_failed;
mod admin_stores;
mod batch;
mod binary;
mod client;
mod commands;
mod common;
mod config;
mod deadlines;
mod door;
mod folders;
mod methods;
mod observing;
mod page;
mod privileges;
mod refusals;
mod shutdown;
mod watching;
