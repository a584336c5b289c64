//! Reports foreign opens: the last few in the report, one line a second in the log.

use std::collections::VecDeque;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lumpscope_ebpf_common::guard::{ForeignOpen, OpenCounts};
use lumpscope_ebpf_common::split_dev;

use crate::clock::monotonic_ns;
use crate::report::GuardedOpen;

/// Opens that are kept of each store; older ones are only counted.
const KEPT: usize = 16;

/// Opens of one store's devices, for report and log.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) store: String,
    recent: VecDeque<GuardedOpen>,
    told: OpenCounts,
}

impl Telling {
    pub(super) fn new(store: &str) -> Telling {
        Telling {
            store: store.to_owned(),
            recent: VecDeque::new(),
            told: OpenCounts::default(),
        }
    }

    pub(super) fn keep(&mut self, open: &ForeignOpen) {
        if self.recent.len() == KEPT {
            self.recent.pop_front();
        }
        self.recent.push_back(described(open));
    }

    /// The last ones, oldest first.
    pub(super) fn recent(&self) -> Vec<GuardedOpen> {
        self.recent.iter().cloned().collect()
    }

    /// One line for everything since the last one; none when nothing happened.
    pub(super) fn tell(&mut self, now: OpenCounts) {
        let denied = now.denied.saturating_sub(self.told.denied);
        let allowed = now.allowed.saturating_sub(self.told.allowed);
        self.told = now;
        if denied == 0 && allowed == 0 {
            return;
        }
        let last = self.recent.back().cloned().unwrap_or_default();
        tracing::warn!(
            store = self.store,
            denied,
            allowed,
            device = last.device,
            process = last.process,
            pid = last.pid,
            uid = last.uid,
            "another process opened the store's device for writing; the last one is named"
        );
    }
}

fn described(open: &ForeignOpen) -> GuardedOpen {
    let ago = Duration::from_nanos(monotonic_ns().saturating_sub(open.time_ns));
    let at = SystemTime::now().checked_sub(ago);
    let since = at.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
    let name = open.comm.split(|byte| *byte == 0).next();
    GuardedOpen {
        unix_ms: since.map_or(0, |t| u64::try_from(t.as_millis()).unwrap_or(0)),
        device: name_of(open.dev),
        process: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        pid: open.tgid,
        uid: open.uid,
        denied: open.denied != 0,
    }
}

/// As sysfs calls it; a device that is gone is called by its numbers.
fn name_of(dev: u32) -> String {
    let (major, minor) = split_dev(dev);
    let link = fs::read_link(format!("/sys/dev/block/{major}:{minor}"));
    let name = link.ok().and_then(|target| {
        let name = target.file_name()?;
        Some(name.to_string_lossy().into_owned())
    });
    name.unwrap_or_else(|| format!("{major}:{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_kept_and_all_are_counted() {
        let mut telling = Telling::new("a");
        let mut open = ForeignOpen {
            time_ns: monotonic_ns(),
            comm: *b"dd\0dirt\0\0\0\0\0\0\0\0\0",
            denied: 1,
            ..ForeignOpen::default()
        };
        for pid in 0..20 {
            open.tgid = pid;
            telling.keep(&open);
        }
        let recent = telling.recent();
        let pids: Vec<u32> = recent.iter().map(|open| open.pid).collect();
        assert_eq!(pids, (4..20).collect::<Vec<u32>>());
        assert_eq!((recent[0].process.as_str(), recent[0].denied), ("dd", true));
        assert!(recent[0].unix_ms > 1_700_000_000_000, "{:?}", recent[0]);
        let counts = |denied| OpenCounts { denied, allowed: 0 };
        telling.tell(counts(20));
        telling.tell(counts(21));
        assert_eq!(telling.told, counts(21));
    }
}
