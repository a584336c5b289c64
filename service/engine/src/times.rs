//! The callback of a request, and where its time went.

use crate::declaration::RequestId;
use crate::error::Error;

/// Called once with the result of a request, on an engine thread: it must not block.
pub type OnDone<T> = Box<dyn FnOnce(Result<T, Error>, EngineTimes) + Send>;

/// Where the time of one request went, in nanoseconds of the monotonic clock. The seven add up to
/// the time from the call of `submit_*` to the call of its callback.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineTimes {
    /// Handed to the engine until its owner thread starts it, plus waits for a free I/O slot.
    pub sched_ns: u64,
    /// The owner thread's work for it: lookup and allocation.
    pub index_ns: u64,
    /// Its data I/O, from submission to completion.
    pub data_ns: u64,
    /// Its commit, until acknowledged, as far as it is none of the next three: the owner thread
    /// makes the batch and applies it.
    pub journal_ns: u64,
    /// Its commit waits for the batch or flush in flight to end, or for other puts of its run to be
    /// written.
    pub wait_ns: u64,
    /// The batch with its record is written to the journal.
    pub write_ns: u64,
    /// A flush that its data or its record needs is in flight.
    pub flush_ns: u64,
    /// Its longest wait of those in `wait_ns`.
    pub longest_wait: Option<BatchWait>,
}

impl EngineTimes {
    /// Nanoseconds in all.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        self.sched_ns + self.index_ns + self.data_ns + self.commit_ns()
    }

    /// Nanoseconds of the commit.
    #[must_use]
    pub fn commit_ns(&self) -> u64 {
        self.journal_ns + self.wait_ns + self.write_ns + self.flush_ns
    }

    /// These times scaled down to `room_ns` if they are more: work for several lumps at a time, or
    /// while bytes came or went, shares the time in which the request waited for it.
    #[must_use]
    pub fn within(self, room_ns: u64) -> Self {
        let used = self.total_ns();
        if used <= room_ns {
            return self;
        }
        let part = |ns: u64| {
            let part = u128::from(ns) * u128::from(room_ns) / u128::from(used);
            u64::try_from(part).unwrap_or(room_ns)
        };
        Self {
            sched_ns: part(self.sched_ns),
            index_ns: part(self.index_ns),
            data_ns: part(self.data_ns),
            journal_ns: part(self.journal_ns),
            wait_ns: part(self.wait_ns),
            write_ns: part(self.write_ns),
            flush_ns: part(self.flush_ns),
            longest_wait: self.longest_wait,
        }
    }
}

impl std::ops::AddAssign for EngineTimes {
    fn add_assign(&mut self, more: Self) {
        self.sched_ns += more.sched_ns;
        self.index_ns += more.index_ns;
        self.data_ns += more.data_ns;
        self.journal_ns += more.journal_ns;
        self.wait_ns += more.wait_ns;
        self.write_ns += more.write_ns;
        self.flush_ns += more.flush_ns;
        self.longest_wait = self.longest_wait.max(more.longest_wait);
    }
}

/// A commit's wait for a batch before its own, or for a put of its run. The longer one is the greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchWait {
    /// Nanoseconds.
    pub ns: u64,
    /// First of the requests that were being committed, or the put; 0: the store's own work was.
    pub behind: RequestId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_parallel_shares_the_time_it_took() {
        // Sixteen writes at a time, as a PutMany makes them.
        let mut sum = EngineTimes::default();
        for _ in 0..16 {
            sum += EngineTimes {
                sched_ns: 3,
                index_ns: 1,
                data_ns: 20,
                journal_ns: 1,
                wait_ns: 2,
                write_ns: 1,
                flush_ns: 3,
                longest_wait: None,
            };
        }
        let within = sum.within(197);
        assert!(within.total_ns() <= 197, "{within:?}");
        assert!(within.total_ns() > 186, "{within:?}");
        assert!(within.data_ns > within.flush_ns && within.flush_ns > within.wait_ns);
        assert_eq!(sum.within(496), sum);
    }
}
