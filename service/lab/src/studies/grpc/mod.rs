//! The service measured through gRPC, in alternating rounds against what gRPC alone costs: a
//! service made by tonic from the same protos that stores nothing.
//!
//! A figure is a ratio of two runs of the same round, because the speed of a shared machine
//! drifts; shown are the median and the range over all rounds. Beside it: the memory of the service
//! under many puts.

mod args;
mod memory;
mod peer;
mod report;

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use crate::failure::{above_0, nothing_chosen, within};
use crate::human;

pub use args::{GrpcBenchArgs, GrpcPeerArgs, Transport};
pub use peer::serve as serve_peer;

use crate::disks::StoreFile;
use crate::experiment;
use crate::experiment::report::{Report, disk};
use crate::load::grpc::{Call, Clients, Length, Room, Setting, content, runtime};
use crate::process::{Interrupt, SERVICE, Server, serve_one};
use lumpscope_units::tell;
use memory::MemoryView;
use peer::PEER;
use report::{GrpcRuns, RunPair};

/// Connections of the setting that has most.
const CONNECTIONS: usize = 4;
/// Name of the memory figure, for `--only`.
const MEMORY: &str = "memory";

/// Measures the service that `exe` is and prints.
///
/// Blocks, and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it; a goal that is missed is a result, not a failure.
///
/// # Errors
/// Everything that keeps the service from being measured. The message says what to do.
pub fn run(args: &GrpcBenchArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| {
        measure(args, exe, interrupt)
    })
}

fn measure(
    args: &GrpcBenchArgs,
    exe: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, GrpcRuns)> {
    let settings = chosen(args)?;
    content::prepare();
    let dir = &args.study.dir();
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
        interrupt,
    };
    // The future runs on this thread, to which the children are tied.
    let runs = runtime.block_on(bench.rounds(&settings))?;
    let memory = runtime.block_on(bench.memory())?;
    let data = GrpcRuns { memory, runs };
    let mut report = report::report(&data, args.working_peer);
    report.fact("Store", human::bytes(args.capacity));
    report.fact("Disk", disk(dir));
    let runs = format!(
        "{} rounds of {} s a run, {} calls in flight on each connection",
        args.rounds, args.seconds, args.depth
    );
    report.fact("Runs", runs);
    Ok((report, data))
}

/// The settings that are asked for, after a look at all options.
fn chosen(args: &GrpcBenchArgs) -> anyhow::Result<Vec<Setting>> {
    within("--rounds", args.rounds, 1..=1000)?;
    above_0("--seconds", args.seconds, 600.0)?;
    within("--depth", args.depth, 1..=256)?;
    let settings: Vec<Setting> = Setting::all()
        .filter(|setting| wanted(args, &setting.name()))
        .collect();
    if settings.is_empty() && !wanted(args, MEMORY) {
        let mut known: Vec<String> = Setting::all().map(Setting::name).collect();
        known.push(MEMORY.to_owned());
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
    interrupt: &'a Interrupt,
}

impl GrpcBench<'_> {
    async fn rounds(&self, settings: &[Setting]) -> anyhow::Result<Vec<RunPair>> {
        if settings.is_empty() {
            return Ok(Vec::new());
        }
        // Both serve all the time; only one is asked at a time.
        let service = serve_one(self.exe, self.store.path(), false);
        let service = Server::start(SERVICE, service, self.interrupt)?;
        let peer_server = Server::start(PEER, self.peer(), self.interrupt)?;
        let mut ours = Clients::connect(&service, CONNECTIONS).await?;
        let peer = Clients::connect(&peer_server, CONNECTIONS).await?;
        let gets = |setting: &&Setting| setting.call == Call::Get;
        for setting in settings.iter().filter(gets) {
            ours.fill(*setting, self.room(*setting)).await?;
        }
        let mut runs = Vec::new();
        for round in 1..=self.args.rounds {
            tell(&format!("round {round} of {}", self.args.rounds));
            for &setting in settings {
                self.interrupt.check()?;
                let (room, length) = (self.room(setting), self.length());
                let run_ours = ours.run(&service, setting, room, length);
                let run_peer = peer.run(&peer_server, setting, room, length);
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
        Ok(runs)
    }

    /// The command of the peer.
    fn peer(&self) -> Command {
        let mut command = Command::new(self.exe);
        command.args(["bench", "grpc-peer"]);
        command.args(self.args.working_peer.then_some("--working"));
        command
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
        if !wanted(self.args, MEMORY) {
            return Ok(None);
        }
        tell(&format!("memory of {} clients", memory::CLIENTS));
        let store = StoreFile::make(self.exe, self.dir, memory::STORE_BYTES, self.interrupt)?;
        memory::measure(
            self.exe,
            store.path(),
            Duration::from_secs_f64(self.args.seconds),
            self.interrupt,
        )
        .await
        .map(Some)
    }
}
