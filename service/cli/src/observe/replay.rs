//! Recordings in place of a service: no privileges, and no service, are needed.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use lumpscope_client::v1;
use lumpscope_observer::{BlockLine, Input, Replay, ReplayError};
use lumpscope_server::observed::convert::{self, WallClock};

use super::export::Disks;
use super::live::Doubts;
use crate::error::file as file_error;
use crate::output::complain;

/// No line with a recording's time of day is longer, in bytes.
const LONGEST_CLOCK: u64 = 256;

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

/// Reads a recording as far as it goes; that it is cut off is said on stderr.
pub(crate) fn take(path: &Path, on_line: impl FnMut(BlockLine)) -> Result<Replay> {
    let mut replay = Replay::new();
    let (file, path) = (open(path)?, path.display());
    match replay.read(BufReader::new(file), on_line) {
        Ok(()) => {}
        Err(cut_off @ ReplayError::CutOff { .. }) => {
            complain(&format!("lumpscope: incomplete: {path}: {cut_off}"));
        }
        Err(error) => bail!("{path}: {error}"),
    }
    Ok(replay)
}

fn read_all(path: &Path, mut on_block: impl FnMut(v1::BlockLine)) -> Result<Replay> {
    let clock = clock_of(path)?;
    let replay = take(path, |line| on_block(convert::block_line(line, clock)))?;
    let told: Vec<String> = replay
        .stores()
        .iter()
        .filter_map(|name| doubt(&replay, name))
        .collect();
    Doubts::default().tell(&told.join("; "), 0);
    Ok(replay)
}

/// The clock of a recording: its first line says the time of day. Old ones do not.
pub(super) fn clock_of(path: &Path) -> Result<WallClock> {
    let mut first = Vec::new();
    let mut start = BufReader::new(open(path)?).take(LONGEST_CLOCK);
    let read = start.read_until(b'\n', &mut first);
    read.map_err(file_error("read", path))?;
    Ok(match serde_json::from_slice(&first) {
        Ok(Input::Clock {
            monotonic_ns,
            unix_ns,
            ..
        }) => WallClock::recorded(monotonic_ns, unix_ns),
        _ => WallClock::of_a_recording(),
    })
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
                "no store {name:?} in the recording (it has {})",
                stores.join(", ")
            );
        }
        _ => Ok(()),
    }
}

/// The disks of a recording, and their numbers.
pub(super) fn disks(path: &Path) -> Result<Disks> {
    let mut disks = Disks::new();
    inputs(path, b"{\"placed\"", |input| {
        if let Input::Placed {
            placement, disk, ..
        } = input
        {
            // As the kernel packs them.
            disks.insert(disk, (placement.dev >> 20, placement.dev & 0xf_ffff));
        }
    })?;
    Ok(disks)
}

/// The lines of a recording that begin so.
fn inputs(path: &Path, begin: &[u8], mut each: impl FnMut(Input)) -> Result<()> {
    let mut file = BufReader::new(open(path)?);
    let mut line = Vec::new();
    while file
        .read_until(b'\n', &mut line)
        .map_err(file_error("read", path))?
        > 0
    {
        if line.starts_with(begin)
            && let Ok(input) = serde_json::from_slice(&line)
        {
            each(input);
        }
        line.clear();
    }
    Ok(())
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
    let (mut first, mut last) = (None, 0);
    inputs(path, b"{\"drained\"", |input| {
        if let Input::Drained { until_ns } = input {
            first.get_or_insert(until_ns);
            last = until_ns;
        }
    })?;
    let length = last.saturating_sub(first.unwrap_or(last));
    Ok(Duration::from_nanos(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_says_the_time_of_day_in_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.jsonl");
        let drained = "{\"drained\":{\"until_ns\":105}}\n";
        std::fs::write(&path, drained).unwrap();
        assert_eq!(clock_of(&path).unwrap().unix_ns(105), 105);
        let clock = "{\"clock\":{\"monotonic_ns\":100,\"unix_ns\":1000000}}\n";
        std::fs::write(&path, format!("{clock}{drained}")).unwrap();
        assert_eq!(clock_of(&path).unwrap().unix_ns(105), 1_000_005);
    }
}
