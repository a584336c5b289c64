//! A folder into lumps. The manifest goes last: before that nothing refers to the parts.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use lumpscope_client::{Client, Code, LumpId, MANY, PutOptions, v1};
use lumpscope_engine::crc32c;

use super::manifest::{self, Crc, Manifest, PART, Part};
use super::{DirectoryError, Moved, UploadArgs, jobs};
use crate::error::Interrupted;
use crate::progress;

/// Permission bits that are kept.
const MODE: u32 = 0o777;

/// Contents of a folder.
struct Tree {
    directories: Vec<manifest::Directory>,
    files: Vec<Found>,
}

/// A file as it was found.
#[derive(Clone)]
struct Found {
    /// Where it is.
    full: PathBuf,
    /// From the folder on.
    path: PathBuf,
    mode: u32,
    length: u64,
    /// Time of the last change, seconds and nanoseconds.
    changed: (i64, i64),
}

/// Uploads.
pub(super) async fn run(client: Client, args: &UploadArgs) -> Result<Moved> {
    let old = old_manifest(&client, args).await?;
    let (folder, skip) = (args.folder.clone(), args.skip_special);
    let tree = tokio::task::spawn_blocking(move || walk(&folder, skip))
        .await
        .map_err(|_| Interrupted)??;
    let files: Vec<Arc<Found>> = tree.files.into_iter().map(Arc::new).collect();
    let (parts, skipped_bytes) = send_all(&client, args, &files).await?;
    let described = files.iter().zip(parts);
    let described = described.map(|(file, parts)| describe(file, parts));
    let new = Manifest::new(tree.directories, described.collect());
    let body = new.encode().map_err(|source| DirectoryError::Manifest {
        id: args.manifest,
        source,
    })?;
    // The flush of this put covers the parts too, whatever was asked for them.
    let last = PutOptions {
        durability: v1::Durability::Synced,
        ..PutOptions::default()
    };
    client.put(&args.store, args.manifest, body, &last).await?;
    Ok(Moved {
        files: new.files.len(),
        directories: new.directories.len(),
        bytes: files.iter().map(|file| file.length).sum(),
        skipped_bytes,
        removed_parts: remove_old(&client, &args.store, old, &new).await?,
    })
}

/// Stores the parts of all files. Answers them with their checksums, and how many bytes were there.
async fn send_all(
    client: &Client,
    args: &UploadArgs,
    files: &[Arc<Found>],
) -> Result<(Vec<Vec<Part>>, u64)> {
    let bar = progress::bar(files.iter().map(|file| file.length).sum(), files.len());
    let blank = |file: &Arc<Found>| blank(args.manifest, file);
    let mut parts: Vec<Vec<Part>> = files.iter().map(blank).collect();
    let mut work = Vec::new();
    for (file, parts) in parts.iter().enumerate() {
        let numbered = parts.iter().cloned().enumerate();
        work.extend(numbered.map(|(number, part)| (file, number, part)));
    }
    let put = PutOptions {
        durability: args.durability.wire(),
        ..PutOptions::default()
    };
    let start = |(file, number, part): (usize, usize, Part)| {
        let (client, store, put) = (client.clone(), args.store.clone(), put.clone());
        let (found, manifest) = (Arc::clone(&files[file]), args.manifest);
        let job = async move {
            let offset = u64::try_from(number)
                .unwrap_or(u64::MAX)
                .saturating_mul(PART);
            let id = manifest::part_id(manifest, &found.path, offset / PART);
            let bytes = read(&found, offset, part.length).await?;
            let crc32c = crc32c::of(&bytes);
            let there = is_there(&client, &store, id, part.length, crc32c).await;
            if !there {
                client.put(&store, id, bytes, &put).await?;
            }
            Ok((file, number, crc32c, there))
        };
        Ok(Box::pin(job) as jobs::BoxJob<_>)
    };
    let mut there_bytes = 0;
    jobs::run(
        args.jobs,
        work,
        start,
        |(file, number, crc32c, there): (usize, usize, u32, bool)| {
            let part = &mut parts[file][number];
            part.crc32c = Crc(crc32c);
            bar.inc(part.length);
            there_bytes += if there { part.length } else { 0 };
        },
    )
    .await?;
    bar.finish_and_clear();
    Ok((parts, there_bytes))
}

/// The manifest that is replaced. Refuses to replace one that was not asked for.
async fn old_manifest(client: &Client, args: &UploadArgs) -> Result<Option<Manifest>> {
    let id = args.manifest;
    match client.head(&args.store, id).await {
        Err(error) if is_missing(&error, client, &args.store).await => return Ok(None),
        Err(error) => return Err(error.into()),
        Ok(_) if !args.replace => return Err(DirectoryError::Taken { id }.into()),
        Ok(_) => {}
    }
    let lump = client.get(&args.store, id, None).await?;
    let old = Manifest::decode(id, &lump.bytes);
    Ok(Some(old.map_err(|source| DirectoryError::Manifest {
        id,
        source,
    })?))
}

/// Whether the service said that it has no such lump; an unknown store has the same code.
async fn is_missing(error: &lumpscope_client::Error, client: &Client, store: &str) -> bool {
    error.code() == Some(Code::NotFound)
        && client
            .stores()
            .await
            .is_ok_and(|stores| stores.iter().any(|known| known.name == store))
}

/// Everything in a folder, in the order of its names.
fn walk(folder: &Path, skip_special: bool) -> Result<Tree, DirectoryError> {
    let mut tree = Tree {
        directories: Vec::new(),
        files: Vec::new(),
    };
    // The folder itself may be a link; what is in it may not.
    for entry in walkdir::WalkDir::new(folder)
        .min_depth(1)
        .sort_by_file_name()
    {
        let entry = entry.map_err(|error| DirectoryError::File {
            what: "read",
            path: error.path().unwrap_or(folder).to_owned(),
            source: error.into(),
        })?;
        let failed = |source| DirectoryError::File {
            what: "read",
            path: entry.path().to_owned(),
            source,
        };
        let path = entry.path().strip_prefix(folder).unwrap_or(entry.path());
        let meta = entry.metadata().map_err(|error| failed(error.into()))?;
        let mode = meta.permissions().mode() & MODE;
        if meta.is_dir() {
            tree.directories.push(manifest::Directory {
                path: manifest::encode(path),
                mode,
            });
        } else if meta.is_file() {
            tree.files.push(Found {
                full: entry.path().to_owned(),
                path: path.to_owned(),
                mode,
                length: meta.len(),
                changed: (meta.mtime(), meta.mtime_nsec()),
            });
        } else if !skip_special {
            return Err(DirectoryError::Special {
                path: entry.path().to_owned(),
            });
        }
    }
    if tree.files.is_empty() && tree.directories.is_empty() {
        // WalkDir finds nothing below a file.
        std::fs::read_dir(folder).map_err(|source| DirectoryError::File {
            what: "read",
            path: folder.to_owned(),
            source,
        })?;
    }
    Ok(tree)
}

/// The parts of a file, before their checksums are known.
fn blank(manifest: LumpId, file: &Found) -> Vec<Part> {
    (0..file.length.div_ceil(PART))
        .map(|number| Part {
            id: manifest::part_id(manifest, &file.path, number).to_string(),
            length: (file.length - number * PART).min(PART),
            crc32c: Crc::default(),
        })
        .collect()
}

fn describe(file: &Found, parts: Vec<Part>) -> manifest::File {
    let crc32c = parts.iter().fold(0, |crc32c, part| {
        crc32c::combine(crc32c, part.crc32c.0, part.length)
    });
    manifest::File {
        path: manifest::encode(&file.path),
        mode: file.mode,
        length: file.length,
        crc32c: Crc(crc32c),
        parts,
    }
}

/// Whether a part is stored already. The size is known without reading the lump; only a lump of the right size is read,
/// which costs less than to write it again. Whatever fails here, the put will tell.
async fn is_there(client: &Client, store: &str, id: LumpId, length: u64, crc32c: u32) -> bool {
    let head = client.head(store, id).await;
    if !head.is_ok_and(|head| head.length == length) {
        return false;
    }
    let stored = client.peek(store, id).await;
    stored.is_ok_and(|header| header.verified && header.crc32c == Some(crc32c))
}

async fn read(file: &Arc<Found>, offset: u64, length: u64) -> Result<Bytes> {
    let file = Arc::clone(file);
    let read = move || read_part(&file, offset, length);
    Ok(tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| Interrupted)??)
}

/// Reads a part, and notices when the file is no longer what was found.
fn read_part(file: &Found, offset: u64, length: u64) -> Result<Bytes, DirectoryError> {
    let failed = |source| DirectoryError::File {
        what: "read",
        path: file.full.clone(),
        source,
    };
    let changed = || DirectoryError::Changed {
        path: file.full.clone(),
    };
    let opened = File::open(&file.full).map_err(failed)?;
    let mut bytes = vec![0; usize::try_from(length).map_err(|_| changed())?];
    opened
        .read_exact_at(&mut bytes, offset)
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => changed(),
            _ => failed(error),
        })?;
    let meta = opened.metadata().map_err(failed)?;
    if meta.len() != file.length || (meta.mtime(), meta.mtime_nsec()) != file.changed {
        return Err(changed());
    }
    Ok(bytes.into())
}

/// Removes the parts that only the old manifest names.
async fn remove_old(
    client: &Client,
    store: &str,
    old: Option<Manifest>,
    new: &Manifest,
) -> Result<usize> {
    let ids = |manifest: &Manifest| -> BTreeSet<LumpId> {
        let parts = manifest.files.iter().flat_map(|file| &file.parts);
        parts.filter_map(|part| part.id.parse().ok()).collect()
    };
    let Some(old) = old else { return Ok(0) };
    let unneeded: Vec<LumpId> = ids(&old).difference(&ids(new)).copied().collect();
    for some in unneeded.chunks(MANY) {
        client.delete_many(store, some).await?;
    }
    Ok(unneeded.len())
}
