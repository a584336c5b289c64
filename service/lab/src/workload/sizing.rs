//! The size of a store that a workload needs.

use super::{Command, CommandStream};
use crate::human;

const MIB: u64 = 1 << 20;
/// The format's share of the journal unless it is told otherwise.
const JOURNAL_RATIO: f64 = 0.01;

/// Size of a store that can carry a workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sizing {
    /// Bytes of the store, journal included; whole MiB.
    pub(crate) capacity_bytes: u64,
    /// Part of it that is journal, 0 to 1.
    pub(crate) journal_ratio: f64,
}

impl Sizing {
    /// One and a half times what is alive at most, as the original sizes its store, and room for
    /// what comes with every lump: the rest of its last block, its journal records.
    pub(crate) fn of(stream: &CommandStream) -> Sizing {
        Sizing::for_records(stream, 64)
    }

    /// Sizing for a store whose lumps are objects with names: each has a record in the catalogue,
    /// which is a part of the journal.
    pub(crate) fn with_names(stream: &CommandStream) -> Sizing {
        Sizing::for_records(stream, 384)
    }

    /// `record_bytes`: in the journal, of each put.
    fn for_records(stream: &CommandStream, record_bytes: u64) -> Sizing {
        let (mut puts, mut embedded_bytes) = (0_u64, 0_u64);
        for command in &stream.commands {
            match command {
                Command::Put { .. } => puts += 1,
                Command::Embed { size, .. } => {
                    puts += 1;
                    embedded_bytes = embedded_bytes.saturating_add(*size);
                }
                Command::Get { .. } | Command::Delete { .. } | Command::DeleteRange { .. } => {}
            }
        }
        let data = stream.peak_bytes.saturating_add(puts.saturating_mul(8192));
        let data = (data / 2).saturating_mul(3).saturating_add(16 * MIB);
        // The ring is cleaned when it is half full; a record has some 30 bytes besides its lump.
        let records = embedded_bytes.saturating_add(puts.saturating_mul(record_bytes));
        let journal = records.saturating_mul(3).saturating_add(4 * MIB);
        let capacity_bytes = data
            .saturating_add(journal)
            .div_ceil(MIB)
            .saturating_mul(MIB);
        let needed = human::ratio(journal, capacity_bytes).unwrap_or(0.0);
        Sizing {
            capacity_bytes,
            journal_ratio: needed.max(JOURNAL_RATIO),
        }
    }

    /// Bytes of the store that the original benchmark makes for itself: one and a half times what
    /// it takes to be alive at most ([`CommandStream::least_required_bytes`]), in whole MiB; where
    /// that is less than the truth, or has wrapped, one and a half times what is alive.
    pub(crate) fn original_bytes(stream: &CommandStream) -> u64 {
        let least = match stream.has_wrapped() {
            true => stream.peak_bytes,
            false => stream.least_required_bytes.max(stream.peak_bytes),
        };
        let bytes = (least / 2).saturating_mul(3);
        bytes.div_ceil(MIB).max(1).saturating_mul(MIB)
    }

    /// Bytes of a disk that takes such a store: with the file system's own structures, and never
    /// smaller than the 300 MiB that an xfs needs.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.capacity_bytes
            .saturating_add(self.capacity_bytes / 16 + 400 * MIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn stream(text: &str) -> CommandStream {
        Workload::parse(text).unwrap().generate().unwrap()
    }

    #[test]
    fn stores_are_one_and_a_half_times_what_lives() {
        let stream = stream("Command { 1000.times { New(1M); }; }");
        let sizing = Sizing::of(&stream);
        let live = 1000 * MIB;
        assert!(sizing.capacity_bytes > live * 3 / 2 && sizing.capacity_bytes < live * 16 / 10);
        assert!((sizing.journal_ratio - JOURNAL_RATIO).abs() < 1e-9);
        assert!(sizing.disk_bytes() > sizing.capacity_bytes + 300 * MIB);
        assert_eq!(Sizing::original_bytes(&stream), live * 3 / 2);
    }

    #[test]
    fn embedded_lumps_get_a_larger_journal() {
        let sizing = Sizing::of(&stream("Command { 1000.times { Embed(60000); }; }"));
        let journal = human::as_float(sizing.capacity_bytes) * sizing.journal_ratio;
        assert!(journal > 3.0 * 60e6, "{journal}");
        assert!(sizing.journal_ratio < 1.0);
    }

    #[test]
    fn no_workload_overflows() {
        let huge = CommandStream {
            commands: vec![Command::Put {
                id: 1,
                size: u64::MAX,
            }],
            least_required_bytes: u64::MAX,
            peak_bytes: u64::MAX,
        };
        assert!(Sizing::of(&huge).disk_bytes() > 0);
        assert!(Sizing::original_bytes(&huge) > 0);
    }
}
