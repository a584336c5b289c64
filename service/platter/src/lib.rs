//! A disk of spinning platters, as arithmetic.
//!
//! | module | what it is |
//! |---|---|
//! | [`drive`] | drives by name, and where their numbers come from |
//! | [`disk`] | a drive at work: a request and a time in, times out |
//! | [`device`] | the disk as a device of the engine, in real or virtual time |
//! | [`figures`] | what a drive's numbers come to |
//! | [`queue`] | a disk behind the drive's own queue, which may reorder |
//! | [`replay`](mod@replay) | a recorded trace on another disk: predicted times, what-ifs |
//! | [`live`] | a drive under the kernel: a loop device over a file whose answers take their time |
//! | [`loops`] | the kernel's loop devices |
//! | [`trace`] | the block requests that a disk was asked for, from whichever recorder |

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cache;
pub mod device;
pub mod disk;
pub mod drive;
pub mod figures;
pub mod live;
pub mod loops;
mod mechanics;
pub mod queue;
pub mod replay;
pub mod trace;
