//! Lumps into a folder. A manifest may come from anybody: nothing it says leads out of the folder, and nothing appears
//! under its name before it is whole and checked.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use bytes::Bytes;
use lumpscope_client::{Client, LumpId};
use lumpscope_engine::crc32c;
use tempfile::NamedTempFile;

use super::manifest::{self, Manifest, PART, Part};
use super::{DirectoryError, DownloadArgs, Moved, jobs};
use crate::data::transfer::temporary;
use crate::error::Interrupted;
use crate::progress;

/// Permission bits that a manifest may set: neither set-user-id nor its like.
const MODE: u32 = 0o777;

/// A file on its way.
struct Coming {
    target: PathBuf,
    described: manifest::File,
    /// Made for the first part.
    file: Mutex<Option<Arc<NamedTempFile>>>,
    parts_left: AtomicUsize,
    replace: bool,
}

/// Downloads.
pub(super) async fn run(client: Client, args: &DownloadArgs) -> Result<Moved> {
    let id = args.manifest;
    let lump = client.get(&args.store, id, None).await?;
    let manifest = Manifest::decode(id, &lump.bytes)
        .map_err(|source| DirectoryError::Manifest { id, source })?;
    let unusable = |source| DirectoryError::Manifest { id, source };
    let folders = manifest
        .directories
        .iter()
        .map(|entry| Ok((manifest::decode(&entry.path)?, entry.mode)))
        .collect::<Result<Vec<_>, _>>()
        .map_err(unusable)?;
    let mut files = Vec::with_capacity(manifest.files.len());
    for described in manifest.files {
        let path = manifest::decode(&described.path).map_err(unusable)?;
        files.push(Arc::new(Coming {
            target: args.folder.join(path),
            parts_left: AtomicUsize::new(described.parts.len()),
            described,
            file: Mutex::new(None),
            replace: args.force,
        }));
    }
    prepare(&args.folder, &folders, &files, args.force)?;
    let bytes = files.iter().map(|file| file.described.length).sum();
    let bar = progress::bar(bytes, files.len());
    for file in files.iter().filter(|file| file.described.parts.is_empty()) {
        file.complete()?;
    }
    let mut work = Vec::new();
    for file in &files {
        let parts = file.described.parts.iter().cloned().zip(0..);
        work.extend(parts.map(|(part, number)| (Arc::clone(file), part, number)));
    }
    let start = |(file, part, number): (Arc<Coming>, Part, u64)| {
        let (client, store) = (client.clone(), args.store.clone());
        let job = async move { fetch(&client, &store, &file, &part, number).await };
        Ok(Box::pin(job) as jobs::BoxJob<u64>)
    };
    jobs::run(args.jobs, work, start, |bytes| bar.inc(bytes)).await?;
    bar.finish_and_clear();
    // From the inside out: a folder may be read-only.
    for (path, mode) in folders.iter().rev() {
        let path = args.folder.join(path);
        fs::set_permissions(&path, Permissions::from_mode(mode & MODE))
            .map_err(|source| failed("change", &path, source))?;
    }
    Ok(Moved {
        files: files.len(),
        directories: folders.len(),
        bytes,
        skipped_bytes: 0,
        removed_parts: 0,
    })
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> DirectoryError {
    DirectoryError::File {
        what,
        path: path.to_owned(),
        source,
    }
}

/// Makes the folders and looks whether anything is in the way, before anything is fetched.
fn prepare(
    folder: &Path,
    folders: &[(PathBuf, u32)],
    files: &[Arc<Coming>],
    force: bool,
) -> Result<(), DirectoryError> {
    fs::create_dir_all(folder).map_err(|source| failed("make", folder, source))?;
    for (path, _) in folders {
        make_inside(folder, path)?;
    }
    for file in files {
        let inside = file.target.strip_prefix(folder).unwrap_or(&file.target);
        if let Some(above) = inside.parent() {
            make_inside(folder, above)?;
        }
        match fs::symlink_metadata(&file.target) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => return Err(failed("look at", &file.target, source)),
            Ok(meta) if !meta.is_file() => {
                return Err(DirectoryError::InTheWay {
                    path: file.target.clone(),
                    want: "file",
                });
            }
            Ok(_) if !force => {
                return Err(DirectoryError::Exists {
                    path: file.target.clone(),
                });
            }
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Makes a folder below `folder` name by name, and refuses links on the way: they may lead out.
fn make_inside(folder: &Path, path: &Path) -> Result<(), DirectoryError> {
    let mut at = folder.to_owned();
    for name in path {
        at.push(name);
        match fs::create_dir(&at) {
            Ok(()) => continue,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(source) => return Err(failed("make", &at, source)),
        }
        let meta = fs::symlink_metadata(&at).map_err(|source| failed("look at", &at, source))?;
        if !meta.is_dir() {
            return Err(DirectoryError::InTheWay {
                path: at,
                want: "folder",
            });
        }
    }
    Ok(())
}

/// Fetches one part; the last one completes its file. Answers its length.
async fn fetch(
    client: &Client,
    store: &str,
    file: &Arc<Coming>,
    part: &Part,
    number: u64,
) -> Result<u64> {
    let id: LumpId = part.id.parse().map_err(|_| Interrupted)?;
    let lump = client.get(store, id, None).await?;
    let crc32c = crc32c::of(&lump.bytes);
    let got = u64::try_from(lump.bytes.len()).unwrap_or(u64::MAX);
    if got != part.length || crc32c != part.crc32c.0 {
        let path = file.described.path.clone();
        return Err(DirectoryError::Part {
            id,
            path,
            got,
            crc32c,
        }
        .into());
    }
    let file = Arc::clone(file);
    tokio::task::spawn_blocking(move || file.write(&lump.bytes, number * PART))
        .await
        .map_err(|_| Interrupted)??;
    Ok(got)
}

impl Coming {
    fn open(&self) -> Result<Arc<NamedTempFile>, DirectoryError> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &*file {
            return Ok(Arc::clone(file));
        }
        let made =
            temporary(&self.target).map_err(|source| failed("write", &self.target, source))?;
        Ok(Arc::clone(file.insert(Arc::new(made))))
    }

    fn write(&self, bytes: &Bytes, offset: u64) -> Result<(), DirectoryError> {
        let file = self.open()?;
        file.as_file()
            .write_all_at(bytes, offset)
            .map_err(|source| failed("write", &self.target, source))?;
        drop(file);
        if self.parts_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.complete()?;
        }
        Ok(())
    }

    /// Gives the file its permissions and its name.
    fn complete(&self) -> Result<(), DirectoryError> {
        let wrong = |source| failed("write", &self.target, source);
        let opened = self.open()?;
        opened
            .as_file()
            .set_permissions(Permissions::from_mode(self.described.mode & MODE))
            .map_err(wrong)?;
        drop(opened);
        let held = self
            .file
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // Every part has let go of it before it counted itself as done.
        let Some(file) = held.and_then(Arc::into_inner) else {
            return Err(wrong(io::Error::other("it is still being written")));
        };
        let named = if self.replace {
            file.persist(&self.target)
        } else {
            file.persist_noclobber(&self.target)
        };
        match named {
            Ok(_) => Ok(()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => {
                Err(DirectoryError::Exists {
                    path: self.target.clone(),
                })
            }
            Err(error) => Err(wrong(error.error)),
        }
    }
}
