//! The observer's knowledge in the words of the protocol, for gRPC, the page and the command line.

mod answers;
mod asking;
pub mod convert;
mod turns;
mod watches;

use lumpscope_observer::EventPolicy;

pub(crate) use answers::{ANSWERS, UNPACKED, bytes_of_explained, bytes_of_reports, slowest_limit};
pub(crate) use asking::{Asking, DEFAULT_SLOWEST, MOST_SLOWEST};
pub(crate) use turns::{SharedAnswers, Unanswered};
pub use watches::{MAX_VIEWERS, MAX_WATCHES, WatchKind, Watches};
pub(crate) use watches::{WATCHED, Watching};

/// Events that the event policy leaves out, in words; `None`: none.
pub(crate) fn left_out(policy: EventPolicy) -> Option<String> {
    let slow = match policy.slower_than_ns {
        0 => String::new(),
        ns => format!(" and all that take {ns} ns or more"),
    };
    match policy.one_in {
        1 => None,
        0 if slow.is_empty() => Some("no block request is handed out".to_owned()),
        0 => Some(format!("no block requests are handed out by chance{slow}")),
        n => Some(format!("one of {n} block requests is handed out{slow}")),
    }
}
