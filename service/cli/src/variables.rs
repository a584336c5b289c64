//! Arguments and environment variables of `serve` that cannot be used, all of them: clap ends at the
//! first.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgMatches, Command, Error};

use lumpscope_units::escape::escaped;

/// First letters of the variables of this program.
const OURS: &str = "LUMPSCOPE_";
/// Variables that are no settings: they replace the compiled programs of the guard.
const OTHERS: [&str; 1] = ["LUMPSCOPE_GUARD_OBJECT"];

/// Variables of the environment that have the name of a setting of ours but are none. Those by which
/// Kubernetes and Docker tell of a service `lumpscope` are written by nobody.
pub(super) fn unknown(command: &Command) -> Vec<String> {
    let known = variables(command);
    let linked = |name: &str, value: &str| {
        name.contains("_SERVICE_HOST")
            || name.contains("_SERVICE_PORT")
            || name.contains("_PORT_")
            || (name.ends_with("_PORT") && value.contains("://"))
    };
    let ours = env::vars_os().filter_map(|(name, value)| {
        let name = name.to_string_lossy().into_owned();
        let is_ours = name.starts_with(OURS) && !linked(&name, &value.to_string_lossy());
        (is_ours && !known.contains(&name) && !OTHERS.contains(&&*name)).then_some(name)
    });
    let mut unknown: Vec<String> = ours.collect();
    unknown.sort();
    unknown
}

/// All variables that a command and those below it read.
fn variables(command: &Command) -> Vec<String> {
    variables_of(command, |_| true)
}

/// The variables of these arguments.
fn variables_of(command: &Command, wanted: fn(&Arg) -> bool) -> Vec<String> {
    let own = command.get_arguments().filter(|arg| wanted(arg));
    let own = own.filter_map(Arg::get_env);
    let own = own.map(|name| name.to_string_lossy().into_owned());
    let below = command.get_subcommands();
    own.chain(below.flat_map(|below| variables_of(below, wanted)))
        .collect()
}

/// Variables whose values must be UTF-8 and are not: the error names none.
pub(super) fn not_utf8(command: &Command) -> Vec<String> {
    let is_text = |arg: &Arg| arg.get_value_parser().type_id() != std::any::TypeId::of::<PathBuf>();
    let mut found = variables_of(command, is_text);
    found.retain(|name| env::var_os(name).is_some_and(|value| value.to_str().is_none()));
    found.sort();
    found.dedup();
    found
}

/// The arguments without those that are wrong, and the key of each of these with its error; `None`:
/// nothing else can be said than the first error.
pub(super) fn without_wrong(
    mut command: Command,
    mut arguments: Vec<OsString>,
) -> Option<(ArgMatches, Vec<(String, String)>)> {
    let mut wrong = Vec::new();
    // Each turn takes one away.
    for _ in 0..=arguments.len() + command.find_subcommand("serve")?.get_arguments().count() {
        let error = match command.clone().try_get_matches_from(&arguments) {
            Ok(matches) => return Some((matches, wrong)),
            Err(error) => error,
        };
        let flag = flag(&error)?;
        let key = flag.trim_start_matches("--").to_owned();
        let mut said = said(&error);
        if !drop_flag(&mut arguments, &flag) {
            let variable = variable_of(command.find_subcommand("serve")?, &key)
                .or_else(|| variable_of(&command, &key))?;
            said = format!("{variable}: {said}");
            let without = |arg: Arg| match arg.get_long() == Some(key.as_str()) {
                true => arg.env(None::<&str>),
                false => arg,
            };
            command = command
                .mut_args(without)
                .mut_subcommand("serve", |serve| serve.mut_args(without));
        }
        wrong.push((key, said));
    }
    None
}

/// The variable of an argument.
fn variable_of(command: &Command, key: &str) -> Option<String> {
    let mut arguments = command.get_arguments();
    let arg = arguments.find(|arg| arg.get_long() == Some(key))?;
    Some(arg.get_env()?.to_string_lossy().into_owned())
}

/// `--queue-depth`, if the error is about one flag.
fn flag(error: &Error) -> Option<String> {
    // Others are about several.
    let of_several = [
        ErrorKind::ArgumentConflict,
        ErrorKind::MissingRequiredArgument,
    ];
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(arg)) if !of_several.contains(&error.kind()) => {
            let flag = arg.split([' ', '=', '[']).next()?;
            flag.starts_with("--").then(|| flag.to_owned())
        }
        _ => None,
    }
}

/// The first line of an error.
fn said(error: &Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    escaped(line.trim_start_matches("error: ")).into_owned()
}

/// Takes a flag away with its value; false: it is not there.
fn drop_flag(arguments: &mut Vec<OsString>, flag: &str) -> bool {
    let is_flag = |argument: &OsString| {
        let argument = argument.to_string_lossy();
        argument.split('=').next() == Some(flag)
    };
    let Some(at) = arguments.iter().position(is_flag) else {
        return false;
    };
    // No argument of `serve` stands alone.
    let is_next = |argument: &OsString| argument.to_string_lossy().starts_with("--");
    let more = arguments[at + 1..].iter().position(is_next);
    arguments.drain(at..more.map_or(arguments.len(), |more| at + 1 + more));
    true
}
