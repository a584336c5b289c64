//! Makes a store on a block device or in a file.

mod target;
mod write;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::format::checkpoint::{self, Area};
use crate::format::geometry::{Geometry, RegionSizes};
use crate::format::{Header, header, label, minfs, trailer};
use crate::guard::{FormatError, Signature, VolatileMedium};
use crate::machine::Machine;
use crate::options::Layout;
use crate::units::{BlockSize, ByteLen, ByteOffset};
use target::CreateTarget;

/// No area for checkpoints is reserved where it would take more than this part of the device.
pub(crate) const SMALLEST_SHARE: u64 = 32;

/// How the bytes of a file are had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prealloc {
    /// Allocated and written with zeros, so that no later put makes the file system convert
    /// unwritten extents (a write of its metadata per put).
    #[default]
    Zero,
    /// Allocated only: quick, but the file system writes metadata at the first put to a block.
    Fallocate,
    /// Not even allocated: the file system may run out of space later.
    Sparse,
}

/// Options of a new store.
#[derive(Clone, Copy)]
pub struct CreateOptions<'a> {
    /// Bytes of the store; `None`: the whole device, or the present size of the file.
    pub capacity: Option<u64>,
    /// Bytes of a block: a multiple of 512 from 512 to 65,024.
    pub block_size: u16,
    /// Share of the journal, 0 to 1.
    pub journal_ratio: f64,
    /// How the bytes of a file are had; of no meaning on a block device.
    pub prealloc: Prealloc,
    /// Leave room behind the image on a block device for checkpoints of the index: at most 0.4 %
    /// of it (FORMAT.md section 12). Without, opening always replays the whole journal. Of no
    /// meaning with `capacity`, which leaves what it leaves, and for a file, which grows.
    pub checkpoint_area: bool,
    /// Name of the store, to be written into the image.
    pub name: Option<&'a str>,
    /// Overwrite what is there. Never overrules "in use", "claimed",
    /// "read-only" or "too small".
    pub force: bool,
    /// The machine that formats: a store that another one has claimed is not overwritten. `None`: it
    /// is.
    pub machine: Option<&'a Machine>,
    /// Make it even where a reboot, or the end of a container, loses it.
    pub volatile: bool,
    /// Called with (bytes done, bytes in all) while zeros are written.
    pub progress: Option<&'a dyn Fn(u64, u64)>,
}

impl Default for CreateOptions<'_> {
    fn default() -> Self {
        Self {
            capacity: None,
            block_size: 4096,
            journal_ratio: 0.01,
            prealloc: Prealloc::Zero,
            checkpoint_area: true,
            name: None,
            force: false,
            machine: None,
            volatile: false,
            progress: None,
        }
    }
}

/// Report of the store made.
#[derive(Clone, Debug)]
pub struct FormatReport {
    /// The device or file.
    pub path: PathBuf,
    /// How the image lies on it.
    pub layout: Layout,
    /// Where the regions lie.
    pub geometry: Geometry,
    /// Instance UUID, new.
    pub uuid: uuid::Uuid,
    /// Most bytes of one lump.
    pub max_lump_bytes: u64,
    /// The medium, if it loses the store (with `volatile`).
    pub volatile: Option<VolatileMedium>,
    /// Signatures that were there before and are erased (with `force`).
    pub erased: Vec<Signature>,
    /// Bytes that were written.
    pub written: ByteLen,
    /// Time from the call to the last flush.
    pub elapsed: Duration,
}

/// Makes a store at `path` (FORMAT.md sections 2 and 8): on a block device inside a minfs, in a
/// regular file from byte 0. A file that is not there is created.
///
/// When it fails, what is there does not open as a store, unless nothing was written: see
/// [`FormatError`].
///
/// # Errors
/// [`FormatError`].
pub fn format(path: &Path, options: &CreateOptions<'_>) -> Result<FormatReport, FormatError> {
    let started = Instant::now();
    let block_size = BlockSize::new(options.block_size)?;
    if let Some(name) = options.name.filter(|name| !label::is_name(name)) {
        return Err(FormatError::Name(label::wrong_name(name)));
    }
    let target = CreateTarget::open(path, options)?;
    let made = make(&target, block_size, options);
    if made.is_err() && target.is_created() {
        target.remove();
    }
    let (plan, erased, written) = made?;
    let room = trailer::max_payload_in(plan.geometry.data_blocks(), block_size);
    Ok(FormatReport {
        path: path.to_owned(),
        layout: plan.layout,
        geometry: plan.geometry,
        uuid: uuid::Uuid::from_bytes(plan.header.uuid),
        max_lump_bytes: trailer::max_payload(block_size).min(room),
        volatile: target.volatile(),
        erased,
        written: ByteLen(written),
        elapsed: started.elapsed(),
    })
}

fn make(
    target: &CreateTarget,
    block_size: BlockSize,
    options: &CreateOptions<'_>,
) -> Result<(CreatePlan, Vec<Signature>, u64), FormatError> {
    // What --force never overrules comes first.
    let plan = CreatePlan::new(target, block_size, options)?;
    target.check_unclaimed(options.machine)?;
    let erased = target.check_empty(options.force)?;
    let written = write::make(target, &plan, options)?;
    Ok((plan, erased, written))
}

/// Places of the parts of a store.
struct CreatePlan {
    layout: Layout,
    header: Header,
    geometry: Geometry,
    /// Behind the image on a block device.
    checkpoints: Option<Area>,
}

impl CreatePlan {
    fn new(
        target: &CreateTarget,
        block_size: BlockSize,
        options: &CreateOptions<'_>,
    ) -> Result<Self, FormatError> {
        let path = target.path();
        let alignment = target.alignment();
        let (layout, base) = if target.is_block_device() {
            (Layout::Minfs, ByteOffset(minfs::FILE_OFFSET))
        } else {
            (Layout::Lusf, ByteOffset(0))
        };
        if !block_size.bytes().is_multiple_of(alignment) || !base.0.is_multiple_of(alignment) {
            return Err(FormatError::Alignment {
                path: path.to_owned(),
                block_size,
                alignment,
            });
        }
        let capacity = target.capacity(base, options.capacity)?;
        let divide = |capacity| {
            RegionSizes::divide(capacity, block_size, options.journal_ratio).map_err(|source| {
                FormatError::Size {
                    path: path.to_owned(),
                    source,
                }
            })
        };
        let mut sizes = divide(capacity)?;
        if target.is_block_device() && options.checkpoint_area && options.capacity.is_none() {
            let ring_len = sizes.journal_len.0.saturating_sub(block_size.bytes());
            let reserved = checkpoint::reserved_len(ring_len, sizes.data_len.0);
            // A small device is replayed in no time.
            if reserved <= capacity.0 / SMALLEST_SHARE {
                sizes = divide(ByteLen(capacity.0 - reserved))?;
            }
        }
        let header = Header {
            minor: header::MINOR_VERSION,
            block_size,
            uuid: uuid::Uuid::new_v4().into_bytes(),
            journal_len: sizes.journal_len,
            data_len: sizes.data_len,
        };
        let geometry = Geometry::new(base, &header);
        let reserves = target.is_block_device()
            && options.checkpoint_area
            && checkpoint::HEADER_SPACE.is_multiple_of(alignment);
        let area = reserves.then(|| Area::of_device(&geometry, target.len()));
        Ok(Self {
            layout,
            header,
            geometry,
            checkpoints: area.flatten(),
        })
    }
}
