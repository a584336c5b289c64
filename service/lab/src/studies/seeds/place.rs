//! A disk of a lab, fresh from mkfs, and work done on it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;

use anyhow::anyhow;

use crate::disks::{Lab, LabOptions, LabStore, StoreKind};
use crate::failure::cannot;

/// One disk, empty or with a new file system; gone when dropped.
#[derive(Debug)]
pub(super) struct SeedDisk {
    lab: Lab,
    store: LabStore,
}

impl SeedDisk {
    /// Makes it.
    pub(super) fn new(kind: StoreKind, options: LabOptions) -> anyhow::Result<SeedDisk> {
        let lab = Lab::create(&LabOptions {
            kinds: vec![kind],
            ..options
        })?;
        let store = lab.store(kind).cloned();
        let store = store.ok_or_else(|| anyhow!("the lab has no {} disk", kind.name()))?;
        Ok(SeedDisk { lab, store })
    }

    /// The loop device.
    pub(super) fn device(&self) -> &Path {
        &self.store.device
    }

    /// The device itself, or a file (not there yet) on its file system.
    pub(super) fn store_path(&self) -> &Path {
        &self.store.store_path
    }

    /// Does work in a thread that sees the file system, after making sure that it is one: after a
    /// mount that failed unseen the work would be done on this machine's own disk.
    pub(super) fn inside<T: Send>(
        &self,
        work: impl FnOnce(&Path) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        thread::scope(|scope| {
            let worker = scope.spawn(|| {
                self.lab.enter_current_thread()?;
                self.check_mounted()?;
                work(&self.store.store_path)
            });
            match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// To be called by a thread that sees the file system.
    fn check_mounted(&self) -> anyhow::Result<()> {
        let path = match self.store.kind {
            StoreKind::Raw => return Ok(()),
            _ => self.store.store_path.parent().unwrap_or(Path::new("/")),
        };
        let found = fs::metadata(path).map_err(cannot("look at", path))?;
        if found.dev() == self.store.devno {
            return Ok(());
        }
        Err(not_mounted(path, &self.store.device))
    }
}

/// Error: a path that should lie on a disk of the lab lies on a disk of this machine.
pub(super) fn not_mounted(path: &Path, device: &Path) -> anyhow::Error {
    anyhow!(
        "{} is not on {}: its file system is not mounted, and nothing was written",
        path.display(),
        device.display()
    )
}
