//! libFuzzer around one target, which the environment names: `./dev fuzz` builds and runs it.
#![cfg_attr(fuzzing, no_main)]

use lumpscope_engine_fuzz::{TARGETS, chosen};

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| (chosen(TARGETS).run)(data));

/// Without the instrumentation of `./dev fuzz`: runs the target over the files it is given.
#[cfg(not(fuzzing))]
fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        (chosen(TARGETS).run)(&std::fs::read(path)?);
    }
    Ok(())
}
