//! Shared parts of the end-to-end tests: the real binary as a child process, a real gRPC client, a real browser, real
//! Prometheus servers, and the rule for tests that need a privilege or a tool. Devices come from
//! [`lumpscope_lab::disks`], which removes them even when a test panics.

pub mod browser;
pub mod client;
pub mod collector;
pub mod grafana;
pub mod prometheus;
pub mod s3;
pub mod service;
pub mod watching;

pub use lumpscope_needs as needs;
