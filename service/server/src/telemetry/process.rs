//! The kernel's numbers about this process, under the names that all Prometheus clients use, and
//! about waiting on this machine.
//!
//! Read from `/proc` at the scrape. What cannot be read is absent, never 0: a process that
//! has become another user may not be allowed to look at itself.

use std::fmt;
use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::exposition::Out;
use super::heat::{float, seconds};
use super::names::{self, Metric};

/// Ticks a second in which the kernel tells times to programs, whatever its own clock does.
const USER_HZ: u64 = 100;
/// Name of the thread that correlates block requests with requests, as the kernel knows it.
const OBSERVER_THREAD: &str = "observer";

pub(super) fn encode(out: &mut Out<'_, '_>) -> fmt::Result {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let gauges: [(&Metric, Option<u64>); 6] = [
        (&names::PROCESS_START, started()),
        (&names::PROCESS_RESIDENT, status_bytes(&status, "VmRSS:")),
        (&names::PROCESS_VIRTUAL, status_bytes(&status, "VmSize:")),
        (&names::PROCESS_THREADS, status_number(&status, "Threads:")),
        (&names::PROCESS_OPEN_FILES, open_files()),
        (
            &names::PROCESS_MAX_FILES,
            getrlimit(Resource::Nofile).current,
        ),
    ];
    out.numbers(&names::PROCESS_CPU, [(vec![], cpu().as_secs_f64())])?;
    for (metric, value) in gauges {
        out.numbers(metric, value.map(|value| (vec![], float(value))))?;
    }
    let observer = observer_cpu_ns().map(|ns| (vec![], seconds(ns)));
    out.numbers(&names::OBSERVER_CPU, observer)?;
    pressure(out)
}

fn pressure(out: &mut Out<'_, '_>) -> fmt::Result {
    let resources = ["cpu", "io", "memory"].into_iter();
    let all: Vec<_> = resources
        .filter_map(|resource| {
            let text = fs::read_to_string(format!("/proc/pressure/{resource}")).ok()?;
            Some((resource, text))
        })
        .collect();
    let told = all.iter().flat_map(|(resource, text)| {
        let waits = text.lines().filter_map(waited);
        waits.map(|(waiting, us)| (vec![*resource, waiting], seconds(us.saturating_mul(1000))))
    });
    out.numbers(&names::PRESSURE, told)
}

/// A line of a pressure file: who waits, and how long in microseconds.
fn waited(line: &str) -> Option<(&str, u64)> {
    let (waiting, rest) = line.split_once(' ')?;
    let (_, total) = rest.rsplit_once("total=")?;
    Some((waiting, total.trim().parse().ok()?))
}

/// CPU time of all threads, user and system.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

fn open_files() -> Option<u64> {
    let files = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the folder that is being read.
    u64::try_from(files).ok()?.checked_sub(1)
}

/// When the process began, in seconds since 1970.
fn started() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/stat").ok()?;
    let machine = fs::read_to_string("/proc/stat").ok()?;
    let boot = machine.lines().find_map(|l| l.strip_prefix("btime "))?;
    Some(boot.trim().parse::<u64>().ok()? + start_ticks(&own)? / USER_HZ)
}

/// Start after boot in ticks: field 22, counted from behind the name, which may hold anything.
fn start_ticks(stat: &str) -> Option<u64> {
    let (_, behind) = stat.rsplit_once(')')?;
    behind.split_whitespace().nth(19)?.parse().ok()
}

/// A line `NAME NUMBER` of a status file.
fn status_number(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A line `NAME NUMBER kB` of a status file, in bytes.
pub(crate) fn status_bytes(status: &str, name: &str) -> Option<u64> {
    status_number(status, name)?.checked_mul(1024)
}

/// CPU time of the observer's thread in nanoseconds; `None`: there is none, or the kernel does not
/// count it.
fn observer_cpu_ns() -> Option<u64> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let mut folders = threads.filter_map(|entry| Some(entry.ok()?.path()));
    let folder = folders.find(|folder| {
        let name = fs::read_to_string(folder.join("comm"));
        name.is_ok_and(|name| name.trim_end() == OBSERVER_THREAD)
    })?;
    let times = fs::read_to_string(folder.join("schedstat")).ok()?;
    times.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_words_are_understood() {
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t 1024 kB\nThreads:\t7\n";
        assert_eq!(status_bytes(status, "VmRSS:"), Some(1 << 20));
        assert_eq!(status_number(status, "Threads:"), Some(7));
        assert_eq!(status_bytes(status, "VmSwap:"), None);
        let stat = "1 (a) b) (c) R 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 4242 23";
        assert_eq!(start_ticks(stat), Some(4242));
        for broken in ["", "1 (a", "1 (a) R 2", ")"] {
            assert_eq!(start_ticks(broken), None);
        }
    }

    #[test]
    fn pressure_is_read() {
        let line = "some avg10=0.00 avg60=1.25 avg300=0.03 total=8127";
        assert_eq!(waited(line), Some(("some", 8127)));
        assert_eq!(waited("full"), None);
        assert_eq!(waited("full avg10=0.00 total=x"), None);
    }

    #[test]
    fn this_process_is_found() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(status_bytes(&status, "VmRSS:").unwrap() > 1 << 16);
        assert!(open_files().unwrap() >= 1);
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let started = started().unwrap();
        assert!(started > 1_600_000_000, "{started} {now}");
        assert!(started <= now + 1, "{started} {now}");
    }
}
