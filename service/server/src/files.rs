//! Files of the settings: how they are read, and what they must not be.

use std::fs::{File, Metadata};
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::ServerError;

/// None of them is larger.
const MAX_FILE: u64 = 4 << 20;
/// Permissions that a secret must not have: its group may read it, nobody else.
const TOO_OPEN_SECRET: u32 = 0o027;
/// Permissions that a file must not have that says who may do what.
pub(crate) const TOO_OPEN: u32 = 0o022;

/// Reads a file. `too_open`: permissions that it must not have.
///
/// # Errors
/// A file that cannot be read, is none, is too large, or has those permissions.
pub(crate) fn read(path: &Path, too_open: Option<u32>) -> Result<Vec<u8>, ServerError> {
    let (file, meta) = open(path)?;
    check_mode(path, &meta, too_open)?;
    content(path, file)
}

/// Reads a file with a secret in it.
///
/// # Errors
/// As [`read`]; a file that others can read or write.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, ServerError> {
    read(path, Some(TOO_OPEN_SECRET))
}

/// Reads the settings, which say as whom the service runs and what it opens: only root, and the user
/// who starts it, may write them.
///
/// # Errors
/// As [`read`]; a file of somebody else.
pub(crate) fn read_settings(path: &Path) -> Result<String, ServerError> {
    let (file, meta) = open(path)?;
    check_mode(path, &meta, Some(TOO_OPEN))?;
    let ours = rustix::process::geteuid().as_raw();
    if ![0, ours].contains(&meta.uid()) {
        let why = format!(
            "it belongs to user {}, who could change it; do `chown {ours}` on it",
            meta.uid()
        );
        return Err(bad(path, why));
    }
    let bytes = content(path, file)?;
    String::from_utf8(bytes).map_err(|_| bad(path, "it is not UTF-8"))
}

fn open(path: &Path) -> Result<(File, Metadata), ServerError> {
    // A pipe is not waited for: only a file is read.
    let mut options = File::options();
    let opened = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .and_then(|file| file.metadata().map(|meta| (file, meta)));
    let (file, meta) = opened.map_err(|source| failed(path, source))?;
    match meta.is_file() {
        true => Ok((file, meta)),
        false => Err(bad(path, "it is no regular file")),
    }
}

fn check_mode(path: &Path, meta: &Metadata, too_open: Option<u32>) -> Result<(), ServerError> {
    let mode = meta.mode() & 0o777;
    match too_open.is_some_and(|bits| mode & bits != 0) {
        false => Ok(()),
        true => Err(bad(
            path,
            format!(
                "its permissions are {mode:o}, so others can use it; do `chmod o-rwx,g-w` on it"
            ),
        )),
    }
}

fn content(path: &Path, file: File) -> Result<Vec<u8>, ServerError> {
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(|source| failed(path, source))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(bad(path, "it is larger than 4M; is it the right file?"));
    }
    Ok(bytes)
}

fn failed(path: &Path, source: std::io::Error) -> ServerError {
    ServerError::File {
        what: "read",
        path: path.to_owned(),
        source,
    }
}

/// A place in a TOML file where it is wrong. The message names fields and lines, never the value of a string.
pub(crate) fn unread(path: &Path, text: &str, error: &toml::de::Error) -> ServerError {
    let before = error.span().map_or("", |span| &text[..span.start]);
    ServerError::ConfigParse {
        path: path.to_owned(),
        line: 1 + before.matches('\n').count(),
        why: error.message().replace('\n', " "),
    }
}

/// Error in a file of the settings.
pub(crate) fn bad(path: &Path, why: impl std::fmt::Display) -> ServerError {
    ServerError::DoorFile {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
