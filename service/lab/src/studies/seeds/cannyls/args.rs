//! Command line of `lumpscope bench seeds cannyls`.

use std::path::PathBuf;

use serde::Serialize;

use crate::experiment::OutputArgs;
use crate::experiment::report::ENOUGH_RUNS;
use crate::failure::argument;
use crate::studies::predict::Rule;
use crate::studies::seeds::DRIVE;
use crate::studies::seeds::published::CANNYLS;

/// Run the four published workloads on a raw disk, on an ext4 without a journal and on an xfs, and
/// show how long the published drive would have taken, and why.
#[derive(Clone, Debug, clap::Args)]
pub struct CannylsArgs {
    /// Scale all repetition counts of the workloads, and the drive, by this factor
    #[arg(long, default_value_t = 0.05, value_name = "FACTOR")]
    pub scale: f64,
    /// Which workloads
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "seq1,seq2,rand1,rand2",
        value_name = "LIST"
    )]
    pub workloads: Vec<String>,
    /// Bytes of the store's blocks. The published tables have 512
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "512,4096",
        value_name = "LIST"
    )]
    pub block_size: Vec<u16>,
    /// Which engine. The original one is left out, with a message, when its program is not there
    #[arg(long, value_enum, default_value_t = Engines::Both)]
    pub engine: Engines,
    /// The original engine's program [default: beside this one]
    #[arg(long, value_name = "FILE")]
    pub cannyls_peer: Option<PathBuf>,
    /// Drive that the times are predicted for: see `lumpscope platter drives`
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    pub drive: String,
    /// Run on the emulated drive itself, in real time, with firmware that is supposed to follow this
    /// rule, and print what was measured beside what is predicted. Takes as long as the drive would,
    /// and wants a quiet machine
    #[arg(long, value_enum, value_name = "RULE", num_args = 0..=1, require_equals = true,
          default_missing_value = "ideal")]
    pub(in crate::studies::seeds) live: Option<Rule>,
    /// Runs of each; of fewer than 3 nothing is said to agree or not
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub runs: usize,
    /// Directory for the images of the disks [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub output: OutputArgs,
}

/// Which engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Engines {
    /// The published crate.
    Original,
    /// Ours.
    Lumpscope,
    /// Both.
    Both,
}

/// One engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Engine {
    Original,
    Lumpscope,
}

impl Engine {
    pub(super) fn name(self) -> &'static str {
        match self {
            Engine::Original => "original",
            Engine::Lumpscope => "lumpscope",
        }
    }
}

impl CannylsArgs {
    /// The original engine with blocks of both sizes: the published table and its cause.
    pub(in crate::studies) fn of_original(
        (scale, drive): (f64, String),
        cannyls_peer: Option<PathBuf>,
        dir: Option<PathBuf>,
        output: OutputArgs,
    ) -> CannylsArgs {
        CannylsArgs {
            scale,
            workloads: CANNYLS.map(|row| row.workload.to_owned()).to_vec(),
            block_size: vec![512, 4096],
            engine: Engines::Original,
            cannyls_peer,
            drive,
            live: None,
            runs: ENOUGH_RUNS,
            dir,
            output,
        }
    }

    pub(super) fn engines(&self) -> Vec<Engine> {
        match self.engine {
            Engines::Original => vec![Engine::Original],
            Engines::Lumpscope => vec![Engine::Lumpscope],
            Engines::Both => vec![Engine::Original, Engine::Lumpscope],
        }
    }

    pub(super) fn check(&self) -> anyhow::Result<()> {
        let known = ["seq1", "seq2", "rand1", "rand2"];
        let fits = |name: &String| known.contains(&name.as_str());
        if self.workloads.is_empty() || !self.workloads.iter().all(fits) {
            let allowed = "some of seq1, seq2, rand1, rand2";
            return Err(argument("--workloads", allowed));
        }
        let fits = |size: &u16| *size > 0 && size.is_multiple_of(512);
        if self.block_size.is_empty() || !self.block_size.iter().all(fits) {
            let allowed = "multiples of 512, up to 65024";
            return Err(argument("--block-size", allowed));
        }
        if !(self.scale > 0.0 && self.scale <= 1.0) {
            return Err(argument("--scale", "above 0 and at most 1"));
        }
        if self.live == Some(Rule::WriteThrough) {
            return Err(argument("--live", "ideal or overlap"));
        }
        if !(1..=100).contains(&self.runs) {
            return Err(argument("--runs", "1 to 100"));
        }
        Ok(())
    }
}
