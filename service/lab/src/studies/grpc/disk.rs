//! The file of the store, and what the disk below it gives to somebody who does nothing else.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use lumpscope_engine::buffer::BufferPool;
use serde::Serialize;

use crate::disks::free_bytes;
use crate::failure::cannot_do;
use crate::process::Interrupt;

/// Transfers under way at a time.
const DEPTH: u64 = 8;
/// Bytes of a transfer.
const BLOCK: u64 = 1 << 20;
/// Bytes of the file it is measured on.
const SIZE: u64 = 256 << 20;
/// Length of each of the two measurements.
const TIME: Duration = Duration::from_millis(500);

/// A file without a name, which is gone when this process is; an empty store.
#[derive(Debug)]
pub(crate) struct StoreFile {
    _file: File,
    path: PathBuf,
}

impl StoreFile {
    /// Makes it, as `lumpscope format` does: written once.
    pub(crate) fn make(
        exe: &Path,
        dir: &Path,
        bytes: u64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<StoreFile> {
        let (file, path) = unnamed(dir)?;
        let mut format = Command::new(exe);
        format.args(["format", "--volatile"]).arg(&path);
        format.arg("--capacity").arg(bytes.to_string());
        interrupt.run(format, Duration::from_mins(10))?;
        Ok(StoreFile { _file: file, path })
    }

    /// Where children find it, too.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

fn unnamed(dir: &Path) -> anyhow::Result<(File, PathBuf)> {
    let file = tempfile::tempfile_in(dir)
        .map_err(cannot_do(format!("make a file in {}", dir.display())))?;
    let (pid, fd) = (std::process::id(), file.as_raw_fd());
    Ok((file, PathBuf::from(format!("/proc/{pid}/fd/{fd}"))))
}

/// Speed of the disk: 8 transfers of 1 MiB at a time, direct, at random places of a file that has
/// been written before.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DiskSpeed {
    pub(crate) dir: PathBuf,
    /// Type of its file system, as `tmpfs` or `ext4`.
    pub(crate) file_system: String,
    pub(crate) write_bytes_per_second: f64,
    pub(crate) read_bytes_per_second: f64,
}

impl DiskSpeed {
    /// Measures the disk of a directory, which must have room for a store of so many bytes.
    pub(crate) fn measure(dir: &Path, bytes: u64) -> anyhow::Result<DiskSpeed> {
        let needed = bytes + SIZE;
        if free_bytes(dir)? < needed + needed / 16 {
            bail!(
                "--dir {} cannot be used: it has no room for {} MiB; give --capacity less",
                dir.display(),
                needed >> 20
            );
        }
        let (_file, path) = unnamed(dir)?;
        let direct = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(crate::disks::direct())
            .open(&path)
            .map_err(|_| {
                anyhow!(
                    "--dir {} cannot be used: its file system has no direct I/O; use ext4, xfs, \
                     or tmpfs of Linux 6.6 or newer",
                    dir.display()
                )
            })?;
        let failed = || cannot_do(format!("write a file in {}", dir.display()));
        let block = BufferPool::new(4096).zeroed(usize::try_from(BLOCK).unwrap_or(0));
        for offset in (0..SIZE).step_by(block.len()) {
            direct.write_all_at(&block, offset).map_err(failed())?;
        }
        let speed = |write| transfers(&direct, write).map_err(failed());
        Ok(DiskSpeed {
            dir: dir.to_owned(),
            file_system: file_system(dir),
            write_bytes_per_second: speed(true)?,
            read_bytes_per_second: speed(false)?,
        })
    }
}

/// Bytes a second.
fn transfers(file: &File, write: bool) -> std::io::Result<f64> {
    let begin = Instant::now();
    let transfer = |seed| {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut block = BufferPool::new(4096).zeroed(usize::try_from(BLOCK).unwrap_or(0));
        let mut bytes = 0;
        while begin.elapsed() < TIME {
            let offset = random.u64(0..SIZE / BLOCK) * BLOCK;
            if write {
                file.write_all_at(&block, offset)?;
            } else {
                file.read_exact_at(&mut block, offset)?;
            }
            bytes += BLOCK;
        }
        Ok(bytes)
    };
    let bytes: std::io::Result<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..DEPTH)
            .map(|seed| scope.spawn(move || transfer(seed)))
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(bytes) => bytes,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .sum()
    });
    Ok(crate::human::as_float(bytes?) / begin.elapsed().as_secs_f64())
}

/// The type of the mount that holds a directory, from the kernel's list.
fn file_system(dir: &Path) -> String {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ').skip(1);
            Some((words.next()?, words.next()?))
        })
        .filter(|(mount, _)| dir.starts_with(mount))
        .max_by_key(|(mount, _)| mount.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}
