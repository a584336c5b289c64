//! The place of a workload's store: a disk of the lab, or a device or file of the user's.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use anyhow::{anyhow, bail};
use lumpscope_platter::live::LiveOptions;
use serde::Serialize;

use super::args::RunArgs;
use crate::disks::erase;
use crate::disks::fill;
use crate::disks::{EmulatedView, Lab, LabDrive, LabOptions, StoreKind, free_bytes};
use crate::failure::{cannot, message, no_room};
use crate::process::Interrupt;
use crate::workload::Sizing;
use lumpscope_units::tell;

/// Bytes that the two file systems write for themselves when they are made.
const FILE_SYSTEM_BYTES: u64 = 160 << 20;

/// A place for one store. Gone, or empty again, when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    held: Backing,
}

#[derive(Debug)]
enum Backing {
    Lab(Lab),
    /// Was empty before.
    Device {
        file: File,
        capacity: u64,
    },
    /// Was not there before.
    File,
}

/// The place, for the report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlaceView {
    /// Caption.
    pub(crate) what: String,
    /// Bytes of a block of the store; `None`: it was there before.
    pub(crate) block_size: Option<u16>,
    /// Bytes of the store; `None`: it was there before.
    pub(crate) capacity_bytes: Option<u64>,
    /// How late it answered; absent: it is no emulated disk.
    pub(crate) emulated: Option<EmulatedView>,
}

impl PlaceView {
    /// A store of a service that runs already.
    pub(crate) fn running(server: &str, store: &str) -> PlaceView {
        PlaceView {
            what: format!("store {store} of {server}"),
            block_size: None,
            capacity_bytes: None,
            emulated: None,
        }
    }
}

impl Place {
    /// Finds or makes the place that was asked for.
    pub(crate) fn new(
        args: &RunArgs,
        exe: &Path,
        sizing: &Sizing,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Place> {
        match &args.device {
            Some(path) => Place::own(path, sizing),
            None => Place::lab(args, exe, sizing, interrupt),
        }
    }

    fn lab(
        args: &RunArgs,
        exe: &Path,
        sizing: &Sizing,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Place> {
        let lab = Lab::create(&LabOptions {
            dir: args.study.dir.clone(),
            expected_bytes: sizing.capacity_bytes + FILE_SYSTEM_BYTES,
            kinds: vec![args.store],
            drive: args.drive.as_ref().map(|name| LabDrive {
                exe: exe.to_owned(),
                options: LiveOptions::new(name),
            }),
            ..LabOptions::new(sizing.disk_bytes())
        })?;
        let Some(store) = lab.stores().first() else {
            return Err(anyhow!("the lab has no disk"));
        };
        let path = store.store_path.clone();
        // What an emulated disk has never held costs no more than what it has.
        if args.store == StoreKind::Raw && args.drive.is_none() {
            let filled = fill(&path, sizing.capacity_bytes, &|| interrupt.check().is_err());
            interrupt.check()?;
            filled.map_err(cannot("write", &path))?;
        }
        Ok(Place {
            path,
            held: Backing::Lab(lab),
        })
    }

    fn own(path: &Path, sizing: &Sizing) -> anyhow::Result<Place> {
        let found = fs::symlink_metadata(path);
        let device = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
        let held = match found {
            Ok(_) if device => {
                // Refuses what is in use or carries anything, before a byte is written.
                super::engine::make(path, sizing, 4096, false)?;
                let file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path)
                    .map_err(cannot("open", path))?;
                let held = Backing::Device {
                    file,
                    capacity: sizing.capacity_bytes,
                };
                let place = Place {
                    path: path.to_owned(),
                    held,
                };
                place.empty()?;
                return Ok(place);
            }
            Ok(_) => {
                bail!(
                    "{} is there already: give the name of a file that is not, or remove it",
                    path.display()
                );
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Backing::File,
            Err(error) => return Err(cannot("look at", path)(error)),
        };
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let folder = folder.unwrap_or(Path::new("."));
        let (free, needed) = (free_bytes(folder)?, sizing.capacity_bytes);
        if needed.saturating_add(needed / 16) > free {
            return Err(no_room(folder, needed, free));
        }
        Ok(Place {
            // The engine's thread may have another working directory.
            path: std::path::absolute(path).map_err(cannot("find", path))?,
            held,
        })
    }

    /// Device or file for the store.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How the report calls it.
    pub(crate) fn name(&self, args: &RunArgs) -> String {
        match &self.held {
            Backing::Lab(_) => match &args.drive {
                Some(drive) => format!("{} on an emulated {drive}", args.store.name()),
                None => format!("{} disk of a lab (loop device)", args.store.name()),
            },
            Backing::Device { .. } => format!("device {}", self.path.display()),
            Backing::File => format!("file {}", self.path.display()),
        }
    }

    /// How late the disk answered, if it is an emulated one.
    pub(crate) fn lateness(&self) -> anyhow::Result<Option<EmulatedView>> {
        Ok(match &self.held {
            Backing::Lab(lab) => lab.lateness()?.into_iter().next(),
            Backing::Device { .. } | Backing::File => None,
        })
    }

    /// Runs `work` in a thread of its own, which sees the lab's mounts, as do all threads and
    /// processes that it starts.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let here = || {
            if let Backing::Lab(lab) = &self.held {
                lab.enter_current_thread()?;
            }
            work()
        };
        std::thread::scope(|scope| match scope.spawn(here).join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Makes a device empty again.
    fn empty(&self) -> anyhow::Result<()> {
        if let Backing::Device { file, capacity } = &self.held {
            erase(file, *capacity).map_err(cannot("erase", &self.path))?;
        }
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let path = self.path.display();
        match &self.held {
            Backing::Lab(_) => {}
            Backing::Device { .. } => {
                if let Err(error) = self.empty() {
                    tell(&format!(
                        "{path} still carries the store of this run: {}",
                        message(&error)
                    ));
                }
            }
            Backing::File => match fs::remove_file(&self.path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    tell(&format!("cannot remove {path}: {error}"));
                }
                _ => {}
            },
        }
    }
}
