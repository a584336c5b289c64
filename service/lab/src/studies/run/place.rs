//! The place of a workload's store: a disk of the lab, or a device or file of the user's.

use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};

use lumpscope_platter::live::LiveOptions;
use serde::Serialize;

use super::args::RunArgs;
use crate::disks::{
    BorrowedDevice, EmulatedView, Lab, LabDrive, LabOptions, NewFile, StoreKind, fill, free_bytes,
};
use crate::failure::no_room;
use crate::process::Interrupt;
use crate::workload::Sizing;

/// Bytes that the two file systems write for themselves when they are made.
const FILE_SYSTEM_BYTES: u64 = 160 << 20;

/// A place for one store. Gone, or empty again, when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    path: PathBuf,
    held: Held,
}

#[derive(Debug)]
enum Held {
    Lab(Lab),
    Device(#[expect(dead_code, reason = "it is emptied when dropped")] BorrowedDevice),
    File(#[expect(dead_code, reason = "it is removed when dropped")] NewFile),
}

/// The place, for the report.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PlaceView {
    /// Caption.
    pub(crate) what: String,
    /// Bytes of a block of the store.
    pub(crate) block_size: u16,
    /// Bytes of the store.
    pub(crate) capacity_bytes: u64,
    /// How late it answered; absent: it is no emulated disk.
    pub(crate) emulated: Option<EmulatedView>,
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
        let path = lab.first()?.store_path.clone();
        // What an emulated disk has never held costs no more than what it has.
        if args.store == StoreKind::Raw && args.drive.is_none() {
            fill(&path, sizing.capacity_bytes, interrupt)?;
        }
        Ok(Place {
            path,
            held: Held::Lab(lab),
        })
    }

    fn own(path: &Path, sizing: &Sizing) -> anyhow::Result<Place> {
        if fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device()) {
            let device = BorrowedDevice::take("--device", path, sizing.capacity_bytes)?;
            return Ok(Place {
                path: path.to_owned(),
                held: Held::Device(device),
            });
        }
        let file = NewFile::at(path)?;
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        let (free, needed) = (free_bytes(folder)?, sizing.capacity_bytes);
        if needed.saturating_add(needed / 16) > free {
            return Err(no_room(folder, needed, free));
        }
        Ok(Place {
            path: file.path.clone(),
            held: Held::File(file),
        })
    }

    /// Device or file for the store.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// How the report calls it.
    pub(crate) fn name(&self, args: &RunArgs) -> String {
        match &self.held {
            Held::Lab(_) => match &args.drive {
                Some(drive) => format!("{} on an emulated {drive}", args.store.name()),
                None => format!("{} disk of a lab (loop device)", args.store.name()),
            },
            Held::Device(_) => format!("device {}", self.path.display()),
            Held::File(_) => format!("file {}", self.path.display()),
        }
    }

    /// How late the disk answered, if it is an emulated one.
    pub(crate) fn lateness(&self) -> anyhow::Result<Option<EmulatedView>> {
        Ok(match &self.held {
            Held::Lab(lab) => lab.lateness()?.into_iter().next(),
            Held::Device(_) | Held::File(_) => None,
        })
    }

    /// Runs `work` where the place can be seen.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        match &self.held {
            Held::Lab(lab) => lab.inside(work),
            Held::Device(_) | Held::File(_) => work(),
        }
    }
}
