//! The probes on real loop devices. Needs root; skipped loudly without, except in CI.
#![allow(clippy::cast_sign_loss, reason = "small numbers of a test")]

mod asking;
mod bios;
mod blocks;
mod coming;
mod degraded;
mod flags;
mod foreign;
mod guard;
mod independent;
mod losses;
mod pins;
mod scsi;
mod sentences;
mod submissions;
mod support;
