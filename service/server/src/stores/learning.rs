//! From observer to engine: what the block requests of a disk tell about its arm.
//!
//! The engine learns from its own I/Os what near and far ways take. The probes see more: when each
//! block request was at the disk, and what others asked of it in between. While they run, a store
//! with the queue policy `learned` is told their pairs instead ([`Store::learn`]). The engine does
//! not know where they come from.
//!
//! [`Store::learn`]: lumpscope_engine::Store::learn

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use lumpscope_engine::QueuePolicy;
use lumpscope_observer::{BlockFilter, BlockLine, Observer};
use tracing::warn;

use super::named::NamedStore;

/// How often block requests are passed on.
const EVERY: Duration = Duration::from_millis(50);

/// Block requests that may wait for that; more are left out.
const WAITING: usize = 4096;

/// Block requests kept back until those that completed before them have surely been seen.
const KEPT_BACK: usize = 64;

/// Longest time between two block requests of a pair, in nanoseconds: behind it the drive may have
/// parked its arm.
const LONGEST_PAUSE_NS: u64 = 100_000_000;

/// A way of the arm, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    distance: i64,
    len: u64,
    took: Duration,
}

/// Makes pairs of block requests.
#[derive(Debug, Default)]
struct Ways {
    /// In the order of completion.
    waiting: VecDeque<BlockLine>,
    /// The last one taken from there.
    before: Option<BlockLine>,
}

fn end(line: &BlockLine) -> u64 {
    line.sector.saturating_add(line.sectors.into())
}

impl Ways {
    /// Takes up one block request.
    fn add(&mut self, line: BlockLine) {
        let later = |other: &BlockLine| other.done_ns <= line.done_ns;
        let at = self.waiting.partition_point(later);
        self.waiting.insert(at, line);
    }

    /// The next pair of all but the last `kept` block requests.
    fn next(&mut self, kept: usize) -> Option<Way> {
        while self.waiting.len() > kept {
            let line = self.waiting.pop_front()?;
            let way = self.before.as_ref().and_then(|before| way(before, &line));
            self.before = Some(line);
            if way.is_some() {
                return way;
            }
        }
        None
    }
}

/// The pair of two block requests of which one completed after the other. Only of reads: where the
/// arm is behind a write that lies in the drive's cache is the drive's secret. And only if the one
/// that was sent before is the one that completed before: the kernel measured the same distance.
fn way(before: &BlockLine, line: &BlockLine) -> Option<Way> {
    let is_read = |line: &BlockLine| line.operation == "read" && !line.failed;
    if !is_read(before) || !is_read(line) {
        return None;
    }
    let distance = line.seek_bytes?;
    let from = i64::try_from(end(before)).ok()?;
    let to = i64::try_from(line.sector).ok()?;
    if to.checked_sub(from)?.checked_mul(512)? != distance {
        return None;
    }
    let issued = line.done_ns.checked_sub(line.device_ns?)?;
    if issued.saturating_sub(before.done_ns) > LONGEST_PAUSE_NS {
        return None;
    }
    let took = line.done_ns.checked_sub(issued.max(before.done_ns))?;
    Some(Way {
        distance,
        len: u64::from(line.sectors) * 512,
        took: Duration::from_nanos(took),
    })
}

/// Passes on what is observed of a store's disk for as long as the store is there, if its policy
/// learns.
pub(crate) fn begin(named: &Arc<NamedStore>, observer: &Observer) {
    if named.store.info().queue_policy != QueuePolicy::Learned {
        return;
    }
    let weak = Arc::downgrade(named);
    let observer = observer.clone();
    let thread = std::thread::Builder::new().name("learning".to_owned());
    let started = thread.spawn(move || pass_on(&weak, &observer));
    if let Err(error) = started {
        warn!(
            store = named.name,
            %error, "learns from its own I/Os only: no thread for the observer's"
        );
    }
}

fn pass_on(weak: &Weak<NamedStore>, observer: &Observer) {
    let Some(name) = weak.upgrade().map(|named| named.name.clone()) else {
        return;
    };
    let filter = BlockFilter {
        store: Some(name),
        ..BlockFilter::default()
    };
    let watch = observer.watch_blocks(filter, WAITING);
    let mut ways = Ways::default();
    while !watch.is_over() {
        std::thread::sleep(EVERY);
        let lines = watch.take();
        let kept = if lines.is_empty() { 0 } else { KEPT_BACK };
        for line in lines {
            ways.add(line);
        }
        let Some(named) = weak.upgrade().filter(|named| !named.is_gone()) else {
            return;
        };
        while let Some(way) = ways.next(kept) {
            named.store.learn(way.distance, way.len, way.took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn read(sector: u64, seek_bytes: i64, issued_ms: u64, done_ms: u64) -> BlockLine {
        BlockLine {
            operation: "read".to_owned(),
            sector,
            sectors: 8,
            seek_bytes: Some(seek_bytes),
            done_ns: done_ms * MS,
            device_ns: Some((done_ms - issued_ms) * MS),
            ..BlockLine::default()
        }
    }

    fn ways(lines: &[BlockLine]) -> Vec<(i64, u128)> {
        let mut ways = Ways::default();
        for line in lines {
            ways.add(line.clone());
        }
        let all = std::iter::from_fn(|| ways.next(0));
        all.map(|way| (way.distance, way.took.as_millis()))
            .collect()
    }

    #[test]
    fn a_way_is_from_where_the_disk_was_to_where_it_went() {
        let lines = [
            read(100, 0, 0, 5),
            read(208, 100 * 512, 6, 16),
            // Sent while the one before was at the disk.
            read(8, -208 * 512, 10, 30),
        ];
        assert_eq!(ways(&lines), [(100 * 512, 10), (-208 * 512, 14)]);
        // Seen in another order.
        let [a, b, c] = lines;
        assert_eq!(ways(&[c, a, b]), [(100 * 512, 10), (-208 * 512, 14)]);
    }

    #[test]
    fn what_is_not_certain_is_left_out() {
        let first = read(100, 0, 0, 5);
        let write = BlockLine {
            operation: "write".to_owned(),
            ..read(108, 0, 5, 6)
        };
        let behind_a_write = read(208, 92 * 512, 7, 16);
        assert_eq!(ways(&[first.clone(), write, behind_a_write]), []);
        let one_is_missing = read(208, 7 * 512, 6, 16);
        assert_eq!(ways(&[first.clone(), one_is_missing]), []);
        let much_later = read(208, 100 * 512, 600, 616);
        assert_eq!(ways(&[first.clone(), much_later]), []);
        let failed = BlockLine {
            failed: true,
            ..read(208, 100 * 512, 6, 16)
        };
        assert_eq!(ways(&[first.clone(), failed]), []);
        let unknown = BlockLine {
            device_ns: None,
            ..read(208, 100 * 512, 6, 16)
        };
        assert_eq!(ways(&[first, unknown]), []);
    }

    #[test]
    fn the_last_ones_are_kept_back_while_more_come() {
        let mut ways = Ways::default();
        ways.add(read(100, 0, 0, 5));
        ways.add(read(208, 100 * 512, 6, 16));
        assert_eq!(ways.next(1), None);
        assert!(ways.next(0).is_some());
        assert_eq!(ways.next(0), None);
    }
}
