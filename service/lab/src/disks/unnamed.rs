//! Files without a name, which are gone when this process is.

use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::cannot;
use crate::process::{self, Interrupt};

/// A file without a name in this directory, and a path to it for this process and its children.
pub(crate) fn unnamed(dir: &Path) -> anyhow::Result<(File, PathBuf)> {
    let file = tempfile::tempfile_in(dir).map_err(cannot("make a file in", dir))?;
    let (pid, fd) = (std::process::id(), file.as_raw_fd());
    Ok((file, PathBuf::from(format!("/proc/{pid}/fd/{fd}"))))
}

/// An empty store in a file without a name.
#[derive(Debug)]
pub(crate) struct StoreFile {
    _file: File,
    path: PathBuf,
}

impl StoreFile {
    /// Makes it by `lumpscope format`, which writes it once. `exe`: the program that understands that.
    pub(crate) fn make(
        exe: &Path,
        dir: &Path,
        bytes: u64,
        interrupt: &Interrupt,
    ) -> anyhow::Result<StoreFile> {
        let (file, path) = unnamed(dir)?;
        let mut format = Command::new(exe);
        format.arg("format");
        process::format(format, &path, bytes, interrupt)?;
        Ok(StoreFile { _file: file, path })
    }

    /// Where children find it, too.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
