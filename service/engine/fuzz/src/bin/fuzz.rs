//! libFuzzer around one target, which the environment names: `./dev fuzz` builds and runs it.
#![cfg_attr(fuzzing, no_main)]

use std::sync::OnceLock;

use lumpscope_engine_fuzz::{TARGETS, Target, by_name};

/// Names the target.
const VARIABLE: &str = "LUMPSCOPE_FUZZ_TARGET";

fn target() -> &'static Target {
    static TARGET: OnceLock<&Target> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        by_name(&name).unwrap_or_else(|| {
            let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
            eprintln!("{VARIABLE} must be one of {names:?}, not '{name}'");
            std::process::exit(2)
        })
    })
}

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| (target().run)(data));

/// Without the instrumentation of `./dev fuzz`: runs the target over the files it is given.
#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        (target().run)(&std::fs::read(path)?);
    }
    Ok(())
}
