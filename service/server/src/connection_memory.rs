//! Memory that connections of HTTP/2 can make the service hold: bytes that a client sends ahead, a
//! frame that has not come to its end, and calls under way with their headers.
//!
//! All connections together have a budget. While there is plenty, a connection gets what the
//! settings say; when most of it is given out, smaller windows, smaller frames and fewer calls at a
//! time; when all is, the least with which HTTP/2 works.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tonic::transport::Server;

use crate::config::ServeConfig;

/// A connection gets at most this part of what is left.
const PART: u64 = 8;
/// Smallest connection window: HTTP/2 begins with it and cannot make it smaller.
const LEAST_WINDOW: u64 = (64 << 10) - 1;
/// Smallest frame size that HTTP/2 allows.
const LEAST_FRAME: u64 = 16 << 10;
/// Fewest calls at a time.
const LEAST_CALLS: u64 = 8;
/// State of a call without its headers: its futures and those of its body and reply.
const CALL: u64 = 32 << 10;
/// Bytes that came keep the buffer alive into which they were read, and that holds others, too.
const KEPT: u64 = 2;
/// Buffers of a connection itself: TLS, the table of its client's headers.
const OWN: u64 = 128 << 10;

/// The budget, shared by all connections.
#[derive(Debug)]
pub(crate) struct ConnectionMemory {
    left: Mutex<u64>,
    most: Sizes,
    headers: u64,
}

/// Bounds of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    window: u64,
    stream: u64,
    frame: u64,
    calls: u64,
}

/// What one connection has; given back when dropped.
#[derive(Debug)]
pub(crate) struct Granted {
    memory: Arc<ConnectionMemory>,
    bytes: u64,
    sizes: Sizes,
}

impl Sizes {
    fn of(config: &ServeConfig) -> Self {
        Self {
            window: config.connection_window.0,
            stream: config.stream_window.0,
            frame: config.frame_size.0,
            calls: u64::from(config.max_streams),
        }
    }

    fn least(self) -> Self {
        Self {
            window: self.window.min(LEAST_WINDOW),
            stream: self.stream.min(LEAST_WINDOW),
            frame: self.frame.min(LEAST_FRAME),
            calls: self.calls.min(LEAST_CALLS),
        }
    }

    /// `part` of `whole` of these, at least [`Sizes::least`].
    fn scaled(self, part: u64, whole: u64) -> Self {
        let scale = |value: u64, least: u64| {
            let scaled = u128::from(value) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(scaled)
                .unwrap_or(u64::MAX)
                .clamp(least, value)
        };
        let least = self.least();
        Self {
            window: scale(self.window, least.window),
            stream: scale(self.stream, least.stream),
            frame: scale(self.frame, least.frame),
            calls: scale(self.calls, least.calls),
        }
    }

    fn bytes(self, headers: u64) -> u64 {
        OWN + KEPT * self.window + self.frame + self.calls * (headers + CALL)
    }
}

/// Bytes that connections of HTTP/2 hold at most, if there are so many of them.
pub(crate) fn most(config: &ServeConfig, connections: u64) -> u64 {
    let least = Sizes::of(config).least().bytes(config.max_header_bytes.0);
    config.connection_memory.0 + connections * least
}

impl ConnectionMemory {
    pub(crate) fn new(config: &ServeConfig) -> Arc<Self> {
        Arc::new(Self {
            left: Mutex::new(config.connection_memory.0),
            most: Sizes::of(config),
            headers: config.max_header_bytes.0,
        })
    }

    /// The bounds of a new connection.
    pub(crate) fn grant(self: &Arc<Self>) -> Granted {
        let full = self.most.bytes(self.headers);
        let least = self.most.least().bytes(self.headers);
        let mut left = self.left();
        let sizes = self.most.scaled(full.min(*left / PART), full);
        let bytes = sizes.bytes(self.headers) - least;
        // What is more than the least is no more than the part that was asked for.
        *left = left.saturating_sub(bytes);
        Granted {
            memory: Arc::clone(self),
            bytes,
            sizes,
        }
    }

    fn left(&self) -> MutexGuard<'_, u64> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Granted {
    pub(crate) fn bound(&self, server: Server) -> Server {
        let u32 = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        server
            .initial_connection_window_size(u32(self.sizes.window))
            .initial_stream_window_size(u32(self.sizes.stream))
            .max_frame_size(u32(self.sizes.frame))
            .max_concurrent_streams(u32(self.sizes.calls))
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        *self.memory.left() += self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_a_budget_and_each_has_the_least() {
        let config = ServeConfig::default();
        let memory = ConnectionMemory::new(&config);
        let first = memory.grant();
        assert_eq!(first.sizes, Sizes::of(&config));
        let mut all = vec![first];
        for _ in 0..2 * config.max_connections {
            let granted = memory.grant();
            assert!(granted.sizes.window >= LEAST_WINDOW && granted.sizes.calls >= LEAST_CALLS);
            all.push(granted);
        }
        let held: u64 = all.iter().map(|one| one.sizes.bytes(memory.headers)).sum();
        let least = Sizes::of(&config).least().bytes(memory.headers) * all.len() as u64;
        assert!(held <= config.connection_memory.0 + least, "{held}");
        assert!(
            all[20].sizes == Sizes::of(&config),
            "twenty connections are not many"
        );
        assert_eq!(all.last().unwrap().sizes, Sizes::of(&config).least());
        drop(all);
        assert_eq!(memory.grant().sizes, Sizes::of(&config));
    }
}
