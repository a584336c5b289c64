//! Block requests as dots: a fair sample of bounded size of those that completed.

use lumpscope_observer::{BlockLine, OPERATIONS, OWNERS, Observer, Watch};
use serde::Serialize;

use super::frame::place;

/// Dots of one store in one frame; of more, as many are chosen by chance, each as likely as any.
pub(super) const MOST_DOTS: usize = 500;
/// Block requests of one store that wait to be looked at, which happens every
/// [`POLL`](super::pulse::POLL). More, beyond 160,000 a second, are counted as left out.
const WAITING: usize = 8192;

/// A completed block request: when (milliseconds since 1970), first sector, sectors, owner and
/// operation as places in their lists, seek distance in bytes, device time in nanoseconds, the
/// request it was made for (0: none, several of several stores, or unknown), and whether that owner
/// is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) struct Dot(
    i64,
    u64,
    u32,
    usize,
    usize,
    Option<i64>,
    Option<u64>,
    u64,
    bool,
);

/// The block requests of one store between two frames.
pub(super) struct Dots {
    store: String,
    watch: Watch<BlockLine>,
    /// Dots that the watch had dropped when the last frame was made.
    dropped: u64,
    sample: Sample,
}

impl Dots {
    /// From now on.
    pub(super) fn new(observer: &Observer, store: &str) -> Self {
        let filter = lumpscope_observer::TraceRequest {
            store: store.to_owned(),
            ..Default::default()
        };
        Self {
            store: store.to_owned(),
            watch: observer.watch_blocks(filter, WAITING),
            dropped: 0,
            sample: Sample::default(),
        }
    }

    /// Looks at what has come.
    pub(super) fn look(&mut self) {
        let come = self.watch.take();
        // What was surely made for other stores on the same disk is theirs to show.
        let own = come.iter().filter(|line| line.stores.contains(&self.store));
        for line in own {
            self.sample.offer(|| dot(line));
        }
    }

    /// The sample in the order of time, and how many are not in it. The next one begins.
    pub(super) fn take(&mut self) -> (Vec<Dot>, u64) {
        let dropped = self.watch.dropped();
        let not_looked_at = dropped.saturating_sub(self.dropped);
        self.dropped = dropped;
        let Sample { mut kept, seen } = std::mem::take(&mut self.sample);
        let left_out = seen - kept.len() as u64 + not_looked_at;
        kept.sort_unstable();
        (kept, left_out)
    }
}

/// So many of all that were offered, each as likely as any (Vitter's algorithm R).
#[derive(Debug, Default)]
struct Sample {
    kept: Vec<Dot>,
    seen: u64,
}

impl Sample {
    fn offer(&mut self, dot: impl FnOnce() -> Dot) {
        self.seen += 1;
        if self.kept.len() < MOST_DOTS {
            self.kept.push(dot());
            return;
        }
        let place = usize::try_from(fastrand::u64(..self.seen)).unwrap_or(usize::MAX);
        if let Some(place) = self.kept.get_mut(place) {
            *place = dot();
        }
    }
}

fn dot(line: &BlockLine) -> Dot {
    // Of several stores, which request is whose is not known, and not everybody may see all.
    let request = match &line.stores[..] {
        [_] => line.request_ids.first().copied().unwrap_or(0),
        _ => 0,
    };
    Dot(
        line.done_unix_ns / 1_000_000,
        line.sector,
        line.sectors,
        place(&OWNERS, &line.owner),
        place(&OPERATIONS, &line.operation),
        line.seek_bytes,
        line.device_ns,
        request,
        line.uncertain,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_bounded_and_from_all_of_the_time() {
        assert_eq!(OWNERS.last(), Some(&"other"));
        assert_eq!(OPERATIONS.last(), Some(&"other"));
        let mut sample = Sample::default();
        let many = 200 * MOST_DOTS as u64;
        for sector in 0..many {
            sample.offer(|| Dot(0, sector, 8, 0, 0, None, None, 0, false));
        }
        assert_eq!((sample.kept.len(), sample.seen), (MOST_DOTS, many));
        // By chance none of 500 lies in one half: once in 2^500 runs.
        let late = sample.kept.iter().filter(|dot| dot.1 >= many / 2).count();
        assert!((1..MOST_DOTS).contains(&late), "{late}");
        sample.kept.sort_unstable();
        sample.kept.dedup();
        assert_eq!(sample.kept.len(), MOST_DOTS, "no dot is there twice");
    }

    #[test]
    fn a_dot_tells_the_request_only_when_one_store_is_meant() {
        let mut line = BlockLine {
            stores: vec!["a".into()],
            owner: "fs-journal".into(),
            operation: "write".into(),
            request_ids: vec![7, 8],
            sector: 16,
            sectors: 8,
            done_unix_ns: 5_000_000,
            uncertain: true,
            ..BlockLine::default()
        };
        let owner = OWNERS.iter().position(|o| *o == "fs-journal").unwrap();
        let operation = OPERATIONS.iter().position(|o| *o == "write").unwrap();
        let expected = Dot(5, 16, 8, owner, operation, None, None, 7, true);
        assert_eq!(dot(&line), expected);
        line.stores.push("b".into());
        assert_eq!(dot(&line).7, 0);
    }
}
