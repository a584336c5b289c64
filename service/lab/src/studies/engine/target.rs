//! The file or device that all engines use in turn.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use lumpscope_engine::buffer::BufferPool;
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_engine::{Store, StoreOptions};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::disks::{erase, free_bytes};
use crate::failure::{argument, cannot, no_room};
use crate::process::Interrupt;
use lumpscope_units::tell;

/// Bytes written at a time.
const CHUNK: u64 = 4 << 20;

/// A file without a name, which is gone when this process is, or a device that was empty.
#[derive(Debug)]
pub(super) struct BenchTarget {
    path: PathBuf,
    file: File,
    capacity: u64,
    /// A sparse file for empty stores; `None`: the target is a device.
    scratch: Option<File>,
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
        let new = || tempfile::tempfile_in(dir).map_err(cannot("make a file in", dir));
        let file = new()?;
        let target = BenchTarget {
            path: proc_path(&file),
            file,
            capacity,
            scratch: Some(new()?),
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
        let failed = |what| cannot(what, path);
        let kind = std::fs::metadata(path)
            .map_err(failed("look at"))?
            .file_type();
        if !kind.is_block_device() {
            return Err(argument(
                "--device",
                "a block device; for a file give its directory with --dir",
            ));
        }
        // Refuses what is in use or carries anything, before a byte is written.
        format(path, &CreateOptions::default())?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .map_err(failed("open"))?;
        let size = rustix::fs::seek(&file, SeekFrom::End(0))
            .map_err(|errno| failed("find the size of")(errno.into()))?;
        let target = BenchTarget {
            path: path.to_owned(),
            file,
            capacity: capacity.min(size),
            scratch: None,
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
        match &self.scratch {
            // Formatting a file empties it first, and everything would be allocated anew. So a
            // sparse file is formatted, and what that wrote is copied.
            Some(scratch) => {
                format(&proc_path(scratch), &options)?;
                self.copy_data(scratch)
                    .map_err(cannot("write", &self.path))?;
            }
            None => {
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

impl Drop for BenchTarget {
    fn drop(&mut self) {
        if self.scratch.is_none()
            && let Err(error) = erase(&self.file, self.capacity)
        {
            tell(&format!(
                "lumpscope: cannot erase the measured store on {}: {error}",
                self.path.display()
            ));
        }
    }
}

/// A path to a file without a name, for this process and its children.
fn proc_path(file: &File) -> PathBuf {
    let (pid, fd) = (std::process::id(), file.as_raw_fd());
    PathBuf::from(format!("/proc/{pid}/fd/{fd}"))
}
