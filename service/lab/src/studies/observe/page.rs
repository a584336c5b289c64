//! The result as a report.

use super::mode::Mode;
use super::report::{CostView, Report, Unit as Measure};
use crate::experiment::report::{Axis, Cell, Findings, Page, Range, Ranges, Setup, Table, Unit};

impl Report {
    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact(
            "Runs",
            format!(
                "{} rounds; {} s a run, {} s of the file server with {} clients and {} lumps",
                self.rounds,
                self.seconds_per_run,
                self.fileserver_seconds_per_run,
                self.clients,
                self.files
            ),
        );
        if let Some(dir) = &self.loop_dir {
            setup.disk("Loop device's image", dir);
        }
        let mut page = Page::new("What observation costs", setup);
        page.findings = self.findings();
        let section = page.section("Cost of the probes");
        section.say(
            "A cost is the share of the speed that a run lost against the run without probes of \
             the same round; processor time is the share that observation took of all that the \
             processors did. The rows \"not loaded, again\" are a second run without probes: they \
             show the noise of the machine, and a cost within their range is not told from nothing.",
        );
        section
            .add(self.picture())
            .add(self.table(self.costs.iter()));
        page
    }

    fn findings(&self) -> Findings {
        let mut findings = Findings {
            of_goals: true,
            ..Findings::default()
        };
        for view in &self.costs {
            if let Some((told, judged)) = view.told().zip(view.judged()) {
                findings.file(told, judged);
            }
        }
        findings
    }

    fn picture(&self) -> Ranges {
        let measured = self.costs.iter().filter(|view| view.mode != Mode::Off);
        let row = |view: &CostView| Range {
            name: view.name(),
            spread: view.cost,
            goal: None,
            published: None,
        };
        Ranges {
            caption: "Share of the speed that was lost, round by round.".to_owned(),
            x: Axis::linear("Cost: share of the speed that was lost", Unit::Share),
            reference: Some((
                0.0,
                "no cost; to its left it was faster with probes".to_owned(),
            )),
            rows: measured.map(row).collect(),
        }
    }

    pub(super) fn table<'a>(&self, views: impl Iterator<Item = &'a CostView>) -> Table {
        let mut table = Table::new(
            "Medians, and the ranges of all rounds.",
            &["measured", "cost", "processor time", "goal", "verdict"],
        );
        let mut figure = "";
        for view in views {
            if view.figure != figure {
                figure = &view.figure;
                table.group(figure);
            }
            let verdict = view.judged().map_or(Cell::text(""), |judged| {
                let name = match judged {
                    Ok(true) => "met",
                    Ok(false) => "missed",
                    Err(_) => "not decided",
                };
                Cell::Verdict(name.to_owned(), judged.ok())
            });
            let goal = view
                .goal
                .map(|goal| format!("≤ {}", Unit::Share.text(goal)));
            table.row(
                view.mode.name(),
                vec![
                    Cell::spread(view.value, view.measure()),
                    Cell::spread(view.cost, Unit::Share),
                    Cell::spread(view.share, Unit::Share),
                    Cell::Text(goal.unwrap_or_default()),
                    verdict,
                ],
            );
        }
        table.notes = self.notes.map(str::to_owned).to_vec();
        table
    }
}

impl CostView {
    fn name(&self) -> String {
        format!("{}: {}", self.figure, self.mode.name())
    }

    fn told(&self) -> Option<String> {
        let (taken, goal) = (self.share?, self.goal?);
        let share = |value| Unit::Share.text(value);
        Some(format!(
            "{}: {} ({} .. {}) of the processor time, goal ≤ {}",
            self.name(),
            share(taken.median),
            share(taken.min),
            share(taken.max),
            share(goal)
        ))
    }

    pub(super) fn measure(&self) -> Unit {
        match self.unit {
            Measure::BytesPerSecond => Unit::BytesPerSecond,
            Measure::PerSecond => Unit::PerSecond,
            Measure::MillisecondsPerOp => Unit::Milliseconds,
        }
    }
}
