//! The last frames, which all viewers share.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::hello::Store;

/// Bytes of all frames in the ring; beyond, the oldest go before their time. That is reached with
/// more than about 8 stores under load: 300 frames of a store are at most about 10 MB.
pub(super) const MOST_BYTES: usize = 64 << 20;

/// Changes of one interval, as sent.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) seq: u64,
    pub(super) unix_ms: u64,
    /// How long the look at the stores took.
    pub(super) took_ms: u64,
    /// The stores there were.
    pub(super) stores: Arc<Vec<Store>>,
    /// Name of each and what happened there: `,"NAME":{...}`.
    pub(super) parts: Vec<(String, Bytes)>,
}

impl Frame {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, part)| part.len()).sum()
    }
}

/// The last frames, at most so many and at most [`MOST_BYTES`]. Their numbers have no gaps.
#[derive(Debug)]
pub(super) struct Ring {
    frames: VecDeque<Arc<Frame>>,
    most: usize,
    bytes: usize,
    /// Number of the newest frame ever; the first has 1.
    newest: u64,
}

impl Ring {
    /// An empty one for `most` frames, at least one.
    pub(super) fn new(most: usize) -> Self {
        Self {
            frames: VecDeque::new(),
            most: most.max(1),
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
        while self.frames.len() > self.most || self.bytes > MOST_BYTES && self.frames.len() > 1 {
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

    fn frame(seq: u64, bytes: usize) -> Frame {
        Frame {
            seq,
            unix_ms: 0,
            took_ms: 0,
            stores: Arc::default(),
            parts: vec![("s".into(), vec![b'x'; bytes].into())],
        }
    }

    #[test]
    fn who_falls_behind_is_told_how_far() {
        let mut ring = Ring::new(3);
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
        assert_eq!((ring.begin(), ring.bytes), (2, 30));
        // After a pause the numbers go on.
        ring.clear();
        assert!(ring.after(0).is_none() && ring.after(5).is_none());
        assert_eq!((ring.begin(), ring.next()), (5, 6));
    }

    #[test]
    fn large_frames_go_before_their_time() {
        let mut ring = Ring::new(300);
        for seq in 1..=10 {
            ring.push(frame(seq, MOST_BYTES / 4));
            assert!(ring.bytes <= MOST_BYTES);
        }
        assert_eq!(ring.frames.len(), 4);
        ring.push(frame(11, 2 * MOST_BYTES));
        assert_eq!(ring.frames.len(), 1, "the newest always stays");
    }
}
