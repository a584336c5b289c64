//! Functions that must survive any bytes: no panic, no endless loop, no memory out of proportion.
//!
//! `cargo test` runs each over its seeds in `corpus` and thousands of mutations of them that are
//! always the same; `./dev fuzz TARGET` looks for new ones with libFuzzer.

use std::sync::OnceLock;

pub mod corpus;
mod image;
mod structures;

/// A target: its name is that of its folder in `corpus`.
#[derive(Clone, Copy, Debug)]
pub struct FuzzTarget {
    /// Name on the command line.
    pub name: &'static str,
    /// To be called with any bytes.
    pub run: fn(&[u8]),
    /// Mutations of the corpus that the ordinary tests run.
    pub mutations: u64,
}

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    target("header", structures::header, 20_000),
    target("journal_header", structures::journal_header, 5_000),
    target("records", structures::records, 20_000),
    target("lump_end", structures::lump_end, 20_000),
    target("seal", structures::seal, 10_000),
    target("minfs", structures::minfs, 10_000),
    target("image", image::image, 6_000),
];

/// A target.
#[must_use]
pub const fn target(name: &'static str, run: fn(&[u8]), mutations: u64) -> FuzzTarget {
    FuzzTarget {
        name,
        run,
        mutations,
    }
}

/// The target of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static FuzzTarget> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Names the target that the program runs.
const VARIABLE: &str = "LUMPSCOPE_FUZZ_TARGET";

/// The one of `targets` that the environment names; ends the program when it names none.
#[must_use]
pub fn chosen(targets: &'static [FuzzTarget]) -> &'static FuzzTarget {
    static CHOSEN: OnceLock<&FuzzTarget> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        let found = targets.iter().find(|target| target.name == name);
        found.unwrap_or_else(|| {
            let names: Vec<&str> = targets.iter().map(|target| target.name).collect();
            eprintln!("{VARIABLE} must be one of {names:?}, not '{name}'");
            std::process::exit(2)
        })
    })
}
