//! Makes the file systems, as the published comparison had them.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{anyhow, bail};

use super::StoreKind;
use crate::failure::cannot_do;
use crate::process::tie_to_parent;

/// Makes a file system on the whole device. Everything is written now: work that is left to the
/// kernel for later would show up in the measurement. An `emulated` disk is spared the 16 GiB that
/// the tables of inodes take on 1 TB; it is mounted so that the kernel does not make them later.
pub(super) fn make(
    kind: StoreKind,
    device: &Path,
    ext4_journal: bool,
    emulated: bool,
) -> anyhow::Result<()> {
    match kind {
        StoreKind::Raw => Ok(()),
        StoreKind::Ext4 => {
            let features = if ext4_journal {
                "has_journal"
            } else {
                "^has_journal"
            };
            let lazy = match emulated {
                false => "lazy_itable_init=0,lazy_journal_init=0,nodiscard",
                true => "lazy_itable_init=1,lazy_journal_init=0,nodiscard",
            };
            let arguments = ["-q", "-F", "-b", "4096", "-O", features, "-E", lazy];
            run("mkfs.ext4", "e2fsprogs", &arguments, device)
        }
        StoreKind::Xfs => {
            let arguments = ["-q", "-f", "-K", "-m", "reflink=0,rmapbt=0"];
            run("mkfs.xfs", "xfsprogs", &arguments, device)
        }
    }
}

fn run(
    tool: &'static str,
    package: &'static str,
    arguments: &[&str],
    device: &Path,
) -> anyhow::Result<()> {
    let mut command = Command::new(tool);
    command
        .args(arguments)
        .arg(device)
        .env("PATH", search_path());
    command.stdin(Stdio::null());
    tie_to_parent(&mut command, None);
    let output = command.output().map_err(|source| match source.kind() {
        ErrorKind::NotFound => {
            anyhow!("{tool} is not installed; it comes with the package {package}")
        }
        _ => cannot_do(format!("run {tool}"))(source),
    })?;
    if output.status.success() {
        return Ok(());
    }
    bail!(
        "{tool} {} failed ({}): {}",
        device.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    )
}

/// `mkfs` lives where an ordinary user's path does not lead.
fn search_path() -> OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/sbin:/sbin");
    path
}
