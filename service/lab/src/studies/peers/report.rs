//! The figures of the rounds as tables.

use serde::Serialize;

use super::Who;
use crate::experiment::report::{Cell, Picture, Report, Table, Unit};
use crate::human;
use crate::load::{Latency, Measured};

/// One run of one peer.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct OneRun {
    pub(super) round: usize,
    pub(super) who: Who,
    pub(super) puts: u64,
    pub(super) gets: u64,
    /// Requests per second of the time spent in calls.
    pub(super) per_second: f64,
    /// Puts per second of the time spent in puts; absent: the peer does not tell.
    pub(super) puts_per_second: Option<f64>,
    pub(super) gets_per_second: Option<f64>,
    /// Latency of the puts; absent: there were none.
    pub(super) put: Option<Latency>,
    pub(super) get: Option<Latency>,
}

impl OneRun {
    /// With the latencies of puts and gets, and no rates.
    pub(super) fn of((round, who): (usize, Who), puts: &Measured, gets: &Measured) -> OneRun {
        let latency = |of: &Measured| (of.requests > 0).then_some(of.latency);
        OneRun {
            round,
            who,
            puts: puts.requests,
            gets: gets.requests,
            per_second: 0.0,
            puts_per_second: None,
            gets_per_second: None,
            put: latency(puts),
            get: latency(gets),
        }
    }
}

/// A peer that was not run, or not to its end.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LeftOut {
    pub(super) who: Who,
    pub(super) why: String,
}

/// The data behind the figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct Data {
    pub(super) runs: Vec<OneRun>,
    pub(super) left_out: Vec<LeftOut>,
}

/// A value of a run.
type Value = fn(&OneRun) -> Option<f64>;

const COLUMNS: [(&str, Value, Unit); 7] = [
    ("requests/s", |run| Some(run.per_second), Unit::PerSecond),
    ("puts/s", |run| run.puts_per_second, Unit::PerSecond),
    ("gets/s", |run| run.gets_per_second, Unit::PerSecond),
    ("put p50", |run| p50(run.put), Unit::Nanoseconds),
    ("put p99", |run| p99(run.put), Unit::Nanoseconds),
    ("get p50", |run| p50(run.get), Unit::Nanoseconds),
    ("get p99", |run| p99(run.get), Unit::Nanoseconds),
];

fn p50(of: Option<Latency>) -> Option<f64> {
    of.map(|latency| human::as_float(latency.p50_ns))
}

fn p99(of: Option<Latency>) -> Option<f64> {
    of.map(|latency| human::as_float(latency.p99_ns))
}

/// `base`: the peer whose values are compared with those of the others.
pub(super) fn report(data: &Data, base: Who) -> Report {
    let runs = |who: Who| data.runs.iter().filter(move |run| run.who == who);
    let present = || {
        Who::ALL
            .into_iter()
            .filter(|who| runs(*who).next().is_some())
    };
    let columns = COLUMNS.map(|(column, ..)| column);
    let mut values = Table::new("Medians and ranges of all rounds.", &columns);
    for who in present() {
        let cells = COLUMNS.map(|(_, value, unit)| Cell::runs(unit, runs(who).filter_map(value)));
        values.row(who.name(), cells.to_vec());
    }
    let caption = format!(
        "Values of {} over each peer's, round by round.",
        base.name()
    );
    let mut ratios = Table::new(caption, &columns);
    ratios.corner = format!("{} to", base.name());
    ratios.picture = Some(Picture {
        columns: (0..3).collect(),
        reference: (1.0, "both are the same"),
    });
    for who in present().filter(|who| *who != base) {
        let cells = COLUMNS.map(|(_, value, _)| {
            let pairs = runs(who).filter_map(|run| {
                let ours = runs(base).find(|ours| ours.round == run.round)?;
                Some(value(ours)? / value(run)?)
            });
            Cell::runs(Unit::Ratio, pairs)
        });
        ratios.row(who.name(), cells.to_vec());
    }
    let mut report = Report::new(format!("{} beside its peers", base.name()));
    report.section("Ratios").add(ratios);
    report.section("Values").add(values);
    report
}

/// Adds who was left out, and what a put of the others has done when it is answered.
pub(super) fn peers(
    report: &mut Report,
    done: impl Iterator<Item = (Who, String)>,
    left_out: &[LeftOut],
) {
    for (who, how) in done {
        report.fact(format!("An acknowledged put, {}", who.name()), how);
    }
    for one in left_out {
        report.fact(one.who.name(), format!("LEFT OUT: {}", one.why));
    }
}
