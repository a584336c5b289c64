//! `lumpscope bench peers --blocks`: what each service makes the disk do for an object.
//!
//! Every peer is filled, then puts new objects, then gets some at random, one request at a time. The
//! block requests of the disk below it are recorded, whoever makes them, until everything is written
//! back, and replayed at the beginning of a modelled drive: what is shown is the same on every
//! machine, as far as the peer does the same. Before each part the caches of the kernel are emptied.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::anyhow;
use lumpscope_platter::drive::Drive;
use serde::Serialize;

use super::{Bench, LeftOut, PeersArgs, StorePlace, Who, measured_with};
use crate::experiment::report::{Bar, Bars, Cell, Page, Setup, Table, Unit};
use crate::experiment::{Machine, text};
use crate::failure::{cannot, message};
use crate::human;
use crate::load::runner::{Durability, Run, RunOptions, Target};
use crate::process::{Interrupt, Server};
use crate::studies::predict::{Rule, drive_named};
use crate::studies::run::service::{S3Keys, start_grpc};
use crate::studies::watch::{DiskView, DiskWatch, Row};

/// Objects of each part.
pub(super) const OBJECTS: u64 = 100;
/// A peer may still write for so long after its last answer.
const AFTER: Duration = Duration::from_secs(1);

const NOTES: [&str; 4] = [
    "One request at a time. Every number is that of all block requests of the part over its objects, \
     whoever made them, and until everything was written back: divide and compare, no machine is in it.",
    "Time is that of a modelled drive, at its beginning, which does what was asked in the order in \
     which it was asked. rest: the share of that time that the bytes themselves do not need. ratio: of \
     the time to that of the first row.",
    "fs: journal and metadata of the file system. own: files in which a peer keeps what it knows of \
     objects, as far as their names tell (xl.meta and .minio.sys of MinIO).",
    "Before each part the page cache, directory entries and inodes of the whole machine are dropped: gets \
     find nothing in memory but what a peer itself keeps there.",
];

/// Block requests and modelled time for the objects of one part.
#[derive(Debug, Serialize)]
struct Cost {
    who: Who,
    /// `put` or `get`.
    what: &'static str,
    objects: u64,
    /// All block requests.
    all: Row,
    /// Those of the file system's journal and metadata.
    file_system: Row,
    /// Those of the files in which the peer keeps what it knows of objects.
    own: Row,
    modelled_ns: u64,
    transfer_ns: u64,
    /// All block requests are here.
    complete: bool,
}

/// Everything.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    command_line: Vec<String>,
    machine: Machine,
    model: String,
    lump_bytes: u64,
    lumps: u64,
    store_mib: u64,
    costs: Vec<Cost>,
    left_out: Vec<LeftOut>,
    notes: Vec<&'static str>,
}

/// A peer that serves.
enum Ready {
    Service {
        server: Server,
        target: Target,
        _store: StorePlace,
        /// Those it has been told of.
        _keys: Option<S3Keys>,
    },
    Other(super::S3Server),
    Files(tempfile::TempDir),
}

impl Ready {
    fn target(&self) -> Target {
        match self {
            Ready::Service { target, .. } => target.clone(),
            Ready::Other(server) => Target::S3(server.bucket.clone()),
            Ready::Files(folder) => Target::Files(folder.path().to_owned()),
        }
    }

    /// The process that works for it.
    fn pid(&self) -> u32 {
        match self {
            Ready::Service { server, .. } => server.pid(),
            Ready::Other(server) => server.pid(),
            Ready::Files(_) => std::process::id(),
        }
    }
}

pub(super) fn measure(
    args: &PeersArgs,
    exe: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<Report> {
    let drive = drive_named(&args.model)?;
    let machine = Machine::before();
    let (mut costs, mut left_out) = (Vec::new(), Vec::new());
    let lumps = measured_with(args, exe, interrupt, |bench| {
        for who in bench.wanted() {
            interrupt.check()?;
            if !who.is_service() {
                if !args.only.is_empty() {
                    let why = "--blocks is for what keeps objects, as users run it".to_owned();
                    left_out.push(LeftOut { who, why });
                }
                continue;
            }
            eprintln!("{}", who.name());
            let done = match bench.missing(who) {
                Some(why) => Err(anyhow!(why)),
                None => bench.costs(who, &drive),
            };
            match done {
                Ok(of_peer) => costs.extend(of_peer),
                Err(error) => {
                    interrupt.check()?;
                    let why = message(&error);
                    left_out.push(LeftOut { who, why });
                }
            }
        }
        Ok(bench.lumps)
    })?;
    Ok(Report {
        command_line: std::env::args().collect(),
        machine: machine.and_after(),
        model: drive.name.to_string(),
        lump_bytes: args.size,
        lumps,
        store_mib: args.mib,
        costs,
        left_out,
        notes: NOTES.to_vec(),
    })
}

impl Bench<'_> {
    /// Where a peer's bytes lie, and the peer on it.
    fn ready(&self, who: Who) -> anyhow::Result<Ready> {
        let serve = || -> anyhow::Result<Ready> {
            let store = self.store(who)?;
            let (exe, path) = (self.exe, store.path.as_path());
            let mut keys = None;
            let (server, target) = if who == Who::ServiceS3 {
                let keys = keys.insert(S3Keys::new()?);
                keys.start((exe, path, "md5"), Durability::Synced, self.interrupt)?
            } else {
                start_grpc((exe, path), Durability::Synced, self.interrupt)?
            };
            Ok(Ready::Service {
                server,
                target,
                _store: store,
                _keys: keys,
            })
        };
        match who {
            Who::FilesExt4 | Who::FilesXfs => Ok(Ready::Files(self.own_folder(who)?)),
            Who::Minio | Who::Versitygw => Ok(Ready::Other(self.start_s3(who)?)),
            _ => serve(),
        }
    }

    /// A peer, filled, and what its puts and its gets cost.
    fn costs(&self, who: Who, drive: &Drive) -> anyhow::Result<Vec<Cost>> {
        let ready = self.ready(who)?;
        let (target, family) = (ready.target(), BTreeSet::from([ready.pid()]));
        let below = if who.needs_files() {
            self.folder(who)?
        } else {
            &self.raw
        };
        let runtime = crate::studies::run::runtime()?;
        let options = RunOptions::default();
        let run = Run::new(&self.stream, &options, Arc::new(AtomicU64::new(0)));
        let part = |end: u64| {
            let end = usize::try_from(end).unwrap_or(usize::MAX);
            runtime.block_on(self.interrupt.or_stop(run.part(end, &target)))
        };
        part(self.lumps)?;
        let mut costs = Vec::new();
        for (what, end) in [
            ("put", self.lumps + OBJECTS),
            ("get", self.lumps + 2 * OBJECTS),
        ] {
            drop_caches(below)?;
            let watch = DiskWatch::start(below)?;
            part(end)?;
            std::thread::sleep(AFTER);
            sync(below)?;
            let view = watch.finish(family.clone(), (drive, Rule::Overlap))?;
            costs.push(Cost::of((who, what), &view));
        }
        Ok(costs)
    }
}

fn sync(below: &Path) -> anyhow::Result<()> {
    let file = File::open(below).map_err(cannot("open", below))?;
    rustix::fs::syncfs(&file).map_err(cannot("write back", below))
}

fn drop_caches(below: &Path) -> anyhow::Result<()> {
    const SWITCH: &str = "/proc/sys/vm/drop_caches";
    sync(below)?;
    fs::write(SWITCH, "3").map_err(cannot("write", Path::new(SWITCH)))
}

/// True: a peer keeps its own records in such a file, no object's data.
fn is_own_metadata(path: &str) -> bool {
    path.ends_with("/xl.meta") || path.contains("/.minio.sys/")
}

impl Cost {
    fn of((who, what): (Who, &'static str), view: &DiskView) -> Cost {
        let sum = |rows: &mut dyn Iterator<Item = &Row>| {
            let mut sum = Row::default();
            rows.for_each(|row| sum.merge(row));
            sum
        };
        let fs = |row: &&Row| row.name == "fs-journal" || row.name == "fs-metadata";
        let own = |row: &&Row| is_own_metadata(&row.name);
        Cost {
            who,
            what,
            objects: OBJECTS,
            all: sum(&mut view.rows.iter()),
            file_system: sum(&mut view.rows.iter().filter(fs)),
            own: sum(&mut view.files.iter().filter(own)),
            modelled_ns: view.modelled_ns,
            transfer_ns: view.transfer_ns,
            complete: view.trust.complete,
        }
    }

    fn each(&self, count: u64) -> f64 {
        human::ratio(count, self.objects).unwrap_or(0.0)
    }

    fn not_transfer(&self) -> f64 {
        let rest = self.modelled_ns.saturating_sub(self.transfer_ns);
        human::ratio(rest, self.modelled_ns).unwrap_or(0.0)
    }
}

impl Report {
    fn of(&self, what: &str) -> impl Iterator<Item = &Cost> {
        self.costs.iter().filter(move |cost| cost.what == what)
    }

    /// One row a peer; times beside that of our service through gRPC.
    fn table(&self, what: &str) -> Table {
        let columns = [
            "requests", "fs", "own", "flushes", "seeks", "time", "rest", "ratio",
        ];
        let caption = format!(
            "The disk's part in one {what} of {}.",
            human::bytes(self.lump_bytes)
        );
        let mut table = Table::new(caption, &columns);
        table.corner = format!("one {what}");
        let ours = self.of(what).next().map(|cost| cost.modelled_ns);
        for cost in self.of(what) {
            let each = |count: u64| Cell::value(Some(cost.each(count)), Unit::Plain);
            let ratio = ours.and_then(|ours| human::ratio(cost.modelled_ns, ours));
            let doubt = if cost.complete { "" } else { " (incomplete)" };
            table.row(
                format!("{}{doubt}", cost.who.name()),
                vec![
                    each(cost.all.requests()),
                    each(cost.file_system.requests()),
                    each(cost.own.requests()),
                    each(cost.all.flushes),
                    each(cost.all.seeks),
                    Cell::value(Some(cost.each(cost.modelled_ns)), Unit::Nanoseconds),
                    Cell::value(Some(cost.not_transfer()), Unit::Share),
                    Cell::value(ratio, Unit::Ratio),
                ],
            );
        }
        table
    }

    fn circumstances(&self) -> String {
        format!(
            "{} objects of {} put first, then {OBJECTS} puts and {OBJECTS} gets, disks of {} MiB beside the file system; drive {}",
            human::count(self.lumps),
            human::bytes(self.lump_bytes),
            self.store_mib,
            self.model,
        )
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut lines = Vec::new();
        for what in ["put", "get"] {
            lines.extend(text::figures(&self.table(what)));
            lines.push(String::new());
        }
        lines.push(self.circumstances());
        lines.push(self.machine.to_string());
        let left_out = self.left_out.iter();
        lines.extend(left_out.map(|one| format!("{} LEFT OUT: {}", one.who.name(), one.why)));
        let named = self.of("put").map(|cost| cost.who);
        lines.push("What a put that was answered has done:".to_owned());
        lines.extend(named.map(|who| format!("- {}: {}", who.name(), who.durability())));
        lines.extend(self.notes.iter().map(|note| format!("- {note}")));
        lines.join("\n")
    }

    /// As one HTML file.
    pub(super) fn page(&self) -> Page {
        let mut setup = Setup::of(&self.machine);
        setup.fact("Load", self.circumstances());
        for cost in self.of("put") {
            setup.fact(cost.who.name(), cost.who.durability());
        }
        for one in &self.left_out {
            setup.fact(one.who.name(), format!("left out: {}", one.why));
        }
        let mut page = Page::new("What an object makes the disk do", setup);
        for what in ["put", "get"] {
            let bar = |cost: &Cost| Bar {
                name: cost.who.name().to_owned(),
                values: [
                    cost.transfer_ns,
                    cost.modelled_ns.saturating_sub(cost.transfer_ns),
                ]
                .map(|ns| cost.each(ns))
                .to_vec(),
            };
            let bars = Bars {
                caption: format!(
                    "Time of a modelled {} for one {what}: the bytes, and everything else.",
                    self.model
                ),
                title: format!("Time for one {what}"),
                unit: Unit::Nanoseconds,
                parts: ["transfer", "seeks, turns, flushes"]
                    .map(str::to_owned)
                    .to_vec(),
                bars: self.of(what).map(bar).collect(),
            };
            let mut table = self.table(what);
            table.notes = self.notes.iter().map(|&note| note.to_owned()).collect();
            page.section(format!("One {what}")).add(bars).add(table);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_minio_that_hold_no_data_are_known() {
        assert!(is_own_metadata("/x/data/lumps/0001/xl.meta"));
        assert!(is_own_metadata("/x/data/.minio.sys/format.json"));
        assert!(!is_own_metadata("/x/data/lumps/0001/ab/part.1"));
    }
}
