//! `lumpscope platter check`: how well an emulated disk of this machine keeps to its model.
//!
//! One program, which waits for each request, runs on a live disk. What it asks for is served by
//! the model as well, one request after the other in virtual time; and what the probes recorded of
//! the live disk is replayed. So there are three times for one thing. Live and model differ by what
//! the machine adds: the way of a request to the emulation and back, and answers that come late.
//! Live and replay differ by what a trace does not tell.
//!
//! All three count from the end of the first request, when arm and platters stand alike.

mod args;
mod pattern;
mod report;
mod trial;

use std::path::Path;
use std::process::ExitCode;

use lumpscope_platter::live::LiveOptions;

pub use args::FidelityArgs;

use crate::experiment;
use crate::experiment::report::Report;
use crate::process::Interrupt;
use lumpscope_units::tell;
use report::FidelityTrials;
use trial::Trial;

/// Measures and prints. `exe` is the `lumpscope` program, a process of which becomes the disk.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// No root, no FUSE, no loop driver, no probes, an option that makes no sense, or an I/O that
/// fails. The message says what to do; whatever was made is gone.
pub fn run(args: &FidelityArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.output, |interrupt| measure(args, exe, interrupt))
}

fn measure(
    args: &FidelityArgs,
    exe: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, FidelityTrials)> {
    let patterns = args.patterns()?;
    let drive = LiveOptions::new(&args.drive).drive()?;
    let mut trials: Vec<Trial> = Vec::new();
    for round in 1..=args.rounds {
        for pattern in &patterns {
            interrupt.check()?;
            tell(&format!(
                "{}, round {round} of {}",
                pattern.name, args.rounds
            ));
            trials.push(Trial::run(exe, &args.drive, pattern, args.requests)?);
        }
    }
    let mut report = report::report(&patterns, &trials);
    report.fact("Emulated drive", &*drive.title);
    report.fact("Rounds", args.rounds.to_string());
    Ok((report, FidelityTrials { trials }))
}
