//! What to run, and how much room it needs.

use std::fs;

use super::args::CompareArgs;
use super::error::CompareError;
use crate::human;
use crate::workload::{self, Command, CommandStream, Workload};

const MIB: u64 = 1 << 20;
/// The format's share of the journal unless it is told otherwise.
const JOURNAL_RATIO: f64 = 0.01;

/// What to run, and how much room it needs.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) stream: CommandStream,
    /// Size of every store, journal included.
    pub(super) capacity_bytes: u64,
    /// Part of it that is journal.
    pub(super) journal_ratio: f64,
}

impl Plan {
    pub(super) fn new(args: &CompareArgs) -> Result<Plan, CompareError> {
        if !(args.scale.is_finite() && args.scale > 0.0) {
            return Err(CompareError::Argument {
                option: "--scale",
                allowed: "above 0",
            });
        }
        if !(1..=1024).contains(&args.clients) {
            return Err(CompareError::Argument {
                option: "--clients",
                allowed: "1 to 1024",
            });
        }
        let text = match workload::builtin(&args.workload) {
            Some(builtin) => builtin.text.to_owned(),
            None => {
                fs::read_to_string(&args.workload).map_err(|source| CompareError::NoWorkload {
                    name: args.workload.clone(),
                    source,
                })?
            }
        };
        let workload = Workload::parse(&text).map_err(|error| CompareError::Workload {
            name: args.workload.clone(),
            error,
        })?;
        Ok(Plan::for_stream(workload.scaled(args.scale).generate()?))
    }

    /// One and a half times what is alive at most, as the original sizes its store, and room for
    /// what comes with every lump: the rest of its last block, its journal records.
    fn for_stream(stream: CommandStream) -> Plan {
        let (mut puts, mut embedded_bytes) = (0_u64, 0_u64);
        for command in &stream.commands {
            match command {
                Command::Put { .. } => puts += 1,
                Command::Embed { size, .. } => {
                    puts += 1;
                    embedded_bytes += size;
                }
                _ => {}
            }
        }
        let data = stream.peak_bytes.saturating_add(puts.saturating_mul(8192));
        let data = data / 2 * 3 + 16 * MIB;
        // The ring is cleaned when it is half full; a record has some 30 bytes besides its lump.
        let journal = 4 * MIB + 3 * (embedded_bytes + puts * 64);
        let capacity_bytes = (data + journal).next_multiple_of(MIB);
        let needed = human::ratio(journal, capacity_bytes).unwrap_or(0.0);
        Plan {
            stream,
            capacity_bytes,
            journal_ratio: needed.max(JOURNAL_RATIO),
        }
    }

    /// Size of a disk that takes such a store: with the file system's own structures, and never
    /// smaller than the 300 MiB that an xfs needs.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.capacity_bytes + self.capacity_bytes / 16 + 400 * MIB
    }

    /// What the three images will really take: every store is written whole before it is used.
    pub(super) fn image_bytes(&self) -> u64 {
        let file_systems = 2 * 160 * MIB;
        3 * self.capacity_bytes + file_systems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Plan {
        Plan::for_stream(Workload::parse(text).unwrap().generate().unwrap())
    }

    #[test]
    fn stores_are_one_and_a_half_times_what_lives() {
        let plan = plan("Command { 1000.times { New(1M); }; }");
        let live = 1000 * MIB;
        assert!(plan.capacity_bytes > live * 3 / 2 && plan.capacity_bytes < live * 16 / 10);
        assert!((plan.journal_ratio - JOURNAL_RATIO).abs() < 1e-9);
        assert!(plan.disk_bytes() > plan.capacity_bytes + 300 * MIB);
    }

    #[test]
    fn embedded_lumps_get_a_larger_journal() {
        let plan = plan("Command { 1000.times { Embed(60000); }; }");
        let journal = human::as_float(plan.capacity_bytes) * plan.journal_ratio;
        assert!(journal > 3.0 * 60e6, "{journal}");
        assert!(plan.journal_ratio < 1.0);
    }
}
