//! Dependencies between commands: those on one lump keep their order.

use crate::workload::Command;

/// One command and what it depends on.
pub(super) struct Step {
    pub(super) command: Command,
    /// How many times the lump was put before, this command's own put included: selects content.
    pub(super) version: u64,
    /// Indices of earlier commands that must be done first.
    pub(super) after: Vec<usize>,
}

pub(super) struct Schedule {
    steps: Vec<Step>,
    highest_id: usize,
}

/// History of one lump so far.
#[derive(Default, Clone)]
struct Lump {
    version: u64,
    last_change: Option<usize>,
    reads_since: Vec<usize>,
}

impl Schedule {
    /// Reads wait for the last change of their lump, changes for the last change and for all reads
    /// since. A range delete waits for everything on the lumps between its ends.
    pub(super) fn new(commands: &[Command]) -> Schedule {
        let highest = commands.iter().map(|command| match command {
            Command::Put { id, .. } | Command::Embed { id, .. } => *id,
            Command::Get { id, .. } | Command::Delete { id, .. } => *id,
            Command::DeleteRange { end, .. } => *end,
        });
        let highest_id = position(highest.max().unwrap_or(0));
        let mut lumps = vec![Lump::default(); highest_id + 1];
        let steps = commands.iter().enumerate().map(|(index, command)| {
            let mut step = Step {
                command: *command,
                version: 0,
                after: Vec::new(),
            };
            match command {
                Command::Put { id, .. } | Command::Embed { id, .. } => {
                    let lump = &mut lumps[position(*id)];
                    lump.version += 1;
                    step.version = lump.version;
                    lump.change(index, &mut step.after);
                }
                Command::Get { id, .. } => {
                    let lump = &mut lumps[position(*id)];
                    step.version = lump.version;
                    step.after.extend(lump.last_change);
                    lump.reads_since.push(index);
                }
                Command::Delete { id, .. } => {
                    lumps[position(*id)].change(index, &mut step.after);
                }
                Command::DeleteRange { start, end, .. } => {
                    for lump in &mut lumps[position(*start)..position(*end)] {
                        lump.change(index, &mut step.after);
                    }
                }
            }
            step
        });
        Schedule {
            steps: steps.collect(),
            highest_id,
        }
    }

    pub(super) fn step(&self, index: usize) -> Option<&Step> {
        self.steps.get(index)
    }

    pub(super) fn highest_id(&self) -> usize {
        self.highest_id
    }
}

impl Lump {
    fn change(&mut self, index: usize, after: &mut Vec<usize>) {
        after.extend(self.last_change.replace(index));
        after.append(&mut self.reads_since);
    }
}

/// Ids count from 1 in creation order: they serve as indices.
pub(super) fn position(id: u64) -> usize {
    usize::try_from(id).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_wait_for_changes_and_changes_for_reads() {
        let put = |id| Command::Put { id, size: 1 };
        let get = |id| Command::Get { id, size: 1 };
        let commands = [
            put(1),
            put(2),
            get(1),
            get(1),
            put(1),
            get(1),
            Command::DeleteRange {
                start: 1,
                end: 2,
                count: 1,
            },
            Command::Delete { id: 2, size: 1 },
        ];
        let schedule = Schedule::new(&commands);
        let after = |index| schedule.step(index).unwrap().after.clone();
        assert!(after(1).is_empty());
        assert_eq!(after(3), [0]);
        assert_eq!(after(4), [0, 2, 3]);
        assert_eq!(after(5), [4]);
        assert_eq!(after(6), [4, 5], "lump 2 stays");
        assert_eq!(after(7), [1]);
        assert_eq!(schedule.step(3).unwrap().version, 1);
        assert_eq!(schedule.step(5).unwrap().version, 2);
        assert!(schedule.step(8).is_none());
    }
}
