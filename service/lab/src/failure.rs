//! Failures of measurements: `anyhow` errors whose message says what was tried, with which file or
//! program, and what to do about it. Only the two that callers tell apart have a type.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context as _, Error, anyhow};

/// Ctrl-C or another signal stopped the measurement.
#[derive(Debug, thiserror::Error)]
#[error("stopped by a signal; everything made for the measurement was removed")]
pub(crate) struct Interrupted;

/// A program to compare with cannot be run, or prints something that is not understood. A study
/// leaves it out and goes on.
#[derive(Debug, thiserror::Error)]
#[error("{program}: {why}")]
pub(crate) struct PeerFailed {
    program: String,
    why: String,
}

pub(crate) fn peer_failed(program: &str, why: impl Into<String>) -> Error {
    let (program, why) = (program.to_owned(), why.into());
    PeerFailed { program, why }.into()
}

/// The message of an error with its causes, on one line. A cause that the message before it quotes
/// is not repeated.
#[must_use]
pub fn message(error: &Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

/// For `map_err`: "cannot open /dev/sdb: Permission denied".
pub(crate) fn cannot<E>(what: &str, path: &Path) -> impl FnOnce(E) -> Error + use<E>
where
    Result<(), E>: anyhow::Context<(), E>,
{
    cannot_do(format!("{what} {}", path.display()))
}

/// For `map_err`: "cannot handle signals: Invalid argument".
pub(crate) fn cannot_do<E>(what: impl Into<String>) -> impl FnOnce(E) -> Error
where
    Result<(), E>: anyhow::Context<(), E>,
{
    let what = what.into();
    move |error| {
        let failed: Result<(), E> = Err(error);
        match failed.with_context(|| format!("cannot {what}")) {
            Ok(()) => anyhow!("cannot {what}"),
            Err(error) => error,
        }
    }
}

/// A value of an option that makes no sense.
pub(crate) fn argument(option: &str, allowed: &str) -> Error {
    anyhow!("{option} must be {allowed}")
}

/// Refuses a number outside its range.
pub(crate) fn within<T: PartialOrd + Display>(
    option: &str,
    value: T,
    range: RangeInclusive<T>,
) -> anyhow::Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = range.into_inner();
    Err(argument(option, &format!("{least} to {most}")))
}

/// Refuses a number that is 0, negative, too large, or none.
pub(crate) fn above_0(option: &str, value: f64, most: f64) -> anyhow::Result<()> {
    if value > 0.0 && value <= most {
        return Ok(());
    }
    Err(argument(option, &format!("more than 0 and at most {most}")))
}

/// `--only` fits nothing.
pub(crate) fn nothing_chosen(only: Option<&str>, known: impl Display) -> Error {
    let pattern = only.unwrap_or_default();
    anyhow!("--only {pattern} fits none of the figures; they are: {known}")
}

/// A directory that would run full. Sizes in bytes.
pub(crate) fn no_room(dir: &Path, needed: u64, free: u64) -> Error {
    anyhow!(
        "the images will take {} MiB or more, and {} has {} MiB free. Choose another directory with --dir, \
         or less with --scale or --size",
        needed.div_ceil(1 << 20),
        dir.display(),
        free >> 20
    )
}

/// For `map_err`: a call that must not fail. `who` is the service or its peer.
pub(crate) fn call_failed(who: &str, call: &str) -> impl Fn(tonic::Status) -> Error {
    move |status| anyhow!("{who}: a {call} failed: {status}")
}

/// Bytes that came back are not those that were put.
pub(crate) fn wrong_bytes(who: &str, id: u64) -> Error {
    anyhow!(
        "{who}: lump {id} was read back with other bytes than were put; its figures mean nothing"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_holds_every_cause_once() {
        let failed: std::io::Result<()> = Err(std::io::ErrorKind::NotFound.into());
        let error = failed
            .map_err(cannot("open", Path::new("/dev/sdb")))
            .expect_err("it failed");
        let cause = std::io::Error::from(std::io::ErrorKind::NotFound);
        assert_eq!(message(&error), format!("cannot open /dev/sdb: {cause}"));
        let quoted = Error::new(cause).context(format!("quotes: {}", message(&error)));
        assert!(message(&quoted).ends_with(&message(&error)));
        assert!(peer_failed("fio", "gone").is::<PeerFailed>());
    }
}
