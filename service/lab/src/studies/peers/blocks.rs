//! `lumpscope bench peers --blocks`: what each service makes the disk do for an object.
//!
//! Every peer is filled, then puts new objects, then gets some at random, one request at a time, with
//! objects of each size on disks of their own. The
//! block requests of the disk below it are recorded, whoever makes them, until everything is written
//! back, and replayed at the beginning of a modelled drive: what is shown is the same on every
//! machine, as far as the peer does the same. Before each part the caches of the kernel are emptied.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use lumpscope_platter::drive::Drive;
use serde::Serialize;
use tokio::runtime::Runtime;

use super::report::peers;
use super::{Bench, LeftOut, PeersArgs, Who};
use crate::disks::StoreKind;
use crate::experiment::report::{Bar, Bars, Cell, Report, Table, Unit};
use crate::failure::{cannot, message};
use crate::human;
use crate::load::runner::{Durability, Run, RunOptions, Target};
use crate::process::{Interrupt, cpu_seconds};
use crate::studies::host::runtime;
use crate::studies::predict::{Rule, drive_named};
use crate::studies::watch::{DiskView, DiskWatch, FILES, Row};
use lumpscope_units::tell;

/// Objects of each part.
pub(super) const OBJECTS: u64 = 100;
/// A peer may still write for so long after its last answer.
const AFTER: Duration = Duration::from_secs(1);
/// Our store writes the records of puts a second later, and the checked copies of its header five seconds after them.
const AFTER_OUR_PUTS: Duration = Duration::from_secs(7);
/// Clients that fill a store with as many objects as were asked for.
const FILLING_CLIENTS: usize = 16;

const NOTES: [&str; 4] = [
    "One request at a time. Every number is that of all block requests of the part over its objects, \
     whoever made them, and until everything was written back: divide and compare, no machine is in it.",
    "Time is that of a modelled drive, at its beginning, which does what was asked in the order in \
     which it was asked. rest: the share of that time that the bytes themselves do not need. ratio: of \
     the time to that of the first row. processor: time of the peer's own processes.",
    "data, own, journal, metadata, flushes, others: the requests by owner. own: files in which a peer \
     keeps what it knows of objects, as far as their names tell (xl.meta and .minio.sys of MinIO, the \
     database of Garage, the JSON of s3s-fs, what is no volume of SeaweedFS), and the journal of our store; \
     BlueStore's own cannot be told from its data; journal and metadata: of the \
     file system; others: other processes, and what nobody can be named for.",
    "Before each part the page cache, directory entries and inodes of the whole machine are dropped: gets \
     find nothing in memory but what a peer itself keeps there. Gets are at random: an object that comes \
     again is in the page cache of those who use it, and bytes tells how many were.",
];

/// Owners of block requests, in the order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Owner {
    /// What was put or got.
    Data,
    /// Files in which the peer keeps what it knows of objects.
    Own,
    /// The file system's journal.
    Journal,
    /// The file system's metadata.
    Metadata,
    /// Flushes have no place, so no other owner.
    Flushes,
    /// Other processes, and nobody who can be named.
    Others,
}

impl Owner {
    const ALL: [Owner; 6] = [
        Owner::Data,
        Owner::Own,
        Owner::Journal,
        Owner::Metadata,
        Owner::Flushes,
        Owner::Others,
    ];

    const fn name(self) -> &'static str {
        match self {
            Owner::Data => "data",
            Owner::Own => "own",
            Owner::Journal => "journal",
            Owner::Metadata => "metadata",
            Owner::Flushes => "flushes",
            Owner::Others => "others",
        }
    }

    /// Of a row of the watch; those of files are told apart by their names.
    fn of_kind(name: &str) -> Owner {
        match name {
            "files" | "files that are gone" => Owner::Data,
            "fs-journal" => Owner::Journal,
            "fs-metadata" => Owner::Metadata,
            "flushes" => Owner::Flushes,
            _ => Owner::Others,
        }
    }
}

/// Block requests and modelled time for the objects of one part.
#[derive(Debug, Serialize)]
pub(super) struct Cost {
    who: Who,
    /// `put` or `get`.
    what: &'static str,
    /// Bytes of an object.
    size: u64,
    objects: u64,
    /// Processor time of the peer's processes; of files, that of the bench itself.
    cpu_ns: f64,
    /// All block requests.
    pub(super) all: Row,
    /// By owner.
    owners: BTreeMap<Owner, Row>,
    pub(super) modelled_ns: u64,
    transfer_ns: u64,
    /// All block requests are here.
    complete: bool,
}

/// The data behind the figures.
#[derive(Debug, Default, Serialize)]
pub(super) struct Data {
    /// Bytes of an object, and how many were put first.
    pub(super) sizes: Vec<(u64, u64)>,
    costs: Vec<Cost>,
    pub(super) left_out: Vec<LeftOut>,
}

pub(super) fn measure(
    args: &PeersArgs,
    exe: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<(Report, Data)> {
    let drive = drive_named(&args.model)?;
    let mut data = Data::default();
    for size in &args.size {
        let folder = super::folder()?;
        let mut bench = Bench::new((args, *size), exe, interrupt, folder.path())?;
        data.sizes.push((*size, bench.lumps));
        bench.on_lab(|bench| bench.all_costs(&drive, &mut data))?;
    }
    Ok((data.report(&drive.name), data))
}

impl Bench<'_> {
    /// Measures every wanted peer; what cannot be measured is left out, and why is kept.
    pub(super) fn all_costs(&self, drive: &Drive, data: &mut Data) -> anyhow::Result<()> {
        for who in self.args.wanted() {
            self.interrupt.check()?;
            if !who.is_service() && self.args.only.is_empty() {
                continue;
            }
            let size = human::bytes(self.size);
            tell(&format!("{}, objects of {size}", who.name()));
            let done = match self.missing(who) {
                _ if !who.is_service() => Err(anyhow!(
                    "--blocks is for what keeps objects, as users run it"
                )),
                Some(why) => Err(anyhow!(why)),
                None => self.costs(who, drive),
            };
            match done {
                Ok(of_peer) => data.costs.extend(of_peer),
                Err(error) => {
                    self.interrupt.check()?;
                    let why = message(&error);
                    let known = |left: &LeftOut| (left.who, &left.why) == (who, &why);
                    if !data.left_out.iter().any(known) {
                        data.left_out.push(LeftOut { who, why });
                    }
                }
            }
        }
        Ok(())
    }

    /// Carries out the commands from the end of the last part up to this one, by so many clients.
    pub(super) fn part(
        &self,
        (run, runtime): (&Run, &Runtime),
        (end, clients): (u64, usize),
        target: &Target,
    ) -> anyhow::Result<()> {
        let end = usize::try_from(end).unwrap_or(usize::MAX);
        runtime.block_on(self.interrupt.or_stop(run.part((end, clients), target)))
    }

    /// A peer, filled, and what its puts and its gets cost.
    fn costs(&self, who: Who, drive: &Drive) -> anyhow::Result<Vec<Cost>> {
        let (store, host) = self.host(who)?;
        let family = host.pids();
        let below = match who.disk() {
            StoreKind::Raw => &self.raw,
            _ => self.folder(who)?,
        };
        let runtime = runtime()?;
        let run = Run::new(&self.stream, &RunOptions::default());
        let part = |end: u64, clients: usize, durability: Durability| {
            let target = host.target.with_durability(durability);
            self.part((&run, &runtime), (end, clients), &target)
        };
        match self.args.fill {
            Some(_) => part(self.lumps, FILLING_CLIENTS, Durability::Journaled)?,
            None => part(self.lumps, 1, Durability::Synced)?,
        }
        let mut costs = Vec::new();
        for (what, end) in [
            ("put", self.lumps + OBJECTS),
            ("get", self.lumps + 2 * OBJECTS),
        ] {
            drop_caches(below)?;
            let before = cpu_seconds(&family)?;
            let watch = DiskWatch::start(below)?;
            part(end, 1, Durability::Synced)?;
            let worked = cpu_seconds(&family)? - before;
            let store = store.as_ref();
            let store = store.map(|store| (store.path.as_path(), &store.data));
            std::thread::sleep(match what {
                "put" if store.is_some() => AFTER_OUR_PUTS,
                _ => AFTER,
            });
            sync(below)?;
            let view = watch.finish(&family, store, (drive, Rule::Overlap))?;
            costs.push(Cost::of((who, what), (self.size, worked), &view));
        }
        Ok(costs)
    }
}

fn sync(below: &Path) -> anyhow::Result<()> {
    let file = File::open(below).map_err(cannot("open", below))?;
    rustix::fs::syncfs(&file).map_err(cannot("write back", below))
}

/// Empties the caches of the kernel. A file system of the lab is frozen for a moment, because only then
/// does it write its metadata in place: what the part before has changed would count for the next.
fn drop_caches(below: &Path) -> anyhow::Result<()> {
    const SWITCH: &str = "/proc/sys/vm/drop_caches";
    sync(below)?;
    if below.is_dir() {
        for change in ["--freeze", "--unfreeze"] {
            let ended = Command::new("fsfreeze").arg(change).arg(below).status();
            let ended = ended.map_err(cannot("run fsfreeze on", below))?;
            ensure!(
                ended.success(),
                "fsfreeze {change} failed on {}",
                below.display()
            );
        }
    }
    fs::write(SWITCH, "3").map_err(cannot("write", Path::new(SWITCH)))
}

impl Cost {
    fn of(
        (who, what): (Who, &'static str),
        (size, cpu_seconds): (u64, f64),
        view: &DiskView,
    ) -> Cost {
        let mut all = Row::default();
        let mut owners: BTreeMap<Owner, Row> = BTreeMap::new();
        for row in view.rows.iter().filter(|row| row.name != FILES) {
            owners
                .entry(Owner::of_kind(&row.name))
                .or_default()
                .merge(row);
        }
        for row in &view.files {
            let own = who.is_own(&row.name);
            let owner = if own { Owner::Own } else { Owner::Data };
            owners.entry(owner).or_default().merge(row);
        }
        owners.values().for_each(|row| all.merge(row));
        Cost {
            who,
            what,
            size,
            objects: OBJECTS,
            cpu_ns: cpu_seconds * 1e9,
            all,
            owners,
            modelled_ns: view.modelled_ns,
            transfer_ns: view.transfer_ns,
            complete: view.trust.complete,
        }
    }

    /// A count of all objects as that of one.
    pub(super) fn each(&self, count: u64) -> f64 {
        human::ratio(count, self.objects).unwrap_or(0.0)
    }

    fn name(&self) -> String {
        let doubt = if self.complete { "" } else { " (incomplete)" };
        format!("{}{doubt}", self.who.name())
    }

    fn not_transfer(&self) -> f64 {
        let rest = self.modelled_ns.saturating_sub(self.transfer_ns);
        human::ratio(rest, self.modelled_ns).unwrap_or(0.0)
    }
}

impl Data {
    fn of(&self, what: &str, size: u64) -> impl Iterator<Item = &Cost> {
        let wanted = move |cost: &&Cost| (cost.what, cost.size) == (what, size);
        self.costs.iter().filter(wanted)
    }

    /// That of a peer; `what`: `put` or `get`.
    pub(super) fn cost(&self, who: Who, what: &str) -> Option<&Cost> {
        let mut costs = self.costs.iter();
        costs.find(|cost| (cost.who, cost.what) == (who, what))
    }

    /// Puts, then gets, of each size.
    fn parts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let sizes = self.sizes.iter();
        sizes.flat_map(|(size, _)| ["put", "get"].map(|what| (what, *size)))
    }

    /// One row a peer: the block requests by owner.
    fn requests(&self, (what, size): (&'static str, u64)) -> Table {
        let mut columns = vec!["requests"];
        columns.extend(Owner::ALL.map(Owner::name));
        let caption = format!("Block requests of one {what} of {}.", human::bytes(size));
        let mut table = Table::new(caption, &columns);
        table.corner = format!("{what}, {}", human::bytes(size));
        for cost in self.of(what, size) {
            let each = |count: u64| Cell::value(Some(cost.each(count)), Unit::Plain);
            let of = |owner| cost.owners.get(&owner).map_or(0, Row::requests);
            let mut cells = vec![each(cost.all.requests())];
            cells.extend(Owner::ALL.map(|owner| each(of(owner))));
            table.row(cost.name(), cells);
        }
        table
    }

    /// One row a peer: times beside that of our service through gRPC.
    fn times(&self, (what, size): (&'static str, u64)) -> Table {
        let columns = ["bytes", "seeks", "time", "rest", "ratio", "processor"];
        let caption = format!("The disk's part in one {what} of {}.", human::bytes(size));
        let mut table = Table::new(caption, &columns);
        table.corner = format!("{what}, {}", human::bytes(size));
        let ours = self.of(what, size).next().map(|cost| cost.modelled_ns);
        for cost in self.of(what, size) {
            let ratio = ours.and_then(|ours| human::ratio(cost.modelled_ns, ours));
            let bytes = cost.all.read_bytes + cost.all.written_bytes;
            table.row(
                cost.name(),
                vec![
                    Cell::value(Some(cost.each(bytes)), Unit::Bytes),
                    Cell::value(Some(cost.each(cost.all.seeks)), Unit::Plain),
                    Cell::value(Some(cost.each(cost.modelled_ns)), Unit::Nanoseconds),
                    Cell::value(Some(cost.not_transfer()), Unit::Share),
                    Cell::value(ratio, Unit::Ratio),
                    Cell::value(
                        Some(cost.cpu_ns / human::as_float(cost.objects)),
                        Unit::Nanoseconds,
                    ),
                ],
            );
        }
        table
    }

    /// Time of one part: the bytes, and everything else.
    fn bars(&self, (what, size): (&'static str, u64), model: &str) -> Bars {
        let bar = |cost: &Cost| {
            let rest = cost.modelled_ns.saturating_sub(cost.transfer_ns);
            Bar {
                name: cost.who.name().to_owned(),
                values: [cost.transfer_ns, rest].map(|ns| cost.each(ns)).to_vec(),
            }
        };
        let parts = ["transfer", "seeks, revolutions, flushes"];
        Bars {
            caption: format!("Time of a modelled {model} for one {what}: the bytes, and the rest."),
            title: format!("Time of one {what}"),
            unit: Unit::Nanoseconds,
            parts: parts.map(str::to_owned).to_vec(),
            bars: self.of(what, size).map(bar).collect(),
        }
    }

    pub(super) fn report(&self, model: &str) -> Report {
        let mut report = Report::new("What an object makes the disk do");
        let first = self.sizes.iter().map(|(size, lumps)| {
            let (lumps, size) = (human::count(*lumps), human::bytes(*size));
            format!("{lumps} objects of {size}")
        });
        let first: Vec<String> = first.collect();
        let first = first.join(" and ");
        let load = format!(
            "{first} put first, then {OBJECTS} puts and {OBJECTS} gets of each; drive {model}"
        );
        report.fact("Load", load);
        let present: BTreeSet<Who> = self.costs.iter().map(|cost| cost.who).collect();
        let done = present
            .into_iter()
            .map(|who| (who, who.durability().to_owned()));
        peers(&mut report, done, &self.left_out);
        for part @ (what, size) in self.parts() {
            let section = report.section(format!("One {what} of {}", human::bytes(size)));
            section.add(self.bars(part, model));
            section.add(self.requests(part)).add(self.times(part));
        }
        report.note(&NOTES);
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::Trust;
    use crate::studies::watch::BESIDE;

    fn row(name: &str, writes: u64, flushes: u64) -> Row {
        Row {
            name: name.to_owned(),
            writes,
            flushes,
            ..Row::default()
        }
    }

    #[test]
    fn every_block_request_has_one_owner() {
        let view = DiskView {
            disk: "none".to_owned(),
            rows: vec![
                row(FILES, 30, 0),
                row("files that are gone", 4, 0),
                row("fs-journal", 5, 0),
                row("fs-metadata", 6, 0),
                row("flushes", 0, 7),
                row("unknown", 8, 0),
                row("other processes", 9, 0),
            ],
            files: vec![row(BESIDE, 10, 0), row("/data", 20, 0)],
            modelled_ns: 1000,
            transfer_ns: 250,
            trust: Trust {
                missing: 0,
                kernel_requests: 69,
                complete: true,
            },
        };
        let cost = Cost::of((Who::Service, "put"), (4096, 1.0), &view);
        let requests: Vec<u64> = cost.owners.values().map(Row::requests).collect();
        assert_eq!(requests, [24, 10, 5, 6, 7, 17]);
        assert_eq!((cost.all.requests(), cost.all.flushes), (69, 7));
        assert!((cost.not_transfer() - 0.75).abs() < 1e-9);
    }
}
