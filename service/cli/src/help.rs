//! Help, which clap fits to the terminal, with the commands in groups.

use std::process::ExitCode;

use clap::Command;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use lumpscope_units::columns::{self, COLUMNS};
use lumpscope_units::escape::{escaped, is_hostile};

use crate::error::{self, Exit};
use crate::output;
use crate::variables;

/// Commands in the order of the help, by what they are for.
const GROUPS: [(&str, &str); 6] = [
    ("Store", "format stores stat health sync evacuate"),
    ("Serve", "serve admin token doctor"),
    ("Data", "put get delete list"),
    ("Look", "explain trace top record export bpftrace"),
    ("Offline", "check grow rename"),
    ("Lab", "demo compare lab watch load platter bench"),
];

/// Commands and options of earlier versions, and what has replaced them.
const RENAMED: [(&str, &str); 14] = [
    ("copy", "evacuate"),
    ("delete-range", "delete STORE --start ID --end ID"),
    ("events", "admin observer"),
    ("head", "get STORE ID --head"),
    ("reload", "admin service --reload"),
    ("bad-spots", "platter status DEVICE --bad-spots PLACES"),
    ("log", "platter status DEVICE --log"),
    ("commands", "bench run WORKLOAD --print commands"),
    ("inspect", "check --quick"),
    ("usage", "stat"),
    ("scrub-start", "admin scrub STORE --start"),
    ("scrub-stop", "admin scrub STORE --stop"),
    ("--records", "check --journal"),
    ("--export", "export FILE --format FORMAT"),
];

/// Top-level commands that ask a service.
const CLIENTS: &str = "put get delete list stores stat health sync evacuate admin explain trace \
                       top record bpftrace load help";

/// The program with its commands in groups.
pub(super) fn grouped(command: Command) -> Command {
    let mut list = String::new();
    for (title, names) in GROUPS {
        let shown = names
            .split(' ')
            .filter_map(|name| command.find_subcommand(name));
        let lines: String = shown.map(line).collect();
        if !lines.is_empty() {
            list += &format!("{title}:\n{lines}\n");
        }
    }
    global_once(command)
        .mut_subcommands(|inner| inner.hide(true))
        .override_usage("lumpscope [OPTIONS] <COMMAND>")
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{{all-args}}{{after-help}}"
        ))
}

/// The program with its global options in its own help alone.
pub(super) fn global_once(command: Command) -> Command {
    let global = command.get_arguments().filter(|arg| arg.is_global_set());
    let global: Vec<_> = global.cloned().map(|arg| arg.hide(true)).collect();
    command.mut_subcommands(|inner| {
        let help = inner.get_after_help().map(StyledStr::to_string);
        let inner = match CLIENTS.split(' ').any(|name| name == inner.get_name()) {
            true => inner.after_help(format!(
                "{}\n\n`lumpscope --help` describes the options of the connection (--server, \
                 --token-file, ...).",
                help.unwrap_or_default()
            )),
            false => inner,
        };
        inner.args(&global)
    })
}

fn line(command: &Command) -> String {
    let about = command.get_about().map(StyledStr::to_string);
    let lines = columns::words(&about.unwrap_or_default(), COLUMNS - 16);
    let lines = lines.join(&format!("\n{:16}", ""));
    format!("  {:<13} {lines}\n", command.get_name())
}

/// What has replaced a command or option that is unknown now.
fn renamed(error: &clap::Error) -> String {
    let unknown = [ContextKind::InvalidSubcommand, ContextKind::InvalidArg];
    let unknown = unknown.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(name)) => Some(name.as_str()),
        _ => None,
    });
    let found = RENAMED.iter().find(|(old, _)| Some(*old) == unknown);
    let is_unknown = matches!(
        error.kind(),
        ErrorKind::InvalidSubcommand | ErrorKind::UnknownArgument
    );
    match found {
        Some((old, new)) if is_unknown => {
            format!("\n`{old}` has been replaced by `lumpscope {new}`")
        }
        _ => String::new(),
    }
}

/// Shows help or what is wrong with the arguments; the exit code.
pub(super) fn exit(mut error: clap::Error) -> ExitCode {
    use ErrorKind::{
        DisplayHelp, DisplayHelpOnMissingArgumentOrSubcommand as Missing, DisplayVersion,
    };
    // Arguments may be from outside, too.
    let arguments: Vec<_> = error.context().filter_map(harmless).collect();
    for (kind, value) in arguments {
        error.insert(kind, value);
    }
    match error.kind() {
        DisplayHelp | DisplayVersion => {
            if let Err(error) = output::print_as_is(&error.to_string()) {
                error::complain(&error);
                return error::exit_code(&error);
            }
        }
        Missing => output::tell(&error.to_string()),
        ErrorKind::InvalidUtf8 => output::tell(&format!("{error}{}", not_utf8())),
        _ => output::tell(&format!("{}{}", error, renamed(&error))),
    }
    match error.use_stderr() {
        true => Exit::Arguments.into(),
        false => Exit::Done.into(),
    }
}

/// The variables of the environment that may be meant.
fn not_utf8() -> String {
    let names = variables::not_utf8(&crate::commands());
    let lines = names
        .iter()
        .map(|name| format!("\n{name} in the environment is not UTF-8"));
    lines.collect()
}

/// An argument that a message names, if it must be escaped.
fn harmless((kind, value): (ContextKind, &ContextValue)) -> Option<(ContextKind, ContextValue)> {
    match value {
        ContextValue::String(text) if text.contains(is_hostile) => {
            let text = escaped(text).into_owned();
            Some((kind, ContextValue::String(text)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
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
    fn every_command_is_in_one_group() {
        for command in commands().get_subcommands().filter(|c| !c.is_hide_set()) {
            let groups = GROUPS.iter().flat_map(|(_, names)| names.split(' '));
            let count = groups.filter(|name| *name == command.get_name()).count();
            assert_eq!(count, 1, "{}", command.get_name());
        }
    }

    #[test]
    fn every_help_fits_eighty_columns() {
        let mut found = Vec::new();
        let mut command = grouped(commands()).term_width(80);
        command.build();
        every(&mut command, "lumpscope", &mut found);
        assert!(found.len() > 60);
        for (path, help) in found {
            for line in help.lines() {
                assert!(line.chars().count() <= 80, "{path}: {line:?}");
            }
        }
    }
}
