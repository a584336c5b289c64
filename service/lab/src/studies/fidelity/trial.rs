//! One pattern on one disk: live, by the model, and replayed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use lumpscope_engine::buffer::{AlignedBuf, BufferPool};
use lumpscope_platter::disk::{Disk, Request};
use lumpscope_platter::drive::SECTOR;
use lumpscope_platter::live::{Attached, Lateness};
use lumpscope_platter::replay::{WhatIf, replay};
use lumpscope_platter::trace::{Op, Trace};
use serde::Serialize;

use super::pattern::Pattern;
use crate::blocks::{Recorder, Trust};
use crate::failure::cannot;

/// Memory of the program is aligned to this: whatever the device asks for divides it.
const ALIGNMENT: usize = 4096;

/// Result of one run. Times are nanoseconds from the end of the first request to the end of the
/// last.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Trial {
    pub(super) pattern: &'static str,
    /// As the program saw it.
    pub(super) live_ns: u64,
    /// By the model, for a program that takes no time itself.
    pub(super) model_ns: u64,
    /// As the probes saw it.
    pub(super) recorded_ns: u64,
    /// Predicted from what they saw.
    pub(super) replayed_ns: u64,
    /// Requests that the program made.
    pub(super) asked: usize,
    /// That the live disk was asked for.
    pub(super) taken: usize,
    /// That the probes saw.
    pub(super) seen: usize,
    /// Whether the probes saw all.
    pub(super) trust: Trust,
    /// How late the live disk's answers were.
    pub(super) lateness: Lateness,
    /// Its threads ran before ordinary ones.
    pub(super) runs_first: bool,
}

impl Trial {
    /// Makes a disk, runs, and takes the disk away again.
    pub(super) fn run(
        exe: &Path,
        drive: &str,
        pattern: &Pattern,
        most: Option<usize>,
    ) -> anyhow::Result<Trial> {
        let options = pattern.options(drive).checked()?;
        let requests = pattern.requests(options.bytes.unwrap_or(0), most);
        let mut disk = Attached::start(exe, &options)?;
        let file = open(disk.path())?;
        let mut buffer = BufferPool::new(ALIGNMENT).zeroed(ALIGNMENT.max(longest(&requests)));
        // Zeroes would be kept as a hole, at no cost.
        buffer.fill(7);
        let recorder = Recorder::start(&[disk.path()])?;
        let before = disk.log()?.requests.len();
        let live = live(&file, &mut buffer, &requests)
            .map_err(cannot("use the emulated disk", disk.path()))?;
        let recorded = recorder.finish().into_iter().next();
        let recorded = recorded
            .ok_or_else(|| anyhow!("the probes recorded nothing of {}", disk.path().display()))?;
        let (log, status) = (disk.log()?, disk.status()?);
        let (recorded_ns, replayed_ns) = replayed(&recorded.trace, options.model()?)?;
        Ok(Trial {
            pattern: pattern.name,
            live_ns: u64::try_from(live.as_nanos()).unwrap_or(u64::MAX),
            model_ns: modelled(options.model()?, &requests)?,
            recorded_ns,
            replayed_ns,
            asked: requests.len(),
            taken: log.requests.len().saturating_sub(before),
            seen: recorded.trace.requests.len(),
            trust: recorded.trust(),
            lateness: status.lateness,
            runs_first: status.runs_first,
        })
    }
}

fn open(device: &Path) -> anyhow::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(crate::disks::direct())
        .open(device)
        .map_err(cannot("open", device))
}

fn longest(requests: &[Request]) -> usize {
    let sectors = requests.iter().map(|request| request.sectors).max();
    usize::try_from(u64::from(sectors.unwrap_or(0)) * SECTOR).unwrap_or(ALIGNMENT)
}

/// Real time from the end of the first to the end of the last.
fn live(file: &File, buffer: &mut AlignedBuf, requests: &[Request]) -> std::io::Result<Duration> {
    let mut first = None;
    for request in requests {
        once(file, buffer, request)?;
        first = first.or_else(|| Some(Instant::now()));
    }
    Ok(first.map_or(Duration::ZERO, |first| first.elapsed()))
}

fn once(file: &File, buffer: &mut [u8], request: &Request) -> std::io::Result<()> {
    let length = usize::try_from(u64::from(request.sectors) * SECTOR).unwrap_or(0);
    let (offset, buffer) = (request.sector * SECTOR, &mut buffer[..length]);
    match request.op {
        Op::Read => file.read_exact_at(buffer, offset),
        Op::Write => file.write_all_at(buffer, offset),
        Op::Flush | Op::Discard => file.sync_data(),
    }
}

/// Virtual time from the end of the first to the end of the last.
fn modelled(mut disk: Disk, requests: &[Request]) -> anyhow::Result<u64> {
    let (mut first, mut now_ns) = (None, 0);
    for request in requests {
        now_ns = disk
            .serve(now_ns, request)
            .context("the model cannot serve what the live disk served")?
            .done_ns;
        first = first.or(Some(now_ns));
    }
    Ok(now_ns - first.unwrap_or(0))
}

/// From the end of the first to the end of the last: as recorded, and as predicted from it.
fn replayed(trace: &Trace, disk: Disk) -> anyhow::Result<(u64, u64)> {
    let what_if = WhatIf::new("live", disk.drive().clone(), disk.policy());
    let predicted =
        replay(trace, &what_if).context("what was recorded of the live disk cannot be replayed")?;
    let ends = trace.requests.iter().map(|request| request.done_ns);
    let recorded = span(ends);
    let ends = predicted.requests.iter().map(|one| one.served.done_ns);
    Ok((recorded, span(ends)))
}

/// From the first to the largest.
fn span(mut ends: impl Iterator<Item = u64> + Clone) -> u64 {
    let last = ends.clone().max().unwrap_or(0);
    last - ends.next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use lumpscope_platter::live::LiveOptions;
    use lumpscope_platter::trace::Traced;

    use super::super::pattern::PATTERNS;
    use super::*;

    #[test]
    fn a_replay_of_what_the_model_did_takes_as_long_as_the_model() {
        for pattern in PATTERNS {
            let options = pattern.options("st1000dm003");
            let model = || options.model().expect("a drive");
            let requests = pattern.requests(1_000_204_886_016, Some(60));
            let (mut disk, mut now_ns) = (model(), 0);
            let traced = |request: &Request| {
                let issue_ns = now_ns;
                now_ns = disk.serve(issue_ns, request).expect("it fits").done_ns;
                Traced {
                    op: request.op,
                    fua: false,
                    sector: request.sector,
                    sectors: request.sectors,
                    queue_ns: issue_ns,
                    issue_ns,
                    done_ns: now_ns,
                    own: true,
                }
            };
            let trace = Trace::new(requests.iter().map(traced).collect(), 0);
            let (recorded, replayed) = replayed(&trace, model()).expect("it fits");
            assert_eq!(recorded, replayed, "{}", pattern.name);
            let modelled = modelled(model(), &requests).expect("it fits");
            assert_eq!(recorded, modelled, "{}", pattern.name);
        }
    }

    #[test]
    fn an_unknown_drive_is_refused_before_anything_is_made() {
        let options = LiveOptions::new("none");
        assert!(options.checked().is_err());
        let tried = Trial::run(Path::new("/nonexistent"), "none", &PATTERNS[0], None);
        assert!(
            tried
                .as_ref()
                .is_err_and(|error| error.is::<lumpscope_platter::live::LiveError>()),
            "{tried:?}"
        );
    }
}
