//! The lump that describes a folder: what is in it, and which lumps hold the bytes.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use lumpscope_client::LumpId;
use lumpscope_engine::crc32c;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Bytes of a part; the last one of a file has what is left.
pub(super) const PART: u64 = 4 << 20;

/// Says that a lump is such a description.
const FORMAT: &str = "lumpscope-directory";

/// Version of what is described here.
const VERSION: u32 = 1;

/// Longest path in bytes, as in Linux.
const LONGEST_PATH: usize = 4096;

/// Why a manifest is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ManifestError {
    /// It cannot be understood.
    #[error("it is not the JSON that an upload stores ({0})")]
    Json(#[from] serde_json::Error),
    /// It is something else, or newer than this program.
    #[error("it is {format:?} version {version}; this program knows {FORMAT:?} version {VERSION}")]
    Version {
        /// Declared format.
        format: String,
        /// Its version.
        version: u32,
    },
    /// A path that does not stay inside the folder.
    #[error("the path {path:?} does not stay inside the folder, or cannot be a path")]
    Path {
        /// The path as it is written there.
        path: String,
    },
    /// Two entries in one place.
    #[error("the path {path:?} comes twice, or is a file and a folder at once")]
    Twice {
        /// The path.
        path: String,
    },
    /// The parts do not make up the file.
    #[error("the parts of {path:?} do not make up the file: {why}")]
    Parts {
        /// The file.
        path: String,
        /// Reason.
        why: &'static str,
    },
}

/// A folder.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    format: String,
    version: u32,
    /// Every folder inside, each before what is in it.
    pub(super) directories: Vec<Directory>,
    /// Every file.
    pub(super) files: Vec<File>,
}

/// A folder inside.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Directory {
    /// See [`encode`].
    pub(super) path: String,
    /// Permission bits.
    pub(super) mode: u32,
}

/// A file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// See [`encode`].
    pub(super) path: String,
    /// Permission bits.
    pub(super) mode: u32,
    /// Bytes.
    pub(super) length: u64,
    /// CRC-32C of the whole file, 8 hexadecimal digits.
    pub(super) crc32c: Crc,
    /// In order; an empty file has none.
    pub(super) parts: Vec<Part>,
}

/// A piece of a file: one lump.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    /// 32 hexadecimal digits.
    pub(super) id: String,
    /// Bytes.
    pub(super) length: u64,
    /// CRC-32C, 8 hexadecimal digits.
    pub(super) crc32c: Crc,
}

/// A checksum, written as 8 hexadecimal digits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Crc(pub(super) u32);

impl From<Crc> for String {
    fn from(crc: Crc) -> Self {
        format!("{:08x}", crc.0)
    }
}

impl TryFrom<String> for Crc {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let good = text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        good.then(|| u32::from_str_radix(&text, 16).ok())
            .flatten()
            .map(Self)
            .ok_or("a checksum has 8 hexadecimal digits")
    }
}

/// Id of a part: the first 128 bits of SHA-256 over the manifest's id (16 bytes, most significant first), the path as
/// the file system has it, a zero byte, and the number of the part from 0 (8 bytes, most significant first).
pub(super) fn part_id(manifest: LumpId, path: &Path, part: u64) -> LumpId {
    let mut hash = Sha256::new();
    hash.update(manifest.0.to_be_bytes());
    hash.update(path.as_os_str().as_bytes());
    hash.update([0]);
    hash.update(part.to_be_bytes());
    let mut first = [0; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    LumpId(u128::from_be_bytes(first))
}

/// A path as text: its UTF-8, with every '%' and every byte that is no UTF-8 written as '%' and two hexadecimal digits.
pub(super) fn encode(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_bytes().utf8_chunks() {
        text.push_str(&chunk.valid().replace('%', "%25"));
        for byte in chunk.invalid() {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

/// The path that a text stands for, if it stays inside the folder: no "..", not absolute, no empty names.
pub(super) fn decode(text: &str) -> Result<PathBuf, ManifestError> {
    let wrong = || ManifestError::Path {
        path: text.to_owned(),
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let digits = digits.filter(|two| two.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|two| u8::from_str_radix(two, 16).ok());
        bytes.push(value.ok_or_else(wrong)?);
        rest = &rest[2..];
    }
    let good = bytes.len() <= LONGEST_PATH
        && !bytes.contains(&0)
        && bytes
            .split(|byte| *byte == b'/')
            .all(|name| !name.is_empty() && name != b"." && name != b"..");
    if !good {
        return Err(wrong());
    }
    Ok(PathBuf::from(OsStr::from_bytes(&bytes)))
}

impl Manifest {
    pub(super) fn new(directories: Vec<Directory>, files: Vec<File>) -> Self {
        Self {
            format: FORMAT.to_owned(),
            version: VERSION,
            directories,
            files,
        }
    }

    /// The bytes of the lump.
    pub(super) fn encode(&self) -> Result<Vec<u8>, ManifestError> {
        Ok(serde_json::to_vec(self)?)
    }

    /// Understands the bytes of a lump and checks everything that does not need the parts.
    pub(super) fn decode(id: LumpId, bytes: &[u8]) -> Result<Self, ManifestError> {
        let manifest: Self = serde_json::from_slice(bytes)?;
        if manifest.format != FORMAT || manifest.version != VERSION {
            return Err(ManifestError::Version {
                format: manifest.format,
                version: manifest.version,
            });
        }
        manifest.check_paths()?;
        for file in &manifest.files {
            check_parts(id, file).map_err(|why| ManifestError::Parts {
                path: file.path.clone(),
                why,
            })?;
        }
        Ok(manifest)
    }

    /// No path comes twice, and none lies inside a file.
    fn check_paths(&self) -> Result<(), ManifestError> {
        let directories = self.directories.iter().map(|entry| (&entry.path, true));
        let files = self.files.iter().map(|entry| (&entry.path, false));
        let mut seen = BTreeMap::new();
        for (text, is_folder) in directories.chain(files) {
            if seen.insert(decode(text)?, is_folder).is_some() {
                return Err(ManifestError::Twice { path: text.clone() });
            }
        }
        for path in seen.keys() {
            let inside_a_file = path
                .ancestors()
                .skip(1)
                .any(|above| seen.get(above) == Some(&false));
            if inside_a_file {
                return Err(ManifestError::Twice { path: encode(path) });
            }
        }
        Ok(())
    }
}

fn check_parts(manifest: LumpId, file: &File) -> Result<(), &'static str> {
    let path = decode(&file.path).map_err(|_| "its path cannot be a path")?;
    let (mut length, mut crc32c) = (0_u64, 0);
    for (number, part) in (0..).zip(&file.parts) {
        if part.id != part_id(manifest, &path, number).to_string() {
            return Err("a part has an id that is not made from the manifest's id and the path");
        }
        let left = file.length.saturating_sub(length);
        if part.length == 0 || part.length != left.min(PART) {
            return Err("a part has the wrong length");
        }
        length += part.length;
        crc32c = crc32c::combine(crc32c, part.crc32c.0, part.length);
    }
    if length != file.length {
        return Err("their lengths do not add up");
    }
    if crc32c != file.crc32c.0 {
        return Err("their checksums do not make up its checksum");
    }
    Ok(())
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
