//! The engine's integration tests, in one program: they link once, and run side by side.
//!
//! Tests share nothing but the process. Those that start other programs (everything on loop
//! devices) run one at a time, and never beside one that has real files open; see
//! [`support::turns`].

#![allow(
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "contents are any bytes; a test may panic; support is shared by path"
)]

mod aliases;
mod cannyls_defects;
mod claims;
mod collect;
mod commit_times;
mod compat_cannyls;
mod concurrent;
mod contents;
mod crash;
mod create_file;
mod create_loop;
mod declarations;
mod faults;
mod flushes;
mod format_doc;
mod format_golden;
mod format_properties;
mod groups;
mod growing;
mod guard_loop;
mod inspect;
mod journal_ring;
mod lost_writes;
mod media;
mod model;
mod names;
mod opened;
mod pieces;
mod pressure;
mod provenance;
mod ranges;
mod reopen;
mod rot;
mod runs;
mod salvage;
mod samples;
mod scale_doc;
mod scheduling;
mod scrub;
mod seal;
mod states;
mod support;
mod unsettled;
mod verbs;
