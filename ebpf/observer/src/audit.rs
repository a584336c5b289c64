//! Can the numbers be trusted? What the probes saw against what the kernel counted itself.
//!
//! The kernel counts a request when it completes: reads, writes (data, and the empty writes that
//! ask for a flush), discards, and on its own the flushes that it sent. Merged bios are one
//! request. The probes' sum is the same four.

use std::fs;
use std::thread;
use std::time::Duration;

use lumpscope_ebpf_common::{op, stats};

use crate::probes::{Counters, Probes};
use crate::report::AuditReport;

/// How often to look for a moment in which the disk is idle.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(1);
const SECTOR_BYTES: u64 = 512;
const OPS: usize = op::COUNT as usize;

/// The kernel's own counts of one disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DiskStat {
    requests: u64,
    bytes: u64,
}

/// A watched disk.
#[derive(Debug)]
pub(crate) struct WatchedDisk {
    pub(crate) name: String,
    pub(crate) dev: u32,
    pub(crate) slot: u32,
    stat: DiskStat,
    counters: Counters,
    misses: u64,
    /// True: the disk was idle when watching began.
    exact: bool,
}

impl WatchedDisk {
    /// Begins to watch, if possible at a moment in which the disk is idle.
    pub(crate) fn arm(
        probes: &mut Probes,
        name: &str,
        dev: u32,
        slot: u32,
    ) -> Result<WatchedDisk, aya::maps::MapError> {
        let mut exact = false;
        let mut before = read_stat(name);
        let mut counters = probes.counters(slot);
        for attempt in 0..ATTEMPTS {
            before = read_stat(name);
            counters = probes.counters(slot);
            let idle = in_flight(name) == Some(0);
            probes.watch(dev, slot)?;
            exact = idle && in_flight(name) == Some(0) && before == read_stat(name);
            if exact || attempt + 1 == ATTEMPTS {
                break;
            }
            probes.unwatch(dev)?;
            thread::sleep(PAUSE);
        }
        let misses = probes.recursion_misses();
        let stat = before.unwrap_or_default();
        Ok(WatchedDisk {
            name: name.to_owned(),
            dev,
            slot,
            stat,
            counters,
            misses,
            exact,
        })
    }

    /// Compares.
    pub(crate) fn audit(&self, probes: &Probes) -> AuditReport {
        let mut steady = false;
        let mut stat = None;
        let mut counters = self.counters;
        for attempt in 0..ATTEMPTS {
            stat = read_stat(&self.name);
            let idle = in_flight(&self.name) == Some(0);
            counters = probes.counters(self.slot);
            steady = idle && stat == read_stat(&self.name);
            if steady || attempt + 1 == ATTEMPTS {
                break;
            }
            thread::sleep(PAUSE);
        }
        let since: Counters = std::array::from_fn(|i| counters[i].saturating_sub(self.counters[i]));
        let kernel = stat.map(|now| DiskStat {
            requests: now.requests.saturating_sub(self.stat.requests),
            bytes: now.bytes.saturating_sub(self.stat.bytes),
        });
        let misses = probes.recursion_misses().saturating_sub(self.misses);
        judge(&since, kernel, misses, self.exact && steady)
    }
}

/// Turns counts into a verdict. Pure.
fn judge(seen: &Counters, kernel: Option<DiskStat>, misses: u64, exact: bool) -> AuditReport {
    let requests: u64 = seen[stats::SEEN_REQUESTS..][..OPS].iter().sum();
    let counted = kernel.unwrap_or_default();
    let mut report = AuditReport {
        seen_requests: requests + seen[stats::FLUSH_PARENTS],
        kernel_requests: counted.requests,
        seen_bytes: seen[stats::SEEN_BYTES..][..OPS].iter().sum(),
        kernel_bytes: counted.bytes,
        lost_events: seen[stats::RING_LOST],
        unmatched: seen[stats::DONE_WITHOUT_START]
            + seen[stats::ISSUE_WITHOUT_START]
            + seen[stats::IN_FLIGHT_FULL],
        recursion_misses: misses,
        complete: false,
        finding: String::new(),
    };
    let agree = report.seen_requests == counted.requests && report.seen_bytes == counted.bytes;
    let mut findings = Vec::new();
    if report.lost_events > 0 {
        findings.push(format!(
            "{} events did not fit into the ring",
            report.lost_events
        ));
    }
    if report.unmatched > 0 {
        findings.push(format!(
            "the start of {} requests was not seen",
            report.unmatched
        ));
    }
    if kernel.is_none() {
        findings.push("the kernel's disk statistics cannot be read".to_owned());
    } else if !agree {
        let busy = if exact {
            ""
        } else {
            " (the disk was busy at one of the two readings)"
        };
        findings.push(format!(
            "{} requests and {} bytes seen, {} and {} counted by the kernel{busy}",
            report.seen_requests, report.seen_bytes, counted.requests, counted.bytes
        ));
    }
    if misses > 0 {
        findings.push(format!("the kernel skipped a probe {misses} times"));
    }
    report.complete = agree && kernel.is_some() && report.lost_events == 0 && report.unmatched == 0;
    report.finding = if report.complete && misses == 0 {
        format!("complete: {requests} requests seen, as the kernel counted")
    } else if report.complete {
        format!(
            "complete; {}, but none of this disk's requests is missing",
            findings.join("; ")
        )
    } else {
        format!("incomplete: {}", findings.join("; "))
    };
    report
}

fn read_stat(disk: &str) -> Option<DiskStat> {
    parse_stat(&fs::read_to_string(format!("/sys/block/{disk}/stat")).ok()?)
}

/// Fields as in Documentation/block/stat.rst: for each of read, write, discard: completed,
/// merged, sectors, ticks; flushes come last. Old kernels lack the later ones.
fn parse_stat(text: &str) -> Option<DiskStat> {
    let fields: Vec<u64> = text
        .split_whitespace()
        .map_while(|f| f.parse().ok())
        .collect();
    if fields.len() < 11 {
        return None;
    }
    let at = |index: usize| fields.get(index).copied().unwrap_or(0);
    Some(DiskStat {
        requests: at(0) + at(4) + at(11) + at(15),
        bytes: (at(2) + at(6) + at(13)) * SECTOR_BYTES,
    })
}

fn in_flight(disk: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/sys/block/{disk}/inflight")).ok()?;
    text.split_whitespace()
        .map(|field| field.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(requests: u64, bytes: u64) -> Counters {
        let mut counters = [0; stats::COUNT];
        counters[stats::SEEN_REQUESTS + usize::from(op::WRITE)] = requests;
        counters[stats::SEEN_BYTES + usize::from(op::WRITE)] = bytes;
        counters
    }

    #[test]
    fn reads_the_kernel_s_line() {
        let line = "  1  0  16  0  4  0  32  0  0  0  0  2  0  8  0  3  0\n";
        assert_eq!(
            parse_stat(line),
            Some(DiskStat {
                requests: 10,
                bytes: 56 * 512
            })
        );
        assert_eq!(parse_stat("1 2 3"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn equal_counts_are_complete() {
        let mut counters = seen(3, 4096);
        counters[stats::FLUSH_PARENTS] = 1;
        let report = judge(
            &counters,
            Some(DiskStat {
                requests: 4,
                bytes: 4096,
            }),
            0,
            true,
        );
        assert!(report.complete, "{report:?}");
    }

    #[test]
    fn every_lack_is_said() {
        let report = judge(
            &seen(3, 4096),
            Some(DiskStat {
                requests: 5,
                bytes: 8192,
            }),
            2,
            true,
        );
        assert!(!report.complete);
        assert_eq!(
            report.finding,
            "incomplete: 3 requests and 4096 bytes seen, 5 and 8192 counted by the kernel; \
             the kernel skipped a probe 2 times"
        );
        let mut counters = seen(3, 4096);
        counters[stats::RING_LOST] = 1;
        let report = judge(
            &counters,
            Some(DiskStat {
                requests: 3,
                bytes: 4096,
            }),
            0,
            true,
        );
        assert!(
            !report.complete && report.finding.contains("1 events did not fit"),
            "{report:?}"
        );
        assert!(!judge(&seen(0, 0), None, 0, true).complete);
    }
}
