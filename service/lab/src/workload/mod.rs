//! The workload language: what a benchmark does, as text, and the exact commands that come of it.
//!
//! It is the language of the benchmark whose tables `lumpscope compare` continues: the same text
//! gives the same commands, to the last draw of the random number generator, so that results can
//! be laid side by side. [`Workload::parse`] reads it, [`Workload::scaled`] shortens it,
//! [`Workload::generate`] makes the commands. Nothing here touches a disk or a network.
//!
//! ```text
//! Seed: 7;                       # optional; 0 when absent
//! Command {                      # taken literally
//!   5000.times { New(1M); };
//! }
//! Unordered[40000] {             # 40,000 statements in random order (Ordered: as written)
//!   <50%> New(1M);
//!   <50%> Get;                   # a lump chosen at random; Get(1, 5): among the oldest 1-5 %
//! }
//! ```
//!
//! Two things are looser than in the original: comments and white space may stand between any two
//! tokens, and text after the last section is an error instead of being ignored.

mod ast;
mod generate;
mod live;
mod parse;
mod sizing;
mod source;
mod survivors;

pub use ast::Workload;
use generate::GenerateError;
pub use generate::{Command, CommandStream};
pub use parse::ParseError;
pub(crate) use sizing::Sizing;
pub use source::WorkloadArgs;

/// A workload that comes with the program.
#[derive(Debug, Clone, Copy)]
pub struct Builtin {
    /// Name on the command line.
    pub name: &'static str,
    /// Description, in a few words.
    pub summary: &'static str,
    /// In the workload language.
    pub text: &'static str,
    /// Elapsed time on minfs, ext4 and xfs over that on minfs, as published for a 7200 rpm disk
    /// and Linux 5.0.
    pub published_ratios: [f64; 3],
}

/// The four workloads of the published comparison of minfs, ext4 and xfs.
pub const BUILTIN: [Builtin; 4] = [
    Builtin {
        name: "seq1",
        summary: "100,000 puts of 256 KiB",
        text: include_str!("../../workloads/seq1"),
        published_ratios: [1.0, 1.65, 1.58],
    },
    Builtin {
        name: "seq2",
        summary: "5,000 puts of 4 MiB",
        text: include_str!("../../workloads/seq2"),
        published_ratios: [1.0, 1.37, 1.30],
    },
    Builtin {
        name: "rand1",
        summary: "5,000 puts of 1 MiB, then 40,000 puts and random gets, half and half",
        text: include_str!("../../workloads/rand1"),
        published_ratios: [1.0, 1.13, 1.17],
    },
    Builtin {
        name: "rand2",
        summary: "5,000 puts of 1 MiB, then 20,000 puts, each followed by a get of an old lump",
        text: include_str!("../../workloads/rand2"),
        published_ratios: [1.0, 1.32, 1.32],
    },
];

/// The builtin workload of that name.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTIN.iter().find(|builtin| builtin.name == name)
}
