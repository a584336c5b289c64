//! `lumpscope demo`: three things that were measured a moment ago, on one screen.
//!
//! The cost of an object is a small [`blocks`](super::blocks) of stores and files; then a reader
//! disturbs a raw store that is observed, and the slowest request of that time is explained.

use std::panic::resume_unwind;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use lumpscope_proto::v1::StoreReport;
use lumpscope_units::columns::{trimmed, words};
use lumpscope_units::escape::escaped;
use lumpscope_units::tell;
use serde::Serialize;

use super::blocks::{self, Cost, OBJECTS};
use super::{Bench, Mix, PeersArgs, Who};
use crate::experiment::report::Report;
use crate::experiment::{self, StudyArgs};
use crate::failure::cannot_do;
use crate::human;
use crate::load::runner::{Durability, Run, RunOptions};
use crate::process::{Interrupt, STORE, tie_to_parent};
use crate::studies::compare::fetch_report;
use crate::studies::host::{Host, runtime};
use crate::studies::predict::drive_named;
use crate::studies::seeds::DRIVE;
use crate::workload::builtin;

/// Bytes of an object.
const SIZE: u64 = 1 << 20;
/// Bytes of a store.
const CAPACITY: u64 = 256 << 20;
/// Pieces of 4 MiB that the reader reads before it begins again.
const PIECES: u64 = 100;
/// Columns and indentation of what is told.
const TEXT: (usize, &str) = (76, "   ");

/// Show what Lumpscope is for, measured on this machine: what a disk does for an object, who moved its
/// head, and whether that can be trusted.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Needs root, mkfs.ext4 and mkfs.xfs. The disks are loop devices and vanish at the end. \
                  --html has everything behind the figures."
)]
pub struct DemoArgs {
    #[command(flatten)]
    study: StudyArgs,
}

/// The data behind the screen.
#[derive(Serialize)]
struct Seen {
    #[serde(flatten)]
    blocks: blocks::Data,
    disturbed: Disturbed,
}

/// A store beside which another process read the disk.
#[derive(Serialize)]
struct Disturbed {
    disk: StoreReport,
    /// The slowest request for which the reader is named; if there is none, the slowest.
    explained: String,
    /// The reader is named.
    named: bool,
}

/// Measures, and prints one screen. `exe` is the program that understands `serve`.
///
/// Blocks and installs signal handlers: call it from the main thread.
///
/// # Errors
/// Everything that keeps it from being measured.
pub fn run(args: &DemoArgs, exe: &Path) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| {
        measure(args, exe, interrupt)
    })
}

fn measure(args: &DemoArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<(Report, Seen)> {
    let peers = PeersArgs {
        device: None,
        capacity: CAPACITY,
        size: vec![SIZE],
        mix: Mix { puts_percent: 50 },
        depth: 1,
        seconds: 1.0,
        rounds: 1,
        only: vec![
            Who::Service,
            Who::ServiceExt4,
            Who::ServiceXfs,
            Who::FilesExt4,
            Who::FilesXfs,
        ],
        s3: None,
        cannyls_peer: None,
        blocks: true,
        fill: None,
        model: DRIVE.to_owned(),
        study: args.study.clone(),
    };
    let drive = drive_named(&peers.model)?;
    let folder = super::folder()?;
    let mut bench = Bench::new((&peers, SIZE), exe, interrupt, folder.path())?;
    let mut blocks = blocks::Data::default();
    let lumps = bench.lumps;
    let disturbed = bench.on_lab(|bench| {
        bench.all_costs(&drive, &mut blocks)?;
        tell("a raw store, disturbed by dd");
        bench.disturbed()
    })?;
    blocks.sizes.push((SIZE, lumps));
    let mut report = blocks.report(&drive.name);
    let moved = report.section("Who moved the head?");
    moved.say(&disturbed.explained);
    report.section("Can it be trusted?").say(disturbed.trust());
    let seen = Seen { blocks, disturbed };
    report.screen = Some(seen.screen(&drive.name));
    Ok((report, seen))
}

impl Bench<'_> {
    /// Puts lumps into a raw store while `dd` reads its disk.
    fn disturbed(&self) -> anyhow::Result<Disturbed> {
        let store = self.store(Who::Service)?;
        let served = (self.exe, store.path.as_path(), true);
        let host = Host::grpc(served, Durability::Synced, self.interrupt)?;
        let runtime = runtime()?;
        let run = Run::new(&self.stream, &RunOptions::default());
        let goes_on = AtomicBool::new(true);
        let read = || {
            while goes_on.load(Ordering::Relaxed) {
                let status = reader(&store.path).status();
                let status = status.map_err(cannot_do("run dd"))?;
                ensure!(status.success(), "dd ended with {status}");
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let reading = scope.spawn(read);
            let done = self.part((&run, &runtime), (OBJECTS, 1), &host.target);
            goes_on.store(false, Ordering::Relaxed);
            let read = reading.join().unwrap_or_else(|panic| resume_unwind(panic));
            done.and(read)
        })?;
        let disk = runtime.block_on(fetch_report(host.url(), STORE))?;
        Ok(Disturbed::of(disk.unwrap_or_default()))
    }
}

/// Reads the disk and keeps nothing.
fn reader(disk: &Path) -> Command {
    let mut reader = Command::new("dd");
    reader
        .arg(format!("if={}", disk.display()))
        .args(["of=/dev/null", "bs=4M", "iflag=direct", "status=none"])
        .arg(format!("count={PIECES}"))
        .stdin(Stdio::null());
    tie_to_parent(&mut reader, None);
    reader
}

impl Disturbed {
    fn of(disk: StoreReport) -> Disturbed {
        let mut slowest = disk.slowest.iter().map(|request| &request.sentence);
        let named = slowest.clone().find(|told| told.contains("dd["));
        let explained = named.or_else(|| slowest.next()).cloned();
        Disturbed {
            named: named.is_some(),
            explained: explained.unwrap_or_else(|| disk.not_observed_because.clone()),
            disk,
        }
    }

    fn trust(&self) -> String {
        let disk = &self.disk;
        let (true, Some(audit), Some(block)) = (disk.observed, &disk.audit, &disk.block) else {
            return format!("Not observed: {}", disk.not_observed_because);
        };
        let tied = block.attributed_bytes + block.shared_bytes;
        format!(
            "{} block requests seen, {} counted by the kernel. Of {} that the service read and wrote, {} \
             are tied to the request that asked for them.{}",
            human::count(audit.seen_requests),
            human::count(audit.kernel_requests),
            human::bytes(block.own_bytes),
            human::bytes(tied),
            match audit.complete {
                true => String::new(),
                false => format!(" Incomplete: {}", audit.finding),
            }
        )
    }
}

impl Seen {
    /// 24 lines of 80 columns, for somebody who has never heard of it.
    fn screen(&self, drive: &str) -> String {
        let mut lines = vec![format!(
            "1. What a disk does for an object of 1 MiB ({drive}, modelled):"
        )];
        let head = format!("{:>8}{:>7}{:>9}", "requests", "seeks", "time");
        lines.push(format!(
            "   {:<26}{:^24}   {:^24}",
            "", "durable put", "cold get"
        ));
        lines.push(format!("   {:<26}{head}   {head}", "each of them is"));
        for (who, name) in [
            (Who::Service, "a lump on the raw disk"),
            (Who::ServiceExt4, "a lump in a file on ext4"),
            (Who::ServiceXfs, "a lump in a file on xfs"),
            (Who::FilesExt4, "a file of its own on ext4"),
            (Who::FilesXfs, "a file of its own on xfs"),
        ] {
            let cells = |what| match self.blocks.cost(who, what) {
                Some(cost) => cells(cost),
                None => format!("{:>24}", "not measured"),
            };
            lines.push(format!("   {name:<26}{}   {}", cells("put"), cells("get")));
        }
        let told = |lines: &mut Vec<String>, text: &str| {
            let wrapped = words(&escaped(text), TEXT.0).into_iter();
            lines.extend(wrapped.map(|line| format!("{}{line}", TEXT.1)));
        };
        told(&mut lines, &self.compared());
        let whom = match self.disturbed.named {
            true => "",
            false => ", and no slow request waited for it",
        };
        lines.push(format!(
            "2. Who moved the head? dd read the raw disk for a moment{whom}:"
        ));
        told(&mut lines, &self.disturbed.explained);
        lines.push("3. Can it be trusted? On that disk:".to_owned());
        told(&mut lines, &self.disturbed.trust());
        lines.push(
            "Next: `lumpscope lab` serves such stores, `lumpscope load` gives them work."
                .to_owned(),
        );
        trimmed(&lines.join("\n"))
    }

    /// Conclusions from the table, peers that were left out, and what the comparison of 2019 found.
    fn compared(&self) -> String {
        let put = |who| Some(self.blocks.cost(who, "put")?.modelled_ns);
        let ratio = |who| human::ratio(put(who)?, put(Who::Service)?);
        let found = ratio(Who::FilesExt4).zip(ratio(Who::ServiceExt4));
        let found = found.map(|(own, shared)| {
            format!(
                "A durable put takes {own:.1} times as long into a file of its own on ext4, {shared:.2} \
                 times into a store there. "
            )
        });
        let [_, ext4, xfs] = builtin("rand1").map_or([1.0; 3], |one| one.published_ratios);
        let left = self.blocks.left_out.iter();
        let left: Vec<String> = left
            .map(|left| format!("Not measured: {}: {}. ", left.who.name(), left.why))
            .collect();
        format!(
            "{}{}Stores commit in runs, the default. CannyLS's comparison of 2019, on a real disk: a store in \
             a file took {ext4} (ext4) and {xfs} (xfs) times as long as one on the raw disk.",
            found.unwrap_or_default(),
            left.concat()
        )
    }
}

fn cells(cost: &Cost) -> String {
    format!(
        "{:>8.2}{:>7.2}{:>9}",
        cost.each(cost.all.requests()),
        cost.each(cost.all.seeks),
        human::duration_ns(human::whole(cost.each(cost.modelled_ns)))
    )
}
