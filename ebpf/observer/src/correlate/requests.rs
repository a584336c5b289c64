//! Requests that have not been counted yet, with the block requests made for them.

use std::collections::HashMap;

use crate::api::Purpose;
use crate::event::Event;

use super::Ended;

/// Requests open at once; more are counted without their block requests.
const MAX_OPEN: usize = 65_536;
/// Block requests kept of one request.
pub(super) const MAX_BLOCKS: usize = 64;
/// Intervals kept of one request: a lump of 64 MiB makes fewer.
const MAX_INTERVALS: usize = 4096;
/// A request that nobody ends is dropped after this time.
const ABANDONED_NS: u64 = 120_000_000_000;

/// One block request, as seen by one request.
#[derive(Debug, Clone)]
pub(super) struct Block {
    pub(super) event: Event,
    pub(super) purpose: Purpose,
    pub(super) own_bytes: u64,
    pub(super) shared: bool,
}

/// A request that has not been counted yet.
#[derive(Debug, Default)]
pub(super) struct Open {
    /// The first of its block requests.
    pub(super) blocks: Vec<Block>,
    /// How many there were.
    pub(super) count: u32,
    /// When a block request of its data was at the disk.
    device: Vec<(u64, u64)>,
    /// When one was made but not yet at the disk.
    queue: Vec<(u64, u64)>,
    begin_ns: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Requests {
    open: HashMap<u64, Open>,
    ended: Vec<Ended>,
    pub(super) dropped: u64,
}

impl Requests {
    /// A request has its first I/O.
    pub(super) fn open(&mut self, request: u64, begin_ns: u64) {
        if self.open.contains_key(&request) {
            return;
        }
        if self.open.len() >= MAX_OPEN {
            self.dropped += 1;
            return;
        }
        self.open.insert(
            request,
            Open {
                begin_ns,
                ..Open::default()
            },
        );
    }

    /// A block request was made for it; ignored when it was counted already.
    pub(super) fn add(&mut self, request: u64, block: Block) {
        let Some(open) = self.open.get_mut(&request) else {
            return;
        };
        open.count = open.count.saturating_add(1);
        if block.purpose == Purpose::Data && open.device.len() < MAX_INTERVALS {
            let event = &block.event;
            if let Some(issue) = event.issue_ns {
                open.device.push((issue, event.done_ns));
                open.queue
                    .extend(event.queue_ns.map(|queued| (queued, issue)));
            }
        }
        if open.blocks.len() < MAX_BLOCKS {
            open.blocks.push(block);
        }
    }

    /// It has ended; it is counted when its block requests are known.
    pub(super) fn end(&mut self, ended: Ended) {
        self.ended.push(ended);
    }

    /// The requests that ended up to a time, with what was done for them.
    pub(super) fn take_ended(&mut self, until_ns: u64) -> Vec<(Ended, Open)> {
        let due = |ended: &mut Ended| ended.end_ns <= until_ns;
        let ended: Vec<Ended> = self.ended.extract_if(.., due).collect();
        let with_open = |ended: Ended| {
            let open = self.open.remove(&ended.request).unwrap_or_default();
            (ended, open)
        };
        ended.into_iter().map(with_open).collect()
    }

    pub(super) fn expire(&mut self, until_ns: u64) {
        if self.open.is_empty() {
            return;
        }
        let before = self.open.len();
        self.open
            .retain(|_, open| open.begin_ns.saturating_add(ABANDONED_NS) >= until_ns);
        let gone = before - self.open.len();
        self.dropped += u64::try_from(gone).unwrap_or(u64::MAX);
    }
}

/// Nanoseconds by stage in the order of [`crate::STAGES`]; the data time is split into device
/// (some block request of it was at the disk), queue (one was made, none at the disk) and submit.
pub(super) fn split_stages(ended: &Ended, open: &Open) -> [u64; 8] {
    let [recv, sched, index, data, journal, reply] = ended.stages_ns;
    let at_disk = union(open.device.clone());
    let made = union(open.device.iter().chain(&open.queue).copied().collect());
    let device = at_disk.min(data);
    let queue = (made - at_disk).min(data - device);
    [
        recv,
        sched,
        index,
        data - device - queue,
        queue,
        device,
        journal,
        reply,
    ]
}

/// Length of the union of intervals.
fn union(mut intervals: Vec<(u64, u64)>) -> u64 {
    intervals.sort_unstable();
    let (mut total, mut reached) = (0, 0);
    for (from, to) in intervals {
        let from = from.max(reached);
        if to > from {
            total += to - from;
            reached = to;
        }
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(data: u64) -> Ended {
        Ended {
            request: 1,
            store: 0,
            method: "put".to_owned(),
            bytes: 1,
            begin_ns: 0,
            end_ns: 100,
            ok: true,
            stages_ns: [1, 2, 3, data, 4, 5],
        }
    }

    #[test]
    fn union_counts_overlap_once() {
        assert_eq!(union(vec![(10, 20), (15, 30), (40, 50), (12, 13)]), 30);
        assert_eq!(union(Vec::new()), 0);
    }

    #[test]
    fn data_time_is_split_without_loss() {
        let open = Open {
            device: vec![(10, 20), (15, 30)],
            queue: vec![(5, 10), (8, 15)],
            ..Open::default()
        };
        assert_eq!(split_stages(&ended(40), &open), [1, 2, 3, 15, 5, 20, 4, 5]);
        // More block time than data time cannot be: the stages still add up.
        assert_eq!(split_stages(&ended(22), &open), [1, 2, 3, 0, 2, 20, 4, 5]);
        assert_eq!(
            split_stages(&ended(40), &Open::default()),
            [1, 2, 3, 40, 0, 0, 4, 5]
        );
    }
}
