//! The load of one run on an engine without a network, alike for every engine.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Measured, Meter};
use crate::failure::wrong_bytes;

/// Payload bytes prepared at a time, so that preparing is not timed and memory stays bounded.
const BATCH_BYTES: u64 = 256 << 20;
/// Lumps prepared at a time.
const BATCH_LUMPS: u64 = 4096;
/// Lumps of a run that are read once more and compared byte by byte, outside the timed part.
const SAMPLES: usize = 16;

/// Failures that an acknowledged put survives.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Promise {
    /// A power cut: data and record are on stable storage.
    Synced,
    /// A crash of the process: data and record are written.
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

/// An engine under a load. It keeps [`Load::depth`] requests in flight and meters each as it ends.
pub trait Engine {
    /// A lump to be put, in the engine's own memory.
    type Lump;

    /// Name for the error when a lump comes back wrong.
    const NAME: &'static str;

    /// Makes a lump of these bytes.
    ///
    /// # Errors
    /// There is no memory for it.
    fn lump(&mut self, bytes: &[u8]) -> anyhow::Result<Self::Lump>;

    /// Puts it as soon as there is room in flight.
    ///
    /// # Errors
    /// The engine refuses this put, or one that ended meanwhile.
    fn put(&mut self, id: u64, lump: Self::Lump, meter: &mut Meter) -> anyhow::Result<()>;

    /// Gets it as soon as there is room in flight.
    ///
    /// # Errors
    /// The engine refuses this get, or one that ended meanwhile.
    fn get(&mut self, id: u64, meter: &mut Meter) -> anyhow::Result<()>;

    /// Waits for all that is in flight.
    ///
    /// # Errors
    /// The engine refuses one.
    fn drain(&mut self, meter: &mut Meter) -> anyhow::Result<()>;

    /// True: the lump is there, and these are its bytes.
    ///
    /// # Errors
    /// The engine refuses to read it.
    fn holds(&mut self, id: u64, bytes: &[u8]) -> anyhow::Result<bool>;
}

impl Load {
    /// Puts lumps 0, 1, 2 ... until the load's count or time is reached. `check` ends it early.
    ///
    /// # Errors
    /// The engine refuses one, or `check` fails.
    pub fn puts<E: Engine>(
        &self,
        engine: &mut E,
        check: impl Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let mut meter = Meter::new();
        let mut payload = self.buffer();
        let mut next = 0;
        while next < self.count && (next == 0 || meter.timed() < self.time) {
            check()?;
            let end = self.count.min(next + self.batch());
            let prepared: Vec<_> = (next..end)
                .map(|put| {
                    self.payload(self.lump(put), &mut payload);
                    engine.lump(&payload)
                })
                .collect::<anyhow::Result<_>>()?;
            // What is left over is given back outside the timed part.
            let mut prepared = prepared.into_iter();
            let left = self.time.saturating_sub(meter.timed());
            let begin = Instant::now();
            for lump in prepared.by_ref() {
                if next > 0 && begin.elapsed() >= left {
                    break;
                }
                engine.put(self.lump(next), lump, &mut meter)?;
                next += 1;
            }
            engine.drain(&mut meter)?;
            meter.timed_since(begin);
        }
        Ok(meter.finish())
    }

    /// Gets the first `lumps` lumps in random order, again and again, until the load's time is
    /// reached. A sample is compared byte by byte afterwards.
    ///
    /// # Errors
    /// The engine refuses one, what it returns is wrong, or `check` fails.
    pub fn gets<E: Engine>(
        &self,
        engine: &mut E,
        lumps: u64,
        check: impl Fn() -> anyhow::Result<()>,
    ) -> anyhow::Result<Measured> {
        let mut meter = Meter::new();
        let order = self.order(lumps);
        let begin = Instant::now();
        for &id in order.iter().cycle() {
            if begin.elapsed() >= self.time {
                break;
            }
            check()?;
            engine.get(id, &mut meter)?;
        }
        engine.drain(&mut meter)?;
        meter.timed_since(begin);
        let mut payload = self.buffer();
        for &id in order.iter().take(SAMPLES) {
            self.payload(id, &mut payload);
            if !engine.holds(id, &payload)? {
                return Err(wrong_bytes(E::NAME, id));
            }
        }
        Ok(meter.finish())
    }

    fn buffer(&self) -> Vec<u8> {
        vec![0; usize::try_from(self.size).unwrap_or(usize::MAX)]
    }

    /// Lumps that are prepared and put at a time.
    fn batch(&self) -> u64 {
        let depth = u64::try_from(self.depth).unwrap_or(u64::MAX);
        (BATCH_BYTES / self.size.max(1))
            .clamp(1, BATCH_LUMPS)
            .max(depth)
            .min(self.count)
    }

    /// The lump of the n-th put.
    fn lump(&self, put: u64) -> u64 {
        put % self.distinct.max(1)
    }

    /// Fills `buf` with the payload of a lump: bytes that no disk can compress.
    fn payload(&self, id: u64, buf: &mut [u8]) {
        fastrand::Rng::with_seed(
            self.seed
                .wrapping_add(id.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
        )
        .fill(buf);
    }

    /// All ids below `lumps` in random order.
    fn order(&self, lumps: u64) -> Vec<u64> {
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
