//! `lumpscope bench peers`: the same puts and gets on whatever is installed.
//!
//! Everything runs on disks of one lab, whose images lie on one disk of the machine: our engine,
//! our service (through gRPC and S3), the original engine, BlueStore and fio on the raw one, files on the ext4 and on
//! the xfs, servers that others wrote on the xfs. One runs after the other; every second round goes in reverse. A ratio is that
//! of two runs of one round.

mod args;
mod blocks;
mod ceph;
pub mod demo;
mod given;
mod report;
mod server;
mod who;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use serde::Serialize;
use tempfile::TempDir;

use crate::failure::{above_0, argument, cannot, message, peer_failed, within};

pub use args::{Mix, PeersArgs};
pub use who::Who;

use crate::disks::{BorrowedDevice, Lab, LabOptions, StoreKind, fill};
use crate::experiment;
use crate::experiment::report::Report;
use crate::human;
use crate::load::fio::{Fio, Job, JobKind};
use crate::load::runner::{Durability, RunOptions};
use crate::load::{self, Meter};
use crate::process::Interrupt;
use crate::stats::{Kind, Latencies};
use crate::studies::engine::{PEER_PROGRAM, Peer};
use crate::studies::host::{Host, S3Keys, make};
use crate::studies::run::{CannylsJob, on_cannyls};
use crate::workload::{CommandStream, Sizing, WorkloadArgs};
use lumpscope_units::tell;
use report::{Data, LeftOut, OneRun};
use server::Found;

/// Requests of a stream; a run ends before, when its time is over.
const REQUESTS: u64 = 100_000;
/// Most lumps that are put before anything is timed.
const MOST_LUMPS: u64 = 1000;
/// Share of the journal in our store: enough for small lumps, too.
const JOURNAL_RATIO: f64 = 0.05;
/// Bytes behind a lump that its checksums take, and more.
const CHECKSUMS: u64 = 512;
/// Room on each disk beside its store, in bytes: an xfs needs 300 MiB for itself.
const BESIDE_BYTES: u64 = 400 << 20;

const NOTES: [&str; 6] = [
    "Requests a second are those of the time spent in calls: what a client does between them \
     (making and comparing content) is not counted. Every lump that is read is compared by \
     length and CRC32C, also where a peer has no checksums of its own; of cannyls by length only, \
     of fio not at all.",
    "fio is the limit of the disk: random reads and writes of the same size and depth, each write \
     durable when it ends (O_DSYNC), without names, records or checksums.",
    "The service and the servers of others are asked through TCP on this machine by a client that shares its \
     processors, through S3 all by the same one, BlueStore by its librados; the engine and the original are called in a process.",
    "The client that gets objects through S3 is as light as it can be, the same for all servers: a \
     body is received whole into memory that is used again, its length and status are checked within \
     the time of the call, its CRC32C after it.",
    "Our service asks the kernel not to pace what it sends to clients on this machine (TCP_CONGESTION \
     reno); the other servers leave that to the system. Where the system paces (sysctl \
     net.ipv4.tcp_congestion_control = bbr), this is a part of the difference between the gets of large \
     lumps.",
    "The images of all disks lie in one directory, so all runs end on one disk and pay for one \
     more layer, the loop device.",
];

/// Measures and prints. `exe` is the program that understands `serve`.
///
/// Blocks and installs signal handlers: call it from the main thread. The exit code is 130 when a
/// signal stopped it.
///
/// # Errors
/// Everything that keeps our engine from being measured; a peer that fails is left out and named.
pub fn run(args: &PeersArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| {
        check(args)?;
        match args.blocks {
            true => {
                let (report, costs) = blocks::measure(args, exe, interrupt)?;
                Ok((report, Measured::Blocks(costs)))
            }
            false => {
                let (report, runs) = measure(args, exe, interrupt)?;
                Ok((report, Measured::Rounds(runs)))
            }
        }
    })
}

/// The data behind the figures.
#[derive(Serialize)]
#[serde(untagged)]
enum Measured {
    Rounds(Data),
    Blocks(blocks::Data),
}

fn check(args: &PeersArgs) -> anyhow::Result<()> {
    let wrong = |option, allowed| Err(argument(option, allowed));
    within("--rounds", args.rounds, 1..=1000)?;
    above_0("--seconds", args.seconds, 3600.0)?;
    within("--depth", args.depth, 1..=256)?;
    let distinct: BTreeSet<Who> = args.only.iter().copied().collect();
    if distinct.len() != args.only.len() {
        return wrong("--only", "each name once");
    }
    let largest = args.size.iter().max().copied().unwrap_or(0);
    if args.capacity < 8 * largest {
        return wrong("--capacity", "at least 8 lumps");
    }
    if !args.blocks && args.size.len() != 1 {
        return wrong("--size", "one size, without --blocks");
    }
    match args.fill {
        Some(fill) => within("--fill", fill, 1..=100_000_000),
        None => Ok(()),
    }
}

/// All that the runs need.
struct Bench<'a> {
    args: &'a PeersArgs,
    exe: &'a Path,
    interrupt: &'a Interrupt,
    /// Of a lump.
    size: u64,
    /// A device, or a disk of the lab.
    raw: PathBuf,
    /// Directories on the lab's file systems.
    ext4: Option<PathBuf>,
    xfs: Option<PathBuf>,
    workload: WorkloadArgs,
    stream: CommandStream,
    /// Lumps that are put first.
    lumps: u64,
    fio: Result<Fio, String>,
    cannyls: Result<Peer, String>,
    /// Servers that others wrote.
    programs: BTreeMap<Who, Result<Found, String>>,
}

impl<'a> Bench<'a> {
    /// `folder` keeps the workload as long as the bench.
    fn new(
        (args, size): (&'a PeersArgs, u64),
        exe: &'a Path,
        interrupt: &'a Interrupt,
        folder: &Path,
    ) -> anyhow::Result<Bench<'a>> {
        let most = (args.capacity / 2 / size).clamp(1, MOST_LUMPS);
        let lumps = args.fill.unwrap_or(most);
        let workload = write_workload((args, size), lumps, folder)?;
        let find = |who: Who| Some((who, who.program()?.find()));
        Ok(Bench {
            args,
            exe,
            interrupt,
            size,
            raw: PathBuf::new(),
            ext4: None,
            xfs: None,
            stream: workload.stream_while(|_| interrupt.check())?,
            workload,
            lumps,
            fio: Fio::find(),
            cannyls: Peer::find(args.cannyls_peer.as_deref()),
            programs: Who::ALL.into_iter().filter_map(find).collect(),
        })
    }
}

fn folder() -> anyhow::Result<TempDir> {
    tempfile::tempdir().map_err(cannot("make a directory in", &std::env::temp_dir()))
}

fn measure(args: &PeersArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<(Report, Data)> {
    let folder = folder()?;
    let size = args.size.first().copied().unwrap_or(0);
    let mut bench = Bench::new((args, size), exe, interrupt, folder.path())?;
    let (data, disk) = match &args.device {
        Some(device) => (bench.on_device(device)?, device.display().to_string()),
        None => {
            let data = bench.on_lab(Bench::rounds)?;
            (data, "loop devices of one directory".to_owned())
        }
    };
    let mut done = Vec::new();
    for who in data
        .runs
        .iter()
        .map(|run| run.who)
        .collect::<BTreeSet<Who>>()
    {
        let version = match bench.programs.get(&who) {
            Some(Ok(program)) => format!(" ({})", program.version(interrupt)?),
            _ if who == Who::Bluestore => format!(" ({})", ceph::version(interrupt)?),
            _ => String::new(),
        };
        done.push((who, format!("{}{version}", who.durability())));
    }
    let mut report = report::report(&data, bench.base());
    let load = format!(
        "{} lumps of {}, {} % puts over them, {} in flight, {} rounds of {} s, stores of {} on {disk}",
        human::count(bench.lumps),
        human::bytes(size),
        args.mix.puts_percent,
        args.depth,
        args.rounds,
        args.seconds,
        human::bytes(args.capacity),
    );
    report.fact("Load", load);
    report::peers(&mut report, done.into_iter(), &data.left_out);
    report.note(&NOTES);
    Ok((report, data))
}

/// The mix as a workload: the original's program reads it from a file, too.
fn write_workload(
    (args, size): (&PeersArgs, u64),
    lumps: u64,
    folder: &Path,
) -> anyhow::Result<WorkloadArgs> {
    let puts = args.mix.puts_percent;
    let fill = format!("Command {{ {lumps}.times {{ New({size}); }}; }}\n");
    let text = if args.blocks {
        let objects = blocks::OBJECTS;
        format!(
            "{fill}Command {{ {objects}.times {{ New({size}); }}; }}\nUnordered[{objects}] {{ \
             <100%> Get; }}\n"
        )
    } else {
        format!(
            "{fill}Unordered[{REQUESTS}] {{ <{puts}%> OverWrite({size}); <{}%> Get; }}\n",
            100 - puts
        )
    };
    let path = folder.join("mix");
    std::fs::write(&path, text).map_err(cannot("write", &path))?;
    Ok(WorkloadArgs::new(path.to_string_lossy(), 1.0))
}

/// Of a store of ours. Files are removed when it is dropped.
struct StorePlace {
    path: PathBuf,
    /// Its bytes of data.
    data: Range<u64>,
    _folder: Option<TempDir>,
}

impl Bench<'_> {
    /// Bytes of a store.
    fn capacity(&self) -> u64 {
        let wanted = self.args.capacity;
        if !self.args.blocks {
            return wanted;
        }
        // Each lump has its checksums behind it, and nothing is full.
        let blocks = (self.size + CHECKSUMS).next_multiple_of(4096);
        let data = (self.lumps + blocks::OBJECTS).saturating_mul(blocks);
        let bytes = data.saturating_add(data / 8).saturating_add(64 << 20);
        bytes.next_multiple_of(1 << 20).max(wanted)
    }

    /// Bytes of a disk of the lab.
    fn disk_bytes(&self) -> u64 {
        2 * self.capacity() + BESIDE_BYTES
    }

    fn on_device(&mut self, device: &Path) -> anyhow::Result<Data> {
        let _borrowed = BorrowedDevice::take("--device", device, self.capacity())?;
        self.raw = device.to_owned();
        self.rounds()
    }

    fn on_lab<T: Send>(
        &mut self,
        work: impl FnOnce(&Self) -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        let wanted = self.args.wanted();
        let runs =
            |who: &Who| self.missing(*who).is_none() && (!self.args.blocks || who.is_service());
        let used = |kind: &StoreKind| wanted.iter().any(|who| runs(who) && who.disk() == *kind);
        let kinds: Vec<StoreKind> = StoreKind::ALL.into_iter().filter(used).collect();
        let disks = u64::try_from(kinds.len()).unwrap_or(u64::MAX);
        let lab = Lab::create(&LabOptions {
            dir: self.args.study.dir.clone(),
            expected_bytes: disks * self.capacity() + BESIDE_BYTES,
            kinds,
            ..LabOptions::new(self.disk_bytes())
        })?;
        for store in lab.stores() {
            let folder = store.store_path.parent().map(Path::to_owned);
            match store.kind {
                StoreKind::Raw => self.raw.clone_from(&store.store_path),
                StoreKind::Ext4 => self.ext4 = folder,
                StoreKind::Xfs => self.xfs = folder,
            }
        }
        if lab.store(StoreKind::Raw).is_some() {
            // BlueStore takes all of it, ours a part.
            let bytes = match wanted.contains(&Who::Bluestore) {
                true => self.disk_bytes(),
                false => self.capacity(),
            };
            fill(&self.raw, bytes, self.interrupt)?;
        }
        lab.inside(|| work(self))
    }

    fn rounds(&self) -> anyhow::Result<Data> {
        let mut data = Data::default();
        for round in 1..=self.args.rounds {
            for who in experiment::alternate(self.args.wanted(), round) {
                self.interrupt.check()?;
                if data.left_out.iter().any(|left| left.who == who) {
                    continue;
                }
                tell(&format!(
                    "round {round} of {}: {}",
                    self.args.rounds,
                    who.name()
                ));
                let why = match self.missing(who) {
                    Some(why) => why,
                    None => match self.one(round, who) {
                        Ok(run) => {
                            data.runs.push(run);
                            continue;
                        }
                        Err(error) if who == self.base() => return Err(error),
                        Err(error) => format!("it failed: {}", message(&error)),
                    },
                };
                self.interrupt.check()?;
                data.left_out.push(LeftOut { who, why });
            }
        }
        Ok(data)
    }

    /// Peer whose values are compared with those of the others.
    fn base(&self) -> Who {
        self.args.only.first().copied().unwrap_or(Who::Engine)
    }

    /// Why a peer cannot be run.
    fn missing(&self, who: Who) -> Option<String> {
        if who.disk() != StoreKind::Raw && self.args.device.is_some() {
            return Some(
                "it needs a file system: give a directory on that disk with --dir".to_owned(),
            );
        }
        match who {
            Who::Fio => self.fio.as_ref().err().cloned(),
            Who::Cannyls if self.args.depth > 1 => {
                Some("its Storage takes one request at a time: only with --depth 1".to_owned())
            }
            Who::Cannyls => self.cannyls.as_ref().err().cloned(),
            Who::Bluestore if self.args.device.is_some() => {
                Some("it writes all over a disk: only on one that the bench makes".to_owned())
            }
            Who::Bluestore => ceph::missing(),
            Who::GivenS3 => match self.args.s3 {
                Some(_) => None,
                None => Some("name one that serves already with --s3".to_owned()),
            },
            _ => self.programs.get(&who)?.as_ref().err().cloned(),
        }
    }

    fn one(&self, round: usize, who: Who) -> anyhow::Result<OneRun> {
        let latencies = match who {
            Who::Fio => return self.fio(round, &self.raw),
            Who::Cannyls => self.cannyls(&self.raw)?,
            Who::GivenS3 => self.given()?,
            _ => {
                // The host ends before its place goes.
                let (_store, host) = self.host(who)?;
                let done = host.run(&self.stream, &self.options(), self.interrupt)?;
                host.end()?;
                done.latencies
            }
        };
        Ok(self.of_latencies(round, who, &latencies))
    }

    /// Starts a peer, behind the place of its store, if that is ours.
    fn host(&self, who: Who) -> anyhow::Result<(Option<StorePlace>, Host)> {
        let (exe, interrupt, durability) = (self.exe, self.interrupt, Durability::Synced);
        if let Who::FilesExt4 | Who::FilesXfs = who {
            return Ok((None, Host::files(self.own_folder(who)?, durability)));
        }
        if who == Who::Bluestore {
            return Ok((None, ceph::start(&self.raw, interrupt)?));
        }
        if let Some(program) = self.programs.get(&who) {
            let program = program.as_ref();
            let program = program.map_err(|why| peer_failed(who.name(), why))?;
            let host = server::start(program, self.folder(who)?, interrupt)?;
            return Ok((None, host));
        }
        let store = self.store(who)?;
        let path = store.path.as_path();
        let host = match who {
            Who::ServiceS3 => S3Keys::new()?.start((exe, path, "md5"), durability, interrupt)?,
            Who::ServiceS3Auto => {
                S3Keys::new()?.start((exe, path, "auto"), durability, interrupt)?
            }
            Who::Engine => Host::engine(path, durability)?,
            _ => Host::grpc((exe, path, false), durability, interrupt)?,
        };
        Ok((Some(store), host))
    }

    /// Directory of a peer on a file system.
    fn folder(&self, who: Who) -> anyhow::Result<&Path> {
        let folder = match who.disk() {
            StoreKind::Ext4 => self.ext4.as_deref(),
            _ => self.xfs.as_deref(),
        };
        folder.ok_or_else(|| anyhow!("the lab has no file system"))
    }

    /// A directory of a peer's own, which goes with it.
    fn own_folder(&self, who: Who) -> anyhow::Result<TempDir> {
        let base = self.folder(who)?;
        tempfile::tempdir_in(base).map_err(cannot("make a directory in", base))
    }

    /// A new store of ours.
    fn store(&self, who: Who) -> anyhow::Result<StorePlace> {
        let folder = match who.disk() {
            StoreKind::Raw => None,
            _ => Some(self.own_folder(who)?),
        };
        let file = folder
            .as_ref()
            .map(|folder| folder.path().join("store.lusf"));
        let path = file.unwrap_or_else(|| self.raw.clone());
        Ok(StorePlace {
            data: make(&path, &self.sizing(), 4096, true)?,
            path,
            _folder: folder,
        })
    }

    fn sizing(&self) -> Sizing {
        Sizing {
            capacity_bytes: self.capacity(),
            journal_ratio: JOURNAL_RATIO,
        }
    }

    fn time(&self) -> Duration {
        Duration::from_secs_f64(self.args.seconds)
    }

    fn options(&self) -> RunOptions {
        RunOptions {
            clients: self.args.depth,
            skip: usize::try_from(self.lumps).unwrap_or(usize::MAX),
            time: Some(self.time()),
            ..RunOptions::default()
        }
    }

    fn cannyls(&self, raw: &Path) -> anyhow::Result<Latencies> {
        let peer = self.cannyls.as_ref();
        let peer = peer.map_err(|why| peer_failed(PEER_PROGRAM, why))?;
        let job = CannylsJob {
            workload: self.workload.clone(),
            path: raw.to_owned(),
            capacity: self.capacity(),
            block_size: 4096,
            options: self.options(),
            sync: true,
        };
        let done = on_cannyls(peer, &self.stream, &job, self.interrupt)?;
        Ok(done.outcome.latencies)
    }

    fn fio(&self, round: usize, raw: &Path) -> anyhow::Result<OneRun> {
        let fio = self.fio.as_ref();
        let fio = fio.map_err(|why| peer_failed("fio", why))?;
        let job = Job {
            kind: JobKind::DurableMix(self.args.mix.puts_percent),
            // O_DIRECT knows whole blocks only.
            block: self.size.next_multiple_of(4096),
            depth: self.args.depth,
            from: 0,
            time: self.time(),
        };
        let (writes, reads) = fio.mix(raw, self.capacity(), &job, self.interrupt)?;
        let seconds = writes.seconds.max(reads.seconds).max(1e-9);
        let requests = human::as_float(writes.requests + reads.requests);
        let run = OneRun::of((round, Who::Fio), &writes, &reads);
        Ok(OneRun {
            per_second: requests / seconds,
            ..run
        })
    }

    fn of_latencies(&self, round: usize, who: Who, latencies: &Latencies) -> OneRun {
        let of = |wanted: fn(&Kind) -> bool| {
            let mut meter = Meter::new();
            let kinds = latencies.by_kind().filter(|(kind, _)| wanted(kind));
            for latency in kinds.flat_map(|(_, all)| all) {
                meter.request(0, *latency);
                meter.add_time(*latency);
            }
            meter.finish()
        };
        let puts = of(|kind| matches!(kind, Kind::Put(_)));
        let gets = of(|kind| matches!(kind, Kind::Get(_)));
        let depth = u64::try_from(self.args.depth).unwrap_or(u64::MAX);
        let rate =
            |requests: u64, seconds: f64| human::as_float(requests * depth) / seconds.max(1e-9);
        let of_kind =
            |of: &load::Measured| (of.requests > 0).then(|| rate(of.requests, of.seconds));
        OneRun {
            per_second: rate(puts.requests + gets.requests, puts.seconds + gets.seconds),
            puts_per_second: of_kind(&puts),
            gets_per_second: of_kind(&gets),
            ..OneRun::of((round, who), &puts, &gets)
        }
    }
}
