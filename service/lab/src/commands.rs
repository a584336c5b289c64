//! `lumpscope bench run --print`: the commands that a workload comes to, as text.
//!
//! ```text
//! # commands 50000 least_required_bytes 28835840000
//! # sha256 of all lines but the first: f26f17f0...
//! put 00000000000000000000000000000001 1048576
//! get 00000000000000000000000000000001 1048576
//! delete_range 00000000000000000000000000000001 0000000000000000000000000000000a
//! ```
//!
//! Where overwrites have made `least_required_bytes` wrap, as they do in the original, a third line
//! says so, with the bytes that are alive at most.
//!
//! The digest is over the lines of all commands, each with its line feed, however many are
//! printed: two streams with one digest are the same.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use sha2::{Digest as _, Sha256};

use crate::experiment;
use crate::human;
use crate::stats::Kind;
use crate::workload::{Command, CommandStream};

/// Of an excerpt: so many commands from the first on.
const FIRST: usize = 40;
/// Then every so-many-th, counted from 1.
const STEP: usize = 997;
/// At most so many of these.
const MOST_STEPS: usize = 60;
/// Bytes gathered before they are written.
const BUFFER: usize = 1 << 16;

/// What is printed of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Printed {
    /// All commands
    Commands,
    /// The first 40 commands, then every 997th, at most 60 of these
    Excerpt,
    /// How many commands of each kind and size there are
    Summary,
}

/// Prints to standard output. A reader that has seen enough and closes the pipe is no error.
///
/// # Errors
/// The commands cannot be written.
pub fn print(what: (Printed, Option<usize>), stream: &CommandStream) -> anyhow::Result<ExitCode> {
    let mut out = BufWriter::with_capacity(BUFFER, io::stdout().lock());
    experiment::write_to(&mut out, |out| write(what, stream, out))?;
    // What could not be written would be tried again, in vain.
    let (_, _) = out.into_parts();
    Ok(ExitCode::SUCCESS)
}

/// Writes what was asked for; of all commands, at most so many.
///
/// # Errors
/// Those of `out`.
pub fn write(
    (what, limit): (Printed, Option<usize>),
    stream: &CommandStream,
    out: &mut impl Write,
) -> io::Result<()> {
    let commands = &stream.commands;
    writeln!(
        out,
        "# commands {} least_required_bytes {}",
        commands.len(),
        stream.least_required_bytes
    )?;
    writeln!(
        out,
        "# sha256 of all lines but the first: {}",
        digest(stream)
    )?;
    if stream.has_wrapped() {
        writeln!(
            out,
            "# least_required_bytes has wrapped, as the original's does; at most {} bytes are alive",
            stream.peak_bytes
        )?;
    }
    match what {
        Printed::Summary => write_summary(stream, out),
        Printed::Excerpt => {
            write_lines(commands.iter().take(FIRST), out)?;
            writeln!(out, "# ...")?;
            let steps = commands.iter().skip(STEP - 1).step_by(STEP);
            write_lines(steps.take(MOST_STEPS), out)
        }
        Printed::Commands => write_lines(commands.iter().take(limit.unwrap_or(usize::MAX)), out),
    }
}

fn write_lines<'a>(
    commands: impl Iterator<Item = &'a Command>,
    out: &mut impl Write,
) -> io::Result<()> {
    for command in commands {
        writeln!(out, "{command}")?;
    }
    Ok(())
}

fn write_summary(stream: &CommandStream, out: &mut impl Write) -> io::Result<()> {
    let mut counts: BTreeMap<Kind, u64> = BTreeMap::new();
    for command in &stream.commands {
        *counts.entry(Kind::from(command)).or_default() += 1;
    }
    for (kind, count) in &counts {
        writeln!(out, "{kind}: {}", human::count(*count))?;
    }
    let survivors = stream.survivors();
    let alive = survivors.values().map(|lump| lump.size).sum();
    writeln!(
        out,
        "put {}, got {}\nalive at most {}, at the end {} lumps of {}",
        human::bytes(stream.bytes_put()),
        human::bytes(stream.bytes_got()),
        human::bytes(stream.peak_bytes),
        human::count_of(survivors.len()),
        human::bytes(alive),
    )
}

/// SHA-256 of the lines of all commands, in hexadecimal.
#[must_use]
pub fn digest(stream: &CommandStream) -> String {
    let mut hash = Sha256::new();
    let mut line = String::new();
    for command in &stream.commands {
        use std::fmt::Write as _;
        line.clear();
        // Writing to a string cannot fail.
        let _ = writeln!(line, "{command}");
        hash.update(&line);
    }
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;

    fn printed(text: &str, what: Printed, limit: Option<usize>) -> String {
        let stream = Workload::parse(text).unwrap().generate().unwrap();
        let mut out = Vec::new();
        write((what, limit), &stream, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const TEXT: &str = "Command { 3.times { New(1K); }; Embed(5); Delete(0, 0); DeleteRange(0, 50); Get(100, 100); }";

    #[test]
    fn the_form_of_a_stream() {
        let all = printed(TEXT, Printed::Commands, None);
        let lines: Vec<&str> = all.lines().collect();
        assert_eq!(lines[0], "# commands 7 least_required_bytes 3077");
        assert_eq!(
            lines[1].len(),
            "# sha256 of all lines but the first: ".len() + 64
        );
        assert_eq!(lines[2], "put 00000000000000000000000000000001 1024");
        assert_eq!(lines[5], "embed 00000000000000000000000000000004 5");
        assert_eq!(lines[6], "delete 00000000000000000000000000000001 1024");
        assert_eq!(
            lines[7],
            "delete_range 00000000000000000000000000000002 00000000000000000000000000000003"
        );
        assert_eq!(lines[8], "get 00000000000000000000000000000004 5");
        let two = printed(TEXT, Printed::Commands, Some(2));
        assert_eq!(two.lines().count(), 4);
        assert!(all.starts_with(&two), "the head is the whole stream's");
        let summary = printed(TEXT, Printed::Summary, None);
        assert!(summary.contains("Put(1024): 3\nEmbed(5): 1\n"), "{summary}");
        assert!(
            summary.contains("at the end 2 lumps of 1.00 KiB"),
            "{summary}"
        );
        let wrapped = printed(
            "Command { New(1); OverWrite(3); Delete; New(1); }",
            Printed::Commands,
            None,
        );
        let said =
            "# least_required_bytes has wrapped, as the original's does; at most 4 bytes are alive";
        assert_eq!(wrapped.lines().nth(2), Some(said));
    }
}
