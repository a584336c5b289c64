//! A disk of spinning platters, as arithmetic.
//!
//! | module | what it is |
//! |---|---|
//! | [`drive`] | drives by name, and where their numbers come from |
//! | [`disk`] | a drive at work: a request and a time in, times out |
//! | [`trace`] | the block requests that a disk was asked for, from whichever recorder |

mod cache;
pub mod disk;
pub mod drive;
mod mechanics;
pub mod trace;
