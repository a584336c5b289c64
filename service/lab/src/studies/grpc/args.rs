//! Command lines of `lumpscope bench grpc` and of its peer.

use crate::experiment::StudyArgs;
use crate::human;

/// Measure the service against a tonic service that stores nothing, through gRPC, in alternating
/// rounds; then its memory under many puts, and what resets in the middle of puts leave behind.
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
    /// "memory" and "resets" are two more
    #[arg(long, value_name = "PATTERN")]
    pub(super) only: Option<String>,
    /// Connections of the memory figure, each with one put of 4 MiB at a time
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub(super) clients: usize,
    /// Puts that are reset in the middle
    #[arg(long, default_value_t = 1000, value_name = "N")]
    pub(super) resets: usize,
    /// Observe the disk while the service is measured
    #[arg(long)]
    pub(super) probes: bool,
    /// Compare with a service that does the work of a store in memory: it copies each body that
    /// is put into memory of its own, and sums what is put and what it sends
    #[arg(long)]
    pub(super) working_peer: bool,
    #[command(flatten)]
    pub(super) study: StudyArgs,
    #[command(flatten)]
    pub(super) transport: TransportArgs,
}

/// Settings of HTTP/2, for the service and its peer alike.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct TransportArgs {
    /// Bytes a client may send ahead on one call [default: as `lumpscope serve`]
    #[arg(long, value_name = "BYTES")]
    pub stream_window: Option<u32>,
    /// Bytes a client may send ahead on one connection [default: as `lumpscope serve`]
    #[arg(long, value_name = "BYTES")]
    pub connection_window: Option<u32>,
    /// Largest HTTP/2 frame a client may send [default: as `lumpscope serve`]
    #[arg(long, value_name = "BYTES")]
    pub frame_size: Option<u32>,
}

/// Settings of HTTP/2 and gRPC for the service and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
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

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bytes = |bytes: u32| human::bytes(u64::from(bytes));
        write!(
            f,
            "a client may send {} ahead on a call and {} on a connection, in frames of {}; at most {} \
             calls on a connection, headers of {}, messages of {}",
            bytes(self.stream_window),
            bytes(self.connection_window),
            bytes(self.frame_size),
            self.max_streams,
            bytes(self.max_header_bytes),
            human::bytes(self.max_message as u64)
        )
    }
}

impl TransportArgs {
    /// The given settings, else the defaults of `lumpscope serve`.
    #[must_use]
    pub(crate) fn over(self, default: Transport) -> Transport {
        Transport {
            stream_window: self.stream_window.unwrap_or(default.stream_window),
            connection_window: self.connection_window.unwrap_or(default.connection_window),
            frame_size: self.frame_size.unwrap_or(default.frame_size),
            ..default
        }
    }
}

/// The peer: answers gRPC like a store, keeps nothing.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct GrpcPeerArgs {
    /// Copy each body that is put into memory of its own, and sum what is put and what is sent
    #[arg(long)]
    pub working: bool,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub transport: TransportArgs,
}
