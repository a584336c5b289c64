//! Latencies of commands, counted as the published tables count them.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use lumpscope_units::nanoseconds;
use serde::Serialize;

use crate::workload::Command;

/// Group of counts: kind of command and size of its lump in bytes. The order is the order of the
/// published tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Put into the data region.
    Put(u64),
    Embed(u64),
    Get(u64),
    /// Delete, of any size.
    Delete,
    DeleteRange,
}

impl From<&Command> for Kind {
    fn from(command: &Command) -> Kind {
        match command {
            Command::Put { size, .. } => Kind::Put(*size),
            Command::Embed { size, .. } => Kind::Embed(*size),
            Command::Get { size, .. } => Kind::Get(*size),
            Command::Delete { .. } => Kind::Delete,
            Command::DeleteRange { .. } => Kind::DeleteRange,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Put(size) => write!(f, "Put({size})"),
            Kind::Embed(size) => write!(f, "Embed({size})"),
            Kind::Get(size) => write!(f, "Get({size})"),
            Kind::Delete => f.write_str("Delete"),
            Kind::DeleteRange => f.write_str("DeleteRange"),
        }
    }
}

/// How long each command took.
#[derive(Debug, Clone, Default)]
pub struct Latencies {
    by_kind: BTreeMap<Kind, Vec<Duration>>,
}

/// Count, percentiles and sum of the latencies of one kind of command, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Kind of command; `Overall`: all of them.
    pub kind: String,
    /// How many; at least 1.
    pub count: usize,
    /// Half took no longer than about this.
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub total_ns: u64,
}

impl Summary {
    /// `None` when there is nothing to sum up.
    fn of(kind: impl fmt::Display, mut latencies: Vec<Duration>) -> Option<Summary> {
        latencies.sort_unstable();
        let rank = |percent: usize| {
            // The published rule: with 10 values the 99th percentile is the 9th, not the 10th.
            let index = (latencies.len() * percent / 100).max(1) - 1;
            latencies.get(index).copied().map(nanoseconds)
        };
        Some(Summary {
            kind: kind.to_string(),
            count: latencies.len(),
            p50_ns: rank(50)?,
            p90_ns: rank(90)?,
            p95_ns: rank(95)?,
            p99_ns: rank(99)?,
            total_ns: nanoseconds(latencies.iter().sum()),
        })
    }
}

impl fmt::Display for Summary {
    /// `50% = 3.062402ms, 90% = ..., 95% = ..., 99% = ...`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p90, p95, p99] =
            [self.p50_ns, self.p90_ns, self.p95_ns, self.p99_ns].map(Duration::from_nanos);
        write!(
            f,
            "50% = {p50:?}, 90% = {p90:?}, 95% = {p95:?}, 99% = {p99:?}"
        )
    }
}

impl Latencies {
    pub fn record(&mut self, kind: Kind, latency: Duration) {
        self.by_kind.entry(kind).or_default().push(latency);
    }

    /// Adds all of another set.
    pub fn merge(&mut self, other: Latencies) {
        for (kind, latencies) in other.by_kind {
            self.by_kind.entry(kind).or_default().extend(latencies);
        }
    }

    /// All latencies of each kind, in the order in which they were recorded.
    pub fn by_kind(&self) -> impl Iterator<Item = (Kind, &[Duration])> {
        self.by_kind
            .iter()
            .map(|(kind, latencies)| (*kind, latencies.as_slice()))
    }

    /// One summary a kind, in the order of the published tables.
    #[must_use]
    pub fn summaries(&self) -> Vec<Summary> {
        let kinds = self.by_kind.iter();
        kinds
            .filter_map(|(kind, all)| Summary::of(kind, all.clone()))
            .collect()
    }

    /// All kinds together; `None` when nothing was recorded.
    #[must_use]
    pub fn overall(&self) -> Option<Summary> {
        Summary::of(
            "Overall",
            self.by_kind.values().flatten().copied().collect(),
        )
    }

    /// The lines in which the original benchmark reports, ready to be put beside its tables.
    #[must_use]
    pub fn published_lines(&self) -> Vec<String> {
        let mut lines: Vec<String> = self
            .summaries()
            .iter()
            .map(|one| format!("kind = {}, count = {}, {one}", one.kind, one.count))
            .collect();
        if let Some(overall) = self.overall() {
            lines.push(format!("[Overall {}] {overall}", overall.count));
            let total = Duration::from_nanos(overall.total_ns);
            lines.push(format!("Total Elapsed Time by Commands = {total:?}"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn latencies(kind: Kind, millis: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        for milli in millis {
            latencies.record(kind, Duration::from_millis(milli));
        }
        latencies
    }

    #[test]
    fn percentiles_follow_the_published_rule() {
        let ms = |ms: u64| ms * 1_000_000;
        let hundred = latencies(Kind::Delete, (1..=100).rev()).overall().unwrap();
        assert_eq!(
            (hundred.p50_ns, hundred.p90_ns, hundred.p99_ns),
            (ms(50), ms(90), ms(99))
        );
        let ten = latencies(Kind::Delete, 1..=10).overall().unwrap();
        assert_eq!((ten.p50_ns, ten.p95_ns, ten.p99_ns), (ms(5), ms(9), ms(9)));
        let one = latencies(Kind::Delete, [7]).overall().unwrap();
        assert_eq!(
            (one.p50_ns, one.p99_ns, one.total_ns),
            (ms(7), ms(7), ms(7))
        );
        assert_eq!(Latencies::default().overall(), None);
    }

    #[test]
    fn lines_are_those_of_the_published_tables() {
        let mut all = latencies(Kind::Get(1024), [3]);
        all.merge(latencies(Kind::Put(2048), [2]));
        all.merge(latencies(Kind::Put(1024), [1, 2]));
        all.record(Kind::DeleteRange, Duration::from_micros(1500));
        assert_eq!(
            all.published_lines(),
            [
                "kind = Put(1024), count = 2, 50% = 1ms, 90% = 1ms, 95% = 1ms, 99% = 1ms",
                "kind = Put(2048), count = 1, 50% = 2ms, 90% = 2ms, 95% = 2ms, 99% = 2ms",
                "kind = Get(1024), count = 1, 50% = 3ms, 90% = 3ms, 95% = 3ms, 99% = 3ms",
                "kind = DeleteRange, count = 1, 50% = 1.5ms, 90% = 1.5ms, 95% = 1.5ms, 99% = 1.5ms",
                "[Overall 5] 50% = 1.5ms, 90% = 2ms, 95% = 2ms, 99% = 2ms",
                "Total Elapsed Time by Commands = 9.5ms",
            ]
        );
    }
}
