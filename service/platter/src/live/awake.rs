//! Keeps the processors from sleeping while a disk is in use.
//!
//! A request changes its thread four times on its way through the loop driver and FUSE and back.
//! Each time a processor that has gone to sleep must be woken, which takes longer than all the rest
//! in a virtual machine, and makes timers late, too. The kernel lets a process ask for none of
//! that: as long as it holds `/dev/cpu_dma_latency` open (Documentation/power/pm_qos_interface.rst).

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

/// A process that holds this file open limits the microseconds of a wake-up.
const DEVICE: &str = "/dev/cpu_dma_latency";
/// None: idle processors look for work.
const MICROSECONDS: i32 = 0;

/// Whether the processors are kept awake.
#[derive(Debug, Default)]
pub(super) enum Awake {
    /// Nobody needs them.
    #[default]
    Resting,
    /// As long as the file is open; `None`: the kernel has no such file, or does not let us.
    Held(Option<File>),
}

impl Awake {
    /// True: it was asked for, whatever came of it.
    pub(super) fn is_held(&self) -> bool {
        matches!(self, Awake::Held(_))
    }

    /// Asks for it. Where it cannot be had, answers are later, and are counted as that.
    pub(super) fn hold(&mut self) {
        *self = Awake::Held(ask(Path::new(DEVICE)));
    }

    /// They may sleep.
    pub(super) fn rest(&mut self) {
        if let Awake::Held(file) = std::mem::take(self) {
            drop(file);
        }
    }
}

fn ask(device: &Path) -> Option<File> {
    let mut file = OpenOptions::new().write(true).open(device).ok()?;
    file.write_all(&MICROSECONDS.to_ne_bytes()).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_does_not_offer_is_done_without() {
        let folder = std::env::temp_dir();
        assert!(ask(&folder.join("no-such-device")).is_none());
        assert!(ask(&folder).is_none(), "a folder cannot be written");
    }

    #[test]
    fn it_is_held_until_they_may_rest() {
        let mut awake = Awake::default();
        assert!(!awake.is_held());
        awake.hold();
        assert!(awake.is_held());
        awake.rest();
        assert!(!awake.is_held());
    }
}
