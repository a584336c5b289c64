//! A workload as written, before any choice is made.

/// A parsed workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Seed of the random number generator.
    pub seed: u64,
    /// Sections in the order in which they run; at least one.
    pub sections: Vec<Section>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// Shares of `count` statements, one share after the other.
    Ordered {
        /// Count of 100 %.
        count: u64,
        choices: Vec<Choice>,
    },
    /// Shares of `count` statements, shuffled. A group in braces stays together.
    Unordered {
        /// Count of 100 %.
        count: u64,
        choices: Vec<Choice>,
    },
    /// Statements taken literally.
    Command(Vec<Statement>),
}

/// `<percent%> statement` or `<percent%> { statements };`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// Share of the section's count, in percent. Shares need not add up to 100.
    pub percent: u8,
    /// Statements to repeat.
    pub body: Vec<Statement>,
}

/// Which part of the live lumps a command chooses from, by age: 0 is the oldest, 100 the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeBand {
    /// Lower end in percent, 0 to `to`.
    pub from: u8,
    /// Upper end in percent, at most 100.
    pub to: u8,
}

impl AgeBand {
    /// All live lumps.
    pub const ALL: AgeBand = AgeBand { from: 0, to: 100 };
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// Put a new lump of so many bytes.
    New(u64),
    /// Put so many bytes over a lump chosen at random.
    OverWrite(u64),
    /// Put a new lump of so many bytes into the journal; at most 65,535.
    Embed(u64),
    /// Read a lump chosen from the band.
    Get(AgeBand),
    /// Delete a lump chosen from the band.
    Delete(AgeBand),
    /// Delete the whole band but its newest lump, as one request.
    DeleteRange(AgeBand),
    /// The body so many times.
    Times(u64, Vec<Statement>),
}

impl Workload {
    /// The workload with its repetition counts multiplied by `factor`, each at least 1.
    ///
    /// Only the outermost counts are scaled: those of `Ordered`/`Unordered` sections, and of
    /// `times` that stand directly in a `Command` section. Scaling a nested count as well would
    /// shorten its body twice. A factor that is not a positive number counts as 1.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Workload {
        let factor = if factor.is_finite() && factor > 0.0 {
            factor
        } else {
            1.0
        };
        let sections = self
            .sections
            .iter()
            .map(|section| section.scaled(factor))
            .collect();
        Workload {
            seed: self.seed,
            sections,
        }
    }
}

impl Section {
    fn scaled(&self, factor: f64) -> Section {
        match self {
            Section::Ordered { count, choices } => Section::Ordered {
                count: scale(*count, factor),
                choices: choices.clone(),
            },
            Section::Unordered { count, choices } => Section::Unordered {
                count: scale(*count, factor),
                choices: choices.clone(),
            },
            Section::Command(body) => Section::Command(
                body.iter()
                    .map(|statement| statement.scaled(factor))
                    .collect(),
            ),
        }
    }
}

impl Statement {
    fn scaled(&self, factor: f64) -> Statement {
        match self {
            Statement::Times(count, body) => Statement::Times(scale(*count, factor), body.clone()),
            other => other.clone(),
        }
    }
}

fn scale(count: u64, factor: f64) -> u64 {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "both are positive; a float cast saturates; counts beyond 2^53 may lose digits"
    )]
    let scaled = (count as f64 * factor).round() as u64;
    scaled.max(1)
}
