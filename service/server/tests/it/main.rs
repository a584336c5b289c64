//! The service over real sockets: one binary, a module per subject.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod abuse;
mod admin;
mod admin_stores;
mod attacks;
mod batch;
mod client;
mod common;
mod deadlines;
mod door;
mod grpc_web;
mod methods;
mod page;
mod passing;
mod places;
mod refusals;
mod watching;
