//! Ours beside a peer's: the table and the picture that most benches need.

use super::chart::{Axis, Goal, Range, Ranges};
use super::data::{Cell, Findings, Page, Table};
use super::setup::Setup;
use super::unit::{Spread, Unit};

/// A figure of ours beside that of a peer, measured in pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// The measured quantity.
    pub name: String,
    /// Unit of both numbers.
    pub unit: Unit,
    /// Ours, of all rounds.
    pub ours: Option<Spread>,
    /// The peer's.
    pub peer: Option<Spread>,
    /// Ours over the peer's, pair by pair.
    pub ratio: Option<Spread>,
    /// Goal of the ratio.
    pub goal: Option<Goal>,
    /// True: every round meets it; false: none does; absent: there is no goal, or the rounds do not
    /// decide.
    pub met: Option<bool>,
}

impl Compared {
    /// A page of these ratios: how many goals were met, which, a picture and a table.
    #[must_use]
    pub fn page(
        title: impl Into<String>,
        setup: Setup,
        all: &[Compared],
        caption: impl Into<String>,
        notes: &[&str],
    ) -> Page {
        let mut page = Page::new(title, setup);
        page.summary.push(Compared::summary(all));
        page.findings = Compared::findings(all);
        let mut table = Compared::table(all, "peer", "Medians, and the ranges of all rounds.");
        table.notes = notes.iter().map(|&note| note.to_owned()).collect();
        let section = page.section("Ratios");
        for picture in Compared::pictures(all, caption) {
            section.add(picture);
        }
        section.add(table);
        page
    }

    /// How many goals were met, in a sentence.
    #[must_use]
    pub fn summary(all: &[Compared]) -> String {
        let goals = all.iter().filter(|one| one.goal.is_some()).count();
        let met = all.iter().filter(|one| one.met == Some(true)).count();
        if goals == 0 {
            return format!("{} figures, none of them with a goal.", all.len());
        }
        let missed = all.iter().filter(|one| one.met == Some(false)).count();
        let undecided = match goals - met - missed {
            0 => String::new(),
            some => format!(", {some} not decided"),
        };
        format!(
            "{met} of {goals} goals were met{undecided}; {} figures were measured.",
            all.len()
        )
    }

    /// Which goals were met, which were missed, and of which neither can be said.
    #[must_use]
    pub fn findings(all: &[Compared]) -> Findings {
        let told = |met: Option<bool>| -> Vec<String> {
            let judged = all.iter().filter(|one| one.met == met);
            judged.filter_map(Compared::told).collect()
        };
        Findings {
            agrees: told(Some(true)),
            differs: told(Some(false)),
            undecided: told(None),
            of_goals: true,
            hypotheses: Vec::new(),
        }
    }

    fn told(&self) -> Option<String> {
        let Spread { median, min, max } = self.ratio?;
        let (name, goal) = (&self.name, goal_text(self.goal?));
        Some(format!(
            "{name}: ratio {median:.2} ({min:.2} .. {max:.2}), goal {goal}"
        ))
    }

    /// The ratios as pictures, the goals beside them: one of figures that are better the more they
    /// are, and one of the others.
    pub fn pictures(all: &[Compared], caption: impl Into<String>) -> impl Iterator<Item = Ranges> {
        let caption = caption.into();
        let pictures = [true, false].map(|more| {
            let rows: Vec<&Compared> = all
                .iter()
                .filter(|one| one.more_is_better() == more)
                .collect();
            let better = if more { "More" } else { "Less" };
            Compared::picture(&rows, format!("{caption} {better} is better."))
        });
        pictures
            .into_iter()
            .filter(|picture| !picture.rows.is_empty())
    }

    /// Of times and costs less is better.
    fn more_is_better(&self) -> bool {
        match self.goal {
            Some(goal) => matches!(goal, Goal::AtLeast(_)),
            None => !matches!(self.unit, Unit::Nanoseconds | Unit::SecondsPerGib),
        }
    }

    fn picture(all: &[&Compared], caption: String) -> Ranges {
        let row = |one: &&Compared| Range {
            name: one.name.clone(),
            spread: one.ratio,
            goal: one.goal,
            published: None,
        };
        Ranges {
            caption,
            x: Axis::log("Ratio, ours to the peer's", Unit::Ratio),
            reference: Some((1.0, "both are the same".to_owned())),
            rows: all.iter().map(row).collect(),
        }
    }

    /// All numbers, one row each. `peer` is the title of the peer's column.
    #[must_use]
    pub fn table(all: &[Compared], peer: &str, caption: impl Into<String>) -> Table {
        let mut table = Table::new(caption, &["ours", peer, "ratio", "goal", "verdict"]);
        for one in all {
            let goal = one.goal.map_or_else(String::new, goal_text);
            let verdict = match (one.met, one.goal, one.ratio) {
                (Some(true), ..) => "met",
                (Some(false), ..) => "missed",
                (None, Some(_), Some(_)) => "not decided",
                (None, Some(_), None) => "not measured",
                (None, None, _) => "",
            };
            table.row(
                &one.name,
                vec![
                    Cell::spread(one.ours, one.unit),
                    Cell::spread(one.peer, one.unit),
                    Cell::spread(one.ratio, Unit::Ratio),
                    Cell::Text(goal),
                    Cell::Verdict(verdict.to_owned(), one.met),
                ],
            );
        }
        table
    }
}

fn goal_text(goal: Goal) -> String {
    match goal {
        Goal::AtLeast(limit) => format!("≥ {limit}"),
        Goal::AtMost(limit) => format!("≤ {limit}"),
    }
}
