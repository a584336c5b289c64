//! Work on a new disk of a lab, recorded.

use std::path::Path;

use anyhow::anyhow;

use crate::blocks::{Recorded, Recorder};
use crate::disks::{Lab, LabOptions};
use crate::process::Interrupt;

/// How often work is done again of which the kernel did not show every request.
const ATTEMPTS: usize = 3;

/// Makes the disk that the options ask for, prepares it, does the work with the device or with a new file on
/// its file system, recorded, and takes everything away again. `recorder` says whose requests are the work's
/// own.
pub(super) fn recorded(
    options: &LabOptions,
    recorder: fn(Recorder) -> Recorder,
    (prepare, work): (
        impl Fn(&Path) -> anyhow::Result<()> + Sync,
        impl Fn(&Path) -> anyhow::Result<()> + Sync,
    ),
    interrupt: &Interrupt,
) -> anyhow::Result<Recorded> {
    let mut attempt = 1;
    loop {
        interrupt.check()?;
        let lab = Lab::create(options)?;
        let store = lab.first()?;
        lab.inside(|| prepare(&store.store_path))?;
        let recorder = recorder(Recorder::start(&[&store.device])?);
        lab.inside(|| work(&store.store_path))?;
        let recorded = recorder.finish().into_iter().next();
        let recorded = recorded.ok_or_else(|| anyhow!("no disk was recorded"))?;
        if recorded.trust().complete || attempt == ATTEMPTS {
            return Ok(recorded);
        }
        attempt += 1;
    }
}
