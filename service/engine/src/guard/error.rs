//! Why a device or file is not formatted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{User, claimed};
use crate::format::geometry::SizingError;
use crate::medium::VolatileMedium;
use crate::signature::{Signature, list_of};
use crate::units::{BlockSize, ByteLen, ByteOffset, InvalidBlockSize};

/// Why a device or file was not formatted. Unless the variant says otherwise nothing was written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FormatError {
    /// It carries data that somebody may want.
    #[error(
        "{path} is not empty: it carries {}; --force overwrites it",
        list_of(found)
    )]
    Signatures {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Signatures found, at least one.
        found: Vec<Signature>,
    },
    /// The kernel knows partitions of the disk.
    #[error("{path} has partitions ({}); --force overwrites them", names.join(", "))]
    Partitions {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Names of the partitions.
        names: Vec<String>,
    },
    /// The regular file has content.
    #[error("{path} is a file with {len} bytes of something else; --force overwrites it")]
    FileNotEmpty {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Bytes of the file.
        len: ByteLen,
    },
    /// A name among those of the devices that is none of them. Never forced.
    #[error("there is no device {path}; lsblk lists them")]
    NoDevice {
        /// Name, as it was given.
        path: PathBuf,
    },
    /// A device, where a file is to be written that is no store.
    #[error("{path} is a block device, and what is on it would be overwritten: name a file")]
    BlockDevice {
        /// Name, as it was given.
        path: PathBuf,
    },
    /// The medium loses what is on it.
    #[error("{path} is {medium}; --volatile makes a store there nevertheless")]
    Volatile {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Its medium.
        medium: VolatileMedium,
    },
    /// It, or a partition of it, is mounted. Never forced.
    #[error("{path} is in use: {device} is mounted at {mount_point}; unmount it first")]
    Mounted {
        /// Device or file, as it was given.
        path: PathBuf,
        /// The mounted device: the device itself or a partition of it.
        device: String,
        /// Mount point.
        mount_point: PathBuf,
    },
    /// Somebody uses it. Never forced.
    #[error("{path} is in use: {by}")]
    InUse {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Its user.
        by: User,
    },
    /// Another machine has the store there open, or did not close it. Never forced.
    #[error("{}", claimed(path, host, *since))]
    Claimed {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Host name of that machine.
        host: String,
        /// When it opened the store, in seconds since 1970 by its clock.
        since: u64,
    },
    /// It cannot be written. Never forced.
    #[error("{path} is read-only")]
    ReadOnly {
        /// Device or file, as it was given.
        path: PathBuf,
    },
    /// The regions do not fit. Never forced.
    #[error("{path}: {source}")]
    Size {
        /// Device or file, as it was given.
        path: PathBuf,
        /// The region that does not fit.
        #[source]
        source: SizingError,
    },
    /// More capacity was asked for than the device has. Never forced.
    #[error("{path} has room for {available} bytes of store, {wanted} were asked for")]
    CapacityExceedsDevice {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Bytes asked for.
        wanted: ByteLen,
        /// Bytes available to the store.
        available: ByteLen,
    },
    /// A new or empty file says nothing about the size wanted.
    #[error("{path} has no size yet: say how large it shall be, e.g. --capacity 64M")]
    CapacityRequired {
        /// Device or file, as it was given.
        path: PathBuf,
    },
    /// The block size is no block size.
    #[error("block size: {0}")]
    BlockSize(#[from] InvalidBlockSize),
    /// No store can have that name.
    #[error("{0}")]
    Name(String),
    /// The device cannot write single blocks of that size.
    #[error(
        "{path} reads and writes multiples of {alignment} bytes, so blocks of {block_size} bytes \
         cannot be written: choose a multiple with --block-size"
    )]
    Alignment {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Block size asked for.
        block_size: BlockSize,
        /// Smallest unit of direct I/O.
        alignment: u64,
    },
    /// It is no block device and no regular file.
    #[error("{path} is a {what}: a block device or a regular file is needed")]
    WrongType {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Kind of file found.
        what: &'static str,
    },
    /// The file system below has no direct I/O.
    #[error("{path}: the file system there does not do direct I/O (O_DIRECT): use another one")]
    NoDirectIo {
        /// Device or file, as it was given.
        path: PathBuf,
    },
    /// Signatures came back or cannot be erased. Something was written; the target is no store.
    #[error("{path} still carries {} after it was erased", list_of(found))]
    NotErased {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Signatures that are still there.
        found: Vec<Signature>,
    },
    /// A system call failed. Whether something was written depends on `what`; the target is no
    /// store.
    #[error("{path}: {what} failed{}: {source}", offset.map(|o| format!(" at byte {o}")).unwrap_or_default())]
    Io {
        /// Device or file, as it was given.
        path: PathBuf,
        /// The attempted action.
        what: &'static str,
        /// Where in the target.
        offset: Option<ByteOffset>,
        /// Error of the system.
        #[source]
        source: Arc<io::Error>,
    },
}

impl FormatError {
    pub(crate) fn io(
        path: &Path,
        what: &'static str,
        offset: Option<ByteOffset>,
        source: io::Error,
    ) -> Self {
        Self::Io {
            path: path.to_owned(),
            what,
            offset,
            source: Arc::new(source),
        }
    }
}
