//! Recordings in place of a service: no privileges, and no service, are needed.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::{Result, bail};
use lumpscope_client::v1;
use lumpscope_observer::{Replay, ReplayError};

use super::live::Doubts;
use crate::error::file as file_error;
use crate::output::complain;

/// Reads a recording; each block request of the filter is handed to `on_block`. One that is cut off
/// is taken as far as it goes, which is said on stderr.
pub(super) async fn read(
    path: &Path,
    filter: v1::TraceRequest,
    on_block: impl FnMut(v1::BlockLine) + Send + 'static,
) -> Result<Replay> {
    let path = path.to_owned();
    let reading = tokio::task::spawn_blocking(move || read_all(&path, filter, on_block));
    match reading.await {
        Ok(replay) => replay,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Reads a recording as far as it goes; that it is cut off is said on stderr.
pub(crate) fn take(
    path: &Path,
    filter: v1::TraceRequest,
    on_line: impl FnMut(v1::BlockLine),
) -> Result<Replay> {
    let mut replay = Replay::filtered(filter);
    let file = File::open(path).map_err(file_error("read", path))?;
    let path = path.display();
    match replay.read(BufReader::new(file), on_line) {
        Ok(()) => {}
        Err(cut_off @ ReplayError::CutOff { .. }) => {
            complain(&format!("lumpscope: incomplete: {path}: {cut_off}"));
        }
        Err(error) => bail!("{path}: {error}"),
    }
    Ok(replay)
}

fn read_all(
    path: &Path,
    filter: v1::TraceRequest,
    on_block: impl FnMut(v1::BlockLine),
) -> Result<Replay> {
    let replay = take(path, filter, on_block)?;
    let told: Vec<String> = replay
        .stores()
        .iter()
        .filter_map(|name| doubt(&replay, name))
        .collect();
    Doubts::default().tell(&told.join("; "), 0);
    Ok(replay)
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
                "no store {name:?} in the recording (it has {})",
                stores.join(", ")
            );
        }
        _ => Ok(()),
    }
}
