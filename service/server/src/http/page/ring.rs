//! The last frames, which all viewers share.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::hello::PageStore;
use crate::door::Caller;

/// Changes of one interval, as sent.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) seq: u64,
    /// Begin and end of the interval, in milliseconds since 1970.
    pub(super) from_unix_ms: u64,
    pub(super) unix_ms: u64,
    /// How long the look at the stores took.
    pub(super) took_ms: u64,
    /// The stores there were.
    pub(super) stores: Arc<Vec<PageStore>>,
    /// Name of each and what happened there: `,"NAME":{...}`.
    pub(super) parts: Vec<(String, Bytes)>,
}

impl Frame {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, part)| part.len()).sum()
    }

    /// The frame in JSON with the stores that the caller may use, behind `before`, in pieces of
    /// which all but the first and the last are those of the ring.
    pub(super) fn json(&self, before: &str, caller: &Caller, skipped: u64) -> Vec<Bytes> {
        let Self {
            seq,
            from_unix_ms,
            unix_ms,
            took_ms,
            ..
        } = self;
        let head = format!(
            "{before}{{\"seq\":{seq},\"from_unix_ms\":{from_unix_ms},\"unix_ms\":{unix_ms},\
             \"took_ms\":{took_ms},\"skipped\":{skipped},\"stores\":{{"
        );
        let own = self.parts.iter().filter(|(name, _)| caller.may_use(name));
        let mut pieces = vec![head.into()];
        // Each begins with a comma, which the first has no use for.
        pieces.extend(
            own.enumerate()
                .map(|(i, (_, part))| part.slice(usize::from(i == 0)..)),
        );
        pieces.push(Bytes::from_static(b"}}"));
        pieces
    }
}

/// The last frames, at most so many of at most so many bytes. Their numbers have no gaps.
#[derive(Debug)]
pub(super) struct Ring {
    frames: VecDeque<Arc<Frame>>,
    most: usize,
    most_bytes: usize,
    bytes: usize,
    /// Number of the newest frame ever; the first has 1.
    newest: u64,
}

impl Ring {
    /// An empty one for `most` frames, at least one, of `most_bytes` in all; beyond, the oldest go
    /// before their time.
    pub(super) fn new(most: usize, most_bytes: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            most: most.max(1),
            most_bytes,
            bytes: 0,
            newest: 0,
        }
    }

    /// The number that the next frame must have.
    pub(super) fn next(&self) -> u64 {
        self.newest + 1
    }

    /// Takes the next frame in.
    pub(super) fn push(&mut self, frame: Frame) {
        debug_assert_eq!(frame.seq, self.next());
        self.newest = frame.seq;
        self.bytes += frame.bytes();
        self.frames.push_back(Arc::new(frame));
        while self.frames.len() > self.most || self.bytes > self.most_bytes && self.frames.len() > 1
        {
            let Some(gone) = self.frames.pop_front() else {
                return;
            };
            self.bytes -= gone.bytes();
        }
    }

    /// The frame after this number, and how many between are gone; `None`: there is none yet.
    pub(super) fn after(&self, seq: u64) -> Option<(Arc<Frame>, u64)> {
        let oldest = self.frames.front()?.seq;
        let wanted = (seq + 1).max(oldest);
        let at = usize::try_from(wanted - oldest).ok()?;
        let frame = self.frames.get(at)?;
        Some((Arc::clone(frame), wanted - (seq + 1)))
    }

    /// All frames after this number, oldest first; after one that has not been made: all.
    pub(super) fn all_after(&self, seq: u64) -> Vec<Arc<Frame>> {
        let seq = if self.knows(seq) { seq } else { 0 };
        let after = self.frames.iter().filter(|frame| frame.seq > seq);
        after.cloned().collect()
    }

    /// The number before the oldest frame: who begins there gets all.
    pub(super) fn begin(&self) -> u64 {
        self.frames
            .front()
            .map_or(self.newest, |oldest| oldest.seq - 1)
    }

    /// True: a frame of this number has been made.
    pub(super) fn knows(&self, seq: u64) -> bool {
        seq <= self.newest
    }

    /// Lets go of all frames.
    pub(super) fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_BYTES: usize = 64;

    fn frame(seq: u64, bytes: usize) -> Frame {
        Frame {
            seq,
            from_unix_ms: 0,
            unix_ms: 0,
            took_ms: 0,
            stores: Arc::default(),
            parts: vec![("s".into(), vec![b'x'; bytes].into())],
        }
    }

    #[test]
    fn who_falls_behind_is_told_how_far() {
        let mut ring = Ring::new(3, MOST_BYTES);
        assert!(ring.after(0).is_none() && ring.begin() == 0);
        for seq in 1..=5 {
            assert_eq!(ring.next(), seq);
            ring.push(frame(seq, 10));
        }
        let (first, skipped) = ring.after(0).unwrap();
        assert_eq!((first.seq, skipped), (3, 2));
        let (next, skipped) = ring.after(3).unwrap();
        assert_eq!((next.seq, skipped), (4, 0));
        assert!(ring.after(5).is_none() && ring.after(9).is_none());
        assert!(ring.knows(5) && !ring.knows(6));
        let numbers = |since| {
            ring.all_after(since)
                .iter()
                .map(|f| f.seq)
                .collect::<Vec<_>>()
        };
        let found = [0, 4, 5, 6].map(numbers);
        assert_eq!(found, [vec![3, 4, 5], vec![5], vec![], vec![3, 4, 5]]);
        assert_eq!((ring.begin(), ring.bytes), (2, 30));
        // After a pause the numbers go on.
        ring.clear();
        assert!(ring.after(0).is_none() && ring.after(5).is_none());
        assert_eq!((ring.begin(), ring.next()), (5, 6));
    }

    #[test]
    fn large_frames_go_before_their_time() {
        let mut ring = Ring::new(300, MOST_BYTES);
        for seq in 1..=10 {
            ring.push(frame(seq, MOST_BYTES / 4));
            assert!(ring.bytes <= MOST_BYTES);
        }
        assert_eq!(ring.frames.len(), 4);
        ring.push(frame(11, 2 * MOST_BYTES));
        assert_eq!(ring.frames.len(), 1, "the newest always stays");
    }
}
