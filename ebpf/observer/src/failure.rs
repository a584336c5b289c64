//! Why a block request failed, as the kernel says.

use std::io;

use lumpscope_ebpf_common::{BlockEvent, flag};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// Why a block request failed: the kernel's `blk_status_t`, under the words that it logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Failure {
    /// The disk does not do this.
    NotSupported,
    /// It did not answer in time.
    Timeout,
    /// It has no space left, as a thin disk.
    NoSpace,
    /// The way to it failed.
    Transport,
    /// It refused.
    Target,
    /// Another host has reserved it.
    Reservation,
    /// A bad spot.
    Medium,
    /// A checksum on the way was wrong.
    Protection,
    /// The kernel lacked memory, or the driver what it needs.
    Resource,
    /// Whoever asked did not want to wait.
    Again,
    /// It is gone.
    Offline,
    /// Any other error of I/O.
    Io,
}

impl Failure {
    /// Name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Failure::NotSupported => "not-supported",
            Failure::Timeout => "timeout",
            Failure::NoSpace => "no-space",
            Failure::Transport => "transport",
            Failure::Target => "target",
            Failure::Reservation => "reservation",
            Failure::Medium => "medium",
            Failure::Protection => "protection",
            Failure::Resource => "resource",
            Failure::Again => "again",
            Failure::Offline => "offline",
            Failure::Io => "io",
        }
    }

    /// `None`: it did not fail.
    pub(crate) fn of(event: &BlockEvent) -> Option<Failure> {
        match event.error {
            0 => None,
            status if event.flags & flag::RAW_STATUS != 0 => Some(of_status(status)),
            errno => Some(of_errno(errno.saturating_abs())),
        }
    }
}

/// The numbers up to 13 have meant the same since there is a `blk_status_t` (4.13); later ones were
/// numbered anew.
fn of_status(status: i32) -> Failure {
    match status {
        1 => Failure::NotSupported,
        2 => Failure::Timeout,
        3 => Failure::NoSpace,
        4 => Failure::Transport,
        5 => Failure::Target,
        6 => Failure::Reservation,
        7 => Failure::Medium,
        8 => Failure::Protection,
        9 | 13 => Failure::Resource,
        12 => Failure::Again,
        _ => Failure::Io,
    }
}

/// What `blk_status_to_errno` makes of them.
fn of_errno(errno: i32) -> Failure {
    match Errno::from_io_error(&io::Error::from_raw_os_error(errno)) {
        Some(Errno::OPNOTSUPP) => Failure::NotSupported,
        Some(Errno::TIMEDOUT) => Failure::Timeout,
        Some(Errno::NOSPC) => Failure::NoSpace,
        Some(Errno::NOLINK) => Failure::Transport,
        Some(Errno::REMOTEIO) => Failure::Target,
        Some(Errno::BADE) => Failure::Reservation,
        Some(Errno::NODATA) => Failure::Medium,
        Some(Errno::ILSEQ) => Failure::Protection,
        Some(Errno::NOMEM | Errno::BUSY) => Failure::Resource,
        Some(Errno::AGAIN) => Failure::Again,
        Some(Errno::NODEV) => Failure::Offline,
        _ => Failure::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_and_its_errno_mean_the_same() {
        let raw = |error, flags| {
            Failure::of(&BlockEvent {
                error,
                flags,
                ..BlockEvent::default()
            })
        };
        let both = [(1, 95), (2, 110), (3, 28), (4, 67), (5, 121), (6, 52)];
        let more = [(7, 61), (8, 84), (9, 12), (10, 5), (12, 11), (13, 16)];
        for (status, errno) in both.into_iter().chain(more) {
            let named = raw(status, flag::RAW_STATUS);
            assert!(named.is_some());
            assert_eq!(named, raw(-errno, 0), "status {status}, errno {errno}");
        }
        assert_eq!(raw(0, flag::RAW_STATUS), None);
        assert_eq!(raw(200, flag::RAW_STATUS), Some(Failure::Io));
        assert_eq!(raw(i32::MIN, 0), Some(Failure::Io));
        let text = serde_json::to_string(&Failure::NotSupported).expect("a name");
        assert_eq!(text.trim_matches('"'), Failure::NotSupported.name());
    }
}
