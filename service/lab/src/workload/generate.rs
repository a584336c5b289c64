//! From a workload to its commands.
//!
//! The order of draws is the original's: first every section is expanded (an `Unordered` one is
//! shuffled), then the whole list is made concrete from front to back, all from one generator.

use rand07::rngs::StdRng;
use rand07::seq::SliceRandom;
use rand07::{Rng, SeedableRng};

use super::ast::{AgeBand, Choice, Section, Statement, Workload};
use super::live::LiveLumps;

/// One concrete command. Ids count from 1; sizes are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each has the id of its lump and its bytes")]
pub enum Command {
    /// Put into the data region: a new lump, or over an existing one.
    Put { id: u64, size: u64 },
    /// Put into the journal.
    Embed {
        id: u64,
        /// Bytes, at most 65,535.
        size: u64,
    },
    /// Read a lump that is there.
    Get { id: u64, size: u64 },
    /// Delete a lump that is there.
    Delete { id: u64, size: u64 },
    /// Delete all lumps from `start` up to, and not including, `end`.
    DeleteRange {
        /// First lump that goes.
        start: u64,
        /// First lump that stays.
        end: u64,
        /// How many lumps go.
        count: u64,
    },
}

impl std::fmt::Display for Command {
    /// The form in which streams are compared with the original's.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Put { id, size } => write!(f, "put {id:032x} {size}"),
            Command::Embed { id, size } => write!(f, "embed {id:032x} {size}"),
            Command::Get { id, size } => write!(f, "get {id:032x} {size}"),
            Command::Delete { id, size } => write!(f, "delete {id:032x} {size}"),
            Command::DeleteRange { start, end, .. } => {
                write!(f, "delete_range {start:032x} {end:032x}")
            }
        }
    }
}

/// The commands of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandStream {
    /// In the order in which a single client runs them.
    pub commands: Vec<Command>,
    /// Highest sum of live bytes as the original counts them, in one machine word: an overwrite
    /// leaves the sum as it is, and a delete takes away what the lump has by then. So lumps that
    /// were overwritten by larger ones bring the sum below zero when they are deleted, and it wraps
    /// to nearly 2^64 ([`CommandStream::has_wrapped`]). For comparing streams; not for sizing a
    /// store, which takes `peak_bytes`.
    pub least_required_bytes: u64,
    /// Highest sum of the sizes of live lumps in bytes; while a lump is being overwritten, old and
    /// new count both.
    pub peak_bytes: u64,
}

impl CommandStream {
    /// True: `least_required_bytes` has wrapped, and says nothing of any size.
    #[must_use]
    pub fn has_wrapped(&self) -> bool {
        self.least_required_bytes > self.bytes_put()
    }

    /// Bytes that the commands put, in total.
    #[must_use]
    pub fn bytes_put(&self) -> u64 {
        let put = self.commands.iter().map(Command::put_bytes);
        put.fold(0, u64::saturating_add)
    }

    /// Bytes that the commands read, in total.
    #[must_use]
    pub fn bytes_got(&self) -> u64 {
        let got = self.commands.iter().map(|command| match command {
            Command::Get { size, .. } => *size,
            _ => 0,
        });
        got.fold(0, u64::saturating_add)
    }

    /// Bytes of the largest lump; 0 when nothing is put.
    #[must_use]
    pub fn largest_lump(&self) -> u64 {
        let sizes = self.commands.iter().map(Command::put_bytes);
        sizes.max().unwrap_or(0)
    }
}

impl Command {
    /// Bytes that it puts, into data region or journal; 0: it puts nothing.
    fn put_bytes(&self) -> u64 {
        match self {
            Command::Put { size, .. } | Command::Embed { size, .. } => *size,
            Command::Get { .. } | Command::Delete { .. } | Command::DeleteRange { .. } => 0,
        }
    }
}

/// Why a workload has no commands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GenerateError {
    /// More statements than this program keeps in memory.
    #[error("the workload expands to more than {limit} commands; lower its counts or use --scale")]
    TooLong { limit: usize },
    #[error("the workload comes to no command at all; there is nothing to measure")]
    Empty,
}

/// Statements between two looks whether to go on.
const LOOK_EVERY: usize = 1 << 14;

/// Most commands of one workload: 2 GiB of them in memory.
const MOST_COMMANDS: usize = 1 << 26;

impl Workload {
    /// Makes the commands. The same workload gives the same commands, always.
    ///
    /// A command that needs a lump while none is alive is left out, as in the original.
    ///
    /// # Errors
    /// The workload is empty, or far too long to be kept in memory.
    pub fn generate(&self) -> Result<CommandStream, GenerateError> {
        self.generate_while(|_| Ok(()))
    }

    /// As [`Workload::generate`], with a look now and then whether to go on: `check` is told the
    /// highest sum of live bytes so far.
    ///
    /// # Errors
    /// As [`Workload::generate`], and that of `check`.
    pub fn generate_while<E: From<GenerateError>>(
        &self,
        mut check: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<CommandStream, E> {
        check_length(0, self.statements())?;
        let mut rng = StdRng::seed_from_u64(self.seed);
        let mut flat = Vec::new();
        for section in &self.sections {
            match section {
                Section::Ordered { count, choices } => {
                    for body in shares(*count, choices)? {
                        flatten(body, &mut flat)?;
                    }
                }
                Section::Unordered { count, choices } => {
                    let mut bodies = shares(*count, choices)?;
                    bodies.shuffle(&mut rng);
                    for body in bodies {
                        flatten(body, &mut flat)?;
                    }
                }
                Section::Command(body) => flatten(body, &mut flat)?,
            }
        }
        let mut builder = Builder::new(rng, &flat);
        for (at, statement) in flat.into_iter().enumerate() {
            if at % LOOK_EVERY == 0 {
                check(builder.peak_bytes)?;
            }
            builder.step(statement);
        }
        if builder.commands.is_empty() {
            return Err(GenerateError::Empty.into());
        }
        Ok(CommandStream {
            commands: builder.commands,
            least_required_bytes: builder.least_required_bytes,
            peak_bytes: builder.peak_bytes,
        })
    }
}

impl Workload {
    /// How many statements it comes to with its repetitions written out, at least.
    fn statements(&self) -> usize {
        let of = |section: &Section| match section {
            Section::Ordered { count, choices } | Section::Unordered { count, choices } => {
                let all = choices.iter().map(|choice| {
                    let copies = copies(*count, choice);
                    copies.saturating_mul(length(&choice.body))
                });
                all.fold(0, usize::saturating_add)
            }
            Section::Command(body) => length(body),
        };
        self.sections.iter().map(of).fold(0, usize::saturating_add)
    }
}

/// Statements of a body with its repetitions written out.
fn length(body: &[Statement]) -> usize {
    let of = |statement: &Statement| match statement {
        Statement::Times(count, inner) => {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            count.saturating_mul(length(inner))
        }
        _ => 1,
    };
    body.iter().map(of).fold(0, usize::saturating_add)
}

fn copies(count: u64, choice: &Choice) -> usize {
    let copies = u128::from(count) * u128::from(choice.percent) / 100;
    usize::try_from(copies).unwrap_or(usize::MAX)
}

/// `count * percent / 100` copies of every choice's body.
fn shares(count: u64, choices: &[Choice]) -> Result<Vec<&[Statement]>, GenerateError> {
    let mut bodies = Vec::new();
    for choice in choices {
        let copies = copies(count, choice);
        check_length(bodies.len(), copies)?;
        bodies.resize(bodies.len() + copies, choice.body.as_slice());
    }
    Ok(bodies)
}

/// Appends the body with its repetitions written out.
fn flatten<'a>(body: &'a [Statement], flat: &mut Vec<&'a Statement>) -> Result<(), GenerateError> {
    for statement in body {
        match statement {
            Statement::Times(count, inner) => {
                let before = flat.len();
                for round in 0..*count {
                    flatten(inner, flat)?;
                    // A body of nothing but empty repetitions stays empty, however often.
                    if round == 0 && flat.len() == before {
                        break;
                    }
                }
            }
            single => {
                check_length(flat.len(), 1)?;
                flat.push(single);
            }
        }
    }
    Ok(())
}

fn check_length(length: usize, more: usize) -> Result<(), GenerateError> {
    match length.checked_add(more) {
        Some(sum) if sum <= MOST_COMMANDS => Ok(()),
        _ => Err(GenerateError::TooLong {
            limit: MOST_COMMANDS,
        }),
    }
}

struct Builder {
    rng: StdRng,
    live: LiveLumps,
    commands: Vec<Command>,
    live_bytes: u64,
    peak_bytes: u64,
    original_live_bytes: u64,
    least_required_bytes: u64,
}

impl Builder {
    fn new(rng: StdRng, flat: &[&Statement]) -> Builder {
        let created = flat
            .iter()
            .filter(|s| matches!(s, Statement::New(_) | Statement::Embed(_)))
            .count();
        Builder {
            rng,
            live: LiveLumps::with_capacity(created),
            commands: Vec::with_capacity(flat.len()),
            live_bytes: 0,
            peak_bytes: 0,
            original_live_bytes: 0,
            least_required_bytes: 0,
        }
    }

    fn step(&mut self, statement: &Statement) {
        let command = match statement {
            Statement::New(size) => Command::Put {
                id: self.create(*size),
                size: *size,
            },
            Statement::Embed(size) => Command::Embed {
                id: self.create(*size),
                size: *size,
            },
            _ if self.live.len() == 0 => return,
            Statement::OverWrite(size) => {
                let rank = self.rng.gen_range(0, self.live.len());
                let id = self.live.nth_oldest(rank);
                let replaced = self.live.size(id);
                self.live.resize(id, *size);
                self.add_bytes(*size);
                self.live_bytes -= replaced;
                self.compare_with_peak();
                Command::Put {
                    id: number(id),
                    size: *size,
                }
            }
            Statement::Get(band) => {
                let id = self.choose(*band);
                Command::Get {
                    id: number(id),
                    size: self.live.size(id),
                }
            }
            Statement::Delete(band) => {
                let id = self.choose(*band);
                let size = self.remove(id);
                Command::Delete {
                    id: number(id),
                    size,
                }
            }
            Statement::DeleteRange(band) => self.delete_range(*band),
            // `flatten` has written repetitions out.
            Statement::Times(..) => return,
        };
        self.commands.push(command);
    }

    fn create(&mut self, size: u64) -> u64 {
        self.add_bytes(size);
        self.original_live_bytes = self.original_live_bytes.wrapping_add(size);
        self.compare_with_peak();
        number(self.live.push(size))
    }

    /// The original does so when it puts, and not when it deletes.
    fn compare_with_peak(&mut self) {
        self.least_required_bytes = self.least_required_bytes.max(self.original_live_bytes);
    }

    /// No overflow: the parser bounds sizes, `flatten` the number of commands.
    fn add_bytes(&mut self, size: u64) {
        self.live_bytes += size;
        self.peak_bytes = self.peak_bytes.max(self.live_bytes);
    }

    fn remove(&mut self, id: usize) -> u64 {
        let size = self.live.size(id);
        self.live.remove(id);
        self.original_live_bytes = self.original_live_bytes.wrapping_sub(size);
        self.live_bytes -= size;
        size
    }

    /// The original draws from `[x, y]`, both included, and counts lumps from 1: the oldest lump
    /// is twice as likely as the others when the band begins at 0. A band without a width names its
    /// lump, and a whole machine word is drawn all the same.
    fn choose(&mut self, band: AgeBand) -> usize {
        let live = self.live.len();
        let (from, to) = (percent_of(live, band.from), percent_of(live, band.to));
        let place = if band.from == band.to {
            let _drawn: u64 = self.rng.r#gen();
            from
        } else {
            self.rng.gen_range(from, to + 1)
        };
        self.live.nth_oldest(place.saturating_sub(1))
    }

    fn delete_range(&mut self, band: AgeBand) -> Command {
        let last = self.live.len() - 1;
        let (from, to) = (percent_of(last, band.from), percent_of(last, band.to));
        let start = self.live.nth_oldest(from);
        let end = self.live.nth_oldest(to);
        for _ in from..to {
            let id = self.live.nth_oldest(from);
            self.remove(id);
        }
        Command::DeleteRange {
            start: number(start),
            end: number(end),
            count: number(to - from),
        }
    }
}

/// `percent` is at most 100 (the parser sees to it), so the result is at most `whole`.
fn percent_of(whole: usize, percent: u8) -> usize {
    // Counts are below MOST_COMMANDS: the product cannot overflow.
    whole * usize::from(percent) / 100
}

fn number(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generate(text: &str) -> Result<CommandStream, GenerateError> {
        Workload::parse(text).unwrap().generate()
    }

    #[test]
    fn ranges_keep_their_newest_lump() {
        let stream = generate("Command { 10.times { New(1K); }; DeleteRange(0, 100); Get; }");
        let commands = stream.unwrap().commands;
        assert_eq!(
            commands[10],
            Command::DeleteRange {
                start: 1,
                end: 10,
                count: 9
            }
        );
        assert_eq!(commands[11], Command::Get { id: 10, size: 1024 });
    }

    #[test]
    fn an_overwrite_counts_twice_while_it_lasts() {
        let stream = generate("Command { New(1M); OverWrite(2K); New(1K); }").unwrap();
        assert_eq!(stream.peak_bytes, (1 << 20) + (2 << 10));
        // Not so in the original's sum.
        assert_eq!(stream.least_required_bytes, (1 << 20) + (1 << 10));
        assert!(!stream.has_wrapped());
    }

    #[test]
    fn the_original_s_sum_of_bytes_wraps() {
        let stream = generate("Command { New(1K); OverWrite(5K); Delete; New(1K); }").unwrap();
        assert_eq!(stream.least_required_bytes, u64::MAX - (3 << 10) + 1);
        assert!(stream.has_wrapped());
        assert_eq!(stream.peak_bytes, 6 << 10);
    }

    #[test]
    fn commands_without_a_lump_are_left_out() {
        assert_eq!(
            generate("Command { Get; Delete; }"),
            Err(GenerateError::Empty)
        );
        let stream = generate("Command { Get; New(1); Delete; Delete; }").unwrap();
        assert_eq!(stream.commands.len(), 2);
    }

    #[test]
    fn endless_workloads_are_refused() {
        let text = "Command { 4000000000.times { 4000000000.times { Get; }; }; }";
        assert!(matches!(generate(text), Err(GenerateError::TooLong { .. })));
        let text = "Unordered[18446744073709551615] { <100%> Get; }";
        assert!(matches!(generate(text), Err(GenerateError::TooLong { .. })));
        let text = "Command { 4000000000.times { 4000000000.times { 5.times {}; }; }; New(1); }";
        assert_eq!(generate(text).unwrap().commands.len(), 1);
    }

    #[test]
    fn scaling_keeps_at_least_one_of_everything() {
        let rand1 = super::super::builtin("rand1").unwrap();
        let workload = Workload::parse(rand1.text).unwrap();
        assert_eq!(
            workload.scaled(0.002).generate().unwrap().commands.len(),
            10 + 80
        );
        assert_eq!(workload.scaled(1e-9).generate().unwrap().commands.len(), 1);
        assert_eq!(workload.scaled(1.0), workload);
    }
}
