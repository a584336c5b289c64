//! Command line of `lumpscope bench observe`.

use std::path::PathBuf;

use crate::experiment::StudyArgs;

/// Measure what observation costs: the same work with the probes not loaded, with histograms only,
/// and with all events, in alternating runs: the speed that is lost, and the processor time that
/// observation takes; and with the probes not loaded once more, which shows what the machine's own
/// noise is.
#[derive(Clone, Debug, clap::Args)]
pub struct ObserveBenchArgs {
    /// Rounds; each gives one cost of each figure
    #[arg(long, default_value_t = 11, value_name = "N")]
    pub(super) rounds: usize,
    /// Timed part of one run, in seconds
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS")]
    pub(super) seconds: f64,
    /// Only "objects" or "sectors"
    #[arg(long, value_name = "PATTERN")]
    pub(super) only: Option<String>,
    /// Have this bpftrace script (ebpf/bpftrace/d2c-by-distance.bt) watch the writes of 4 KiB, too, in
    /// runs without probes: what another tracer costs
    #[arg(long, value_name = "SCRIPT")]
    pub(super) bpftrace: Option<PathBuf>,
    #[command(flatten)]
    pub(super) study: StudyArgs,
}
