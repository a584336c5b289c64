//! Command line of `lumpscope bench seeds fileserver`.

use std::path::PathBuf;

use crate::experiment::OutputArgs;
use crate::studies::observe::ObserveBenchArgs;

/// Measure what observing costs a file server: probes not loaded, with all events, and not loaded
/// once more, in alternating runs, in the layout of the published table.
#[derive(Clone, Debug, clap::Args)]
pub struct FileserverArgs {
    /// Rounds; each has one run of each mode. The published table had 10
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub rounds: usize,
    /// Timed part of one run, in seconds. The published table had 60
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS")]
    pub seconds: f64,
    /// Files: lumps of 128 KiB on average
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub files: usize,
    /// Clients
    #[arg(long, default_value_t = 50, value_name = "N")]
    pub clients: usize,
    /// Directory for the store's file [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub output: OutputArgs,
}

impl FileserverArgs {
    /// Arguments for the bench of observation.
    pub(super) fn observe(&self) -> ObserveBenchArgs {
        ObserveBenchArgs {
            dir: self.dir.clone(),
            loop_dir: None,
            rounds: self.rounds,
            seconds: self.seconds,
            fileserver_seconds: self.seconds,
            files: self.files,
            clients: self.clients,
            only: Some("fileserver".to_owned()),
            bpftrace: None,
            quick: false,
            output: OutputArgs::default(),
        }
    }
}
