//! Block requests by process and cgroup.

use std::collections::BTreeMap;

use crate::cgroup::container;
use crate::event::{BlockOp, Event};
use crate::name::ThreadName;
use crate::report::ProcessTotal;

/// Processes that a disk's totals tell apart; beyond that those that have been quiet for longest are
/// counted together.
const MAX_PROCESSES: usize = 1024;
/// Process and cgroup of block requests of which neither is known. They are told with those of the
/// processes that were forgotten.
const UNKNOWN: (u32, u64) = (0, 0);
/// Paths that are remembered; beyond that the oldest cgroups have none.
const MAX_CGROUPS: usize = 65_536;

/// Paths of the cgroups, as far as they were told.
#[derive(Debug, Default)]
pub(super) struct Cgroups(BTreeMap<u64, String>);

impl Cgroups {
    pub(super) fn learn(&mut self, id: u64, path: String) {
        self.0.insert(id, path);
        if self.0.len() > MAX_CGROUPS {
            // The kernel numbers them in the order of their making.
            self.0.pop_first();
        }
    }

    /// Empty: unknown.
    pub(super) fn path(&self, id: u64) -> &str {
        self.0.get(&id).map_or("", String::as_str)
    }

    /// The container that its path names; empty: none, or unknown.
    pub(super) fn container(&self, id: u64) -> String {
        container(self.path(id)).unwrap_or_default().to_owned()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &str)> {
        self.0.iter().map(|(id, path)| (*id, path.as_str()))
    }
}

/// Block requests of one disk, by process number and cgroup.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: BTreeMap<(u32, u64), ProcessCounts>,
    /// Those that are no longer told apart.
    forgotten: ProcessCounts,
}

#[derive(Debug, Clone, Default)]
struct ProcessCounts {
    name: ThreadName,
    /// When the last one completed.
    last_ns: u64,
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
    flushes: u64,
    device_ns: u64,
}

impl Processes {
    pub(super) fn add(&mut self, event: &Event) {
        let key = (event.tgid, event.cgroup);
        let one = self.known.entry(key).or_insert_with(|| ProcessCounts {
            name: event.comm,
            ..ProcessCounts::default()
        });
        let bytes = u64::from(event.bytes);
        let of = |op| if event.op == op { bytes } else { 0 };
        one.add(&ProcessCounts {
            name: event.comm,
            last_ns: event.done_ns,
            requests: 1,
            read_bytes: of(BlockOp::Read),
            written_bytes: of(BlockOp::Write),
            flushes: u64::from(event.op == BlockOp::Flush),
            device_ns: event.device_time_ns(),
        });
        if self.known.len() > MAX_PROCESSES {
            self.forget_half();
        }
    }

    fn forget_half(&mut self) {
        let mut times: Vec<u64> = self.known.values().map(|one| one.last_ns).collect();
        let middle = times.len() / 2;
        let (_, quiet_since, _) = times.select_nth_unstable(middle);
        let forgotten = &mut self.forgotten;
        self.known.retain(|_, one| {
            let stays = one.last_ns > *quiet_since;
            if !stays {
                forgotten.add(one);
            }
            stays
        });
    }

    pub(super) fn report(&self, cgroups: &Cgroups) -> Vec<ProcessTotal> {
        let told = |&(pid, cgroup): &(u32, u64), one: &ProcessCounts| ProcessTotal {
            process: one.name.text(),
            pid,
            cgroup_id: cgroup,
            cgroup: cgroups.path(cgroup).to_owned(),
            container: cgroups.container(cgroup),
            requests: one.requests,
            read_bytes: one.read_bytes,
            written_bytes: one.written_bytes,
            flushes: one.flushes,
            device_ns: one.device_ns,
        };
        let known = self.known.iter().filter(|(key, _)| **key != UNKNOWN);
        let known = known.map(|(key, one)| told(key, one));
        let mut rest = self.forgotten.clone();
        if let Some(unknown) = self.known.get(&UNKNOWN) {
            rest.add(unknown);
        }
        let rest = (rest.requests > 0).then(|| ProcessTotal {
            process: String::new(),
            ..told(&UNKNOWN, &rest)
        });
        known.chain(rest).collect()
    }
}

impl ProcessCounts {
    fn add(&mut self, more: &ProcessCounts) {
        self.last_ns = self.last_ns.max(more.last_ns);
        self.requests += more.requests;
        self.read_bytes += more.read_bytes;
        self.written_bytes += more.written_bytes;
        self.flushes += more.flushes;
        self.device_ns = self.device_ns.saturating_add(more.device_ns);
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_ebpf_common::{BlockEvent, op};

    use super::*;

    fn event(tgid: u32, cgroup: u64, op: u8, done_ns: u64) -> Event {
        Event::from(&BlockEvent {
            tgid,
            cgroup,
            op,
            issue_ns: done_ns - 5,
            done_ns,
            bytes_done: 4096,
            comm: *b"dd\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            ..BlockEvent::default()
        })
    }

    #[test]
    fn a_process_is_counted_by_number_and_cgroup() {
        let (mut it, mut cgroups) = (Processes::default(), Cgroups::default());
        cgroups.learn(9, "/a".to_owned());
        it.add(&event(1, 9, op::READ, 10));
        it.add(&event(1, 9, op::FLUSH, 20));
        it.add(&event(1, 8, op::WRITE, 30));
        let told = it.report(&cgroups);
        let of = |at: usize| (told[at].pid, told[at].cgroup_id, told[at].cgroup.as_str());
        assert_eq!((of(0), of(1)), ((1, 8, ""), (1, 9, "/a")));
        assert_eq!(told[1].requests, 2);
        assert_eq!(told[1].flushes, 1);
        assert_eq!(told[1].device_ns, 10);
        assert_eq!((told[1].read_bytes, told[0].written_bytes), (4096, 4096));
    }

    #[test]
    fn nothing_is_lost_when_there_are_too_many() {
        let mut it = Processes::default();
        for pid in 1..5000 {
            it.add(&event(pid, 1, op::WRITE, u64::from(pid) * 10));
        }
        let told = it.report(&Cgroups::default());
        assert!(told.len() <= MAX_PROCESSES + 1, "{}", told.len());
        assert_eq!(told.iter().map(|one| one.requests).sum::<u64>(), 4999);
        assert!(told.iter().any(|one| one.pid == 4999), "the last is told");
        let rest = told.last().expect("the forgotten");
        assert_eq!((rest.pid, rest.process.as_str()), (0, ""));
        // What nobody can be named for is in the one row that has no name.
        let forgotten = rest.requests;
        it.add(&event(0, 0, op::WRITE, 60_000));
        let told = it.report(&Cgroups::default());
        let nameless = told.iter().filter(|one| (one.pid, one.cgroup_id) == (0, 0));
        let nameless: Vec<u64> = nameless.map(|one| one.requests).collect();
        assert_eq!(nameless, [forgotten + 1]);
    }
}
