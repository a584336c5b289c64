//! The command line of `serve`: its flags laid over the file, and that over the defaults.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use serde::Deserialize as _;
use toml::de::{DeTable, Deserializer};
use toml::{Spanned, Value};

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
    /// Serve this store although another machine has claimed it; only if that machine is gone for good;
    /// repeat for more
    #[arg(long, value_name = "NAME")]
    pub take_over: Vec<String>,
    #[command(flatten)]
    given: Given,
}

impl ServeArgs {
    /// Flags, environment, file and defaults made one.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, and the first value that does not make sense.
    pub fn resolve(self) -> Result<ServeConfig, ServerError> {
        self.read_whole()?.checked()
    }

    /// As [`ServeArgs::resolve`], but there need not be any store.
    ///
    /// # Errors
    /// As [`ServeArgs::resolve`].
    pub fn resolve_settings(self) -> Result<ServeConfig, ServerError> {
        let mut config = self.read_whole()?;
        first(config.check_values())?;
        Ok(config)
    }

    fn read_whole(self) -> Result<ServeConfig, ServerError> {
        let (config, wrong) = self.read()?;
        first(wrong.into_iter().map(|(_, error)| error).collect())?;
        Ok(config)
    }

    /// The configuration as it is given, not checked yet, and the keys of the file that are wrong.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not TOML.
    pub(crate) fn read(self) -> Result<(ServeConfig, WrongKeys), ServerError> {
        let (mut config, wrong) = match &self.config {
            Some(path) => ServeConfig::read_file(path)?,
            None => (ServeConfig::default(), Vec::new()),
        };
        if let Some(given) = &self.given.0 {
            let laid_over = config.update_from_arg_matches(given);
            laid_over.map_err(|error| ServerError::Argument(error.to_string()))?;
        }
        config.take_over = self.take_over;
        Ok((config, wrong))
    }
}

/// Keys that cannot be used, and why.
pub(crate) type WrongKeys = Vec<(String, ServerError)>;

impl ServeConfig {
    /// A configuration from a TOML file, not checked yet.
    ///
    /// # Errors
    /// The file cannot be read or parsed; the message names the line.
    pub fn of_file(path: &Path) -> Result<Self, ServerError> {
        let (config, wrong) = Self::read_file(path)?;
        first(wrong.into_iter().map(|(_, error)| error).collect())?;
        Ok(config)
    }

    /// The keys of a file that can be used, and the others.
    fn read_file(path: &Path) -> Result<(Self, WrongKeys), ServerError> {
        let text = files::read_settings(path)?;
        let unread = |error: toml::de::Error| files::unread(path, &text, &error);
        let table = DeTable::parse(&text).map_err(unread)?;
        let span = table.span();
        let read = |table| Self::deserialize(Deserializer::from(Spanned::new(span.clone(), table)));
        let (mut good, mut wrong) = (DeTable::new(), Vec::new());
        for (key, value) in table.into_inner() {
            // Each alone: serde stops at the first that is wrong.
            let alone = DeTable::from_iter([(key.clone(), value.clone())]);
            match read(alone) {
                Ok(_) => drop(good.insert(key, value)),
                Err(error) => wrong.push((key.get_ref().to_string(), unread(error))),
            }
        }
        Ok((read(good).map_err(unread)?, wrong))
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
