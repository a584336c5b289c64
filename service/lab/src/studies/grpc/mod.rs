//! The service measured through gRPC, in alternating rounds against what gRPC alone costs: a
//! service made by tonic from the same protos that stores nothing.
//!
//! A figure is a ratio of two runs of the same round, because the speed of a shared machine
//! drifts; shown are the median and the range over all rounds. Beside it: the memory of the service
//! under many puts, and what puts leave behind that are reset in the middle.

mod args;
pub(crate) mod disk;
mod memory;
mod pair;
mod peer;
mod report;
mod resets;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::failure::{above_0, nothing_chosen, within};
use crate::human;

pub use args::{GrpcBenchArgs, GrpcPeerArgs, Transport, TransportArgs};
pub(crate) use pair::service;
pub use peer::serve as serve_peer;

use crate::disks::default_dir;
use crate::experiment;
use crate::experiment::report::{Report, Unit, disk as disk_of};
use crate::load::grpc::{Call, Clients, Length, Room, Setting, content, runtime};
use crate::process::Interrupt;
use disk::{DiskSpeed, StoreFile};
use lumpscope_units::tell;
use memory::MemoryView;
use pair::Pair;
use report::{GrpcRuns, RunPair};
use resets::ResetsView;

/// Connections of the setting that has most.
const CONNECTIONS: usize = 4;
/// Name of the memory figure, and of the resets, for `--only`.
const OTHERS: [&str; 2] = ["memory", "resets"];

/// Measures the service that `exe` is and prints. `default` is what `lumpscope serve` does without
/// flags.
///
/// Blocks, and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// Everything that keeps the service from being measured. The message says what to do.
pub fn run(args: &GrpcBenchArgs, exe: &Path, default: Transport) -> anyhow::Result<ExitCode> {
    let transport = args.transport.over(default);
    experiment::run(&args.study.output, |interrupt| {
        measure(args, exe, transport, interrupt)
    })
}

fn measure(
    args: &GrpcBenchArgs,
    exe: &Path,
    transport: Transport,
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, GrpcRuns)> {
    let settings = chosen(args)?;
    content::prepare();
    let dir = &args.study.dir.clone().unwrap_or_else(default_dir);
    tell(&format!("measuring the disk of {}", dir.display()));
    let disk = DiskSpeed::measure(dir, args.capacity.max(memory::STORE_BYTES))?;
    tell(&format!(
        "making a store of {}",
        human::bytes(args.capacity)
    ));
    let store = StoreFile::make(exe, dir, args.capacity, interrupt)?;
    let runtime = runtime()?;
    let bench = GrpcBench {
        args,
        exe,
        dir,
        store: &store,
        transport,
        interrupt,
    };
    // The future runs on this thread, to which the children are tied.
    let (runs, resets) = runtime.block_on(bench.rounds(&settings))?;
    let memory = runtime.block_on(bench.memory())?;
    let data = GrpcRuns {
        disk,
        transport,
        memory,
        resets,
        runs,
    };
    let mut report = report::report(&data, args.working_peer);
    facts(&mut report, args, &data);
    Ok((report, data))
}

fn facts(report: &mut Report, args: &GrpcBenchArgs, data: &GrpcRuns) {
    let (disk, speed) = (&data.disk, |value| Unit::BytesPerSecond.text(value));
    let store = format!(
        "{} in {} ({}), which alone writes {} and reads {} (8 x 1 MiB in flight)",
        human::bytes(args.capacity),
        disk.dir.display(),
        disk.file_system,
        speed(disk.write_bytes_per_second),
        speed(disk.read_bytes_per_second)
    );
    report.fact("Store", store);
    report.fact("Disk", disk_of(&disk.dir));
    report.fact("Probes", if args.probes { "on" } else { "off" });
    let runs = format!(
        "{} rounds of {} s a run, {} calls in flight on each connection",
        args.rounds, args.seconds, args.depth
    );
    report.fact("Runs", runs);
    report.fact("HTTP/2", data.transport.to_string());
}

/// The settings that are asked for, after a look at all options.
fn chosen(args: &GrpcBenchArgs) -> anyhow::Result<Vec<Setting>> {
    within("--rounds", args.rounds, 1..=1000)?;
    above_0("--seconds", args.seconds, 600.0)?;
    within("--depth", args.depth, 1..=256)?;
    within("--clients", args.clients, 1..=2000)?;
    within("--resets", args.resets, 1..=10_000)?;
    let settings: Vec<Setting> = Setting::all()
        .filter(|setting| wanted(args, &setting.name()))
        .collect();
    if settings.is_empty() && !OTHERS.iter().any(|name| wanted(args, name)) {
        let mut known: Vec<String> = Setting::all().map(Setting::name).collect();
        known.extend(OTHERS.map(str::to_owned));
        return Err(nothing_chosen(args.only.as_deref(), known.join("; ")));
    }
    Ok(settings)
}

fn wanted(args: &GrpcBenchArgs, name: &str) -> bool {
    args.only
        .as_ref()
        .is_none_or(|only| name.contains(only.as_str()))
}

/// All that the runs need.
struct GrpcBench<'a> {
    args: &'a GrpcBenchArgs,
    exe: &'a Path,
    dir: &'a Path,
    store: &'a StoreFile,
    transport: Transport,
    interrupt: &'a Interrupt,
}

impl GrpcBench<'_> {
    async fn rounds(
        &self,
        settings: &[Setting],
    ) -> anyhow::Result<(Vec<RunPair>, Option<ResetsView>)> {
        let with_resets = wanted(self.args, OTHERS[1]);
        if settings.is_empty() && !with_resets {
            return Ok((Vec::new(), None));
        }
        let pair = Pair::start(
            self.exe,
            self.store.path(),
            self.transport,
            (self.args.probes, self.args.working_peer),
            self.interrupt,
        )?;
        let mut ours = Clients::connect(&pair.ours, CONNECTIONS).await?;
        let peer = Clients::connect(&pair.peer, CONNECTIONS).await?;
        let gets = |setting: &&Setting| setting.call == Call::Get;
        for setting in settings.iter().filter(gets) {
            ours.fill(*setting, self.room(*setting)).await?;
        }
        let mut runs = Vec::new();
        let rounds = if settings.is_empty() {
            0
        } else {
            self.args.rounds
        };
        for round in 1..=rounds {
            tell(&format!("round {round} of {rounds}"));
            for &setting in settings {
                self.interrupt.check()?;
                let (room, length) = (self.room(setting), self.length());
                let run_ours = ours.run(&pair.ours, setting, room, length);
                let run_peer = peer.run(&pair.peer, setting, room, length);
                let (ours, peer) = if round % 2 == 1 {
                    let first = run_ours.await?;
                    (first, run_peer.await?)
                } else {
                    let first = run_peer.await?;
                    (run_ours.await?, first)
                };
                runs.push(RunPair {
                    round,
                    setting,
                    ours,
                    peer,
                });
            }
        }
        if !with_resets {
            return Ok((runs, None));
        }
        tell(&format!("{} resets", self.args.resets));
        let resets = resets::measure(&pair.ours, self.args.resets, self.interrupt).await?;
        Ok((runs, Some(resets)))
    }

    fn length(&self) -> Length {
        Length {
            calls: self.args.depth,
            time: Duration::from_secs_f64(self.args.seconds),
            patient: false,
        }
    }

    fn room(&self, setting: Setting) -> Room {
        Room::of(self.args.capacity >> 20, setting.mib)
    }

    async fn memory(&self) -> anyhow::Result<Option<MemoryView>> {
        if !wanted(self.args, OTHERS[0]) {
            return Ok(None);
        }
        tell(&format!("memory of {} clients", self.args.clients));
        let store = StoreFile::make(self.exe, self.dir, memory::STORE_BYTES, self.interrupt)?;
        memory::measure(
            self.exe,
            store.path(),
            self.transport,
            self.args.clients,
            Duration::from_secs_f64(self.args.seconds),
            self.interrupt,
        )
        .await
        .map(Some)
    }
}
