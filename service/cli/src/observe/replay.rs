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

fn read_all(path: &Path, mut on_block: impl FnMut(v1::BlockLine)) -> Result<Replay> {
    let file = BufReader::new(open(path)?);
    let mut replay = Replay::new();
    let clock = clock_of(path)?;
    let done = replay.read(file, |line: BlockLine| {
        on_block(convert::block_line(line, clock));
    });
    match done {
        Ok(()) => {}
        Err(cut_off @ ReplayError::CutOff { .. }) => {
            complain(&format!(
                "lumpscope: incomplete: {}: {cut_off}",
                path.display()
            ));
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
    let mut file = BufReader::new(open(path)?);
    let (mut disks, mut line) = (Disks::new(), Vec::new());
    loop {
        line.clear();
        let read = file.read_until(b'\n', &mut line);
        if read.map_err(file_error("read", path))? == 0 {
            return Ok(disks);
        }
        if line.starts_with(b"{\"placed\"")
            && let Ok(Input::Placed {
                placement, disk, ..
            }) = serde_json::from_slice(&line)
        {
            // As the kernel packs them.
            disks.insert(disk, (placement.dev >> 20, placement.dev & 0xf_ffff));
        }
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
