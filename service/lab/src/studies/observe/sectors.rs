//! Random writes of 4 KiB, one system call each, at full speed of a loop device that is watched.
//!
//! The service has a small store at the device's begin and is idle. fio writes behind the store:
//! the programs run for each of its block requests as for anybody's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::ObserveBench;
use super::mode::{Bpftrace, Meter, Mode};
use super::report::MeasuredRun;
use crate::disks::{Lab, LabOptions, StoreKind, free_bytes};
use crate::experiment::report::Unit;
use crate::experiment::rotate;
use crate::failure::peer_failed;
use crate::human::as_float;
use crate::load::fio::{Fio, Job, JobKind};
use crate::process;

const DISK_BYTES: u64 = 768 << 20;
const STORE_BYTES: u64 = 64 << 20;
/// Where fio's part begins: well behind the store and what lies behind it.
const FROM: u64 = 256 << 20;
/// Memory is the fastest place for an image.
const MEMORY: &str = "/dev/shm";

/// The device.
pub(super) struct Sectors {
    lab: Lab,
    fio: Fio,
    pub(super) dir: PathBuf,
}

impl Sectors {
    /// Makes it: a loop device with a store on its begin, all of it written once.
    pub(super) fn make(bench: &ObserveBench<'_>) -> anyhow::Result<Sectors> {
        let fio = Fio::find().map_err(|why| peer_failed("fio", why))?;
        let memory = Path::new(MEMORY);
        let dir = match free_bytes(memory).is_ok_and(|free| free > 2 * DISK_BYTES) {
            true => memory.to_owned(),
            false => bench.args.study.dir(),
        };
        let options = LabOptions {
            dir: Some(dir.clone()),
            expected_bytes: DISK_BYTES,
            kinds: vec![StoreKind::Raw],
            ..LabOptions::new(DISK_BYTES)
        };
        let sectors = Sectors {
            lab: Lab::create(&options)?,
            fio,
            dir,
        };
        let mut format = Command::new(bench.exe);
        format.arg("format");
        process::format(format, sectors.device()?, STORE_BYTES, bench.interrupt)?;
        sectors.fio(bench, JobKind::Write, 1 << 20, Duration::from_secs(1))?;
        Ok(sectors)
    }

    fn device(&self) -> anyhow::Result<&Path> {
        Ok(&self.lab.first()?.device)
    }

    /// Requests a second.
    fn fio(
        &self,
        bench: &ObserveBench<'_>,
        kind: JobKind,
        block: u64,
        time: Duration,
    ) -> anyhow::Result<f64> {
        let job = Job {
            kind,
            block,
            depth: 1,
            from: FROM,
            time,
        };
        let done = self
            .fio
            .run(self.device()?, DISK_BYTES - FROM, &job, bench.interrupt)?;
        Ok(as_float(done.requests) / done.seconds)
    }

    /// One round: writes in every mode.
    pub(super) fn round(
        &self,
        bench: &ObserveBench<'_>,
        round: usize,
        runs: &mut Vec<MeasuredRun>,
    ) -> anyhow::Result<()> {
        let script = bench.args.bpftrace.as_deref();
        let mut modes = Mode::ALL.to_vec();
        modes.extend(script.map(|_| Mode::Bpftrace));
        let device = self.device()?;
        for &mode in rotate(&modes, round) {
            let server = mode.start(bench.exe, device, bench.interrupt)?;
            let time = Duration::from_secs_f64(bench.args.seconds);
            let wanted = script.filter(|_| mode == Mode::Bpftrace);
            let watching = wanted.map(|script| Bpftrace::watch(script, device));
            let watching = watching.transpose()?;
            let meter = match &watching {
                Some(watching) => Some(watching.meter()?),
                None => mode.meter(&server)?,
            };
            let value = self.fio(bench, JobKind::RandomWrite, 4096, time)?;
            let share = meter.map(Meter::share).transpose()?;
            runs.push(MeasuredRun {
                figure: "write 4 KiB at random, loop device".to_owned(),
                unit: Unit::PerSecond,
                mode,
                round,
                value,
                share,
            });
        }
        Ok(())
    }
}
