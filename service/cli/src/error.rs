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
#[error(
    "stopped at once, as requested: requests in flight were cut off; acknowledged changes are safe"
)]
pub(crate) struct CutOff;

/// A store that the service has not; exit code 3.
#[derive(Debug, thiserror::Error)]
#[error("no store {0:?}; `lumpscope stores` lists them")]
pub(crate) struct NoStore(pub(crate) String);

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

/// How a command ends: one meaning for each code, in every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    Done = 0,
    Failed = 1,
    Arguments = 2,
    Missing = 3,
    Problems = 4,
    Interrupted = 130,
}

impl Exit {
    /// All of them, as the help explains them.
    const ALL: [(Self, &'static str); 6] = [
        (Self::Done, "done; also `delete` of an absent lump"),
        (Self::Failed, "failed or refused"),
        (Self::Arguments, "invalid arguments"),
        (Self::Missing, "no such lump, store or request"),
        (Self::Problems, "done, except for the problems listed"),
        (
            Self::Interrupted,
            "interrupted; 0 if Ctrl-C is the way to end the command",
        ),
    ];

    /// The table for the help.
    pub(crate) fn help() -> String {
        let line = |(code, meaning): (Self, &str)| format!("\n  {:<3}  {meaning}", code as u8);
        let lines: String = Self::ALL.map(line).concat();
        format!("Exit codes:{lines}")
    }

    /// [`Exit::Done`], or [`Exit::Problems`] if some were found.
    pub(crate) fn clean(clean: bool) -> ExitCode {
        match clean {
            true => Self::Done.into(),
            false => Self::Problems.into(),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The exit code of a command that ended with this error.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Interrupted>() {
        return Exit::Interrupted.into();
    }
    if error.is::<NoStore>() {
        return Exit::Missing.into();
    }
    match error.downcast_ref::<lumpscope_client::Error>() {
        Some(error) if error.code() == Some(Code::NotFound) => Exit::Missing.into(),
        _ => Exit::Failed.into(),
    }
}
