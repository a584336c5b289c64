//! Completions that no program was shown.
//!
//! On a busy machine the kernel now and then does not run a program at a completion. The request
//! then stays in the table of those in flight. When its memory is used again, `start` finds it
//! there. On a disk that does nothing more, this does: the kernel counts more completions than
//! were seen, says that nothing is in flight, and what was sent to the disk before that moment is
//! still in the table.

use lumpscope_ebpf_common::{BlockEvent, InFlight, NO_SEEK, class, flag, flag2, op, stats};

use crate::api::EventPolicy;
use crate::event::Event;
use crate::probes::{Counters, Probes};

/// The kernel traces that a request is sent shortly before it counts it as in flight.
const MARGIN_NS: u64 = 10_000_000;

/// The kernel does not count the flushes that wrap a write as in flight; none takes so long.
const SEQUENCE_NS: u64 = 1_000_000_000;

/// Late completions of one disk.
#[derive(Debug, Clone)]
pub(crate) struct Late {
    /// Counted as the kernel side counts; all else is 0.
    pub(crate) counters: Counters,
    /// A moment in which the disk had nothing in flight.
    idle_ns: Option<u64>,
}

impl Default for Late {
    fn default() -> Late {
        Late {
            counters: [0; stats::COUNT],
            idle_ns: None,
        }
    }
}

impl Late {
    /// Nothing is missing: nothing will be looked for.
    pub(crate) fn all_there(&mut self) {
        self.idle_ns = None;
    }

    /// `missing` completions were not seen, and at `now_ns` the disk had nothing in flight or
    /// (`idle` is false) this is not known. Looks only at what was sent before the moment of an
    /// earlier call: a program that was just running then has ended.
    pub(crate) fn find(
        &mut self,
        probes: &mut Probes,
        slot: u32,
        missing: u64,
        now_ns: u64,
        idle: bool,
    ) -> Vec<Event> {
        let was_idle = self.idle_ns;
        if idle {
            self.idle_ns = Some(now_ns);
        }
        let Some(idle_ns) = was_idle else {
            return Vec::new();
        };
        let limit = usize::try_from(missing).unwrap_or(usize::MAX);
        let ended = probes.take_in_flight(usize::MAX, |entry| {
            u32::from(entry.slot) == slot && sequence_has_ended(entry, idle_ns)
        });
        self.counters[stats::SEQUENCE_ENDS] += u64::try_from(ended.len()).unwrap_or(0);
        let found = probes.take_in_flight(limit, |entry| {
            u32::from(entry.slot) == slot && has_completed(entry, idle_ns)
        });
        let policy = probes.events();
        let mut events = Vec::new();
        let mut left = missing;
        for entry in &found {
            // With the classic flavour an entry may stand for several of one place.
            let sharing = match entry.issue_ns {
                0 => entry.waiting(),
                _ => entry.sent(),
            };
            let requests = u64::from(sharing).max(1).min(left);
            left -= requests;
            count(&mut self.counters, entry, requests);
            let told = wanted(policy, entry, now_ns);
            if told {
                events.push(Event::from(&event_of(entry, now_ns)));
            } else {
                self.counters[stats::NOT_SAMPLED] += 1;
            }
            let untold = requests.saturating_sub(told.into());
            count_untold(&mut self.counters, entry, untold);
        }
        events
    }
}

/// Whether a request that is remembered has completed, when its disk was idle at a time.
fn has_completed(entry: &InFlight, idle_ns: u64) -> bool {
    let sent = entry.queue_ns.max(entry.issue_ns);
    entry.completes() && sent.saturating_add(MARGIN_NS) < idle_ns
}

/// Whether the last completion of a write wrapped in flushes was not shown.
fn sequence_has_ended(entry: &InFlight, idle_ns: u64) -> bool {
    let began = entry.queue_ns.saturating_add(SEQUENCE_NS);
    entry.flags2 & flag2::SEQUENCE != 0 && began < idle_ns
}

fn count(counters: &mut Counters, entry: &InFlight, requests: u64) {
    let op = usize::from(entry.op.min(op::OTHER));
    counters[stats::FOUND_LATE] += requests;
    if entry.flags & flag::FLUSH_PARENT != 0 {
        counters[stats::FLUSH_PARENTS] += requests;
    } else {
        counters[stats::SEEN_REQUESTS + op] += requests;
        counters[stats::SEEN_BYTES + op] += requests * bytes(entry);
    }
}

/// One event stands for one request.
fn count_untold(counters: &mut Counters, entry: &InFlight, requests: u64) {
    if entry.flags & flag::FLUSH_PARENT != 0 {
        return;
    }
    let op = usize::from(entry.op.min(op::OTHER));
    counters[stats::UNTOLD_REQUESTS + op] += requests;
    counters[stats::UNTOLD_BYTES + op] += requests * bytes(entry);
    if entry.op > op::WRITE {
        return;
    }
    if entry.class == class::OWN {
        counters[stats::UNTOLD_OWN_BYTES] += requests * bytes(entry);
    }
    if entry.seek != NO_SEEK {
        counters[stats::UNTOLD_PLACED] += requests;
        counters[stats::UNTOLD_SEQUENTIAL] += if entry.seek == 0 { requests } else { 0 };
        counters[stats::UNTOLD_TRAVEL] += requests * entry.seek.unsigned_abs();
    }
}

fn bytes(entry: &InFlight) -> u64 {
    u64::from(entry.sectors) << 9
}

/// As the kernel side decides. What it would leave to chance is decided by the time of day.
fn wanted(policy: EventPolicy, entry: &InFlight, now_ns: u64) -> bool {
    let sent = entry.queue_ns.max(entry.issue_ns);
    let by_chance = policy.one_in > 0 && (sent / 1000).is_multiple_of(policy.one_in.into());
    let slow = policy.slower_than_ns > 0 && now_ns.saturating_sub(sent) >= policy.slower_than_ns;
    by_chance || slow
}

fn event_of(entry: &InFlight, now_ns: u64) -> BlockEvent {
    BlockEvent {
        queue_ns: entry.queue_ns,
        issue_ns: entry.issue_ns,
        done_ns: now_ns,
        sector: entry.sector,
        seek: entry.seek,
        token: entry.token,
        cgroup: entry.cgroup,
        sectors: entry.sectors,
        bytes_done: u32::try_from(bytes(entry)).unwrap_or(u32::MAX),
        dev: entry.dev,
        tgid: entry.tgid,
        tid: entry.tid,
        error: 0,
        request_flags: entry.request_flags,
        store: entry.store,
        hardware_queue: entry.hardware_queue.into(),
        op: entry.op,
        class: entry.class,
        flags: entry.flags,
        flags2: entry.flags2 & !flag2::OF_ENTRY | flag2::DONE_UNKNOWN,
        comm: entry.comm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(issue_ns: u64) -> InFlight {
        InFlight {
            queue_ns: issue_ns - 1,
            issue_ns,
            sectors: 8,
            op: op::WRITE,
            ..InFlight::default()
        }
    }

    #[test]
    fn only_what_was_sent_well_before_the_idle_moment_has_completed() {
        assert!(has_completed(&sent(1000), 1000 + MARGIN_NS + 1));
        assert!(!has_completed(&sent(1000), 1000 + MARGIN_NS));
        let merged = InFlight {
            issue_ns: 0,
            ..sent(1000)
        };
        assert!(!has_completed(&merged, u64::MAX));
    }

    #[test]
    fn a_sequence_of_flushes_has_a_second_to_end() {
        let wrapped = InFlight {
            issue_ns: 0,
            flags2: flag2::SEQUENCE,
            ..sent(1000)
        };
        assert!(sequence_has_ended(&wrapped, 1000 + SEQUENCE_NS));
        assert!(!sequence_has_ended(&wrapped, 999 + SEQUENCE_NS));
        assert!(!has_completed(&wrapped, u64::MAX));
    }

    #[test]
    fn it_is_counted_as_the_kernel_side_counts() {
        let mut counters = Late::default().counters;
        count(&mut counters, &sent(1000), 1);
        count(&mut counters, &sent(1000), 2);
        let parent = InFlight {
            flags: flag::FLUSH_PARENT,
            op: op::FLUSH,
            sectors: 0,
            ..sent(1000)
        };
        count(&mut counters, &parent, 1);
        let write = usize::from(op::WRITE);
        assert_eq!(counters[stats::SEEN_REQUESTS + write], 3);
        assert_eq!(counters[stats::SEEN_BYTES + write], 3 * 4096);
        assert_eq!(counters[stats::FLUSH_PARENTS], 1);
        assert_eq!(counters[stats::FOUND_LATE], 4);
        let own = InFlight {
            class: class::OWN,
            seek: -16,
            ..sent(1000)
        };
        count_untold(&mut counters, &own, 2);
        let of = [
            stats::UNTOLD_OWN_BYTES,
            stats::UNTOLD_PLACED,
            stats::UNTOLD_SEQUENTIAL,
            stats::UNTOLD_TRAVEL,
        ];
        assert_eq!(of.map(|of| counters[of]), [2 * 4096, 2, 0, 32]);
    }

    #[test]
    fn its_event_says_that_the_time_is_unknown() {
        let event = Event::from(&event_of(&sent(1000), 5000));
        assert!(event.done_unknown);
        assert_eq!((event.done_ns, event.device_time_ns()), (1000, 0));
        assert_eq!(event.bytes, 4096);
    }

    #[test]
    fn the_event_policy_holds() {
        let of = |one_in, slower_than_ns| EventPolicy {
            one_in,
            slower_than_ns,
        };
        assert!(wanted(of(1, 0), &sent(1000), 5000));
        assert!(!wanted(of(0, 0), &sent(1000), 5000));
        assert!(wanted(of(0, 4000), &sent(1000), 5000));
        assert!(!wanted(of(0, 4001), &sent(1000), 5000));
    }
}
