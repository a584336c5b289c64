//! Requests of a block device as the kernel counts them: what waits on its way to the process that
//! is the disk is in their time, and in no time that this process can measure.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Requests that have ended, in real time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// How many, flushes among them.
    pub requests: u64,
    /// From being made to their ends, all together, in nanoseconds; exact to a millisecond.
    pub ns: u64,
}

impl Seen {
    /// Of a device, since it has its number; `None`: the kernel does not say.
    pub(super) fn of(device: &Path) -> Option<Seen> {
        let name = device.file_name()?;
        let stat = Path::new("/sys/block").join(name).join("stat");
        Seen::parse(&fs::read_to_string(stat).ok()?)
    }

    /// Reads and writes; a flush without data counts as a write, and one that belongs to a write is in
    /// its time.
    fn parse(stat: &str) -> Option<Seen> {
        let fields: Result<Vec<u64>, _> = stat.split_whitespace().map(str::parse).collect();
        let fields = fields.ok()?;
        let sum = |a: usize, b: usize| fields.get(a)?.checked_add(*fields.get(b)?);
        Some(Seen {
            requests: sum(0, 4)?,
            ns: sum(3, 7)?.checked_mul(1_000_000)?,
        })
    }

    /// What has come since.
    pub(super) fn since(self, before: Seen) -> Seen {
        Seen {
            requests: self.requests.saturating_sub(before.requests),
            ns: self.ns.saturating_sub(before.ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_counted_with_their_times() {
        let stat = " 80 0 688 4 217 71 8968 180 0 180 358 2 0 131074 0 204 173\n";
        let seen = Seen::parse(stat).expect("numbers");
        assert_eq!((seen.requests, seen.ns), (297, 184_000_000));
        let before = Seen {
            requests: 200,
            ns: 200_000_000,
        };
        let since = seen.since(before);
        assert_eq!((since.requests, since.ns), (97, 0));
        assert_eq!((Seen::parse("1 2 3"), Seen::parse("a")), (None, None));
    }
}
