//! The file or device that all engines use in turn.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lumpscope_engine::buffer::BufferPool;
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::{Store, StoreOptions};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::disks::{BorrowedDevice, free_bytes, unnamed};
use crate::failure::{cannot, no_room};
use crate::process::Interrupt;

/// Device, file or service behind the target.
#[derive(Debug)]
enum Backing {
    /// A file, and beside it a sparse one for empty stores.
    Scratch((File, PathBuf)),
    Device(#[expect(dead_code, reason = "it is emptied when dropped")] BorrowedDevice),
}

/// Bytes written at a time.
const CHUNK: u64 = 4 << 20;

/// A file without a name, which is gone when this process is, or a device that was empty.
#[derive(Debug)]
pub(super) struct BenchTarget {
    path: PathBuf,
    file: File,
    capacity: u64,
    backing: Backing,
}

impl BenchTarget {
    /// Makes a file of `capacity` bytes in a directory and writes all of it once, so that no engine
    /// pays for the file system's first allocation.
    pub(super) fn in_dir(
        dir: &Path,
        capacity: u64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BenchTarget> {
        let free = free_bytes(dir)?;
        if capacity + capacity / 16 > free {
            return Err(no_room(dir, capacity, free));
        }
        let (file, path) = unnamed(dir)?;
        let target = BenchTarget {
            path,
            file,
            capacity,
            backing: Backing::Scratch(unnamed(dir)?),
        };
        target.write_everywhere(interrupt)?;
        Ok(target)
    }

    /// Takes a device on which nothing is; it is refused when anything is.
    pub(super) fn on_device(
        path: &Path,
        capacity: u64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<BenchTarget> {
        let device = BorrowedDevice::take("--device", path, capacity)?;
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).open(path);
        let target = BenchTarget {
            path: path.to_owned(),
            file: file.map_err(cannot("open", path))?,
            capacity: device.capacity,
            backing: Backing::Device(device),
        };
        target.write_everywhere(interrupt)?;
        Ok(target)
    }

    /// Where children find it, too.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that are used of it.
    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    fn write_everywhere(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let failed = || cannot("write", &self.path);
        let direct = OpenOptions::new()
            .write(true)
            .custom_flags(crate::disks::direct())
            .open(&self.path)
            .map_err(failed())?;
        let mut chunk = BufferPool::new(4096).get(usize::try_from(CHUNK).unwrap_or(usize::MAX));
        let mut random = fastrand::Rng::with_seed(self.capacity);
        let mut offset = 0;
        while offset < self.capacity {
            interrupt.check()?;
            random.fill(&mut chunk);
            let len = usize::try_from(CHUNK.min(self.capacity - offset)).unwrap_or(usize::MAX);
            direct
                .write_all_at(&chunk[..len], offset)
                .map_err(failed())?;
            offset += CHUNK;
        }
        direct.sync_all().map_err(failed())
    }

    /// Makes an empty store of ours and opens it.
    pub(super) fn open_store(&self) -> anyhow::Result<Store> {
        let options = CreateOptions {
            capacity: Some(self.capacity),
            prealloc: Prealloc::Sparse,
            force: true,
            volatile: true,
            ..CreateOptions::default()
        };
        match &self.backing {
            // Formatting a file empties it first, and everything would be allocated anew. So a
            // sparse file is formatted, and what that wrote is copied.
            Backing::Scratch((scratch, path)) => {
                format(path, &options)?;
                self.copy_data(scratch)
                    .map_err(cannot("write", &self.path))?;
            }
            Backing::Device(_) => {
                format(&self.path, &options)?;
            }
        }
        Ok(Store::open(&self.path, StoreOptions::new("bench"))?)
    }

    /// Copies what is written of a sparse file, and cuts off what an engine appended.
    fn copy_data(&self, sparse: &File) -> std::io::Result<()> {
        self.file.set_len(self.capacity)?;
        let len = sparse.metadata()?.len();
        let mut at = 0;
        while at < len {
            let data = match rustix::fs::seek(sparse, SeekFrom::Data(at)) {
                Ok(data) => data,
                // No data behind here.
                Err(Errno::NXIO) => break,
                Err(errno) => return Err(errno.into()),
            };
            let hole = rustix::fs::seek(sparse, SeekFrom::Hole(data))?;
            let mut bytes = vec![0; usize::try_from(hole - data).unwrap_or(usize::MAX)];
            sparse.read_exact_at(&mut bytes, data)?;
            self.file.write_all_at(&bytes, data)?;
            at = hole;
        }
        self.file.sync_all()
    }
}
