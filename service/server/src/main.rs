//! The `lumpscope` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    lumpscope::cli::main()
}
