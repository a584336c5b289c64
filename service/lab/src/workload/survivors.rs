//! Lumps that are alive when all commands have run.

use std::collections::BTreeMap;

use super::{Command, CommandStream};

/// A lump that is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor {
    /// Bytes it has.
    pub size: u64,
    /// How many times it was put; selects its content.
    pub version: u64,
}

impl CommandStream {
    /// The lumps that are alive after the last command, by id.
    #[must_use]
    pub fn survivors(&self) -> BTreeMap<u64, Survivor> {
        let mut alive: BTreeMap<u64, Survivor> = BTreeMap::new();
        for command in &self.commands {
            match *command {
                Command::Put { id, size } | Command::Embed { id, size } => {
                    let version = alive.get(&id).map_or(1, |lump| lump.version + 1);
                    alive.insert(id, Survivor { size, version });
                }
                Command::Get { .. } => {}
                Command::Delete { id, .. } => {
                    alive.remove(&id);
                }
                Command::DeleteRange { start, end, .. } => {
                    let mut from = alive.split_off(&start);
                    alive.append(&mut from.split_off(&end.max(start)));
                }
            }
        }
        alive
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    #[test]
    fn overwrites_and_deletes_count() {
        let text = "Command { 5.times { New(7); }; DeleteRange(25, 75); New(9); OverWrite(3); Delete(0, 0); }";
        let stream = Workload::parse(text).unwrap().generate().unwrap();
        let alive = stream.survivors();
        assert!(
            !alive.contains_key(&2) && !alive.contains_key(&3),
            "{alive:?}"
        );
        assert_eq!(alive.len(), 3, "{:?}", stream.commands);
        let overwritten = stream
            .commands
            .iter()
            .rev()
            .find_map(|command| match command {
                Command::Put { id, size: 3 } => Some(*id),
                _ => None,
            });
        if let Some(lump) = alive.get(&overwritten.unwrap()) {
            assert_eq!(
                *lump,
                Survivor {
                    size: 3,
                    version: 2
                }
            );
        }
    }
}
