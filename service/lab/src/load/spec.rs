//! The load of one run on an engine, alike for every engine.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Payload bytes prepared at a time, so that preparing is not timed and memory stays bounded.
const BATCH_BYTES: u64 = 256 << 20;
/// Lumps prepared at a time.
const BATCH_LUMPS: u64 = 4096;
/// Lumps of a run that are read once more and compared byte by byte, outside the timed part.
pub const SAMPLES: usize = 16;

/// Failures that an acknowledged put survives.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Promise {
    /// A power cut: data and record are on stable storage.
    Synced,
    /// The death of the process: data and record are written.
    Written,
    /// Nothing: the record is in the memory of the process.
    Buffered,
}

impl Promise {
    /// Short lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Promise::Synced => "synced",
            Promise::Written => "written",
            Promise::Buffered => "buffered",
        }
    }
}

/// Puts of fresh lumps, then gets of them in random order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Bytes of a lump.
    pub size: u64,
    /// Requests in flight.
    pub depth: usize,
    /// Most puts.
    pub count: u64,
    /// Lumps that are told apart: the put after so many overwrites the first one.
    pub distinct: u64,
    /// The timed part of either operation ends after this time at the latest.
    pub time: Duration,
    /// Failures that an acknowledged put survives.
    pub promise: Promise,
    /// Determines payloads and order.
    pub seed: u64,
}

impl Load {
    /// Lumps that are prepared and put at a time.
    #[must_use]
    pub fn batch(&self) -> u64 {
        let depth = u64::try_from(self.depth).unwrap_or(u64::MAX);
        (BATCH_BYTES / self.size.max(1))
            .clamp(1, BATCH_LUMPS)
            .max(depth)
            .min(self.count)
    }

    /// The lump of the n-th put.
    #[must_use]
    pub fn lump(&self, put: u64) -> u64 {
        put % self.distinct.max(1)
    }

    /// Fills `buf` with the payload of a lump: bytes that no disk can compress.
    pub fn payload(&self, id: u64, buf: &mut [u8]) {
        fastrand::Rng::with_seed(
            self.seed
                .wrapping_add(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        )
        .fill(buf);
    }

    /// All ids below `lumps` in random order.
    #[must_use]
    pub fn order(&self, lumps: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..lumps).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut order);
        order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_differ_and_repeat() {
        let load = Load {
            size: 1 << 20,
            depth: 8,
            count: 100,
            distinct: 60,
            time: Duration::from_secs(1),
            promise: Promise::Synced,
            seed: 7,
        };
        let payload = |id| {
            let mut bytes = vec![0; 4096];
            load.payload(id, &mut bytes);
            bytes
        };
        assert_eq!(payload(3), payload(3));
        assert_ne!(payload(3), payload(4));
        assert_eq!(load.batch(), 100);
        assert_eq!((load.lump(59), load.lump(60)), (59, 0));
        let mut order = load.order(50);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }
}
