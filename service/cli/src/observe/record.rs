//! `lumpscope record`: what the observer learns, into a file that can be replayed anywhere.

use std::fs::{File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;
use lumpscope_engine::guard::check_output;
use lumpscope_units::human;
use serde_json::json;
use tokio::time::Instant;

use super::live::ending;
use crate::client::{ConnectionArgs, OutputFormat};
use crate::error::file as file_error;
use crate::output::complain;

/// `lumpscope record`.
#[derive(Args)]
pub(crate) struct RecordArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// File to create; only its owner can read it
    file: PathBuf,
    /// End after this many seconds instead of at Ctrl-C
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Replace an existing file
    #[arg(long)]
    force: bool,
}

/// Replies that are still taken after the end was asked for: what had ended until then may be in
/// the observer, in the call's queue, or on the way. Something comes every 20 ms.
const LAST_REPLIES: u32 = 8;
/// They are waited for no longer than this.
const LAST_WAIT: Duration = Duration::from_secs(2);

pub(crate) async fn run(connection: ConnectionArgs, args: RecordArgs) -> Result<ExitCode> {
    let ending = ending()?;
    let client = connection.connect().await?;
    let mut live = client.record().await?;
    let mut file = create(&args.file, args.force)?;
    let write = file_error("write", &args.file);
    let longest = args.seconds.map_or(Duration::MAX, Duration::from_secs);
    let over = tokio::time::sleep(longest);
    tokio::pin!(over);
    let (mut lines, mut bytes, mut dropped) = (0_u64, 0_u64, 0);
    // Replies still to be taken, once the end was asked for.
    let mut left: Option<u32> = None;
    while left != Some(0) {
        let reply = tokio::select! {
            reply = live.next() => Some(reply?),
            () = ending.cancelled(), if left.is_none() => None,
            () = &mut over => match left {
                Some(_) => break,
                None => None,
            },
        };
        let Some(reply) = reply else {
            over.as_mut().reset(Instant::now() + LAST_WAIT);
            left = Some(LAST_REPLIES);
            continue;
        };
        left = left.map(|left| left - 1);
        let Some(reply) = reply else {
            complain("lumpscope: the service ended the stream");
            break;
        };
        file.write_all(&reply.lines).map_err(write)?;
        lines += reply
            .lines
            .iter()
            .map(|byte| u64::from(*byte == b'\n'))
            .sum::<u64>();
        bytes += reply.lines.len() as u64;
        dropped = reply.dropped;
    }
    if dropped > 0 {
        complain(&format!(
            "lumpscope: incomplete: left out {} that were not read in time",
            human::counted(dropped, "line")
        ));
    }
    args.form.say(
        || json!({"file": args.file, "lines": lines, "bytes": bytes, "dropped": dropped}),
        || {
            format!(
                "recorded {}, {}; {} left out",
                human::counted(lines, "line"),
                human::bytes(bytes),
                human::count(dropped)
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the file. Says whose it is before anything is in it.
fn create(path: &Path, force: bool) -> Result<File> {
    check_output(path)?;
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    match force {
        true => options.create(true).truncate(true),
        false => options.create_new(true),
    };
    let wrong = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AlreadyExists => anyhow!(
            "{} exists; choose another name, or replace it with --force",
            path.display()
        ),
        _ => file_error("create", path)(source),
    };
    let file = options.open(path).map_err(wrong)?;
    // One that was there keeps its permissions when it is opened.
    if file.metadata().is_ok_and(|meta| meta.is_file()) {
        file.set_permissions(Permissions::from_mode(0o600))
            .map_err(wrong)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_among_the_devices_is_none_for_a_recording() {
        for force in [false, true] {
            let refused = create(Path::new("/dev/lumpscope-none"), force);
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("lsblk lists them"), "{refused}");
        }
    }

    #[test]
    fn a_recording_is_private_and_replaces_nothing_unasked() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        let refused = create(&path, false).unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        drop(create(&path, true).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        let fresh = folder.path().join("fresh");
        drop(create(&fresh, false).unwrap());
        assert_eq!(mode(&fresh), 0o600);
    }
}
