//! Command line of `lumpscope compare`.

use std::path::PathBuf;

use lumpscope_platter::drive::Drive;

use crate::experiment::StudyArgs;
use crate::studies::predict::{Rule, drive_named};
use crate::studies::seeds::DRIVE;

/// Run one workload against raw, ext4 and xfs stores and show side by side what the disks did.
#[derive(Debug, Clone, clap::Args)]
pub struct CompareArgs {
    /// Workload to run: rand1, rand2, seq1, seq2, or a file in the workload language
    #[arg(long, default_value = "rand1", value_name = "NAME|FILE")]
    pub workload: String,
    /// Scale all repetition counts of the workload by this factor
    #[arg(long, default_value_t = 0.05, value_name = "FACTOR")]
    pub scale: f64,
    /// Block sizes of the stores in bytes
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "512,4096",
        value_name = "LIST"
    )]
    pub block_size: Vec<u16>,
    /// Drive to replay the recorded block requests on, scaled like the workload; may be repeated.
    /// `lumpscope platter drives` lists them
    #[arg(long = "model", default_value = DRIVE, value_name = "NAME")]
    pub models: Vec<String>,
    /// What the modelled drives' firmware is supposed to do
    #[arg(long, value_enum, default_value_t = Rule::Overlap, value_name = "RULE")]
    pub(super) rule: Rule,
    /// Requests in flight; commands on one lump keep their order
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub depth: usize,
    /// Emulate this drive below the lab's stores instead of images that are as fast as the machine;
    /// `lumpscope platter drives` lists them
    #[arg(long, value_name = "NAME", conflicts_with_all = ["raw", "dir"])]
    pub drive: Option<String>,
    /// Make the ext4 of the lab without a journal, as the published benchmark did: it writes the
    /// file's inode at each flush then
    #[arg(long, conflicts_with = "raw")]
    pub no_ext4_journal: bool,
    /// Compare every byte that is read, not only length and checksum
    #[arg(long)]
    pub verify: bool,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub study: StudyArgs,
    /// Own disk for the raw store instead of an image. It is refused if anything is on it, and given
    /// back empty
    #[arg(long, value_name = "DEVICE", requires_all = ["ext4", "xfs"])]
    pub raw: Option<PathBuf>,
    /// Directory on a mounted ext4 for the second store; a file is made there and removed
    #[arg(long, value_name = "DIR", requires_all = ["raw", "xfs"])]
    pub ext4: Option<PathBuf>,
    /// Directory on a mounted xfs for the third store; a file is made there and removed
    #[arg(long, value_name = "DIR", requires_all = ["raw", "ext4"])]
    pub xfs: Option<PathBuf>,
    /// Have this bpftrace script (ebpf/bpftrace/block-count.bt) count the same block requests beside
    /// the probes, and say whether the two agree
    #[arg(long, value_name = "SCRIPT", conflicts_with = "no_probes")]
    pub bpftrace: Option<PathBuf>,
    /// Compare without probes, as on a machine that cannot load them
    #[arg(long)]
    pub no_probes: bool,
}

impl CompareArgs {
    /// The drives of `--model`.
    pub(super) fn models(&self) -> anyhow::Result<Vec<Drive>> {
        self.models.iter().map(|name| drive_named(name)).collect()
    }
}
