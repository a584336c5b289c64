//! An emulated disk under the kernel: mkfs, mount and probes run over it with the latencies of the
//! model.
//!
//! ```text
//! programs, file systems, probes
//!   /dev/loopN        rotational, no discard, direct I/O
//!     one file of FUSE, mounted nowhere
//!       the disk: a process of its own
//!         model: when is it done?   memory: what is in it?   delay queue: answer it then
//! ```
//!
//! | module | what it is |
//! |---|---|
//! | `options` | [`LiveOptions`]: which drive, how large, how fast, how much memory |
//! | `connect`, `start` | the connection, the process, the loop device; [`Attached`] ends with its holder |
//! | `attach`, `state`, `holders` | disks that outlive the command that made them: [`attach()`], [`detach`], [`list`] |
//! | `server`, `control` | the process: [`serve`], and what can be asked of it |
//! | `one_file`, `emulation`, `memory`, `clock`, `log` | FUSE's file, the delays, the data, virtual time, what was asked for |
//! | `bad_spots` | places that answer EIO |
//! | `way` | what the way to the process and back takes, which answers make up for |
//! | `safety` | what keeps the disk from waiting for itself |
//! | `queue_settings` | what makes the loop device look like a disk of platters |
//!
//! # What ends what
//! The process never opens the loop device, and nobody else has the connection to the kernel. So
//! `kill -9` of the process ends the connection at once, and whoever uses the device gets errors, not
//! silence. And when the device is let go, the kernel ends the connection, and that the process.
//!
//! # What is not emulated
//! Loss of cached writes at a power cut; reordering of requests by the drive; the time that a drive tries again at a bad spot.

mod attach;
mod awake;
mod bad_spots;
mod clock;
mod connect;
mod control;
mod emulation;
mod error;
mod holders;
mod log;
mod memory;
mod one_file;
mod options;
mod queue_settings;
mod safety;
mod seen;
mod server;
mod start;
mod state;
mod way;

pub use attach::{Listed, attach, detach, list, log_of, set_bad_spots, status_of};
pub use bad_spots::{BadSpot, MAX_BAD_SPOTS};
pub use control::Status;
pub use error::LiveError;
pub use log::{Counts, LOG_REQUESTS, Lateness, Log, Logged};
pub use options::{DEFAULT_MEMORY_SHARE, LiveOptions, MAX_SCALE, MIN_BYTES, MIN_MEMORY};
pub use safety::possible;
pub use seen::Seen;
pub use server::serve;
pub use start::{Attached, SERVE_ARGUMENTS};
pub use way::Way;
