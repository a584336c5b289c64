//! The result of the rounds.

use serde::Serialize;

use super::Who;
use crate::experiment::report::{Compared, Page, Setup, Spread, Unit};
use crate::experiment::{Machine, text};
use crate::human;

/// One run of one peer.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct OneRun {
    pub(super) round: usize,
    pub(super) who: Who,
    pub(super) puts: u64,
    pub(super) gets: u64,
    /// Requests a second of the time spent in calls.
    pub(super) per_second: f64,
    /// Puts a second of the time spent in puts; absent: the peer does not tell.
    pub(super) puts_per_second: Option<f64>,
    pub(super) gets_per_second: Option<f64>,
    /// Median latency of a put; absent: the peer does not tell.
    pub(super) put_p50_ns: Option<f64>,
    pub(super) put_p99_ns: Option<f64>,
    pub(super) get_p50_ns: Option<f64>,
    pub(super) get_p99_ns: Option<f64>,
}

/// A peer that was not run, or not to its end.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LeftOut {
    pub(super) who: Who,
    pub(super) why: String,
}

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) command_line: Vec<String>,
    pub(super) machine: Machine,
    pub(super) disk: String,
    pub(super) lump_bytes: u64,
    pub(super) puts_percent: u8,
    pub(super) depth: usize,
    pub(super) seconds: f64,
    pub(super) rounds: usize,
    pub(super) store_mib: u64,
    pub(super) lumps: u64,
    /// Peer whose values are compared with those of the others.
    pub(super) base: Who,
    /// How each comes to its durability.
    pub(super) durability: Vec<(Who, String)>,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) runs: Vec<OneRun>,
    pub(super) notes: Vec<&'static str>,
}

/// A value of a run.
type Value = fn(&OneRun) -> Option<f64>;

const COLUMNS: [(&str, Value, Unit); 7] = [
    ("requests/s", |run| Some(run.per_second), Unit::PerSecond),
    ("puts/s", |run| run.puts_per_second, Unit::PerSecond),
    ("gets/s", |run| run.gets_per_second, Unit::PerSecond),
    ("put p50", |run| run.put_p50_ns, Unit::Nanoseconds),
    ("put p99", |run| run.put_p99_ns, Unit::Nanoseconds),
    ("get p50", |run| run.get_p50_ns, Unit::Nanoseconds),
    ("get p99", |run| run.get_p99_ns, Unit::Nanoseconds),
];

impl Report {
    fn of(&self, who: Who, value: Value) -> Option<Spread> {
        let runs = self.runs.iter().filter(|run| run.who == who);
        Spread::of(runs.filter_map(value).collect())
    }

    /// The base's value to the peer's, round by round.
    fn ratio(&self, who: Who, value: Value) -> Option<Spread> {
        let of = |round: usize, who: Who| {
            let mut runs = self.runs.iter();
            value(runs.find(|run| run.round == round && run.who == who)?)
        };
        Spread::of_ratios(
            (1..=self.rounds).filter_map(|round| of(round, self.base).zip(of(round, who))),
        )
    }

    fn present(&self) -> impl Iterator<Item = Who> {
        let ran = |who: &Who| self.runs.iter().any(|run| run.who == *who);
        Who::ALL.into_iter().filter(ran)
    }

    /// Those that the base is compared with.
    fn others(&self) -> impl Iterator<Item = Who> {
        self.present().filter(|who| *who != self.base)
    }

    /// A table of a row for each of these, and what `cell` says of each column.
    fn table(
        name: &str,
        rows: impl Iterator<Item = Who>,
        cell: impl Fn(Who, Value, Unit) -> Option<String>,
    ) -> Vec<String> {
        let columns = COLUMNS.map(|(column, ..)| column);
        let header: Vec<&str> = [name].into_iter().chain(columns).collect();
        let mut table = text::table(&header);
        for who in rows {
            let cells = COLUMNS.map(|(_, value, unit)| cell(who, value, unit));
            let cells = cells.map(|text| text.unwrap_or_else(|| "–".to_owned()));
            table.add_row(std::iter::once(who.name().to_owned()).chain(cells));
        }
        table.lines()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let range = |spread: Spread, text: &dyn Fn(f64) -> String| {
            let [median, min, max] = [spread.median, spread.min, spread.max].map(text);
            format!("{median} ({min}..{max})")
        };
        let mut lines = Self::table("median (range)", self.present(), |who, value, unit| {
            Some(range(self.of(who, value)?, &|value| unit.text(value)))
        });
        lines.push(String::new());
        let ratios = format!("{} to", self.base.name());
        lines.extend(Self::table(&ratios, self.others(), |who, value, _| {
            Some(range(self.ratio(who, value)?, &|ratio| {
                format!("{ratio:.2}")
            }))
        }));
        lines.push(String::new());
        lines.push(self.circumstances());
        lines.push(self.machine.to_string());
        lines.push(String::new());
        let left_out = self.left_out.iter();
        lines.extend(left_out.map(|one| format!("{} LEFT OUT: {}", one.who.name(), one.why)));
        lines.push("What a put that was answered has done:".to_owned());
        let durability = self.durability.iter();
        lines.extend(durability.map(|(who, how)| format!("- {}: {how}", who.name())));
        lines.extend(self.notes.iter().map(|note| format!("- {note}")));
        lines.join("\n")
    }

    fn circumstances(&self) -> String {
        format!(
            "{} lumps of {}, {} % puts over them, {} in flight, {} rounds of {} s, stores of {} MiB on {}",
            human::count(self.lumps),
            human::bytes(self.lump_bytes),
            self.puts_percent,
            self.depth,
            self.rounds,
            self.seconds,
            self.store_mib,
            self.disk,
        )
    }

    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact("Load", self.circumstances());
        for (who, how) in &self.durability {
            setup.fact(who.name(), how.as_str());
        }
        for one in &self.left_out {
            setup.fact(one.who.name(), format!("left out: {}", one.why));
        }
        Compared::page(
            format!("{} beside its peers", self.base.name()),
            setup,
            &self.compared(),
            format!("Those of {} to each peer's.", self.base.name()),
            &self.notes,
        )
    }

    fn compared(&self) -> Vec<Compared> {
        let mut rows = Vec::new();
        for (name, value, unit) in COLUMNS {
            for who in self.others() {
                rows.push(Compared {
                    name: format!("{name}, {}", who.name()),
                    unit,
                    ours: self.of(self.base, value),
                    peer: self.of(who, value),
                    ratio: self.ratio(who, value),
                    goal: None,
                    met: None,
                });
            }
        }
        rows
    }
}
