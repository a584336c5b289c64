//! The way to a directory in which every lump is a file.
//!
//! Files lie in directories of 256. A put writes a new file through `O_DIRECT` (its last part rounded
//! up to 4 KiB, then cut to length), syncs it, renames it over the old one, and syncs the directory:
//! then it survives a power cut, as our synced puts do; as a journaled one, it syncs nothing. A get
//! reads the file through `O_DIRECT`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use lumpscope_engine::buffer::BufferPool;

use super::{Answer, Durability, Failure, Placement, StoreClient};
use crate::disks::direct;

/// Alignment that suits `O_DIRECT` on every disk, in bytes.
const ALIGNMENT: usize = 4096;
/// Files of a directory.
const FILES: u128 = 256;

/// One client of the directory.
#[derive(Clone)]
pub(super) struct FilesClient {
    dir: Arc<PathBuf>,
    durability: Durability,
}

/// Runs what blocks where it may.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|panic| Err(Failure::peer(panic)))
}

/// The directory of a lump, and its file there.
fn place(dir: &Path, id: u128) -> (PathBuf, String) {
    let name = format!("{id:032x}");
    (dir.join(format!("{:x}", id / FILES)), name)
}

impl FilesClient {
    pub(super) fn new(dir: &Path, durability: Durability) -> FilesClient {
        FilesClient {
            dir: Arc::new(dir.to_owned()),
            durability,
        }
    }
}

#[async_trait]
impl StoreClient for FilesClient {
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        _placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let (dir, durability) = (Arc::clone(&self.dir), self.durability);
        blocking(move || {
            let mut padded = BufferPool::new(ALIGNMENT).get(body.len().next_multiple_of(ALIGNMENT));
            padded[..body.len()].copy_from_slice(&body);
            let begin = Instant::now();
            let synced = durability == Durability::Synced;
            write((&dir, synced), id, &padded, body.len())?;
            Ok(Answer::since(begin, None))
        })
        .await
    }

    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
        let (dir, name) = place(&self.dir, id);
        let path = dir.join(name);
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
            Ok(Answer::since(
                begin,
                vec![Bytes::copy_from_slice(&buffer[..read.min(len)])],
            ))
        })
        .await
    }

    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
        let (dir, name) = place(&self.dir, id);
        let synced = self.durability == Durability::Synced;
        blocking(move || {
            let begin = Instant::now();
            let existed = match fs::remove_file(dir.join(name)) {
                Ok(()) => true,
                Err(error) if error.kind() == io::ErrorKind::NotFound => false,
                Err(error) => return Err(error.into()),
            };
            if synced && existed {
                File::open(&dir)?.sync_all()?;
            }
            Ok(Answer::since(begin, Some(existed)))
        })
        .await
    }

    async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        let dir = Arc::clone(&self.dir);
        blocking(move || {
            let mut ids = Vec::new();
            for entry in fs::read_dir(&*dir)? {
                for entry in fs::read_dir(entry?.path())? {
                    let name = entry?.file_name();
                    let id = name.to_str().filter(|name| name.len() == 32);
                    ids.extend(id.and_then(|id| u128::from_str_radix(id, 16).ok()));
                }
            }
            ids.sort_unstable();
            Ok(ids)
        })
        .await
    }
}

/// `synced`: until it survives a power cut.
fn write((top, synced): (&Path, bool), id: u128, padded: &[u8], len: usize) -> io::Result<()> {
    // Two clients may put one lump after the other, never at a time; the number keeps new files
    // apart all the same.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let (dir, name) = place(top, id);
    let new = dir.join(format!("new-{}", NUMBER.fetch_add(1, Ordering::Relaxed)));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).custom_flags(direct());
    let file = match options.open(&new) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Another client may make it at the same time.
            fs::create_dir_all(&dir)?;
            if synced {
                File::open(top)?.sync_all()?;
            }
            options.open(&new)?
        }
        opened => opened?,
    };
    file.write_all_at(padded, 0)?;
    if padded.len() != len {
        file.set_len(u64::try_from(len).unwrap_or(u64::MAX))?;
    }
    if synced {
        file.sync_all()?;
    }
    fs::rename(&new, dir.join(name))?;
    if synced {
        File::open(dir)?.sync_all()?;
    }
    Ok(())
}
