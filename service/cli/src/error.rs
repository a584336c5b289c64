//! Errors of commands: one line each. A few of them choose the exit code.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use lumpscope_client::Code;

use crate::output;

/// Ctrl-C; exit code 130.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// The service was asked a second and third time to stop.
#[derive(Debug, thiserror::Error)]
#[error("ended at once, as asked: requests under way were cut off; what was acknowledged is safe")]
pub(crate) struct CutOff;

/// `cannot WHAT PATH: ...`
pub(crate) fn file<'a>(
    what: &'a str,
    path: &'a Path,
) -> impl Fn(io::Error) -> anyhow::Error + Copy + 'a {
    move |source| anyhow::anyhow!("cannot {what} {}: {source}", path.display())
}

/// `cannot WHAT: ...`
pub(crate) fn system(what: &str) -> impl Fn(io::Error) -> anyhow::Error {
    move |source| anyhow::anyhow!("cannot {what}: {source}")
}

/// Says on standard error why a command failed.
pub(crate) fn complain(error: &anyhow::Error) {
    output::complain(&format!("lumpscope: {error}"));
}

/// 3: the service has no such lump, store or request; 130: interrupted; else 1.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Interrupted>() {
        return ExitCode::from(130);
    }
    match error.downcast_ref::<lumpscope_client::Error>() {
        Some(error) if error.code() == Some(Code::NotFound) => ExitCode::from(3),
        _ => ExitCode::FAILURE,
    }
}
