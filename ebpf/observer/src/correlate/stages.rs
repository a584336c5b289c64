//! A request's time, stage by stage.

use super::EndedRequest;
use super::requests::{Intervals, Open};
use crate::api::STAGES;

/// Nanoseconds by stage in the order of [`crate::STAGES`]; the data time is split into device
/// (some block request of it was at the disk), queue (one was made, none at the disk) and submit.
pub(super) fn split(ended: &EndedRequest, open: &Open) -> [u64; STAGES.len()] {
    let [recv, sched, index, data, journal, reply] = ended.stages_ns;
    let [wait, write, flush] = ended.commit_ns;
    let times = open.data.times(u64::MAX);
    let device = times.device.min(data);
    let queue = times.queue.min(data - device);
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
pub(super) fn union(intervals: Intervals) -> u64 {
    joined(intervals).iter().map(|(from, to)| to - from).sum()
}

/// Intervals in order, with those that overlap or touch made one.
pub(super) fn joined(mut intervals: Intervals) -> Intervals {
    intervals.retain(|(from, to)| from < to);
    intervals.sort_unstable();
    intervals.dedup_by(|next, kept| {
        let joins = next.0 <= kept.1;
        if joins {
            kept.1 = kept.1.max(next.1);
        }
        joins
    });
    intervals
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::super::requests::IoWork;
    use super::*;

    fn ended(data: u64) -> EndedRequest {
        EndedRequest {
            request: 1,
            method: "put".into(),
            bytes: 1,
            end_ns: 100,
            ok: true,
            stages_ns: [1, 2, 3, data, 4, 5],
            commit_ns: [6, 7, 8],
            ..EndedRequest::default()
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
        let data = IoWork {
            device: smallvec![(10, 20), (15, 30)],
            queue: smallvec![(5, 10), (8, 15)],
            ..IoWork::default()
        };
        let open = Open {
            data,
            ..Open::default()
        };
        let expected = [1, 2, 3, 15, 5, 20, 4, 6, 7, 8, 5];
        assert_eq!(split(&ended(40), &open), expected);
        // More block time than data time cannot be: the stages still add up.
        assert_eq!(split(&ended(22), &open), [1, 2, 3, 0, 2, 20, 4, 6, 7, 8, 5]);
        let expected = [1, 2, 3, 40, 0, 0, 4, 6, 7, 8, 5];
        assert_eq!(split(&ended(40), &Open::default()), expected);
    }
}
