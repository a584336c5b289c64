//! One workload on one disk with one engine, recorded.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::Engine;
use super::published_workload::PublishedWorkload;
use crate::blocks::{Recorded, Recorder};
use crate::disks::{LabOptions, StoreKind};
use crate::load::runner::{Durability, RunOptions};
use crate::process::Interrupt;
use crate::studies::engine::Peer;
use crate::studies::run::engine::{self as engine_run, EngineRun};
use crate::studies::run::{CannylsJob, RunStats, on_cannyls};
use crate::studies::seeds::place::SeedDisk;
use crate::studies::seeds::place::not_mounted;
use crate::workload::{Command, Sizing};

/// How often a run is done again of which the kernel did not show every request.
const ATTEMPTS: usize = 3;
/// The largest allocation groups and flexible block groups a store of these sizes meets fit in
/// this: the file lies on the disk as it would on a larger one.
const LEAST_DISK: u64 = 8 << 30;
/// Length of a slot of the timeline, which nobody looks at here.
const SLOT: Duration = Duration::from_secs(1);

/// A run: engine, workload, disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    pub(super) engine: Engine,
    pub(super) block_size: u16,
    pub(super) kind: StoreKind,
    pub(super) run: usize,
}

/// The result.
#[derive(Debug)]
pub(super) struct CaseResult {
    pub(super) workload: String,
    pub(super) case: Case,
    pub(super) recorded: Recorded,
    pub(super) puts: u64,
}

/// Shared by all cases.
#[derive(Debug)]
pub(super) struct CaseRunner<'a> {
    pub(super) peer: Option<Peer>,
    pub(super) dir: Option<PathBuf>,
    pub(super) interrupt: &'a Interrupt,
}

impl CaseRunner<'_> {
    /// Makes the disk, runs, and takes everything away again.
    pub(super) fn run(
        &self,
        workload: &PublishedWorkload,
        case: Case,
    ) -> anyhow::Result<CaseResult> {
        let mut attempt = 1;
        loop {
            self.interrupt.check()?;
            let done = self.once(workload, case)?;
            if done.recorded.trust().complete || attempt == ATTEMPTS {
                return Ok(done);
            }
            attempt += 1;
        }
    }

    fn once(&self, workload: &PublishedWorkload, case: Case) -> anyhow::Result<CaseResult> {
        let sizing = Sizing::of(&workload.stream);
        let lab = LabOptions {
            dir: self.dir.clone(),
            expected_bytes: sizing.capacity_bytes,
            ext4_journal: false,
            ..LabOptions::new(sizing.disk_bytes().max(LEAST_DISK))
        };
        let place = SeedDisk::new(case.kind, lab)?;
        let recorded = match (case.engine, &self.peer) {
            (Engine::Original, Some(peer)) => self.original(workload, case, &place, peer)?,
            _ => self.ours(workload, case, &place, sizing)?,
        };
        let is_put = |command: &&Command| matches!(command, Command::Put { .. });
        let puts = workload.stream.commands.iter().filter(is_put).count();
        Ok(CaseResult {
            workload: workload.name.clone(),
            case,
            recorded,
            puts: u64::try_from(puts).unwrap_or(u64::MAX),
        })
    }

    /// The published crate, in a child that makes its own file. On the raw disk it begins at byte
    /// 0, not behind a minfs at byte 61440: both are multiples of 4096.
    fn original(
        &self,
        workload: &PublishedWorkload,
        case: Case,
        place: &SeedDisk,
        peer: &Peer,
    ) -> anyhow::Result<Recorded> {
        recording(place, |path| {
            let job = CannylsJob {
                workload: workload.args.clone(),
                path: path.to_owned(),
                capacity: Sizing::original_bytes(&workload.stream),
                block_size: case.block_size,
                verify: false,
                slot: SLOT,
                skip: 0,
                time: None,
                sync: false,
            };
            on_cannyls(peer, &workload.stream, &job, self.interrupt)
        })
    }

    /// Ours, in this process. The store is made before, as `lumpscope format` makes it: its file is
    /// written with zeroes once.
    fn ours(
        &self,
        workload: &PublishedWorkload,
        case: Case,
        place: &SeedDisk,
        sizing: Sizing,
    ) -> anyhow::Result<Recorded> {
        place.inside(|path| engine_run::make(path, &sizing, case.block_size, false))?;
        let run = EngineRun {
            sizing,
            block_size: case.block_size,
            // As the original: what was acknowledged may be lost with the power.
            durability: Durability::Journaled,
            options: RunOptions {
                clients: 1,
                verify_bytes: false,
                slot: SLOT,
                ..RunOptions::default()
            },
            verify: false,
        };
        recording(place, |path| {
            engine_run::on_engine(&workload.stream, path, &run, self.interrupt)
        })
    }
}

/// Records what the disk is asked for while work is done on it. Nobody else uses it.
fn recording(
    place: &SeedDisk,
    work: impl FnOnce(&Path) -> anyhow::Result<RunStats> + Send,
) -> anyhow::Result<Recorded> {
    let recorder = Recorder::start(&[place.device()])?.own_everybody();
    place.inside(work)?;
    let recorded = recorder.finish().into_iter().next();
    let missing = || not_mounted(place.store_path(), place.device());
    recorded.ok_or_else(missing)
}
