//! The way to a directory in which every lump is a file.
//!
//! A put writes a new file through `O_DIRECT` (its last part rounded up to 4 KiB, then cut to
//! length), syncs it, renames it over the old one, and syncs the directory: then it survives a
//! power cut, as our synced puts do. A get reads the file through `O_DIRECT`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use lumpscope_engine::buffer::BufferPool;
use rustix::fs::OFlags;

use super::Refusal;
use super::door::{Answer, Failure};

/// Alignment that suits `O_DIRECT` on every disk, in bytes.
const ALIGNMENT: usize = 4096;

/// One client of the directory.
#[derive(Clone)]
pub(super) struct FilesDoor {
    dir: Arc<PathBuf>,
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Refused(Refusal::Peer(error.to_string()))
    }
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(Failure::Refused(Refusal::Peer(panic.to_string()))))
}

fn direct() -> i32 {
    i32::try_from(OFlags::DIRECT.bits()).unwrap_or(0)
}

fn name(id: u64) -> String {
    format!("{:032x}", u128::from(id))
}

impl FilesDoor {
    pub(super) fn new(dir: &Path) -> FilesDoor {
        FilesDoor {
            dir: Arc::new(dir.to_owned()),
        }
    }

    pub(super) async fn put(
        &mut self,
        id: u64,
        body: Bytes,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let dir = Arc::clone(&self.dir);
        blocking(move || {
            let mut padded = BufferPool::new(ALIGNMENT).get(body.len().next_multiple_of(ALIGNMENT));
            padded[..body.len()].copy_from_slice(&body);
            let begin = Instant::now();
            write(&dir, &name(id), &padded, body.len())?;
            Ok(Answer {
                latency: begin.elapsed(),
                value: None,
            })
        })
        .await
    }

    pub(super) async fn get(&mut self, id: u64) -> Result<Answer<Vec<Bytes>>, Failure> {
        let path = self.dir.join(name(id));
        blocking(move || {
            let begin = Instant::now();
            let file = OpenOptions::new()
                .read(true)
                .custom_flags(direct())
                .open(path)?;
            let len = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
            let mut buffer = BufferPool::new(ALIGNMENT).get(len.next_multiple_of(ALIGNMENT));
            let mut read = 0;
            while read < len {
                // Only the last part of a file may be read in part.
                match file.read_at(&mut buffer[read..], u64::try_from(read).unwrap_or(u64::MAX))? {
                    0 => break,
                    more => read += more,
                }
            }
            Ok(Answer {
                latency: begin.elapsed(),
                value: vec![Bytes::copy_from_slice(&buffer[..read.min(len)])],
            })
        })
        .await
    }

    pub(super) async fn delete(&mut self, id: u64) -> Result<Answer<Option<bool>>, Failure> {
        let dir = Arc::clone(&self.dir);
        blocking(move || {
            let begin = Instant::now();
            let existed = match fs::remove_file(dir.join(name(id))) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error.into()),
            };
            File::open(&*dir)?.sync_all()?;
            Ok(Answer {
                latency: begin.elapsed(),
                value: Some(existed),
            })
        })
        .await
    }

    pub(super) async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        let dir = Arc::clone(&self.dir);
        blocking(move || {
            let mut ids = Vec::new();
            for entry in fs::read_dir(&*dir)? {
                let name = entry?.file_name();
                let id = name.to_str().filter(|name| name.len() == 32);
                ids.extend(id.and_then(|id| u128::from_str_radix(id, 16).ok()));
            }
            ids.sort_unstable();
            Ok(ids)
        })
        .await
    }
}

fn write(dir: &Path, name: &str, padded: &[u8], len: usize) -> io::Result<()> {
    // Two clients may put one lump after the other, never at a time; the number keeps new files
    // apart all the same.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let new = dir.join(format!("new-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .custom_flags(direct())
        .open(&new)?;
    file.write_all_at(padded, 0)?;
    if padded.len() != len {
        file.set_len(u64::try_from(len).unwrap_or(u64::MAX))?;
    }
    file.sync_all()?;
    fs::rename(&new, dir.join(name))?;
    File::open(dir)?.sync_all()
}
