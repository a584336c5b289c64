//! Command line of `lumpscope bench engine`.

use std::path::PathBuf;

use crate::experiment::OutputArgs;

/// Measure the engine against fio and the original engine, in alternating rounds on one file.
#[derive(Clone, Debug, clap::Args)]
pub struct EngineBenchArgs {
    /// Directory for the file all engines use in turn [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    pub dir: Option<PathBuf>,
    /// Use this block device instead. It is refused if anything is on it, and given back empty
    #[arg(long, value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// MiB of the file, or used of the device
    #[arg(long, default_value_t = 2048, value_name = "MIB")]
    pub mib: u64,
    /// Rounds; each gives one ratio of each figure
    #[arg(long, default_value_t = 5, value_name = "N")]
    pub rounds: usize,
    /// Longest timed part of one run, in seconds
    #[arg(long, default_value_t = 0.4, value_name = "SECONDS")]
    pub seconds: f64,
    /// Most puts in one run
    #[arg(long, default_value_t = u64::MAX, value_name = "N", hide_default_value = true)]
    pub count: u64,
    /// Begin no further round after this many minutes
    #[arg(long, default_value_t = 10.0, value_name = "MINUTES")]
    pub minutes: f64,
    /// A short run: 3 rounds of 0.1 s on 512 MiB
    #[arg(long)]
    pub quick: bool,
    /// Only figures whose name holds this text, for example "1 MiB" or "depth 8"
    #[arg(long, value_name = "PATTERN")]
    pub only: Option<String>,
    /// Program that runs the original engine [default: lumpscope-cannyls-peer beside this one]
    #[arg(long, value_name = "PROGRAM")]
    pub cannyls_peer: Option<PathBuf>,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub output: OutputArgs,
}

impl EngineBenchArgs {
    /// With `--quick` applied.
    #[must_use]
    pub(super) fn effective(mut self) -> Self {
        if self.quick {
            self.rounds = self.rounds.min(3);
            self.seconds = self.seconds.min(0.1);
            self.mib = self.mib.min(512);
        }
        self
    }
}
