//! A disk of spinning platters, as arithmetic.
//!
//! | module | what it is |
//! |---|---|
//! | [`trace`] | the block requests that a disk was asked for, from whichever recorder |

pub mod trace;
