//! The processes that belong to what is watched.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// A process and all that it starts, as far as they live long enough to be seen.
#[derive(Debug, Default)]
pub(super) struct Family {
    root: u32,
    /// All that were seen, also those that have ended.
    pub(super) seen: BTreeSet<u32>,
}

impl Family {
    /// That of `root`, which itself belongs to it or does not.
    pub(super) fn of(root: u32, itself: bool) -> Family {
        Family {
            root,
            seen: itself.then_some(root).into_iter().collect(),
        }
    }

    /// Looks for those that are new; those that live now.
    pub(super) fn look(&mut self) -> BTreeSet<u32> {
        let mut alive = BTreeSet::new();
        let mut left = vec![self.root];
        while let Some(pid) = left.pop() {
            // A number that is met twice was given anew in between.
            left.extend(children(pid).filter(|child| alive.insert(*child)));
        }
        self.seen.extend(&alive);
        alive
    }

    /// Files that its living processes have open, as links.
    pub(super) fn open_files(&mut self) -> Vec<PathBuf> {
        let mut alive = self.look();
        if self.seen.contains(&self.root) {
            alive.insert(self.root);
        }
        let folders = alive.iter().map(|pid| format!("/proc/{pid}/fd"));
        let entries = folders.flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        entries.flatten().map(|entry| entry.path()).collect()
    }
}

/// Those whose parent is any thread of this process.
fn children(pid: u32) -> impl Iterator<Item = u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    threads.flat_map(|thread| {
        let text = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let numbers = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        numbers.collect::<Vec<u32>>()
    })
}

/// True: there is such a process now.
pub(super) fn is_alive(pid: u32) -> bool {
    fs::exists(format!("/proc/{pid}")).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn children_of_children_are_seen_with_what_they_have_open() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 600 & read line; kill $!; wait"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut family = Family::of(shell.id(), true);
        let mut alive = family.look();
        // It has to start it first.
        while alive.is_empty() {
            std::thread::yield_now();
            alive = family.look();
        }
        assert!(family.seen.contains(&shell.id()) && family.seen.len() >= 2);
        assert!(!family.open_files().is_empty());
        let others = Family::of(std::process::id(), false).look();
        assert!(others.contains(&shell.id()) && alive.is_subset(&others));
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert!(!is_alive(shell.id()) && is_alive(std::process::id()));
    }
}
