//! Sizes, times and rates: every number that a person types or reads, and the columns it stands in.
//!
//! | module | |
//! |---|---|
//! | [`human`] | numbers in tables, reports and sentences: `1.50 MiB`, `12.3 µs`, `1,234,567` |
//! | [`Size`] | bytes in settings and flags: `64M` |
//! | [`Span`] | lengths of time in settings and flags: `5ms` |
//! | [`columns`] | tables and sentences in 80 columns |
//! | [`escape`] | control characters of foreign text, made visible |
//! | [`tell()`] | lines on standard error |
//! | [`clock`] | dates and times of day, in UTC |
//!
//! The engine does not depend on this crate: its unit types keep sectors and bytes apart.

pub mod clock;
pub mod columns;
pub mod escape;
pub mod human;
mod size;
mod span;
mod tell;

pub use size::{Size, SizeError, size_within};
pub use span::{Span, SpanError, nanoseconds};
pub use tell::tell;
