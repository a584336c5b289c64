//! The time a client gives a call: the `grpc-timeout` of its headers.

use std::time::Duration;

use http::HeaderMap;
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_units::nanoseconds;
use tokio::time::Instant;

use crate::refusal::Refusal;

/// Most digits of a timeout.
const MAX_DIGITS: usize = 8;

/// When the time of a call is over, on the two clocks that are asked.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// The clock of the runtime.
    pub instant: Instant,
    /// The clock of the engine, in nanoseconds.
    pub ns: u64,
}

impl Deadline {
    /// True: the time of the call is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.instant
    }

    /// The deadline of a call that begins now; `None`: it has none, or one that cannot be read.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        let time = timeout_of(headers)?;
        let ns = nanoseconds(time);
        Some(Self {
            instant: Instant::now().checked_add(time)?,
            ns: monotonic_ns().saturating_add(ns),
        })
    }
}

/// The time that `grpc-timeout` gives; `None`: it is not there, or cannot be read.
#[must_use]
pub fn timeout_of(headers: &HeaderMap) -> Option<Duration> {
    timeout(headers.get("grpc-timeout")?.to_str().ok()?)
}

/// Refuses a `grpc-timeout` that cannot be read: its client would wait for an end that never comes.
///
/// # Errors
/// [`Refusal::TimeoutInvalid`].
pub fn check_timeout(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut sent = headers.get_all("grpc-timeout").iter();
    match (sent.next(), sent.next()) {
        (None, _) => Ok(()),
        (Some(_), None) if timeout_of(headers).is_some() => Ok(()),
        (Some(_), _) => Err(Refusal::TimeoutInvalid),
    }
}

/// Digits and a unit: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.
fn timeout(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if !(1..=MAX_DIGITS).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_that_cannot_be_read_is_refused() {
        let check = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("grpc-timeout", value.parse().unwrap());
            }
            check_timeout(&headers).is_ok()
        };
        assert!(check(&[]) && check(&["0n"]) && check(&["99999999H"]));
        for bad in [&["soon"][..], &[""], &["123456789m"], &["1S", "1S"]] {
            assert!(!check(bad), "{bad:?}");
        }
    }

    #[test]
    fn timeouts_are_read_as_grpc_writes_them() {
        for (text, want) in [
            ("3H", Some(Duration::from_secs(10_800))),
            ("2M", Some(Duration::from_secs(120))),
            ("1S", Some(Duration::from_secs(1))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("0u", Some(Duration::ZERO)),
            ("7n", Some(Duration::from_nanos(7))),
            ("", None),
            ("m", None),
            ("123456789m", None),
            ("-1S", None),
            ("+1S", None),
            ("1 S", None),
            ("1s", None),
            ("1ä", None),
        ] {
            assert_eq!(timeout(text), want, "{text:?}");
        }
    }
}
