//! Help in 80 columns, which every terminal has.

use std::process::ExitCode;

use clap::error::ErrorKind;

use lumpscope_units::columns::{self, COLUMNS};

use crate::{error, output};

/// Descriptions that would begin behind this column begin on a line of their own.
const LAST_COLUMN: usize = 34;
/// Where they begin then.
const OWN_LINE: usize = 10;

/// Shows help or what is wrong with the arguments; the exit code.
pub(super) fn exit(error: &clap::Error) -> ExitCode {
    use ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand as Missing, DisplayVersion,
    };
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            if let Err(error) = output::print(&narrow(&error.to_string())) {
                error::complain(&error);
                return error::exit_code(&error);
            }
        }
        Missing => output::complain_lines(&narrow(&error.to_string())),
        _ => output::complain_lines(&error.to_string()),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(1))
}

/// The text in 80 columns; descriptions stay in their column.
pub(super) fn narrow(help: &str) -> String {
    columns::long_lines(help, |line| {
        let Some((name, text)) = described(line) else {
            return columns::broken(line);
        };
        let column = line.len() - text.len();
        let (column, begin) = match column > LAST_COLUMN {
            true => (OWN_LINE, format!("{name}\n{}", " ".repeat(OWN_LINE))),
            false => (column, line[..column].to_owned()),
        };
        let lines = columns::words(text, COLUMNS - column);
        begin + &lines.join(&format!("\n{}", " ".repeat(column)))
    })
}

/// Name and description of an option or command; `None`: the line is something else.
fn described(line: &str) -> Option<(&str, &str)> {
    let begin = line.len() - line.trim_start().len();
    let gap = begin + line.get(begin..)?.find("  ")?;
    let text = line.get(gap..)?.trim_start();
    (begin >= 2 && !text.is_empty()).then_some((line.get(..gap)?, text))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::commands;

    fn every(command: &mut Command, path: &str, found: &mut Vec<(String, String)>) {
        let help = command.render_long_help().to_string();
        found.push((path.to_owned(), help));
        found.push((path.to_owned(), command.render_help().to_string()));
        for below in command.get_subcommands_mut() {
            let path = format!("{path} {}", below.get_name());
            every(below, &path, found);
        }
    }

    #[test]
    fn every_help_fits_eighty_columns_and_loses_no_word() {
        let mut found = Vec::new();
        let mut command = commands();
        command.build();
        every(&mut command, "lumpscope", &mut found);
        assert!(found.len() > 60);
        for (path, help) in found {
            let shown = narrow(&help);
            for line in shown.lines() {
                assert!(line.chars().count() <= COLUMNS, "{path}: {line:?}");
            }
            let words = |text: &str| {
                text.split_whitespace()
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            assert_eq!(words(&shown), words(&help), "{path}");
        }
    }
}
