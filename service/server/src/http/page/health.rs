//! State of a store at one moment: its room, its queue, what was found, and which conditions of the
//! alerts hold.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use lumpscope_engine::{Finding, FindingKind, StoreStats};
use lumpscope_observer::StoreReport;
use lumpscope_proto::v1::StoreState;
use serde::Serialize;

use crate::stores::NamedStore;

/// From one sample of [`Recent`] to the next.
const SAMPLE: Duration = Duration::from_secs(60);
/// Samples kept of each store: those of a day.
const SAMPLES: usize = 24 * 60 + 2;

const TEN_MINUTES: Duration = Duration::from_secs(600);
const FIVE_MINUTES: Duration = Duration::from_secs(300);
const DAY: Duration = Duration::from_secs(24 * 3600);

/// Age of the oldest block request from which on the disk counts as hanging, in seconds.
const HANGS: u64 = 30;
/// Shares, in hundredths, above which the journal and the data region count as nearly full.
const JOURNAL_FULL: u64 = 80;
const DATA_FULL: u64 = 90;

/// Alerts whose conditions come slowly, or of which only a look at the disk tells.
const SLOWLY: [&str; 3] = [
    "LumpscopeJournalNearlyFull",
    "LumpscopeDataNearlyFull",
    "LumpscopeStoreDamaged",
];
/// Bad places that a frame names.
const BAD_SHOWN: usize = 8;

/// One store at one moment.
#[derive(Debug, Default, Serialize)]
pub(super) struct Health {
    /// In the words of `lumpscope stores`.
    state: &'static str,
    /// Why it is in that state; empty: it serves.
    why: String,
    /// `None`: it is not open.
    numbers: Option<Numbers>,
    firing: Vec<Condition>,
}

/// What the engine counts.
#[derive(Debug, Serialize)]
struct Numbers {
    lumps: u64,
    data_capacity_bytes: u64,
    data_used_bytes: u64,
    largest_free_bytes: u64,
    bad_bytes: u64,
    /// Places that the disk has refused to write, which these bytes belong to.
    bad_places: u64,
    /// The first of them: offset on the device or in the file, and bytes.
    bad_at: Vec<(u64, u64)>,
    journal_capacity_bytes: u64,
    journal_used_bytes: u64,
    journal_live_bytes: u64,
    queue_length: u64,
    under_way: u64,
    io_errors: u64,
    checksum_failures: u64,
    scrub_corrupt: u64,
    scrub_read_errors: u64,
    /// When its last pass ended, in nanoseconds since 1970; 0: none has.
    scrub_last_pass_ns: u64,
}

/// A condition that holds now, by the name of the alert that tells of it.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Condition {
    alert: &'static str,
    text: String,
}

impl Health {
    pub(super) fn of(named: &NamedStore, report: &StoreReport, recent: &Recent) -> Self {
        let stats = named.store.stats();
        let (state, why) = named.state();
        let mut firing = Vec::new();
        let failed = named.failed();
        if !failed.is_empty() {
            firing.push(Condition::new("LumpscopeStoreFailed", failed));
        }
        firing.extend(conditions(&stats, report, |window| {
            recent.before(named.index, window)
        }));
        Self {
            state: state.word(),
            why: why.to_string(),
            numbers: Some(Numbers::of(&stats, named)),
            firing,
        }
    }

    /// Alerts whose conditions hold and began at a moment that somebody will ask about.
    pub(super) fn moments(&self) -> impl Iterator<Item = &'static str> + '_ {
        let alerts = self.firing.iter().map(|condition| condition.alert);
        alerts.filter(|alert| !SLOWLY.contains(alert))
    }

    /// A store that could not be opened.
    pub(super) fn not_open(why: &str) -> Self {
        Self {
            state: StoreState::Unavailable.word(),
            why: why.to_owned(),
            numbers: None,
            firing: vec![Condition::new("LumpscopeStoreFailed", why.to_owned())],
        }
    }
}

impl Numbers {
    fn of(stats: &StoreStats, named: &NamedStore) -> Self {
        let bad_at = match stats.bad_places {
            0 => Vec::new(),
            _ => first_places(&named.store.scrub_status().findings.list),
        };
        Self {
            lumps: stats.lumps,
            data_capacity_bytes: stats.data_capacity_bytes,
            data_used_bytes: stats.data_used_bytes,
            largest_free_bytes: stats.largest_free_bytes,
            bad_bytes: stats.bad_bytes,
            bad_places: stats.bad_places,
            bad_at,
            journal_capacity_bytes: stats.journal_capacity_bytes,
            journal_used_bytes: stats.journal_used_bytes,
            journal_live_bytes: stats.journal_live_bytes,
            queue_length: stats.queue_length,
            under_way: named.under_way(),
            io_errors: stats.io_errors,
            checksum_failures: stats.checksum_failures,
            scrub_corrupt: stats.scrub_corrupt,
            scrub_read_errors: stats.scrub_read_errors,
            scrub_last_pass_ns: stats.scrub_last_pass_ns,
        }
    }
}

/// Where the first places are that the disk has refused to write.
fn first_places(findings: &[Finding]) -> Vec<(u64, u64)> {
    let refused = findings.iter().filter(|it| it.kind == FindingKind::Write);
    let mut places: Vec<_> = refused.map(|it| (it.offset, it.len)).collect();
    places.sort_unstable();
    places.dedup();
    places.truncate(BAD_SHOWN);
    places
}

impl Condition {
    fn new(alert: &'static str, text: String) -> Self {
        Self { alert, text }
    }
}

/// Conditions that hold, as dashboards/prometheus/alerts.yml has them, without their waiting times.
/// Whether the disk is observed, a frame tells by itself.
/// `before`: what was counted so long ago, or when the store was opened.
fn conditions(
    is: &StoreStats,
    report: &StoreReport,
    before: impl Fn(Duration) -> ErrorCounters,
) -> Vec<Condition> {
    let now = ErrorCounters::of(is);
    let mut found = Vec::new();
    let mut add = |holds: bool, alert, text: &dyn Fn() -> String| {
        if holds {
            found.push(Condition::new(alert, text()));
        }
    };
    let errors = now.io_errors.saturating_sub(before(TEN_MINUTES).io_errors);
    add(
        errors > 0 || is.bad_bytes > 0,
        "LumpscopeDiskErrors",
        &|| {
            let bad = is.bad_bytes;
            format!(
                "{errors} I/Os failed in the last 10 minutes; {bad} bytes are refused by the disk"
            )
        },
    );
    let oldest = report.in_flight.oldest_ns / 1_000_000_000;
    add(oldest > HANGS, "LumpscopeDiskHangs", &|| {
        format!("a block request has been under way for {oldest} s")
    });
    let damaged = now.damaged.saturating_sub(before(DAY).damaged);
    add(damaged > 0, "LumpscopeStoreDamaged", &|| {
        format!("the scrubber found {damaged} damaged lumps in the last 24 hours")
    });
    let wrong = now
        .checksum_failures
        .saturating_sub(before(DAY).checksum_failures);
    add(wrong > 0, "LumpscopeChecksumFailures", &|| {
        format!("{wrong} gets in the last 24 hours met wrong bytes")
    });
    let live = hundredths(is.journal_live_bytes, is.journal_capacity_bytes);
    add(live > JOURNAL_FULL, "LumpscopeJournalNearlyFull", &|| {
        format!("the journal is {live} % full of live records")
    });
    let used = hundredths(is.data_used_bytes, is.data_capacity_bytes);
    add(used > DATA_FULL, "LumpscopeDataNearlyFull", &|| {
        format!("the data region is {used} % full")
    });
    let refused = now.refused.saturating_sub(before(FIVE_MINUTES).refused);
    add(refused > 0, "LumpscopeRefusals", &|| {
        format!("{refused} requests were refused in the last 5 minutes")
    });
    found
}

/// A share in hundredths, rounded up, so that it is above a limit when the ratio is.
fn hundredths(part: u64, all: u64) -> u64 {
    let ratio = (u128::from(part) * 100).div_ceil(u128::from(all.max(1)));
    u64::try_from(ratio).unwrap_or(u64::MAX)
}

/// Counters whose growth is a condition.
#[derive(Clone, Copy, Debug, Default)]
struct ErrorCounters {
    io_errors: u64,
    checksum_failures: u64,
    /// Lumps that the scrubber found corrupt or could not read.
    damaged: u64,
    refused: u64,
}

impl ErrorCounters {
    fn of(stats: &StoreStats) -> Self {
        Self {
            io_errors: stats.io_errors,
            checksum_failures: stats.checksum_failures,
            damaged: stats.scrub_corrupt + stats.scrub_read_errors,
            refused: stats.queue_refused
                + stats.overload_refused
                + stats.deadline_dropped
                + stats.buffer_refused,
        }
    }
}

type Samples = VecDeque<(Instant, ErrorCounters)>;

/// Counters of the last day, a sample a minute. Cheap to clone; every clone is the same.
#[derive(Clone, Default)]
pub(super) struct Recent {
    /// By index of the store.
    samples: Arc<Mutex<BTreeMap<usize, Samples>>>,
}

impl Recent {
    /// Takes a sample of each store when it is time to.
    pub(super) fn note(&self, stores: &[Arc<NamedStore>]) {
        let now = Instant::now();
        let mut all = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|index, _| stores.iter().any(|named| named.index == *index));
        for named in stores {
            let samples = all.entry(named.index).or_default();
            note(samples, now, || ErrorCounters::of(&named.store.stats()));
        }
    }

    /// The counters so long ago; of a time before the store was opened, they were 0.
    fn before(&self, index: usize, window: Duration) -> ErrorCounters {
        let all = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let found = all.get(&index);
        found.map_or_else(ErrorCounters::default, |s| {
            before(s, Instant::now(), window)
        })
    }
}

fn note(samples: &mut Samples, now: Instant, counted: impl Fn() -> ErrorCounters) {
    let due = samples.back().is_none_or(|(at, _)| now - *at >= SAMPLE);
    if !due {
        return;
    }
    samples.push_back((now, counted()));
    while samples.len() > SAMPLES {
        samples.pop_front();
    }
}

/// The last sample that is older than the window; none: 0.
fn before(samples: &Samples, now: Instant, window: Duration) -> ErrorCounters {
    let older = samples.iter().rev();
    let mut older = older.skip_while(|(at, _)| now - *at < window);
    older
        .next()
        .map_or_else(ErrorCounters::default, |(_, c)| *c)
}

#[cfg(test)]
mod tests {
    use lumpscope_observer::InFlightReport;

    use super::*;

    fn healthy() -> (StoreStats, StoreReport) {
        let stats = StoreStats {
            data_capacity_bytes: 1000,
            data_used_bytes: 900,
            journal_capacity_bytes: 1000,
            journal_live_bytes: 800,
            ..StoreStats::default()
        };
        (stats, StoreReport::default())
    }

    fn told(stats: &StoreStats, report: &StoreReport, before: ErrorCounters) -> Vec<&'static str> {
        let found = conditions(stats, report, |_| before);
        assert!(found.iter().all(|c| !c.text.is_empty()), "{found:?}");
        found.iter().map(|c| c.alert).collect()
    }

    #[test]
    fn a_condition_holds_from_its_limit_on() {
        let (stats, report) = healthy();
        assert!(told(&stats, &report, ErrorCounters::default()).is_empty());
        let full = StoreStats {
            data_used_bytes: 901,
            journal_live_bytes: 801,
            bad_bytes: 512,
            ..stats
        };
        let hangs = StoreReport {
            in_flight: InFlightReport {
                oldest_ns: (HANGS + 1) * 1_000_000_000,
                ..InFlightReport::default()
            },
            ..report
        };
        let wanted = [
            "LumpscopeDiskErrors",
            "LumpscopeDiskHangs",
            "LumpscopeJournalNearlyFull",
            "LumpscopeDataNearlyFull",
        ];
        assert_eq!(told(&full, &hangs, ErrorCounters::default()), wanted);
    }

    #[test]
    fn counters_matter_by_their_growth() {
        let (stats, report) = healthy();
        let grown = StoreStats {
            io_errors: 3,
            scrub_read_errors: 1,
            checksum_failures: 1,
            queue_refused: 1,
            ..stats
        };
        let wanted = [
            "LumpscopeDiskErrors",
            "LumpscopeStoreDamaged",
            "LumpscopeChecksumFailures",
            "LumpscopeRefusals",
        ];
        assert_eq!(told(&grown, &report, ErrorCounters::default()), wanted);
        assert!(told(&grown, &report, ErrorCounters::of(&grown)).is_empty());
    }

    #[test]
    fn samples_are_bounded_and_reach_back_a_day() {
        let mut samples = Samples::new();
        let begin = Instant::now();
        let at = |minutes: u64| begin + SAMPLE * u32::try_from(minutes).unwrap();
        let errors = |io_errors| ErrorCounters {
            io_errors,
            ..ErrorCounters::default()
        };
        for minute in 0..3 * 24 * 60 {
            note(&mut samples, at(minute), || errors(minute));
            note(&mut samples, at(minute), || panic!("it is not due yet"));
        }
        assert_eq!(samples.len(), SAMPLES);
        let now = 3 * 24 * 60 - 1;
        let told = |window| before(&samples, at(now), window).io_errors;
        assert_eq!([TEN_MINUTES, DAY].map(told), [now - 10, now - 24 * 60]);
        assert_eq!(before(&Samples::new(), begin, DAY).io_errors, 0);
    }
}
