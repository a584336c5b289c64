//! The time that a drive would have taken: a store's block requests, replayed through its model.
//!
//! The requests are those of the running kernel, and so is the order of events: which had ended when
//! one was made. Their times come from the model alone, so a busy machine and an idle one get the
//! same answer. A block request that nobody waited for (a timer's, the kernel's own) keeps its place
//! among the others and costs what it costs there.

use std::collections::BTreeMap;
use std::time::Duration;

use lumpscope_platter::drive::Drive;
use lumpscope_platter::replay::Prediction;
use lumpscope_platter::trace::{Op, Trace, Traced};
use serde::Serialize;

use super::watch::{DiskObservations, MadeFor, OWNERS};
use crate::stats::{Kind, Latencies, Summary};
use crate::studies::predict::{self, Rule};

/// A block of metadata that is written as often is written by flushes, not by a timer.
const LEAST_REPEATED: u64 = 8;

/// A store's work on a modelled drive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelledView {
    /// Name of the drive.
    pub model: String,
    /// From the first block request of a command to the end of the last one of any, in nanoseconds.
    pub elapsed_ns: u64,
    /// `elapsed_ns` over that of the raw store with blocks of this size; absent when that has none.
    pub ratio_to_raw: Option<f64>,
    /// Latency of each kind of command: first block request to the end of the last.
    pub kinds: Vec<Summary>,
    /// Block requests and movements of the arm by who made them; only those that there are.
    pub owners: Vec<OwnerView>,
    /// Writes of metadata that were added because the drive's clock is not this machine's, see
    /// [`at_every_flush`].
    pub added: u64,
    /// How much shorter `elapsed_ns` is without the journal of the file system.
    pub lost_to_fs_journal_ns: i64,
    /// How much shorter it is without the file system's metadata.
    pub lost_to_fs_metadata_ns: i64,
}

/// The work of one owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OwnerView {
    /// Owner class.
    pub owner: &'static str,
    /// Block requests, flushes included.
    pub requests: u64,
    /// Bytes read and written.
    pub bytes: u64,
    /// Movements of the arm to what it reads or writes, also from the drive's cache.
    pub seeks: u64,
    /// Their time in nanoseconds.
    pub seek_ns: u64,
}

/// Replays what a disk was asked for; `inodes`: of an ext4 without a journal; `kinds`: kind of each
/// command by the id of its request.
pub(super) fn modelled(
    (seen, inodes): (&DiskObservations, bool),
    kinds: &BTreeMap<u64, Kind>,
    drive: &Drive,
    rule: Rule,
) -> anyhow::Result<ModelledView> {
    let full = inodes.then(|| at_every_flush(seen));
    let (seen, added) = full
        .as_ref()
        .map_or((seen, 0), |(full, added)| (full, *added));
    let on_drive = OnDrive::new(seen, drive, rule)?;
    let elapsed_ns = on_drive.elapsed_ns(kinds);
    let lost_to = |owner: &str| -> anyhow::Result<i64> {
        if !seen.made_for.iter().any(|made| made.owner == owner) {
            return Ok(0);
        }
        let others = without(seen, owner);
        let others = OnDrive::new(&others, drive, rule)?;
        Ok(difference(elapsed_ns, others.elapsed_ns(kinds)))
    };
    Ok(ModelledView {
        model: drive.name.to_string(),
        elapsed_ns,
        ratio_to_raw: None,
        kinds: on_drive.latencies(kinds),
        owners: on_drive.owners(),
        added,
        lost_to_fs_journal_ns: lost_to("fs-journal")?,
        lost_to_fs_metadata_ns: lost_to("fs-metadata")?,
    })
}

fn difference(a: u64, b: u64) -> i64 {
    let size = i64::try_from(a.abs_diff(b)).unwrap_or(i64::MAX);
    if a < b { -size } else { size }
}

/// Metadata that the file system writes at every flush of a file, as it does on a slow drive.
///
/// An ext4 without a journal writes the inode of a file when it is flushed, if the file's time of
/// change is another than at the flush before, and that time moves with the kernel's clock tick of
/// some milliseconds. On a fast disk several flushes fall into one tick, on the modelled one none
/// do. So a block of metadata that is written before some of the store's own flushes is written
/// before each that has something to flush. How many were added comes along.
fn at_every_flush(seen: &DiskObservations) -> (DiskObservations, u64) {
    let all = || seen.trace.requests.iter().zip(&seen.made_for);
    let metadata = |(request, made): &(&Traced, &MadeFor)| {
        made.owner == "fs-metadata" && request.op == Op::Write
    };
    let mut written: BTreeMap<(u64, u32), u64> = BTreeMap::new();
    for (request, _) in all().filter(metadata) {
        *written
            .entry((request.sector, request.sectors))
            .or_default() += 1;
    }
    let inode = written.into_iter().max_by_key(|(_, times)| *times);
    let Some(((inode, sectors), _)) = inode.filter(|(_, times)| *times >= LEAST_REPEATED) else {
        return (seen.clone(), 0);
    };
    let mut full = DiskObservations {
        missing: seen.missing.clone(),
        ..DiskObservations::default()
    };
    let (mut added, mut dirty, mut done) = (0, false, false);
    for (request, made) in all() {
        let own = matches!(made.owner, "request" | "store");
        done |= metadata(&(request, made)) && request.sector == inode;
        dirty |= own && request.op == Op::Write;
        if own && request.op == Op::Flush {
            if dirty && !done {
                let at = request.queue_ns;
                full.trace.requests.push(Traced {
                    op: Op::Write,
                    fua: false,
                    sector: inode,
                    sectors,
                    queue_ns: at.saturating_sub(2),
                    issue_ns: at.saturating_sub(2),
                    done_ns: at.saturating_sub(1),
                    own: false,
                });
                full.made_for.push(MadeFor {
                    owner: "fs-metadata",
                    requests: Vec::new(),
                });
                added += 1;
            }
            (dirty, done) = (false, false);
        }
        full.trace.requests.push(*request);
        full.made_for.push(made.clone());
    }
    (full, added)
}

/// As if this owner had made no block requests.
fn without(seen: &DiskObservations, owner: &str) -> DiskObservations {
    let all = seen.trace.requests.iter().zip(&seen.made_for);
    let kept = all.filter(|(_, made)| made.owner != owner);
    let (requests, made_for) = kept.map(|(request, made)| (*request, made.clone())).unzip();
    DiskObservations {
        trace: Trace {
            requests,
            missing: seen.trace.missing,
        },
        made_for,
        ..DiskObservations::default()
    }
}

/// The block requests on the modelled drive.
struct OnDrive<'a> {
    seen: &'a DiskObservations,
    prediction: Prediction,
}

impl OnDrive<'_> {
    fn new<'a>(
        seen: &'a DiskObservations,
        drive: &Drive,
        rule: Rule,
    ) -> anyhow::Result<OnDrive<'a>> {
        Ok(OnDrive {
            prediction: predict::replayed(&seen.trace, drive, rule)?,
            seen,
        })
    }

    /// First issue and last end of the block requests of each command.
    fn commands(&self, kinds: &BTreeMap<u64, Kind>) -> BTreeMap<u64, (u64, u64)> {
        let mut commands: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for (made, one) in self.seen.made_for.iter().zip(&self.prediction.requests) {
            for id in made.requests.iter().filter(|id| kinds.contains_key(id)) {
                let span = commands
                    .entry(*id)
                    .or_insert((one.issue_ns, one.served.done_ns));
                span.0 = span.0.min(one.issue_ns);
                span.1 = span.1.max(one.served.done_ns);
            }
        }
        commands
    }

    fn elapsed_ns(&self, kinds: &BTreeMap<u64, Kind>) -> u64 {
        let commands = self.commands(kinds);
        let begin = commands.values().map(|span| span.0).min();
        let end = commands.values().map(|span| span.1).max();
        end.unwrap_or(0).saturating_sub(begin.unwrap_or(0))
    }

    fn latencies(&self, kinds: &BTreeMap<u64, Kind>) -> Vec<Summary> {
        let mut latencies = Latencies::default();
        for (id, (begin, end)) in self.commands(kinds) {
            if let Some(kind) = kinds.get(&id) {
                latencies.record(*kind, Duration::from_nanos(end.saturating_sub(begin)));
            }
        }
        latencies.summaries()
    }

    fn owners(&self) -> Vec<OwnerView> {
        let mut owners = OWNERS.map(|owner| OwnerView {
            owner,
            ..OwnerView::default()
        });
        let place = |owner: &str| OWNERS.iter().position(|one| *one == owner);
        for (request, made) in self.seen.trace.requests.iter().zip(&self.seen.made_for) {
            if let Some(view) = place(made.owner).and_then(|place| owners.get_mut(place)) {
                view.requests += 1;
                view.bytes += u64::from(request.sectors) * lumpscope_platter::drive::SECTOR;
            }
        }
        for (mover, moved) in predict::movers(&self.seen.trace, &self.prediction) {
            let made = mover.and_then(|place| self.seen.made_for.get(place));
            let owner = made.map_or("other", |made| made.owner);
            if let Some(view) = place(owner).and_then(|place| owners.get_mut(place)) {
                view.seeks += 1;
                view.seek_ns += moved.seek_ns;
            }
        }
        owners
            .into_iter()
            .filter(|view| view.requests > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::seeds::DRIVE;

    /// A block request that is made when the one before has ended, by `step`.
    fn block(step: u64, op: Op, owner: &'static str, sector: u64, id: u64) -> (Traced, MadeFor) {
        let flush = op == Op::Flush;
        let request = Traced {
            op,
            fua: false,
            sector: if flush { 0 } else { sector },
            sectors: if flush { 0 } else { 64 },
            queue_ns: step * 1000,
            issue_ns: step * 1000 + 10,
            done_ns: step * 1000 + 900,
            own: id > 0,
        };
        let requests = if id > 0 { vec![id] } else { Vec::new() };
        (request, MadeFor { owner, requests })
    }

    fn seen(blocks: Vec<(Traced, MadeFor)>) -> DiskObservations {
        let (requests, made_for) = blocks.into_iter().unzip();
        DiskObservations {
            trace: Trace {
                requests,
                missing: 0,
            },
            made_for,
            ..DiskObservations::default()
        }
    }

    /// Puts, each of data and flush, record and flush; the inode is written before the flushes
    /// whose number divides by `every`.
    fn puts(count: u64, every: u64) -> DiskObservations {
        let (mut blocks, mut flushes) = (Vec::new(), 0);
        for id in 1..=count {
            for sector in [1_000_000 + id * 64, 2048] {
                let step = |blocks: &Vec<_>| u64::try_from(blocks.len()).unwrap_or(0) + 1;
                blocks.push(block(step(&blocks), Op::Write, "request", sector, id));
                if flushes % every == 0 {
                    blocks.push(block(step(&blocks), Op::Write, "fs-metadata", 9_000_000, 0));
                }
                blocks.push(block(step(&blocks), Op::Flush, "request", 0, id));
                flushes += 1;
            }
        }
        seen(blocks)
    }

    fn on_published_drive(seen: &DiskObservations, ids: u64) -> ModelledView {
        let drive = predict::drive_named(DRIVE).unwrap();
        let kinds = (1..=ids).map(|id| (id, Kind::Put(32_768))).collect();
        modelled((seen, true), &kinds, &drive, Rule::Overlap).unwrap()
    }

    #[test]
    fn time_seeks_and_losses_have_their_owners() {
        let view = on_published_drive(&puts(40, 1), 40);
        assert_eq!((view.kinds.len(), view.kinds[0].count), (1, 40));
        // One after the other.
        assert!(view.kinds[0].total_ns.abs_diff(view.elapsed_ns) < 1000);
        let owners: Vec<_> = view
            .owners
            .iter()
            .map(|one| (one.owner, one.requests))
            .collect();
        assert_eq!(owners, [("request", 160), ("fs-metadata", 80)]);
        // To the data, to the inode, to the journal, to the inode, and back.
        let seeks: Vec<u64> = view.owners.iter().map(|one| one.seeks).collect();
        assert!(
            seeks[0].abs_diff(80) <= 1 && seeks[1].abs_diff(80) <= 1,
            "{seeks:?}"
        );
        let without = on_published_drive(&without(&puts(40, 1), "fs-metadata"), 40);
        let more = difference(view.elapsed_ns, without.elapsed_ns);
        assert!(more > 0);
        assert_eq!(view.lost_to_fs_metadata_ns, more);
        assert_eq!(
            (view.lost_to_fs_journal_ns, without.lost_to_fs_metadata_ns),
            (0, 0)
        );
    }

    #[test]
    fn a_fast_machine_s_clock_tick_changes_nothing() {
        let every = on_published_drive(&puts(40, 1), 40);
        for ticks in [2, 3, 7] {
            let some = on_published_drive(&puts(40, ticks), 40);
            let differ = some.elapsed_ns.abs_diff(every.elapsed_ns);
            assert!(differ < 1000, "one in {ticks}: {differ} ns");
            assert_eq!(some.added, 80 - 80_u64.div_ceil(ticks));
        }
        // Blocks written a few times have another reason than the flushes.
        let rare = on_published_drive(&puts(40, 20), 40);
        assert_eq!(rare.added, 0);
    }

    #[test]
    fn a_slow_machine_gets_the_same_time() {
        let fast = puts(20, 1);
        let mut slow = fast.clone();
        for (number, request) in slow.trace.requests.iter_mut().enumerate() {
            let late = u64::try_from(number).unwrap_or(0) * 7_000_000;
            request.queue_ns += late;
            request.issue_ns += late + 40_000;
            request.done_ns += late + 2_000_000;
        }
        let times = [&fast, &slow].map(|seen| on_published_drive(seen, 20).elapsed_ns);
        assert_eq!(times[0], times[1]);
    }
}
