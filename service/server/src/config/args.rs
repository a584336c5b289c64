//! The command line of `serve`: its flags laid over the file, and that over the defaults.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use toml::Value;

use super::validate::first;
use super::{ServeConfig, plain};
use crate::error::ServerError;
use crate::files;

/// Command line of `lumpscope serve`.
#[derive(Args, Clone, Debug, Default)]
pub struct ServeArgs {
    /// Only check the configuration and the files it names, and print the resulting settings
    #[arg(long)]
    pub check_config: bool,
    /// TOML file of these settings, by their keys
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_CONFIG")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    given: Given,
}

impl ServeArgs {
    /// Flags, environment, file and defaults made one.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, and the first value that does not make sense.
    pub fn resolve(self) -> Result<ServeConfig, ServerError> {
        self.read()?.checked()
    }

    /// As [`ServeArgs::resolve`], but there need not be any store.
    ///
    /// # Errors
    /// As [`ServeArgs::resolve`].
    pub fn resolve_settings(self) -> Result<ServeConfig, ServerError> {
        let mut config = self.read()?;
        first(config.check_values())?;
        Ok(config)
    }

    /// The configuration as it is given, not checked yet.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub(crate) fn read(self) -> Result<ServeConfig, ServerError> {
        let mut config = match &self.config {
            Some(path) => ServeConfig::of_file(path)?,
            None => ServeConfig::default(),
        };
        if let Some(given) = &self.given.0 {
            let laid_over = config.update_from_arg_matches(given);
            laid_over.map_err(|error| ServerError::Argument(error.to_string()))?;
        }
        Ok(config)
    }
}

impl ServeConfig {
    /// A configuration from a TOML file, not checked yet.
    ///
    /// # Errors
    /// The file cannot be read or parsed; the message names the line.
    pub fn of_file(path: &Path) -> Result<Self, ServerError> {
        let text = files::read_settings(path)?;
        toml::from_str(&text).map_err(|error| ServerError::ConfigParse {
            path: path.to_owned(),
            line: error
                .span()
                .map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
            why: error.message().replace('\n', " "),
        })
    }
}

/// The settings given by flags and variables. clap updates a configuration with these and leaves
/// the others alone, so the flags themselves have no defaults.
#[derive(Clone, Debug, Default)]
struct Given(Option<ArgMatches>);

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        let defaults = ServeConfig::default().table();
        let default = |arg: &Arg| defaults.get(arg.get_long()?);
        ServeConfig::augment_args_for_update(command).mut_args(|arg| match default(&arg) {
            Some(Value::Boolean(_)) => switch(arg),
            Some(value) => with_default(arg, &plain(value)),
            None => arg,
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A switch needs no value: `--salvage`.
fn switch(arg: Arg) -> Arg {
    arg.num_args(0..=1)
        .require_equals(true)
        .default_missing_value("true")
}

/// The help tells the default.
fn with_default(arg: Arg, default: &str) -> Arg {
    match arg.get_help().map(ToString::to_string) {
        Some(help) if !default.is_empty() => arg.help(format!("{help} [default: {default}]")),
        _ => arg,
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(Some(matches.clone())))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = Some(matches.clone());
        Ok(())
    }
}
