//! The device or file that becomes a store: opened for it alone, and checked.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use super::CreateOptions;
use crate::facts::queue_of;
use crate::guard::aliases::{self, Taken};
use crate::guard::in_use::{DiskDevices, check_file_unused};
use crate::guard::{self, FormatError, Signature, User, VolatileMedium};
use crate::layout;
use crate::loops::as_flags;
use crate::machine::Machine;
use crate::signature::samples;
use crate::sysfs::DeviceNumber;
use crate::units::{ByteLen, ByteOffset};

/// Unit of direct I/O when nothing better is known.
const FALLBACK_ALIGNMENT: u64 = 4096;

/// An open target. Nobody else can mount, swap to or lock it while this lives.
pub(super) struct CreateTarget {
    path: PathBuf,
    file: File,
    /// The other ways to its bytes, held with it.
    _aliases: Vec<File>,
    kind: TargetKind,
    volatile: Option<VolatileMedium>,
    len: u64,
    alignment: u64,
}

enum TargetKind {
    Block { disk: DiskDevices },
    File { created: bool },
}

impl CreateTarget {
    /// Opens what is at `path` with direct I/O for this process alone, or creates a file.
    pub(super) fn open(path: &Path, options: &CreateOptions<'_>) -> Result<Self, FormatError> {
        let error = |error| FormatError::io(path, "looking at it", None, error);
        // What is looked at is what is opened, whatever the name means by then.
        let place = match aliases::open_place(path) {
            Ok(place) => place,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Self::create_file(path, options);
            }
            Err(other) => return Err(error(other)),
        };
        let metadata = place.metadata().map_err(error)?;
        let kind = metadata.file_type();
        if kind.is_file() {
            guard::check_new_file(path)?;
        }
        if !kind.is_file() && !kind.is_block_device() {
            return Err(FormatError::WrongType {
                path: path.to_owned(),
                what: match () {
                    () if kind.is_dir() => "directory",
                    () if kind.is_char_device() => "character device",
                    () => "pipe or socket",
                },
            });
        }
        let volatile = check_medium(path, &place, options)?;
        let target = if kind.is_file() {
            Self::open_file(path, &place, &metadata)?
        } else {
            Self::open_block(path, &place, &metadata)?
        };
        Ok(Self { volatile, ..target })
    }

    fn open_block(path: &Path, place: &File, metadata: &fs::Metadata) -> Result<Self, FormatError> {
        let error = |what, source| FormatError::io(path, what, None, source);
        let disk =
            DiskDevices::of(path, metadata).map_err(|e| error("looking for partitions", e))?;
        disk.check_unused(path, metadata)?;
        if disk
            .is_read_only()
            .map_err(|e| error("looking for write protection", e))?
        {
            return Err(FormatError::ReadOnly {
                path: path.to_owned(),
            });
        }
        // O_EXCL on a block device: fails while anybody else claims it or one of its partitions.
        let file = open_direct(place, OFlags::EXCL).map_err(|source| not_opened(path, source))?;
        let len = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0))
            .map_err(|e| error("asking for its size", e.into()))?;
        let alignment = rustix::fs::ioctl_blksszget(&file)
            .map_err(|e| error("asking for its sector size", e.into()))?;
        let alignment = u64::from(alignment).max(1);
        Ok(Self {
            path: path.to_owned(),
            _aliases: hold(path, &file)?,
            file,
            kind: TargetKind::Block { disk },
            volatile: None,
            len,
            alignment,
        })
    }

    fn open_file(path: &Path, place: &File, metadata: &fs::Metadata) -> Result<Self, FormatError> {
        check_file_unused(path, metadata)?;
        let file = open_direct(place, OFlags::empty()).map_err(|source| match errno(&source) {
            Some(Errno::ACCESS) if metadata.permissions().readonly() => FormatError::ReadOnly {
                path: path.to_owned(),
            },
            _ => not_opened(path, source),
        })?;
        Self::lock_file(path, file, false)
    }

    fn create_file(path: &Path, options: &CreateOptions<'_>) -> Result<Self, FormatError> {
        guard::check_new_file(path)?;
        let volatile = match aliases::open_place(&guard::folder_of(path)) {
            Ok(folder) => check_medium(path, &folder, options)?,
            // Creating it says why.
            Err(_) => None,
        };
        if options.capacity.is_none() {
            return Err(FormatError::CapacityRequired {
                path: path.to_owned(),
            });
        }
        // Without direct I/O: where that is not supported, the kernel would create the file and hand
        // out no descriptor, by which alone it is known again.
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            // Lumps are nobody else's to read, and the lock nobody else's to take.
            .mode(0o600)
            .open(path);
        let created = created.map_err(|source| match errno(&source) {
            Some(Errno::ROFS) => FormatError::ReadOnly {
                path: path.to_owned(),
            },
            _ => FormatError::io(path, "creating it", None, source),
        })?;
        let file = open_direct(&created, OFlags::empty()).map_err(|source| {
            remove(path, &created);
            not_opened(path, source)
        })?;
        let target = Self::lock_file(path, file, true)?;
        Ok(Self { volatile, ..target })
    }

    fn lock_file(path: &Path, file: File, created: bool) -> Result<Self, FormatError> {
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => FormatError::InUse {
                path: path.to_owned(),
                by: User::Locked,
            },
            TryLockError::Error(source) => FormatError::io(path, "locking it", None, source),
        })?;
        let metadata = file
            .metadata()
            .map_err(|e| FormatError::io(path, "asking for its size", None, e))?;
        let alignment = file_alignment(&file, &metadata);
        let len = metadata.len();
        Ok(Self {
            path: path.to_owned(),
            _aliases: hold(path, &file)?,
            file,
            kind: TargetKind::File { created },
            volatile: None,
            len,
            alignment,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Its medium, if that loses what is on it.
    pub(super) fn volatile(&self) -> Option<VolatileMedium> {
        self.volatile
    }

    /// Bytes of the device, or of the file before it was touched.
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Smallest unit of direct I/O in bytes.
    pub(super) fn alignment(&self) -> u64 {
        self.alignment
    }

    pub(super) fn is_block_device(&self) -> bool {
        matches!(self.kind, TargetKind::Block { .. })
    }

    /// True when this process made the file.
    pub(super) fn is_created(&self) -> bool {
        matches!(self.kind, TargetKind::File { created: true })
    }

    /// True when the kernel knows partitions of the disk.
    pub(super) fn has_partitions(&self) -> bool {
        match &self.kind {
            TargetKind::Block { disk } => !disk.partitions().is_empty(),
            TargetKind::File { .. } => false,
        }
    }

    /// Bytes for the image from `base` on: what was asked for, or what there is.
    pub(super) fn capacity(
        &self,
        base: ByteOffset,
        asked: Option<u64>,
    ) -> Result<ByteLen, FormatError> {
        let available = self.len.saturating_sub(base.0);
        match (&self.kind, asked) {
            (TargetKind::Block { .. }, Some(wanted)) if wanted > available => {
                Err(FormatError::CapacityExceedsDevice {
                    path: self.path.clone(),
                    wanted: ByteLen(wanted),
                    available: ByteLen(available),
                })
            }
            (TargetKind::File { .. }, None) if self.len == 0 => {
                Err(FormatError::CapacityRequired {
                    path: self.path.clone(),
                })
            }
            (_, asked) => Ok(ByteLen(asked.unwrap_or(available))),
        }
    }

    /// Refuses a target that carries anything, unless forced; returns what it carries.
    pub(super) fn check_empty(&self, force: bool) -> Result<Vec<Signature>, FormatError> {
        let path = || self.path.clone();
        let found = guard::find_signatures(&self.file)
            .map_err(|e| FormatError::io(&self.path, "looking for signatures", None, e))?;
        if force {
            return Ok(found);
        }
        if !found.is_empty() {
            return Err(FormatError::Signatures {
                path: path(),
                found,
            });
        }
        match &self.kind {
            TargetKind::Block { disk } if !disk.partitions().is_empty() => {
                Err(FormatError::Partitions {
                    path: path(),
                    names: disk.partitions(),
                })
            }
            TargetKind::File { .. } if self.len > 0 => Err(FormatError::FileNotEmpty {
                path: path(),
                len: ByteLen(self.len),
            }),
            TargetKind::Block { .. } => self.check_samples(),
            TargetKind::File { .. } => Ok(found),
        }
    }

    /// Refuses a target with a store that a machine other than this has claimed.
    pub(super) fn check_unclaimed(&self, this: Option<&Machine>) -> Result<(), FormatError> {
        let head = layout::read_head(&self.file)
            .map_err(|e| FormatError::io(&self.path, "looking for a claim", None, e))?;
        let block = layout::header_block(&head);
        let claim = this
            .zip(block)
            .and_then(|(this, it)| this.foreign_claim(it));
        claim.map_or(Ok(()), |claim| {
            Err(FormatError::Claimed {
                path: self.path.clone(),
                host: claim.host,
                since: claim.since,
            })
        })
    }

    /// Refuses a device with bytes that no signature tells of.
    fn check_samples(&self) -> Result<Vec<Signature>, FormatError> {
        let found = samples::find(&self.file, self.len, self.alignment)
            .map_err(|e| FormatError::io(&self.path, "looking for data", None, e))?;
        if found.is_empty() {
            return Ok(found);
        }
        Err(FormatError::Signatures {
            path: self.path.clone(),
            found,
        })
    }

    /// Takes away a file that this process made and could not finish.
    pub(super) fn remove(&self) {
        remove(&self.path, &self.file);
    }
}

/// The medium of what is open, if that loses it; refused unless it is asked for.
fn check_medium(
    path: &Path,
    place: &File,
    options: &CreateOptions<'_>,
) -> Result<Option<VolatileMedium>, FormatError> {
    let found = VolatileMedium::of(place)
        .map_err(|e| FormatError::io(path, "looking at its medium", None, e))?;
    match found {
        Some(medium) if !options.volatile => Err(FormatError::Volatile {
            path: path.to_owned(),
            medium,
        }),
        found => Ok(found),
    }
}

fn open_direct(place: &File, more: OFlags) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(as_flags(OFlags::DIRECT | more))
        .open(aliases::place_path(place))
}

/// Why a target was not opened for direct I/O.
fn not_opened(path: &Path, source: io::Error) -> FormatError {
    let path = path.to_owned();
    match errno(&source) {
        Some(Errno::BUSY) => FormatError::InUse {
            path,
            by: User::Exclusive,
        },
        Some(Errno::INVAL) => FormatError::NoDirectIo { path },
        Some(Errno::ROFS) => FormatError::ReadOnly { path },
        _ => FormatError::io(&path, "opening for writing", None, source),
    }
}

fn hold(path: &Path, file: &File) -> Result<Vec<File>, FormatError> {
    guard::hold(file).map_err(|taken| match taken {
        Taken::By(by) => FormatError::InUse {
            path: path.to_owned(),
            by,
        },
        Taken::Unknown(source) => FormatError::io(path, "looking for its users", None, source),
    })
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// Takes away the name of a file, unless it has become the name of another one.
fn remove(path: &Path, file: &File) {
    let (Ok(named), Ok(ours)) = (fs::symlink_metadata(path), file.metadata()) else {
        return;
    };
    if (named.dev(), named.ino()) == (ours.dev(), ours.ino()) {
        // What fails here cannot be helped; the failure that led here is what is reported.
        let _ = fs::remove_file(path);
    }
}

/// Smallest unit of direct I/O on a file: what the kernel says (6.1 and newer), else the sector
/// size of the device below, else 4096.
fn file_alignment(file: &File, metadata: &fs::Metadata) -> u64 {
    let statx = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let told = statx
        .filter(|statx| statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
        .map(|statx| u64::from(statx.stx_dio_offset_align));
    told.filter(|bytes| *bytes != 0)
        .or_else(|| device_sector_size(metadata.dev()))
        .unwrap_or(FALLBACK_ALIGNMENT)
}

/// Logical sector size of the device with this number; of the whole disk, for a partition.
fn device_sector_size(device: u64) -> Option<u64> {
    let sysfs = fs::canonicalize(DeviceNumber::of(device).sysfs()).ok()?;
    let text = fs::read_to_string(queue_of(&sysfs)?.join("logical_block_size")).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_that_was_made_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let made = File::create(&path).unwrap();
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        // No name, a name of another file, a link to the file.
        remove(&path, &made);
        fs::write(&path, b"another").unwrap();
        remove(&path, &made);
        assert_eq!(fs::read(&path).unwrap(), b"another");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&moved, &path).unwrap();
        remove(&path, &made);
        assert!(path.is_symlink() && moved.exists());
        remove(&moved, &made);
        assert!(!moved.exists());
    }
}
