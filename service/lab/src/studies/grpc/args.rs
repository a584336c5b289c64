//! Command lines of `lumpscope bench grpc` and of its peer.

use crate::experiment::StudyArgs;

/// Measure the service against a tonic service that stores nothing, through gRPC, in alternating
/// rounds; then its memory under many puts.
#[derive(Clone, Debug, clap::Args)]
pub struct GrpcBenchArgs {
    /// Size of the store
    #[arg(long, default_value = "1G", value_name = "SIZE", value_parser = lumpscope_units::size_within(512 << 20, 1 << 40))]
    pub(super) capacity: u64,
    /// Rounds; each gives one ratio of each figure
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub(super) rounds: usize,
    /// Timed part of one run, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    pub(super) seconds: f64,
    /// Calls in flight on each connection: enough that nobody waits for the disk
    #[arg(long, default_value_t = 16, value_name = "N")]
    pub(super) depth: usize,
    /// Only figures whose name holds this text, for example "put 1 MiB" or "4 connections";
    /// "memory" is one more
    #[arg(long, value_name = "PATTERN")]
    pub(super) only: Option<String>,
    /// Compare with a service that does the work of a store in memory: it copies each body that
    /// is put into memory of its own, and sums what is put and what it sends
    #[arg(long)]
    pub(super) working_peer: bool,
    #[command(flatten)]
    pub(super) study: StudyArgs,
}

/// Settings of HTTP/2 and gRPC that the service has by default, for its peer.
#[derive(Clone, Copy, Debug)]
pub struct Transport {
    /// Bytes a client may send ahead on one call.
    pub stream_window: u32,
    /// Bytes a client may send ahead on one connection.
    pub connection_window: u32,
    /// Largest HTTP/2 frame a client may send, in bytes.
    pub frame_size: u32,
    /// Calls under way on one connection.
    pub max_streams: u32,
    /// Most bytes of the headers of one call.
    pub max_header_bytes: u32,
    /// Largest gRPC message, in bytes.
    pub max_message: usize,
}

/// The peer: answers gRPC like a store, keeps nothing.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct GrpcPeerArgs {
    /// Copy each body that is put into memory of its own, and sum what is put and what is sent
    #[arg(long)]
    pub working: bool,
}
