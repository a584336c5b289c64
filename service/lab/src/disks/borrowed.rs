//! Places of the user's own, given back as they were.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::bail;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_units::tell;
use rustix::fs::{OFlags, SeekFrom};

use super::fill::erase;
use crate::failure::{argument, cannot};

/// A block device that was empty. When dropped it is made empty again: superblock, headers and index go, so
/// that it can be used once more; no lump can be found without them.
#[derive(Debug)]
pub(crate) struct BorrowedDevice {
    path: PathBuf,
    /// Bytes that a store of ours may use of it.
    pub(crate) capacity: u64,
}

impl BorrowedDevice {
    /// Takes at most so many bytes of a device that `option` names. Refuses what is in use or carries
    /// anything, before a byte is written.
    pub(crate) fn take(option: &str, path: &Path, most: u64) -> anyhow::Result<BorrowedDevice> {
        let kind = fs::metadata(path)
            .map_err(cannot("look at", path))?
            .file_type();
        if !kind.is_block_device() {
            return Err(argument(option, "a block device, such as /dev/sdb"));
        }
        let device = fs::File::open(path).map_err(cannot("open", path))?;
        let size = rustix::fs::seek(&device, SeekFrom::End(0));
        let size = size.map_err(cannot("find the size of", path))?;
        let capacity = most.min(size);
        let options = CreateOptions {
            capacity: Some(capacity),
            volatile: true,
            ..CreateOptions::default()
        };
        format(path, &options)?;
        let borrowed = BorrowedDevice::formatted(path, capacity);
        borrowed.empty()?;
        Ok(borrowed)
    }

    /// A device that was empty before a store of this capacity was made on it.
    pub(crate) fn formatted(path: &Path, capacity: u64) -> BorrowedDevice {
        let path = path.to_owned();
        BorrowedDevice { path, capacity }
    }

    fn empty(&self) -> anyhow::Result<()> {
        let exclusive = i32::try_from(OFlags::EXCL.bits()).unwrap_or(0);
        let mut options = OpenOptions::new();
        let device = options.write(true).custom_flags(exclusive).open(&self.path);
        let erased = device.and_then(|device| erase(&device, self.capacity));
        erased.map_err(cannot("erase", &self.path))
    }
}

impl Drop for BorrowedDevice {
    fn drop(&mut self) {
        if let Err(error) = self.empty() {
            tell(&format!(
                "{error:#}; it still carries the store of this run"
            ));
        }
    }
}

/// A file of the user's choice that was not there before, and is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub(crate) path: PathBuf,
}

impl NewFile {
    /// A file that is there already is not ours, and never removed.
    pub(crate) fn at(path: &Path) -> anyhow::Result<NewFile> {
        if path.symlink_metadata().is_ok() {
            bail!(
                "{} is there already: give the name of a file that is not, or remove it",
                path.display()
            );
        }
        // Threads on a lab's disks have another working directory.
        let path = std::path::absolute(path).map_err(cannot("find", path))?;
        Ok(NewFile { path })
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                tell(&format!("cannot remove {}: {error}", self.path.display()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_removed_and_what_was_there_before_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let file = NewFile::at(&path).unwrap();
        fs::write(&path, b"x").unwrap();
        let refused = NewFile::at(&path).unwrap_err();
        assert!(
            refused.to_string().contains("is there already"),
            "{refused}"
        );
        drop(file);
        assert!(!path.exists());
    }
}
