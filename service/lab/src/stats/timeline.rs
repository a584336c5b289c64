//! Throughput over the time of a run, in slots.

use std::time::Duration;

use serde::Serialize;

use super::Kind;

/// Longest series: slots behind it count into the last one.
const MOST_SLOTS: usize = 1 << 20;

/// Requests that ended within one slot of time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// Puts, into the data region or the journal.
    pub puts: u64,
    pub gets: u64,
    /// Deletes, of one lump or of a range.
    pub deletes: u64,
    pub bytes_put: u64,
    pub bytes_got: u64,
    /// Longest of these calls in nanoseconds.
    pub longest_ns: u64,
}

impl Slot {
    /// Adds what another slot counted.
    pub fn add(&mut self, more: &Slot) {
        self.puts += more.puts;
        self.gets += more.gets;
        self.deletes += more.deletes;
        self.bytes_put = self.bytes_put.saturating_add(more.bytes_put);
        self.bytes_got = self.bytes_got.saturating_add(more.bytes_got);
        self.longest_ns = self.longest_ns.max(more.longest_ns);
    }
}

/// Slots of equal length from the begin of a run on. A call counts where it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    slot: Duration,
    slots: Vec<Slot>,
}

impl Timeline {
    /// Nothing yet; `slot` is the length of a slot, at least a microsecond.
    #[must_use]
    pub fn new(slot: Duration) -> Timeline {
        Timeline {
            slot: slot.max(Duration::from_micros(1)),
            slots: Vec::new(),
        }
    }

    /// Adds a call that ended `ended` after the begin of the run and took `latency`.
    pub fn record(&mut self, kind: Kind, ended: Duration, latency: Duration) {
        let index = ended.as_nanos() / self.slot.as_nanos();
        let index =
            usize::try_from(index).map_or(MOST_SLOTS - 1, |index| index.min(MOST_SLOTS - 1));
        if index >= self.slots.len() {
            self.slots.resize(index + 1, Slot::default());
        }
        let slot = &mut self.slots[index];
        match kind {
            Kind::Put(size) | Kind::Embed(size) => {
                slot.puts += 1;
                slot.bytes_put = slot.bytes_put.saturating_add(size);
            }
            Kind::Get(size) => {
                slot.gets += 1;
                slot.bytes_got = slot.bytes_got.saturating_add(size);
            }
            Kind::Delete | Kind::DeleteRange => slot.deletes += 1,
        }
        let latency = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        slot.longest_ns = slot.longest_ns.max(latency);
    }

    /// Adds all of another series with slots of the same length.
    pub fn merge(&mut self, other: &Timeline) {
        if other.slots.len() > self.slots.len() {
            self.slots.resize(other.slots.len(), Slot::default());
        }
        for (mine, more) in self.slots.iter_mut().zip(&other.slots) {
            mine.add(more);
        }
    }

    #[must_use]
    pub fn slot(&self) -> Duration {
        self.slot
    }

    /// The slots from the begin on; the last one may have been cut short by the end of the run.
    #[must_use]
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_count_where_they_ended() {
        let ms = Duration::from_millis;
        let mut all = Timeline::new(ms(100));
        all.record(Kind::Put(10), ms(99), ms(5));
        all.record(Kind::Get(7), ms(100), ms(1));
        let mut more = Timeline::new(ms(100));
        more.record(Kind::Delete, ms(350), ms(2));
        more.record(Kind::Put(1), ms(0), ms(50));
        all.merge(&more);
        assert_eq!(all.slots().len(), 4);
        let first = all.slots()[0];
        assert_eq!(
            (first.puts, first.bytes_put, first.longest_ns),
            (2, 11, 50_000_000)
        );
        assert_eq!((all.slots()[1].gets, all.slots()[1].bytes_got), (1, 7));
        assert_eq!(all.slots()[2], Slot::default());
        assert_eq!(all.slots()[3].deletes, 1);
        all.record(Kind::Delete, Duration::MAX, ms(1));
        assert_eq!(all.slots().len(), MOST_SLOTS);
    }
}
