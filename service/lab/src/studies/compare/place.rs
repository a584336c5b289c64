//! Places for the three stores: disks of a lab, or the user's own.

use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::bail;
use lumpscope_platter::live::LiveOptions;

use super::args::CompareArgs;
use super::plan::Plan;
use crate::disks::{
    BorrowedDevice, EmulatedView, Lab, LabDrive, LabOptions, NewFile, StoreKind, free_bytes,
};
use crate::failure::{argument, cannot};
use crate::process::tie_to_parent;

/// `f_type` of ext2, ext3 and ext4, and of xfs: linux/magic.h.
const EXT_MAGIC: i64 = 0xEF53;
const XFS_MAGIC: i64 = 0x5846_5342;

/// One store to be.
#[derive(Debug, Clone)]
pub(super) struct PlannedStore {
    pub(super) kind: StoreKind,
    /// Device or file.
    pub(super) path: PathBuf,
}

/// The places, and what keeps them there. Gone when dropped.
#[derive(Debug)]
pub(super) struct Places {
    pub(super) places: Vec<PlannedStore>,
    lab: Option<Lab>,
    // Removed when dropped.
    _files: Vec<NewFile>,
}

impl Places {
    pub(super) fn new(args: &CompareArgs, plan: &Plan, exe: &Path) -> anyhow::Result<Places> {
        match (&args.raw, &args.ext4, &args.xfs) {
            (Some(raw), Some(ext4), Some(xfs)) => Places::own(raw, ext4, xfs, plan),
            _ => Places::lab(args, plan, exe),
        }
    }

    fn lab(args: &CompareArgs, plan: &Plan, exe: &Path) -> anyhow::Result<Places> {
        let lab = Lab::create(&LabOptions {
            dir: args.study.dir.clone(),
            expected_bytes: plan.image_bytes(),
            ext4_journal: !args.no_ext4_journal,
            drive: args.drive.as_ref().map(|name| LabDrive {
                exe: exe.to_owned(),
                options: LiveOptions::new(name),
            }),
            ..LabOptions::new(plan.disk_bytes())
        })?;
        let places = lab
            .stores()
            .iter()
            .map(|store| PlannedStore {
                kind: store.kind,
                path: store.store_path.clone(),
            })
            .collect();
        Ok(Places {
            places,
            lab: Some(lab),
            _files: Vec::new(),
        })
    }

    /// How late the emulated drives answered.
    pub(super) fn lateness(&self) -> anyhow::Result<Vec<EmulatedView>> {
        Ok(match &self.lab {
            Some(lab) => lab.lateness()?,
            None => Vec::new(),
        })
    }

    fn own(raw: &Path, ext4: &Path, xfs: &Path, plan: &Plan) -> anyhow::Result<Places> {
        let absolute = |path: &Path| path.canonicalize().map_err(cannot("find", path));
        let raw = absolute(raw)?;
        if !fs::metadata(&raw).is_ok_and(|meta| meta.file_type().is_block_device()) {
            let allowed = "a block device, such as /dev/sdb";
            return Err(argument("--raw", allowed));
        }
        let mut places = vec![PlannedStore {
            kind: StoreKind::Raw,
            path: raw,
        }];
        let mut files = Vec::new();
        for (kind, option, dir) in [
            (StoreKind::Ext4, "--ext4", ext4),
            (StoreKind::Xfs, "--xfs", xfs),
        ] {
            let dir = absolute(dir)?;
            check_file_system(kind, option, &dir)?;
            let (free, needed) = (free_bytes(&dir)?, plan.sizing.capacity_bytes);
            if free < needed {
                bail!(
                    "{} has {} MiB free, and the store will take {} MiB",
                    dir.display(),
                    free >> 20,
                    needed.div_ceil(1 << 20)
                );
            }
            let path = dir.join(format!("lumpscope-compare-{}.lusf", std::process::id()));
            files.push(NewFile::at(&path)?);
            places.push(PlannedStore { kind, path });
        }
        Ok(Places {
            places,
            lab: None,
            _files: files,
        })
    }

    /// True: images; false: the user's own disks.
    pub(super) fn is_lab(&self) -> bool {
        self.lab.is_some()
    }

    /// The raw disk, if it is an image.
    pub(super) fn lab_disk(&self) -> Option<&Path> {
        let store = self.lab.as_ref()?.store(StoreKind::Raw)?;
        Some(&store.device)
    }

    /// To be called when the stores are formatted: gives the user's raw disk back empty when the
    /// result is dropped.
    pub(super) fn give_back_raw_disk(&self, capacity: u64) -> Option<BorrowedDevice> {
        if self.is_lab() {
            return None;
        }
        let mut places = self.places.iter();
        let raw = places.find(|place| place.kind == StoreKind::Raw)?;
        Some(BorrowedDevice::formatted(&raw.path, capacity))
    }

    /// A command whose process sees the places, and dies with the calling thread.
    pub(super) fn command(&self, program: &Path) -> Command {
        if let Some(lab) = &self.lab {
            return lab.command(program);
        }
        let mut command = Command::new(program);
        tie_to_parent(&mut command, None);
        command
    }
}

/// A mount that failed silently would make the comparison measure the host's own disk.
fn check_file_system(kind: StoreKind, option: &'static str, dir: &Path) -> anyhow::Result<()> {
    let wanted = kind.name();
    let stat = rustix::fs::statfs(dir).map_err(cannot("look at", dir))?;
    let magic = if kind == StoreKind::Xfs {
        XFS_MAGIC
    } else {
        EXT_MAGIC
    };
    let found = mounted_type(dir);
    let is_wanted = stat.f_type == magic && found.as_deref().is_none_or(|found| found == wanted);
    if is_wanted {
        return Ok(());
    }
    let found = match found {
        Some(found) => format!("is on {found}"),
        None => format!("is on a file system of type {:#x}", stat.f_type),
    };
    bail!(
        "{option} {}: {found}, and not on a mounted {wanted}",
        dir.display()
    )
}

/// Type of the file system as mounted: ext2, ext3 and ext4 share one number in `statfs`.
fn mounted_type(dir: &Path) -> Option<String> {
    let device = fs::metadata(dir).ok()?.dev();
    let device = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut lines = mounts
        .lines()
        .filter(|line| line.split(' ').nth(2) == Some(&device));
    let (_, after) = lines.next()?.split_once(" - ")?;
    after.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_on_another_file_system_is_refused() {
        let error = check_file_system(StoreKind::Xfs, "--xfs", Path::new("/proc")).unwrap_err();
        assert!(
            error.to_string().contains("--xfs /proc: is on proc"),
            "{error}"
        );
    }
}
