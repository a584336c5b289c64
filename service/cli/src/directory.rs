//! `lumpscope upload` and `download`: a folder as lumps. DIRECTORIES.md describes what is stored.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::LumpId;
use lumpscope_units::human;
use serde_json::json;

use super::client::{Connection, Form};
use super::data::DurabilityArg;

mod download;
mod jobs;
mod manifest;
mod upload;

use manifest::ManifestError;

/// Why a folder cannot be uploaded or downloaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum DirectoryError {
    /// A file of the folder cannot be read, or one cannot be written.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// The attempted action.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Something that is neither a file nor a folder.
    #[error(
        "{} is neither a file nor a folder: take it away, or leave such things out with \
         --skip-special",
        path.display()
    )]
    Special {
        /// Where it is.
        path: PathBuf,
    },
    /// A file was written to while it was uploaded.
    #[error("{} changed while it was read: upload it again when nobody writes to it", path.display())]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// There is a lump where the manifest would go.
    #[error(
        "there is a lump {id} in the store already: choose another --manifest, or replace what it \
         describes with --replace"
    )]
    Taken {
        /// Id of the manifest.
        id: LumpId,
    },
    /// The lump is no manifest, or one that must not be followed.
    #[error("lump {id} is no manifest that can be used: {source}")]
    Manifest {
        /// Its id.
        id: LumpId,
        /// Reason.
        source: ManifestError,
    },
    /// A part is not what the manifest says.
    #[error(
        "lump {id}, a part of {path}, is not what the manifest says: it has {got} bytes with the \
         checksum {crc32c:08x}; it was replaced after the upload"
    )]
    Part {
        /// The lump.
        id: LumpId,
        /// The file it belongs to.
        path: String,
        /// Its length in bytes.
        got: u64,
        /// Its checksum.
        crc32c: u32,
    },
    /// Something is in the way.
    #[error("{} is there already: use another folder, or replace files with --force", path.display())]
    Exists {
        /// Where.
        path: PathBuf,
    },
    /// Something is in the way that is never replaced.
    #[error(
        "{} is in the way: it is no {want}, and a download neither follows nor replaces it",
        path.display()
    )]
    InTheWay {
        /// Where.
        path: PathBuf,
        /// Expected kind of file.
        want: &'static str,
    },
}

/// `lumpscope upload`.
#[derive(Args)]
pub(super) struct UploadArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// Folder
    folder: PathBuf,
    /// Id of the lump that will describe the folder; it is stored last. Repeat an interrupted
    /// upload to resume it
    #[arg(long, value_name = "ID")]
    manifest: LumpId,
    /// Parts under way at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = jobs::parser())]
    jobs: u64,
    /// Replace the folder that the manifest describes now
    #[arg(long)]
    replace: bool,
    /// Leave out symbolic links, sockets and everything else that is neither file nor folder
    #[arg(long)]
    skip_special: bool,
    #[command(flatten)]
    durability: DurabilityArg,
}

/// `lumpscope download`.
#[derive(Args)]
pub(super) struct DownloadArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// Id of the manifest
    manifest: LumpId,
    /// Folder to write to; created when missing
    folder: PathBuf,
    /// Parts under way at a time
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = jobs::parser())]
    jobs: u64,
    /// Replace existing files
    #[arg(long)]
    force: bool,
}

/// Counts of moved files and bytes.
struct Moved {
    files: usize,
    directories: usize,
    bytes: u64,
    /// Bytes that were there already.
    skipped_bytes: u64,
    /// Old parts that nothing needs any more.
    removed_parts: usize,
}

impl Moved {
    fn json(&self) -> serde_json::Value {
        json!({
            "files": self.files,
            "directories": self.directories,
            "bytes": self.bytes,
            "skipped_bytes": self.skipped_bytes,
            "removed_parts": self.removed_parts,
        })
    }

    fn text(&self, verb: &str) -> String {
        let mut text = format!(
            "{verb} {} and {}, {}",
            human::counted(self.files as u64, "file"),
            human::counted(self.directories as u64, "folder"),
            human::counted(self.bytes, "byte")
        );
        if self.skipped_bytes > 0 {
            text.push_str(&format!(", {} of them were there", self.skipped_bytes));
        }
        if self.removed_parts > 0 {
            text.push_str(&format!("; removed {} old parts", self.removed_parts));
        }
        text
    }
}

pub(super) async fn upload(connection: Connection, args: UploadArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let moved = upload::run(client, &args).await?;
    args.form.say(|| moved.json(), || moved.text("uploaded"))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn download(connection: Connection, args: DownloadArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let moved = download::run(client, &args).await?;
    args.form
        .say(|| moved.json(), || moved.text("downloaded"))?;
    Ok(ExitCode::SUCCESS)
}
