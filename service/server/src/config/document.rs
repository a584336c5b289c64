//! The one list of all settings, made from the definitions of the flags. CONFIG.md holds it.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Args as _, Command};

use super::ServeArgs;

/// Flags that are no keys of the file.
pub const NOT_KEYS: [&str; 3] = ["check-config", "config", "take-over"];

/// A row of CONFIG.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Long name of the flag, and key of the file.
    pub key: String,
    /// Environment variable; empty: none.
    pub variable: String,
    /// Form of the value: choices, or a word and its unit.
    pub value: String,
    /// In force when nothing is said; empty: it is not set then.
    pub default: String,
    /// Meaning, as in the help.
    pub meaning: String,
}

/// All settings, in the order of the flags.
#[must_use]
pub fn settings() -> Vec<Setting> {
    let command = ServeArgs::augment_args(Command::new("serve"));
    command.get_arguments().filter_map(setting).collect()
}

/// All settings as rows of a table.
#[must_use]
pub fn markdown() -> String {
    let mut table = String::from("| key | value | default | meaning |\n|---|---|---|---|\n");
    for setting in settings() {
        let key = match NOT_KEYS.contains(&setting.key.as_str()) {
            true => format!("`--{}`", setting.key),
            false => format!("`{}`", setting.key),
        };
        let default = match setting.default.as_str() {
            "" => String::new(),
            default => format!("`{default}`"),
        };
        let (value, meaning) = (setting.value.replace('|', "\\|"), &setting.meaning);
        // Writing to a text cannot fail.
        let _ = writeln!(table, "| {key} | {value} | {default} | {meaning} |");
    }
    table
}

fn setting(arg: &Arg) -> Option<Setting> {
    let help = arg.get_help()?.to_string();
    let (meaning, default) = match help.split_once("[default:") {
        Some((meaning, rest)) => (meaning.trim(), rest.trim().trim_end_matches(']')),
        None => (help.trim(), ""),
    };
    // What is not switched on is off.
    let default = match value(arg).starts_with("`true`") {
        true => "false",
        false => default,
    };
    let variable = arg
        .get_env()
        .map(|name| name.to_string_lossy().into_owned());
    Some(Setting {
        key: arg.get_long()?.to_owned(),
        variable: variable.unwrap_or_default(),
        value: value(arg),
        default: default.to_owned(),
        meaning: meaning.to_owned(),
    })
}

fn value(arg: &Arg) -> String {
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return "none".to_owned();
    }
    let choices: Vec<String> = arg
        .get_possible_values()
        .iter()
        .map(|choice| format!("`{}`", choice.get_name()))
        .collect();
    let names = arg.get_value_names().unwrap_or_default();
    let name = names.first().map_or("", |name| name.as_str());
    match name {
        _ if !choices.is_empty() => choices.join(", "),
        "BOOL" => "`true`, `false`".to_owned(),
        "SIZE" => "size".to_owned(),
        "TIME" => "time".to_owned(),
        "TIME|auto" => "time or `auto`".to_owned(),
        "SECONDS" => "seconds".to_owned(),
        "HOURS" => "hours".to_owned(),
        "N" => "number".to_owned(),
        "MODE" => "octal".to_owned(),
        other => other.to_owned(),
    }
}
