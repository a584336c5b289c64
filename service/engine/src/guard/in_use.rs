//! Users of a device or file: mounts, swap, devices built on it, loop devices.
//!
//! An exclusive open catches every user the kernel knows of, but cannot name it. These look-ups
//! name the common ones, and catch what does not claim its device (a loop device's backing).

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::aliases;
use super::error::FormatError;
use crate::error::User;
use crate::sysfs::{DeviceNumber, names_in, unescape};

/// A block device with its partitions.
#[derive(Debug)]
pub(crate) struct DiskDevices {
    /// The device itself first, then its partitions.
    devices: Vec<(String, DeviceNumber)>,
    sysfs: PathBuf,
}

impl DiskDevices {
    /// The device that `metadata` describes.
    pub(crate) fn of(path: &Path, metadata: &fs::Metadata) -> io::Result<Self> {
        let number = DeviceNumber::of(metadata.rdev());
        let sysfs = number.sysfs();
        let name = path.display().to_string();
        let mut devices = vec![(name, number)];
        for entry in fs::read_dir(&sysfs)? {
            let entry = entry?;
            if !entry.path().join("partition").exists() {
                continue;
            }
            if let Some(number) =
                DeviceNumber::parse(&fs::read_to_string(entry.path().join("dev"))?)
            {
                devices.push((entry.file_name().to_string_lossy().into_owned(), number));
            }
        }
        Ok(Self { devices, sysfs })
    }

    /// Names of its partitions.
    pub(crate) fn partitions(&self) -> Vec<String> {
        self.devices
            .iter()
            .skip(1)
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// True when the kernel refuses writes to it.
    pub(crate) fn is_read_only(&self) -> io::Result<bool> {
        Ok(fs::read_to_string(self.sysfs.join("ro"))?.trim() == "1")
    }

    /// Refuses a disk that somebody uses, or a partition of which somebody uses.
    pub(crate) fn check_unused(
        &self,
        path: &Path,
        metadata: &fs::Metadata,
    ) -> Result<(), FormatError> {
        let mounts = fs::read("/proc/self/mountinfo").map_err(|e| io_error(path, "mounts", e))?;
        if let Some((device, mount_point)) = self.find_mount(&mounts) {
            return Err(FormatError::Mounted {
                path: path.to_owned(),
                device,
                mount_point,
            });
        }
        let in_use = |by| FormatError::InUse {
            path: path.to_owned(),
            by,
        };
        let is_this = |metadata: &fs::Metadata| {
            metadata.file_type().is_block_device() && self.name_of(metadata.rdev()).is_some()
        };
        if is_swap(is_this).map_err(|e| io_error(path, "swap areas", e))? {
            return Err(in_use(User::Swap));
        }
        if let Some(name) = self.holder().map_err(|e| io_error(path, "holders", e))? {
            return Err(in_use(User::Holder { name }));
        }
        match aliases::loop_on(metadata).map_err(|e| io_error(path, "loop devices", e))? {
            Some(name) => Err(in_use(User::Loop { name })),
            None => Ok(()),
        }
    }

    /// Name of the device or partition with this number.
    fn name_of(&self, raw: u64) -> Option<&str> {
        self.name_of_number(DeviceNumber::of(raw))
    }

    fn name_of_number(&self, number: DeviceNumber) -> Option<&str> {
        self.devices
            .iter()
            .find(|(_, n)| *n == number)
            .map(|(name, _)| name.as_str())
    }

    /// Mounted part of this disk, and its mount point. `mountinfo` is the kernel's list.
    fn find_mount(&self, mountinfo: &[u8]) -> Option<(String, PathBuf)> {
        mountinfo.split(|byte| *byte == b'\n').find_map(|line| {
            let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
            let number = fields.get(2).and_then(|f| std::str::from_utf8(f).ok());
            // Some file systems (btrfs) have a number of their own: their source names the device.
            let separator = fields.iter().position(|field| *field == b"-")?;
            let source = fields.get(separator + 2).map(|field| unescape(field));
            let name = number
                .and_then(DeviceNumber::parse)
                .and_then(|number| self.name_of_number(number))
                .or_else(|| {
                    let metadata = fs::metadata(source?).ok()?;
                    let is_block = metadata.file_type().is_block_device();
                    is_block.then(|| self.name_of(metadata.rdev())).flatten()
                })?;
            Some((name.to_owned(), unescape(fields.get(4)?)))
        })
    }

    /// A device that is built on this disk or one of its partitions.
    fn holder(&self) -> io::Result<Option<String>> {
        for (_, number) in &self.devices {
            let holders = names_in(&number.sysfs().join("holders"))?;
            if !holders.is_empty() {
                return Ok(holders.into_iter().next());
            }
        }
        Ok(None)
    }
}

/// Refuses a regular file that the kernel uses.
pub(crate) fn check_file_unused(path: &Path, file: &fs::Metadata) -> Result<(), FormatError> {
    let in_use = |by| FormatError::InUse {
        path: path.to_owned(),
        by,
    };
    let is_this = |other: &fs::Metadata| other.dev() == file.dev() && other.ino() == file.ino();
    if is_swap(is_this).map_err(|e| io_error(path, "swap areas", e))? {
        return Err(in_use(User::Swap));
    }
    match aliases::loop_on(file).map_err(|e| io_error(path, "loop devices", e))? {
        Some(name) => Err(in_use(User::Loop { name })),
        None => Ok(()),
    }
}

/// True when the kernel swaps to what `is_this` recognises.
fn is_swap(is_this: impl Fn(&fs::Metadata) -> bool) -> io::Result<bool> {
    let swaps = match fs::read("/proc/swaps") {
        Ok(swaps) => swaps,
        // A kernel without swap.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    Ok(swaps.split(|byte| *byte == b'\n').skip(1).any(|line| {
        let path = line
            .split(u8::is_ascii_whitespace)
            .next()
            .unwrap_or_default();
        fs::metadata(unescape(path)).is_ok_and(|metadata| is_this(&metadata))
    }))
}

fn io_error(path: &Path, what: &'static str, source: io::Error) -> FormatError {
    FormatError::io(path, what, None, source)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> DiskDevices {
        let number = |minor| DeviceNumber::parse(&format!("8:{minor}")).unwrap();
        DiskDevices {
            devices: vec![
                ("/dev/sda".to_owned(), number(0)),
                ("sda1".to_owned(), number(1)),
            ],
            sysfs: PathBuf::new(),
        }
    }

    #[test]
    fn mounts_are_found_by_device_number_partitions_included() {
        let info = b"21 1 0:19 / /sys rw - sysfs sysfs rw\n\
            30 1 8:1 / /mnt/with\\040space rw,relatime shared:1 - ext4 /dev/nowhere rw\n";
        let expected = Some(("sda1".to_owned(), PathBuf::from("/mnt/with space")));
        assert_eq!(disk().find_mount(info), expected);
        assert_eq!(
            disk().find_mount(b"30 1 8:16 / / rw - ext4 /dev/nowhere rw\n"),
            None
        );
    }

    #[test]
    fn odd_lines_are_passed_over() {
        for line in [
            "",
            "1",
            "1 2 3",
            "1 2 8:0 / /x rw",
            "1 2 x:y / /x rw - a",
            "- - - - - - -",
        ] {
            assert_eq!(disk().find_mount(line.as_bytes()), None, "{line:?}");
        }
    }
}
