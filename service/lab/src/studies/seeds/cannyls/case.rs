//! One workload on one disk with one engine, recorded.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Engine;
use super::published_workload::PublishedWorkload;
use crate::blocks::{Recorded, Recorder};
use crate::disks::{LabOptions, StoreKind};
use crate::load::runner::{Durability, RunOptions};
use crate::process::Interrupt;
use crate::studies::engine::Peer;
use crate::studies::host::{Host, make};
use crate::studies::run::{CannylsJob, on_cannyls};
use crate::studies::seeds::recording::recorded;
use crate::workload::Sizing;

/// The largest allocation groups and flexible block groups a store of these sizes meets fit in
/// this: the file lies on the disk as it would on a larger one.
const LEAST_DISK: u64 = 8 << 30;

/// A run: engine, workload, disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Case {
    pub(super) engine: Engine,
    pub(super) block_size: u16,
    pub(super) kind: StoreKind,
    pub(super) run: usize,
}

/// Shared by all cases.
#[derive(Debug)]
pub(super) struct CaseRunner<'a> {
    pub(super) peer: Option<Peer>,
    pub(super) dir: Option<PathBuf>,
    pub(super) interrupt: &'a Interrupt,
}

impl CaseRunner<'_> {
    /// Runs it on a disk of its own, which nobody else uses.
    pub(super) fn run(&self, workload: &PublishedWorkload, case: Case) -> anyhow::Result<Recorded> {
        let sizing = Sizing::of(&workload.stream);
        let lab = LabOptions {
            dir: self.dir.clone(),
            expected_bytes: sizing.capacity_bytes,
            ext4_journal: false,
            kinds: vec![case.kind],
            ..LabOptions::new(sizing.disk_bytes().max(LEAST_DISK))
        };
        let peer = self
            .peer
            .as_ref()
            .filter(|_| case.engine == Engine::Original);
        // Ours is made before, as `lumpscope format` makes it: its file is written with zeroes once.
        let prepare = |path: &Path| match peer {
            Some(_) => Ok(()),
            None => make(path, &sizing, case.block_size, false).map(drop),
        };
        let work = |path: &Path| match peer {
            Some(peer) => self.original(workload, case, path, peer),
            None => self.ours(workload, path),
        };
        let everybody = Recorder::own_everybody;
        recorded(&lab, everybody, (prepare, work), self.interrupt)
    }

    /// The published crate, in a child that makes its own file. On the raw disk it begins at byte
    /// 0, not behind a minfs at byte 61440: both are multiples of 4096.
    fn original(
        &self,
        workload: &PublishedWorkload,
        case: Case,
        path: &Path,
        peer: &Peer,
    ) -> anyhow::Result<()> {
        let job = CannylsJob {
            workload: workload.args.clone(),
            path: path.to_owned(),
            capacity: Sizing::original_bytes(&workload.stream),
            block_size: case.block_size,
            options: RunOptions::default(),
            sync: false,
        };
        on_cannyls(peer, &workload.stream, &job, self.interrupt).map(drop)
    }

    /// Ours, in this process. As with the original, what was acknowledged may be lost with the power.
    fn ours(&self, workload: &PublishedWorkload, path: &Path) -> anyhow::Result<()> {
        let host = Host::engine(path, Durability::Journaled)?;
        host.run(&workload.stream, &RunOptions::default(), self.interrupt)?;
        host.end()
    }
}
