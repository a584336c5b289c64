//! Command line of `lumpscope bench observe`.

use std::path::PathBuf;

use crate::experiment::OutputArgs;

/// Measure what observation costs: the same work with the probes not loaded, with histograms only,
/// and with all events, in alternating runs: the speed that is lost, and the processor time that
/// observation takes; and with the probes not loaded once more, which shows what the machine's own
/// noise is.
#[derive(Clone, Debug, clap::Args)]
pub struct ObserveBenchArgs {
    /// Directory for the stores' files [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Directory for the image of the loop device that is written in blocks of 4 KiB
    /// [default: /dev/shm when it has room, else as --dir]
    #[arg(long, value_name = "DIR")]
    pub loop_dir: Option<PathBuf>,
    /// Rounds; each gives one cost of each figure
    #[arg(long, default_value_t = 11, value_name = "N")]
    pub rounds: usize,
    /// Timed part of one run, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    pub seconds: f64,
    /// Timed part of one run of the file server, in seconds
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub fileserver_seconds: f64,
    /// Files of the file server: lumps of 128 KiB on average
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub files: usize,
    /// Clients of the file server
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub clients: usize,
    /// Only what this names: "objects", "sectors" or "fileserver"
    #[arg(long, value_name = "PATTERN")]
    pub only: Option<String>,
    /// Have this bpftrace script (ebpf/bpftrace/d2c-by-distance.bt) watch the writes of 4 KiB, too, in
    /// runs without probes: what another tracer costs
    #[arg(long, value_name = "SCRIPT")]
    pub bpftrace: Option<PathBuf>,
    /// A short run: 2 rounds of 0.2 s, 500 files
    #[arg(long)]
    pub quick: bool,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub output: OutputArgs,
}

impl ObserveBenchArgs {
    /// With `--quick` applied.
    #[must_use]
    pub(super) fn effective(mut self) -> Self {
        if self.quick {
            self.rounds = self.rounds.min(2);
            self.seconds = self.seconds.min(0.2);
            self.fileserver_seconds = self.fileserver_seconds.min(0.5);
            self.files = self.files.min(500);
        }
        self
    }
}
