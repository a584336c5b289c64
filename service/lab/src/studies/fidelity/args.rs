//! Command line of `lumpscope platter check`.

use anyhow::bail;

use super::pattern::{PATTERNS, Pattern};
use crate::experiment::OutputArgs;
use crate::failure::argument;

/// Measure how closely emulated disks of this machine follow their model.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Needs root, /dev/fuse, loop devices and probes. Goals, on a machine that has nothing else to do: a \
                  live disk within 5 % of the model's virtual time, a replay of what the probes recorded within 3 % of \
                  the live disk."
)]
pub struct FidelityArgs {
    /// Drive to emulate; `lumpscope platter drives` lists them
    #[arg(long, default_value = "st1000dm003", value_name = "NAME")]
    pub(super) drive: String,
    /// Runs of each pattern, each on a new disk
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub(super) rounds: usize,
    /// Only these patterns of requests [default: all]
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    pub(super) only: Vec<String>,
    /// At most this many requests of each pattern, 2 or more; few say little [default: all]
    #[arg(long, value_name = "N")]
    pub(super) requests: Option<usize>,
    #[command(flatten)]
    pub(super) output: OutputArgs,
}

impl FidelityArgs {
    /// The patterns to run.
    pub(super) fn patterns(&self) -> anyhow::Result<Vec<Pattern>> {
        let argument = |option, allowed| Err(argument(option, allowed));
        if !(1..=100).contains(&self.rounds) {
            return argument("--rounds", "1 to 100");
        }
        if self.requests.is_some_and(|requests| requests < 2) {
            return argument(
                "--requests",
                "2 or more: time counts from the end of the first",
            );
        }
        let chosen = |pattern: &&Pattern| {
            self.only.is_empty() || self.only.iter().any(|name| name == pattern.name)
        };
        let known = |name: &&String| PATTERNS.iter().all(|pattern| pattern.name != name.as_str());
        if let Some(name) = self.only.iter().find(known) {
            let names: Vec<&str> = PATTERNS.iter().map(|pattern| pattern.name).collect();
            bail!(
                "there is no pattern {name:?}; there are: {}",
                names.join(", ")
            );
        }
        Ok(PATTERNS.iter().filter(chosen).copied().collect())
    }
}
