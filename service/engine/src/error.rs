//! Everything that can go wrong in the engine, as one type.
//!
//! Each variant says what was wrong, where, and what the caller should do.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::declaration::IoOp;
use crate::format::Portion;
use crate::format::claim::Claim;
use crate::format::verify::{Damage, Misfit};
use crate::lump::LumpId;
use crate::machine::utc;

/// User of a device or file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// Somebody opened the block device exclusively: a mount in another namespace, a volume
    /// manager, another store.
    Exclusive,
    /// A device that is built on this one.
    Holder {
        /// Kernel name of that device, as `dm-0`.
        name: String,
    },
    /// The kernel swaps to it.
    Swap,
    /// A loop device is backed by the file.
    Loop {
        /// Name of the loop device.
        name: String,
    },
    /// Another process holds a lock on the file.
    Locked,
    /// Its bytes are in use by another name.
    Alias {
        /// A loop device that shows them, or the file or device below.
        name: String,
    },
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str(
                "the kernel or another process holds the device (mounted elsewhere, part of a \
                 volume group or RAID, or an open store)",
            ),
            Self::Holder { name } => write!(f, "the device {name} is built on it"),
            Self::Swap => f.write_str("it is active swap space: run swapoff"),
            Self::Loop { name } => write!(f, "it backs the loop device {name}"),
            Self::Locked => f.write_str("another process holds a lock on it"),
            Self::Alias { name } => write!(f, "{name}, which has the same bytes, is in use"),
        }
    }
}

/// A lump whose bytes are not the ones that were put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "lump {id}{} fails its checksum test: {damage}; bytes {offset}..{} of the device were damaged \
     after they were written, or never written",
    portion.map_or_else(String::new, |portion| format!(
        " ({} blocks from block {})", portion.len().0, portion.start().0
    )),
    offset + len
)]
pub struct LumpDamage {
    /// The lump.
    pub id: LumpId,
    /// Its blocks in the data region; `None`: it is embedded in the journal.
    pub portion: Option<Portion>,
    /// The damage.
    pub damage: Damage,
    /// First byte in the device or file of what does not fit: a chunk, the last block, or the
    /// whole portion or record.
    pub offset: u64,
    /// Bytes from there.
    pub len: u64,
}

/// An error of the engine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no lump with this id.
    #[error("there is no lump {id}")]
    NotFound {
        /// The id asked for.
        id: LumpId,
    },
    /// A range that begins behind the end of its lump. Start inside it, or at its end.
    #[error("the range starts at byte {offset} but lump {id} has {length} bytes; start inside it")]
    RangeOutside {
        /// The lump.
        id: LumpId,
        /// Where the range starts.
        offset: u64,
        /// Bytes of the lump.
        length: u64,
    },
    /// The lump can never fit into this store. Split it, or format with larger blocks.
    #[error("a lump of {len} bytes is too large: at most {max} bytes fit there; split it")]
    LumpTooLarge {
        /// Bytes of the lump.
        len: u64,
        /// Most bytes a lump can have there.
        max: u64,
    },
    /// No free extent of the data region is large enough now. Delete lumps.
    #[error(
        "the data region is full: {needed} contiguous bytes needed, {free} free, largest free \
         extent {largest}; delete lumps or use a larger store"
    )]
    StoreFull {
        /// Contiguous bytes the lump needs, rounded up to blocks.
        needed: u64,
        /// Bytes free in all extents together.
        free: u64,
        /// Bytes of the largest free extent.
        largest: u64,
    },
    /// The journal has no room for this record. Delete lumps: deletes always have room.
    #[error(
        "the journal is full: {used} of {capacity} bytes hold live records or the reserve for \
         deletes, and the record needs {needed}; delete lumps or format with a larger \
         --journal-ratio"
    )]
    JournalFull {
        /// Bytes the record needs.
        needed: u64,
        /// Bytes of the ring in use.
        used: u64,
        /// Bytes of the ring.
        capacity: u64,
    },
    /// The range ends before it starts.
    #[error("the range is reversed: start {start} is greater than end {end}; swap them")]
    ReversedRange {
        /// First id of the range.
        start: LumpId,
        /// Id behind the range, smaller than `start`.
        end: LumpId,
    },
    /// The buffer does not hold what was announced.
    #[error("a lump of {announced} bytes was announced but {got} bytes were written to its buffer")]
    LengthMismatch {
        /// Bytes announced when the buffer was made.
        announced: u64,
        /// Bytes that came, or would have.
        got: u64,
    },
    /// Too many requests wait already: for the store, for a request that is not prioritized while
    /// the store is overloaded, or for this request's own limit. Nothing was done.
    #[error(
        "the store's queue is too long (limit {limit} requests); try again in {} ms",
        retry_after.as_millis()
    )]
    Busy {
        /// The limit that was reached, in waiting requests.
        limit: usize,
        /// When there will probably be room: from the length of the queue and the rate at which
        /// requests have been started lately.
        retry_after: Duration,
    },
    /// All memory for the bytes of lumps is in use. Nothing was done.
    #[error(
        "the store's memory for lumps is used up: {used} of {budget} bytes, and the lump needs \
         {needed}; try again in {} ms, drop lumps that were read, or set a larger buffer budget",
        retry_after.as_millis()
    )]
    BuffersExhausted {
        /// Bytes the lump needs.
        needed: u64,
        /// Bytes in use.
        used: u64,
        /// Size of the budget in bytes.
        budget: u64,
        /// When to try again.
        retry_after: Duration,
    },
    /// The request's time was over before it touched the disk, and it asked to be dropped then.
    /// Nothing was done.
    #[error(
        "the deadline passed {} us before the request could be started; nothing was done; allow \
         more time or send less at once",
        late_ns / 1000
    )]
    DeadlineExceeded {
        /// Nanoseconds from the deadline to the moment the request was dropped.
        late_ns: u64,
    },
    /// There is a lump with this id, and the put asked for none.
    #[error("there is already a lump {id}; nothing was stored")]
    AlreadyExists {
        /// Id of the lump that stays.
        id: LumpId,
    },
    /// More ids in one call than the owner thread may spend its time on.
    #[error("{got} ids in one call are too many: send at most {max} at once")]
    TooManyIds {
        /// Ids in the call.
        got: usize,
        /// Most ids of one call.
        max: usize,
    },
    /// The store has been closed.
    #[error("the store is closed")]
    Closed,
    /// The store takes no changes.
    #[error("the store is read-only: {reason}")]
    ReadOnly {
        /// Why, and how that ends.
        reason: &'static str,
    },
    /// An I/O of the store's own failed earlier, mostly a write or flush; what is on the disk is
    /// uncertain. Reads go on; close the
    /// store, repair or replace the device, open it again.
    #[error(
        "the store takes no changes since an I/O of its own failed ({reason}); check the device \
         and reopen the store"
    )]
    Failed {
        /// Message of the first failure.
        reason: Arc<str>,
    },
    /// The disk fails every I/O, does not answer, or is gone. Nothing was done; the store tries the
    /// disk again by itself.
    #[error(
        "the store is out of service: {reason}; check the device; it serves again as soon as the \
         device does"
    )]
    OutOfService {
        /// What the disk has said or done.
        reason: Arc<str>,
    },
    /// Bytes on the disk are not what the format allows.
    #[error("{what} at byte {offset} of the store is corrupt: {why}")]
    Corrupt {
        /// Structure of the format, for a message.
        what: &'static str,
        /// Byte offset from the start of the lusf image.
        offset: u64,
        /// Reason.
        why: String,
    },
    /// A journal record cannot be replayed.
    #[error("the journal record at ring position {ring_position} is corrupt: {why}")]
    CorruptJournal {
        /// Byte position in the ring.
        ring_position: u64,
        /// Reason.
        why: String,
    },
    /// The journal has no room for what a repair must append. Nothing was written.
    #[error(
        "the journal has no room for a repair: it needs {needed} bytes at ring position \
         {ring_position}; open the store read-only in salvage mode and copy its lumps"
    )]
    NoRoomForRepair {
        /// Bytes of the records to be appended.
        needed: u64,
        /// Byte position in the ring where the log ends.
        ring_position: u64,
    },
    /// The bytes of a lump are not the ones that were put: a checksum does not fit, or is missing
    /// where this engine wrote one. Nothing is returned: restore the lump from a copy.
    #[error("{0}; restore the lump from a copy")]
    ChecksumMismatch(Box<LumpDamage>),
    /// The disk cannot read these bytes of a lump, tried twice, and reads others. Nothing is returned:
    /// restore the lump from a copy.
    #[error(
        "lump {id} cannot be read: {len} bytes at byte {offset} of the device, tried twice: {source}; \
         restore the lump from a copy"
    )]
    Unreadable {
        /// The lump.
        id: LumpId,
        /// First byte in the device or file of the read that failed.
        offset: u64,
        /// Bytes of that read.
        len: u64,
        /// Error of the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The path holds no store.
    #[error("{path}: not a lump store ({why}); `lumpscope format` makes one")]
    NotAStore {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Description of the finding.
        why: String,
    },
    /// The image is not the one that is meant. Nothing was written.
    #[error("{path}: {why}")]
    WrongImage {
        /// Device or file, as it was given.
        path: PathBuf,
        /// What it is, and what to do.
        why: String,
    },
    /// Another machine has the store open, or did not close it. Stop it there, or open the store with
    /// [`StoreOptions::take_over`](crate::StoreOptions::take_over).
    #[error("{}", claimed(path, host, *since))]
    Claimed {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Host name of that machine.
        host: String,
        /// When it opened the store, in seconds since 1970 by its clock.
        since: u64,
    },
    /// Another process, or a mount, holds the store.
    #[error("{path} is in use: {by}; close that first")]
    InUse {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Its user.
        by: User,
    },
    /// The device or file cannot be used for direct I/O with this store's geometry.
    #[error("{path}: {why}")]
    Unsupported {
        /// Device or file, as it was given.
        path: PathBuf,
        /// Why it cannot be used, and what can.
        why: String,
    },
    /// An I/O failed.
    #[error("{op:?} of {len} bytes at byte {offset} failed: {source}")]
    Io {
        /// Kind of the I/O.
        op: IoOp,
        /// First byte in the device or file.
        offset: u64,
        /// Length of the I/O in bytes.
        len: u64,
        /// Error of the system.
        #[source]
        source: Arc<io::Error>,
    },
    /// The disk refused to write the place of a lump that was written while it came in, so its
    /// bytes are not there any more. Nothing was stored; put it again: it gets another place.
    #[error(
        "the disk refused to write a lump to bytes {offset}..{} ({why}); nothing was stored; put \
         it again, it gets another place",
        offset + len
    )]
    PlaceRefused {
        /// First byte of the place in the device or file.
        offset: u64,
        /// Bytes of the place.
        len: u64,
        /// The failure of the write.
        why: String,
    },
    /// The file system below ran out of space. Free some, or preallocate at format.
    #[error("no space left on the file system for {len} bytes at byte {offset}; free some")]
    NoSpace {
        /// First byte in the file.
        offset: u64,
        /// Length of the I/O in bytes.
        len: u64,
    },
    /// A system call other than read, write or flush failed.
    #[error("{what} {path}: {source}")]
    System {
        /// The attempted action.
        what: &'static str,
        /// Device or file of the action.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: Arc<io::Error>,
    },
}

impl Error {
    /// Makes an error of the system one of an action on a device or file.
    pub(crate) fn system(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System {
            what,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// Bytes of a lump that do not fit; `start`: first byte of its portion in the device.
    pub(crate) fn mismatch(id: LumpId, portion: Portion, start: u64, misfit: &Misfit) -> Self {
        Self::ChecksumMismatch(Box::new(LumpDamage {
            id,
            portion: Some(portion),
            damage: misfit.damage,
            offset: start + misfit.bytes.start,
            len: misfit.bytes.end - misfit.bytes.start,
        }))
    }

    /// True: the medium refuses these bytes; others may be well. A device that is gone says
    /// something else.
    pub(crate) fn is_bad_spot(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_bad_spot(source))
    }

    /// As the error of a read for this lump: the disk reads other bytes.
    pub(crate) fn of_lump(self, id: LumpId) -> Self {
        match self {
            Self::Io {
                op: IoOp::Read,
                offset,
                len,
                source,
            } if is_bad_spot(&source) => Self::Unreadable {
                id,
                offset,
                len,
                source,
            },
            other => other,
        }
    }

    /// True: it has not ended in time, and may still be in flight.
    pub(crate) fn is_time_over(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::TimedOut)
    }

    /// True: the kernel says that there is no such device any more.
    pub(crate) fn is_device_gone(&self) -> bool {
        let Self::Io { source, .. } = self else {
            return false;
        };
        let gone = [libc::ENODEV, libc::ENXIO, libc::ENOMEDIUM];
        source
            .raw_os_error()
            .is_some_and(|errno| gone.contains(&errno))
    }

    /// The error of a write that may still come about: it does not say that nothing was stored.
    pub(crate) fn of_unknown_outcome(self) -> Self {
        match self {
            Self::NoSpace { offset, len } => Self::Io {
                op: IoOp::Write,
                offset,
                len,
                source: Arc::new(io::Error::from_raw_os_error(libc::ENOSPC)),
            },
            other => other,
        }
    }

    /// The failure of one I/O, told apart by errno.
    pub(crate) fn from_io(op: IoOp, offset: u64, len: u64, source: io::Error) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Self::NoSpace { offset, len },
            _ => Self::Io {
                op,
                offset,
                len,
                source: Arc::new(source),
            },
        }
    }
}

/// The message on another machine's claim.
pub(crate) fn claimed(path: &Path, host: &str, since: u64) -> String {
    format!(
        "{} is claimed by {}: stop the service there; if that machine is gone for good, start the \
         service here with --take-over and the name of the store",
        path.display(),
        claimant(host, since)
    )
}

/// An open store whose image has another claim now.
pub(crate) fn claim_lost(path: &Path, found: Option<Claim>) -> Error {
    let by = match found {
        Some(other) => format!("opened by {}", claimant(&other.host, other.since)),
        None => "overwritten, or opened and closed by another machine".to_owned(),
    };
    Error::WrongImage {
        path: path.to_owned(),
        why: format!(
            "it was {by} while it was served here: changes of the last seconds may be lost, and none \
             is accepted; stop this service or the other one"
        ),
    }
}

/// Name of the machine that made a claim, and the time of the claim, as far as the claim has them.
pub(crate) fn claimant(host: &str, since: u64) -> String {
    let host = if host.is_empty() {
        "another machine"
    } else {
        host
    };
    match since {
        0 => host.to_owned(),
        since => format!("{host} since {}", utc(since)),
    }
}

/// True: an errno by which the kernel says that the medium refuses some bytes.
pub(crate) fn is_bad_spot(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::ENODATA | libc::EREMOTEIO | libc::EILSEQ)
    )
}

#[cfg(test)]
mod tests {
    use super::claimant;

    #[test]
    fn a_claim_without_a_name_or_time_is_told_without() {
        assert_eq!(claimant("", 0), "another machine");
        assert_eq!(claimant("node-7", 0), "node-7");
        let since = claimant("", 951_827_696);
        assert_eq!(since, "another machine since 2000-02-29 12:34 UTC");
    }
}
