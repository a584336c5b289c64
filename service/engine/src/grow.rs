//! Makes a store larger where its device or file has become larger.
//!
//! The data region lies behind the journal and ends the image, so it can grow in place: a new header
//! with a larger data region is one write of one sector. The journal cannot, because the data region
//! begins behind it; with it the number of lumps that fit stays as it is.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::closed;
use crate::create::{Prealloc, SMALLEST_SHARE};
use crate::error::Error;
use crate::format::Geometry;
use crate::format::checkpoint::reserved_len;
use crate::format::header::MAX_DATA_LEN;
use crate::machine::Machine;
use crate::options::Layout;
use crate::storage::{finish, headers};
use crate::units::ByteLen;

/// How a store grows.
#[derive(Clone, Copy, Default)]
pub struct GrowOptions<'a> {
    /// Bytes that the store may use; `None`: the whole device. Needed for a file, which is given that
    /// size.
    pub capacity: Option<u64>,
    /// How the new bytes of a file are had; of no meaning on a block device.
    pub prealloc: Prealloc,
    /// The machine that claims the store meanwhile; `None`: no claim is written or obeyed.
    pub machine: Option<&'a Machine>,
    /// Called with (bytes done, bytes in all) while zeros are written.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

/// Sizes of the data region in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Before.
    pub before: u64,
    /// After.
    pub after: u64,
}

/// Why a store has not grown. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum GrowError {
    /// The store cannot be opened, or its device fails.
    #[error(transparent)]
    Store(#[from] Error),
    /// A file has the size that it is given.
    #[error("{path} is a file: say how large the store shall be, e.g. --capacity 64G")]
    CapacityRequired {
        /// The file.
        path: PathBuf,
    },
    /// More was asked for than there is.
    #[error("{path} has room for {available} bytes of store, {wanted} were asked for")]
    CapacityExceedsDevice {
        /// The device.
        path: PathBuf,
        /// Bytes asked for.
        wanted: u64,
        /// Bytes available to the store.
        available: u64,
    },
    /// There is no more room than before.
    #[error(
        "{path}: its data region has {before} bytes, and with {capacity} bytes of store it would have \
         {after}: make the device larger first, or move its lumps to a smaller store with `lumpscope evacuate`"
    )]
    NotLarger {
        /// Device or file.
        path: PathBuf,
        /// Bytes that the store may use.
        capacity: u64,
        /// Bytes of the data region.
        before: u64,
        /// Bytes that it would have.
        after: u64,
    },
}

/// Makes the store at `path`, which nobody uses, as large as its device, or as the file shall be. All
/// lumps stay where they are. Wherever this is interrupted, the store is as it was or has grown.
///
/// # Errors
/// [`GrowError`].
pub fn grow(path: &Path, options: &GrowOptions<'_>) -> Result<Grown, GrowError> {
    closed::change((path, options.machine), "grow", |io, recovered| {
        let geometry = recovered.storage.geometry;
        let device = io.device();
        let sized = device.is_block_device || recovered.layout == Layout::Minfs;
        let size = sized.then_some(device.size);
        let data_len = data_len(path, &geometry, size, options.capacity)?;
        let before = geometry.data_len();
        let (mut enlarged, mut zeros) = (None, None);
        if !sized {
            let end = geometry.end().0 + (data_len.0 - before.0);
            enlarged = Some(Enlarged::new(path, end, options.prealloc)?);
            zeros = (options.prealloc == Prealloc::Zero)
                .then_some(options.progress.unwrap_or(&|_, _| ()));
        }
        let done = finish::grow(io, recovered, data_len, zeros);
        if let (Err(_), Some(enlarged)) = (&done, &enlarged) {
            // The header may have been written although its write failed.
            let now = headers::find(io);
            if now.is_ok_and(|now| now.geometry.data_len() == before) {
                enlarged.cut_back();
            }
        }
        done?;
        Ok(Grown {
            before: before.0,
            after: data_len.0,
        })
    })
}

/// Bytes of the data region on a device of `size` bytes, or on a file (`None`).
fn data_len(
    path: &Path,
    geometry: &Geometry,
    size: Option<u64>,
    asked: Option<u64>,
) -> Result<ByteLen, GrowError> {
    let available = size.map(|size| size.saturating_sub(geometry.base().0));
    let capacity = match (available, asked) {
        (Some(available), Some(wanted)) if wanted > available => {
            return Err(GrowError::CapacityExceedsDevice {
                path: path.to_owned(),
                wanted,
                available,
            });
        }
        (available, asked) => asked
            .or(available)
            .ok_or_else(|| GrowError::CapacityRequired {
                path: path.to_owned(),
            })?,
    };
    let block_size = geometry.block_size();
    let room = capacity
        .saturating_sub(block_size.bytes())
        .saturating_sub(geometry.journal_len().0);
    let reserved = reserved_len(geometry.ring_len().0, room);
    let reserves = size.is_some() && asked.is_none() && reserved <= capacity / SMALLEST_SHARE;
    let room = if reserves { room - reserved } else { room };
    let after = block_size.floor(room.min(MAX_DATA_LEN));
    let before = geometry.data_len().0;
    if after <= before {
        return Err(GrowError::NotLarger {
            path: path.to_owned(),
            capacity,
            before,
            after,
        });
    }
    Ok(ByteLen(after))
}

/// A file that has got its new size.
struct Enlarged {
    file: File,
    /// Bytes before.
    len: u64,
}

impl Enlarged {
    /// Gives the file at `path` its new size, or leaves it as it was.
    fn new(path: &Path, end: u64, prealloc: Prealloc) -> Result<Self, Error> {
        let failed = || Error::system("cannot enlarge", path);
        let file = File::options().write(true).open(path).map_err(failed())?;
        let len = file.metadata().map_err(failed())?.len();
        let it = Self { file, len };
        match it.extend(end, prealloc) {
            Ok(()) => Ok(it),
            Err(source) => {
                it.cut_back();
                Err(failed()(source))
            }
        }
    }

    fn extend(&self, end: u64, prealloc: Prealloc) -> io::Result<()> {
        self.file.set_len(end.max(self.len))?;
        if prealloc != Prealloc::Sparse {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, end) {
                Ok(()) => {}
                Err(rustix::io::Errno::OPNOTSUPP) if prealloc == Prealloc::Zero => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        self.file.sync_all()
    }

    /// Gives the new space back to the file system: the store does not use it.
    fn cut_back(&self) {
        // What stays of it after one more failure only takes space.
        let _ = self.file.set_len(self.len);
    }
}
