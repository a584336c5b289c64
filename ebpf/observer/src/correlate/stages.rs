//! A request's time, stage by stage.

use super::Ended;
use super::requests::{Intervals, Open};
use crate::api::STAGES;

/// Nanoseconds by stage in the order of [`crate::STAGES`]; the data time is split into device
/// (some block request of it was at the disk), queue (one was made, none at the disk) and submit.
pub(super) fn split(ended: &Ended, open: &Open) -> [u64; STAGES.len()] {
    let [recv, sched, index, data, journal, reply] = ended.stages_ns;
    let [wait, write, flush] = ended.commit_ns;
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
        wait,
        write,
        flush,
        reply,
    ]
}

/// Length of the union of intervals.
pub(super) fn union(mut intervals: Intervals) -> u64 {
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
    use smallvec::smallvec;

    use super::*;

    fn ended(data: u64) -> Ended {
        Ended {
            request: 1,
            store: 0,
            method: "put".into(),
            bytes: 1,
            begin_ns: 0,
            end_ns: 100,
            ok: true,
            stages_ns: [1, 2, 3, data, 4, 5],
            commit_ns: [6, 7, 8],
            waited_for: None,
            trace: None,
        }
    }

    #[test]
    fn union_counts_overlap_once() {
        assert_eq!(union(smallvec![(10, 20), (15, 30), (40, 50), (12, 13)]), 30);
        assert_eq!(union(smallvec![(10, 20), (20, 30), (35, 35), (40, 39)]), 20);
        assert_eq!(union(smallvec![]), 0);
    }

    #[test]
    fn data_time_is_split_without_loss() {
        let open = Open {
            device: smallvec![(10, 20), (15, 30)],
            queue: smallvec![(5, 10), (8, 15)],
            ..Open::default()
        };
        assert_eq!(
            split(&ended(40), &open),
            [1, 2, 3, 15, 5, 20, 4, 6, 7, 8, 5]
        );
        // More block time than data time cannot be: the stages still add up.
        assert_eq!(split(&ended(22), &open), [1, 2, 3, 0, 2, 20, 4, 6, 7, 8, 5]);
        assert_eq!(
            split(&ended(40), &Open::default()),
            [1, 2, 3, 40, 0, 0, 4, 6, 7, 8, 5]
        );
    }
}
