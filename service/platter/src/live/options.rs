//! Options of an emulated disk.

use serde::{Deserialize, Serialize};

use super::bad_spots::{self, BadSpot};
use super::{LiveError, safety};
use crate::disk::{Disk, Policy};
use crate::drive::{self, Drive, SECTOR};

/// Fastest that virtual time may run. Beyond it the machine's own overhead is no longer small
/// against the disk's: at 10, cached writes take four times as long as the model says.
pub const MAX_SCALE: u32 = 5;
/// Smallest emulated disk in bytes: an ext4 fits.
pub const MIN_BYTES: u64 = 1 << 20;
/// Smallest bound on the memory of a disk in bytes.
pub const MIN_MEMORY: u64 = 1 << 20;
/// Of the memory that is available when the disk is made, one part in so many is its bound, unless
/// told otherwise.
pub const DEFAULT_MEMORY_SHARE: u64 = 2;
/// Makers count in powers of ten: "1T" is the whole of a drive of 10^12 bytes. So a size that is
/// larger than the drive by up to a tenth means the whole drive.
const ROUNDED_UP: u64 = 10;
/// A bound may be four fifths of the available memory, no more.
const LARGEST_SHARE: (u64, u64) = (4, 5);

/// Options of an emulated disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveOptions {
    /// Name of a drive in [`crate::drive::DRIVES`].
    pub drive: String,
    /// Size in bytes, a multiple of 4096 from [`MIN_BYTES`] to that of the drive; absent, or larger
    /// than the drive by at most a tenth: the whole drive.
    pub bytes: Option<u64>,
    /// False: a smaller disk is the first sectors of the drive, so the arm moves little. True: the
    /// platters have fewer tracks, which the arm crosses in the time that it needs for all of the
    /// drive's; for workloads that are scaled down together with their disk.
    pub whole_stroke: bool,
    /// Virtual time runs so many times as fast as real time; 1 to [`MAX_SCALE`].
    pub scale: u32,
    /// How the drive is set, or thought to be.
    pub policy: Policy,
    /// At most so many bytes of data are kept in memory, at least [`MIN_MEMORY`]; absent: one part
    /// in [`DEFAULT_MEMORY_SHARE`] of what is available.
    pub memory_bytes: Option<u64>,
    /// Places that answer EIO, from the beginning on; [`super::set_bad_spots`] changes them.
    #[serde(default)]
    pub bad_spots: Vec<BadSpot>,
}

impl LiveOptions {
    /// The whole drive of this name at its own speed, with its cache.
    #[must_use]
    pub fn new(drive: impl Into<String>) -> LiveOptions {
        LiveOptions {
            drive: drive.into(),
            bytes: None,
            whole_stroke: false,
            scale: 1,
            policy: Policy::default(),
            memory_bytes: None,
            bad_spots: Vec::new(),
        }
    }

    /// Looks whether such a disk can be emulated, and fills in what is absent.
    ///
    /// # Errors
    /// An option is out of its range.
    pub fn checked(&self) -> Result<LiveOptions, LiveError> {
        let drive = self.drive()?;
        let whole = drive.sectors / 8 * 4096;
        let bytes = match self.bytes {
            None => whole,
            Some(bytes) if bytes > whole && bytes <= whole + whole / ROUNDED_UP => whole,
            Some(bytes) => bytes,
        };
        if !(MIN_BYTES..=whole).contains(&bytes) || !bytes.is_multiple_of(4096) {
            return Err(LiveError::Option {
                option: "--size",
                given: format!("{bytes} bytes"),
                allowed: format!(
                    "{MIN_BYTES} to {whole} bytes, the size of {}, in multiples of 4096",
                    self.drive
                ),
            });
        }
        if !(1..=MAX_SCALE).contains(&self.scale) {
            return Err(LiveError::Option {
                option: "--scale",
                given: self.scale.to_string(),
                allowed: format!(
                    "1 to {MAX_SCALE}; above it the machine's own overhead would be a large part \
                     of what is measured"
                ),
            });
        }
        bad_spots::check(&self.bad_spots, bytes)?;
        Ok(LiveOptions {
            bytes: Some(bytes),
            memory_bytes: Some(self.bound()?),
            ..self.clone()
        })
    }

    /// These options for one of several disks: without a bound on its memory it gets its part of a
    /// single disk's default.
    ///
    /// # Errors
    /// As of [`LiveOptions::checked`].
    pub fn sharing(&self, disks: usize) -> Result<LiveOptions, LiveError> {
        let checked = self.checked()?;
        let disks = u64::try_from(disks.max(1)).unwrap_or(u64::MAX);
        let part = checked
            .memory_bytes
            .map(|all| (all / disks).max(MIN_MEMORY));
        Ok(LiveOptions {
            memory_bytes: self.memory_bytes.or(part),
            ..checked
        })
    }

    /// The drive of this name, whole.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn drive(&self) -> Result<Drive, LiveError> {
        drive::by_name(&self.drive).ok_or_else(|| LiveError::Option {
            option: "--drive",
            given: self.drive.clone(),
            allowed: "no such drive; `lumpscope platter drives` lists them".to_owned(),
        })
    }

    /// A model of this disk, at rest, for instance to replay what the live one was asked for.
    ///
    /// # Errors
    /// There is no such drive, or no disk can be made of it.
    pub fn model(&self) -> Result<Disk, LiveError> {
        let mut drive = self.drive()?;
        if let (true, Some(bytes)) = (self.whole_stroke, self.bytes) {
            drive = drive.resized(bytes / SECTOR);
        }
        Disk::new(&drive, self.policy).map_err(|error| LiveError::Option {
            option: "--drive",
            given: self.drive.clone(),
            allowed: error.to_string(),
        })
    }

    fn bound(&self) -> Result<u64, LiveError> {
        let path = "/proc/meminfo";
        let available = safety::available_memory().map_err(LiveError::io("read", path))?;
        let largest = available / LARGEST_SHARE.1 * LARGEST_SHARE.0;
        match self.memory_bytes {
            None => Ok((available / DEFAULT_MEMORY_SHARE).max(MIN_MEMORY)),
            Some(bound) if (MIN_MEMORY..=largest).contains(&bound) => Ok(bound),
            Some(bound) => Err(LiveError::Option {
                option: "--memory",
                given: format!("{} MiB", bound >> 20),
                allowed: format!(
                    "1 to {} MiB, four fifths of what is available now: the machine must not run \
                     out of it",
                    largest >> 20
                ),
            }),
        }
    }
}
