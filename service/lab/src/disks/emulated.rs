//! Lateness of a lab's emulated disks: of their answers, and of the requests on their way to them.

use std::fmt;

use lumpscope_platter::live::Status;
use serde::Serialize;

use crate::human;

/// A disk whose requests or answers were late by more than this share of what its requests took says as much
/// of the machine as of the disk.
pub const BUSY: f64 = 0.05;

/// How late the answers of one emulated disk were. Figures that were measured on it are to be read
/// with this.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmulatedView {
    /// Its store, or what else it is called by.
    pub name: String,
    /// Requests that it has answered.
    pub requests: u64,
    /// Mean time by the model, in real nanoseconds.
    pub mean_ns: u64,
    /// How much later the answers came on average, in real nanoseconds.
    pub late_mean_ns: u64,
    /// 99 of 100 answers were no later.
    pub late_p99_ns: u64,
    /// The latest.
    pub late_max_ns: u64,
    /// How much later the requests came on average, in real nanoseconds, by the time that the kernel
    /// counts for them; `None`: it does not say.
    pub came_late_mean_ns: Option<u64>,
    /// Its threads ran before ordinary ones.
    pub runs_first: bool,
    /// The machine was too busy: requests and answers were late by more than a twentieth of what they
    /// took.
    pub too_busy: bool,
}

impl EmulatedView {
    /// The status of a disk, under a name for people.
    #[must_use]
    pub fn new(name: impl Into<String>, status: &Status) -> EmulatedView {
        let counts = &status.counts;
        let requests = counts.reads + counts.writes + counts.flushes;
        let scale = u64::from(status.options.scale.max(1));
        let mean_ns = counts.device_ns / scale / requests.max(1);
        let late_mean_ns = status.lateness.mean_ns;
        // One request of the kernel may be a write and a flush here.
        let told_ns = counts.device_ns / scale + late_mean_ns.saturating_mul(requests);
        let came_late_mean_ns = status.seen.and_then(|seen| {
            let late_ns = seen.ns.saturating_sub(told_ns);
            late_ns.checked_div(seen.requests)
        });
        let late_ns = late_mean_ns + came_late_mean_ns.unwrap_or(0);
        EmulatedView {
            name: name.into(),
            requests,
            mean_ns,
            late_mean_ns,
            late_p99_ns: status.lateness.p99_ns,
            late_max_ns: status.lateness.max_ns,
            came_late_mean_ns,
            runs_first: status.runs_first,
            too_busy: human::ratio(late_ns, mean_ns).is_some_and(|share| share > BUSY),
        }
    }
}

impl fmt::Display for EmulatedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [mean, late, p99, max] = [
            self.mean_ns,
            self.late_mean_ns,
            self.late_p99_ns,
            self.late_max_ns,
        ]
        .map(human::duration_ns);
        write!(
            f,
            "{}: the emulated disk answered {} requests, of {mean} on average, {late} late on \
             average, {p99} at the 99th percentile, {max} at most",
            self.name, self.requests
        )?;
        if let Some(came) = self.came_late_mean_ns {
            let came = human::duration_ns(came);
            write!(f, "; requests came {came} late on average")?;
        }
        if !self.runs_first {
            write!(f, "; its threads had no real-time priority (CAP_SYS_NICE)")?;
        }
        if self.too_busy {
            write!(
                f,
                "; THE MACHINE WAS TOO BUSY: the times are its own as much as the disk's"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::live::{Counts, Lateness, LiveOptions, Seen, Way};

    use super::*;

    fn status(late_ns: u64, scale: u32) -> Status {
        Status {
            options: LiveOptions {
                scale,
                ..LiveOptions::new("st1000dm003")
            },
            age_seconds: 1,
            counts: Counts {
                reads: 60,
                writes: 30,
                flushes: 10,
                device_ns: 1_000_000_000,
                ..Counts::default()
            },
            lateness: Lateness {
                mean_ns: late_ns,
                p99_ns: 2 * late_ns,
                max_ns: 3 * late_ns,
            },
            seen: None,
            way: Way::default(),
            memory_used: 0,
            memory_bound: 0,
            runs_first: true,
        }
    }

    #[test]
    fn lateness_is_judged_by_what_requests_take() {
        let quiet = EmulatedView::new("raw", &status(100_000, 1));
        assert_eq!((quiet.requests, quiet.mean_ns), (100, 10_000_000));
        assert!(!quiet.too_busy && !quiet.to_string().contains("TOO BUSY"));
        // Five times as fast, the same lateness is a larger part.
        let busy = EmulatedView::new("xfs", &status(150_000, 5));
        assert!(busy.too_busy && busy.to_string().contains("TOO BUSY"));
        // The answers kept up, the machine did not: of 100 requests, each 10 ms by the model, the
        // kernel counts 12 ms.
        let late = Status {
            seen: Some(Seen {
                requests: 100,
                ns: 1_200_000_000,
            }),
            ..status(100_000, 1)
        };
        let late = EmulatedView::new("raw", &late);
        assert_eq!(late.came_late_mean_ns, Some(1_900_000));
        assert!(late.too_busy && late.to_string().contains("came 1.90 ms late"));
        let idle = Status {
            counts: Counts::default(),
            ..status(0, 1)
        };
        assert!(!EmulatedView::new("ext4", &idle).too_busy);
    }
}
