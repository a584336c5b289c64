//! The way of a request from the block layer to the process that is the disk, and of its answer
//! back: time that a real disk does not take.
//!
//! It is measured when the disk is made, on the device itself, while every read is answered at
//! once. From then on a request counts as having come by its way earlier, and is answered by its
//! way earlier, so that whoever looks at the device sees what the model says. What is left is the
//! difference between one way and another: some microseconds.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use lumpscope_engine::buffer::BufferPool;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::trace::Op;

/// Bytes of the small and of the large requests with which the way is measured.
const SMALL: usize = 4096;
const LARGE: usize = 512 << 10;
/// How often each is sent. The shortest counts: the others waited for something else.
const TRIES: usize = 40;
/// No way is believed to be longer than this, whatever was measured on a busy machine.
const LONGEST_FIXED: Duration = Duration::from_micros(100);
/// Additional time for each MiB of data.
const LONGEST_PER_MIB: Duration = Duration::from_micros(500);

/// How long a request and its answer are under way, together, in real nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Of a request without data.
    pub fixed_ns: u64,
    /// For each MiB of data besides, which go with a write and come back with a read.
    pub per_mib_ns: u64,
    /// How much longer than the shortest one in two was that had no data, in real nanoseconds: what
    /// else runs on the machine, which nothing makes up for.
    pub delay_ns: u64,
}

impl Way {
    /// Measures it on a device of a disk that answers at once. At least [`LARGE`] bytes long.
    pub(super) fn measure(device: &Path) -> io::Result<Way> {
        let direct = i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0);
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(direct).open(device)?;
        let mut buffer = BufferPool::new(SMALL).zeroed(LARGE);
        // The shortest and the middle one.
        let mut times = |length: usize| -> io::Result<(Duration, Duration)> {
            let mut times = [Duration::ZERO; TRIES];
            for time in &mut times {
                let begun = Instant::now();
                file.read_exact_at(&mut buffer[..length], 0)?;
                *time = begun.elapsed();
            }
            times.sort_unstable();
            Ok((times[0], times[TRIES / 2]))
        };
        Ok(Way::of(times(SMALL)?, times(LARGE)?.0))
    }

    /// From round trips: the shortest and the middle one of small reads, the shortest of large ones.
    fn of((small, middle): (Duration, Duration), large: Duration) -> Way {
        const LARGE_OF_MIB: u32 = 2;
        let per_mib = large.saturating_sub(small).saturating_mul(LARGE_OF_MIB);
        let ns = |time: Duration, most: Duration| {
            u64::try_from(time.min(most).as_nanos()).unwrap_or(u64::MAX)
        };
        Way {
            fixed_ns: ns(small, LONGEST_FIXED),
            per_mib_ns: ns(per_mib, LONGEST_PER_MIB),
            delay_ns: ns(middle.saturating_sub(small), Duration::MAX),
        }
    }

    /// From the block layer to the disk.
    pub(super) fn there(self, op: Op, bytes: u64) -> Duration {
        self.one_way(bytes, op == Op::Write)
    }

    /// From the disk to the block layer.
    pub(super) fn back(self, op: Op, bytes: u64) -> Duration {
        self.one_way(bytes, op == Op::Read)
    }

    fn one_way(self, bytes: u64, with_data: bool) -> Duration {
        let data = if with_data { bytes } else { 0 };
        Duration::from_nanos(self.fixed_ns / 2 + self.per_mib_ns.saturating_mul(data) / (1 << 20))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    #[test]
    fn data_go_with_a_write_and_come_with_a_read() {
        let way = Way::of((50 * US, 70 * US), 150 * US);
        assert_eq!((way.fixed_ns, way.per_mib_ns), (50_000, 200_000));
        assert_eq!(way.delay_ns, 20_000);
        assert_eq!(way.there(Op::Read, 1 << 20), 25 * US);
        assert_eq!(way.back(Op::Read, 1 << 20), 225 * US);
        assert_eq!(way.there(Op::Write, 1 << 19), 125 * US);
        assert_eq!(way.back(Op::Write, 1 << 19), 25 * US);
        assert_eq!(way.back(Op::Flush, 0), 25 * US);
    }

    #[test]
    fn a_busy_machine_does_not_make_it_long() {
        let way = Way::of((7000 * US, 7000 * US), Duration::from_secs(1));
        assert_eq!(way.there(Op::Read, 0), LONGEST_FIXED / 2);
        assert_eq!(way.per_mib_ns, 500_000);
        // The large one happened to be quicker.
        assert_eq!(Way::of((50 * US, 50 * US), 40 * US).per_mib_ns, 0);
    }
}
