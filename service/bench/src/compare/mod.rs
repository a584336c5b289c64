//! `lumpscope compare`: one workload against a raw, an ext4 and an xfs store, side by side.

mod args;

use std::path::PathBuf;
use std::process::ExitCode;

pub use args::CompareArgs;

/// Why a comparison could not be made or finished.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The comparison was stopped by a signal; everything it had made is gone.
    #[error("stopped by a signal; everything the comparison had made was removed")]
    Interrupted,
}

/// Runs the comparison and prints it.
///
/// Blocks, and starts a runtime of its own: call it outside any asynchronous runtime.
/// `lumpscope_exe` is the binary that understands `format` and `serve`
/// (`std::env::current_exe()` in the real command).
///
/// # Errors
/// Everything that keeps the three stores from being compared. The message says what to do.
pub fn run(_args: &CompareArgs, _lumpscope_exe: PathBuf) -> Result<ExitCode, CompareError> {
    Err(CompareError::Interrupted)
}
