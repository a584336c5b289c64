//! Recordings in place of a service: no privileges, and no service, are needed.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use lumpscope_client::v1;
use lumpscope_observer::{BlockLine, Input, Replay, ReplayError};
use lumpscope_server::observed::convert::{self, WallClock};

use super::live::Doubts;
use crate::error::file as file_error;

/// Reads a recording; each block request is handed to `on_block`. One that is cut off is taken as
/// far as it goes, which is said on stderr.
pub(super) async fn read(
    path: &Path,
    on_block: impl FnMut(v1::BlockLine) + Send + 'static,
) -> Result<Replay> {
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || read_all(&path, on_block));
    match reading.await {
        Ok(replay) => replay,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

fn read_all(path: &Path, mut on_block: impl FnMut(v1::BlockLine)) -> Result<Replay> {
    let file = BufReader::new(open(path)?);
    let mut replay = Replay::new();
    let clock = WallClock::of_a_recording();
    let done = replay.read(file, |line: BlockLine| {
        on_block(convert::block_line(line, clock));
    });
    match done {
        Ok(()) => {}
        Err(cut_off @ ReplayError::CutOff { .. }) => {
            eprintln!("lumpscope: incomplete: {}: {cut_off}", path.display());
        }
        Err(error) => {
            bail!("{}: {error}", path.display());
        }
    }
    let told: Vec<String> = replay
        .stores()
        .iter()
        .filter_map(|name| doubt(&replay, name))
        .collect();
    Doubts::default().tell(&told.join("; "), 0);
    Ok(replay)
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(file_error("read", path))
}

fn doubt(replay: &Replay, store: &str) -> Option<String> {
    let report = replay.report(store)?;
    if !report.observed {
        return Some(format!("{store}: {}", report.not_observed_because));
    }
    (!report.audit.complete).then(|| format!("{store}: {}", report.audit.finding))
}

/// Whether a store is in a recording.
pub(super) fn known(replay: &Replay, store: Option<&str>) -> Result<()> {
    let stores = replay.stores();
    match store {
        Some(name) if !stores.iter().any(|known| known == name) => {
            bail!(
                "there is no store {name:?} in the recording: it has {}",
                stores.join(", ")
            );
        }
        _ => Ok(()),
    }
}

/// How much time a recording covers: between the first and the last mark of time in it.
pub(super) async fn covers(path: &Path) -> Result<Duration> {
    let path = path.to_owned();
    let looking = tokio::task::spawn_blocking(move || marks(&path));
    match looking.await {
        Ok(found) => found,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

fn marks(path: &Path) -> Result<Duration> {
    let mut file = BufReader::new(open(path)?);
    let (mut first, mut last) = (None, 0);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line);
        let read = read.map_err(file_error("read", path))?;
        if read == 0 {
            break;
        }
        if line.starts_with(b"{\"drained\"")
            && let Ok(Input::Drained { until_ns }) = serde_json::from_slice(&line)
        {
            first.get_or_insert(until_ns);
            last = until_ns;
        }
    }
    let length = last.saturating_sub(first.unwrap_or(last));
    Ok(Duration::from_nanos(length))
}
