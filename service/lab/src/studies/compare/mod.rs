//! `lumpscope compare`: one workload against a raw, an ext4 and an xfs store, side by side.
//!
//! The requests are real: the stores are on real block devices, formatted by the real `format`, and
//! served by the real service, a child process to which the workload speaks gRPC. The parent only
//! builds ([`crate::disks`]), drives ([`crate::load::runner`]) and asks the service what the disks did.
//! The times that come first are a model's ([`modelled`]): the block requests of each store, replayed
//! on a drive of spinning platters, so that the answer is the same on every machine.
//!
//! The stores run one after the other, so that they do not compete for the machine, with blocks of
//! each size in turn.

mod args;
mod conclusion;
mod modelled;
mod place;
mod plan;
pub mod report;
mod second_opinion;
mod shown;
mod table;
mod watch;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use anyhow::anyhow;
use lumpscope_client::{Client, Options};
use lumpscope_proto::v1::{ReportRequest, StoreReport};
use tokio::runtime::Runtime;

use crate::failure::Interrupted;

pub use args::CompareArgs;

use crate::disks::{StoreKind, fill};
use crate::experiment;
use crate::human;
use crate::load::runner::{self, RunOptions, RunOutcome, Target};
use crate::process::{self, Interrupt, SERVICE, Server, serve};
use crate::stats::Kind;
use crate::studies::host::runtime;
use crate::studies::predict;
use lumpscope_units::tell;
use place::{Places, PlannedStore};
use plan::Plan;
use report::{ClientView, Comparison, ForReport, StoreView};
use second_opinion::SecondOpinion;
use watch::{DiskObservations, TraceWatch};

/// A pass whose stores are served.
struct Context<'a> {
    pass: &'a Pass<'a>,
    places: &'a Places,
    service: &'a Server,
}

/// Runs the comparison and prints it.
///
/// Blocks, installs signal handlers, and starts a runtime of its own: call it from the main thread,
/// outside any asynchronous runtime. `lumpscope_exe` is the binary that understands `format` and
/// `serve` (`std::env::current_exe()` in the real command).
///
/// The exit code is 130 when a signal stopped it.
///
/// # Errors
/// Everything that keeps the three stores from being compared. The message says what to do.
pub fn run(args: &CompareArgs, lumpscope_exe: PathBuf) -> anyhow::Result<ExitCode> {
    experiment::run(&args.study.output, |interrupt| {
        let comparison = compare(args, &lumpscope_exe, interrupt)?;
        let report = shown::report(&comparison, args.study.output.has_charts());
        Ok((report, comparison))
    })
}

fn compare(args: &CompareArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<Comparison> {
    let plan = Plan::new(args, interrupt)?;
    let runtime = runtime()?;
    let mut comparison = Comparison::new(args, &plan)?;
    for block_size in &args.block_size {
        let pass = Pass {
            exe,
            args,
            plan: &plan,
            block_size: *block_size,
            interrupt,
        };
        pass.run(&runtime, &mut comparison)?;
    }
    comparison.set_ratios();
    Ok(comparison)
}

/// The three stores with blocks of one size, one after the other.
struct Pass<'a> {
    exe: &'a Path,
    args: &'a CompareArgs,
    plan: &'a Plan,
    block_size: u16,
    interrupt: &'a Interrupt,
}

impl Pass<'_> {
    /// Makes the stores, runs the workload on each, and takes everything away again.
    fn run(&self, runtime: &Runtime, comparison: &mut Comparison) -> anyhow::Result<()> {
        let places = self.places()?;
        // Declared in this order: on every way out the service ends before its disks go.
        let _raw_disk = places.give_back_raw_disk(self.plan.sizing.capacity_bytes);
        let service = self.start(&places)?;
        let context = Context {
            pass: self,
            places: &places,
            service: &service,
        };
        for place in &places.places {
            let view = runtime.block_on(run_store(&context, place))?;
            comparison.stores.push(view);
        }
        comparison.emulated.extend(places.lateness()?);
        Ok(())
    }

    /// Disks, formatted.
    fn places(&self) -> anyhow::Result<Places> {
        let Pass {
            exe, args, plan, ..
        } = *self;
        let what = match args.raw {
            Some(_) => "looking at the disks",
            None => "making three disks",
        };
        tell(what);
        let places = Places::new(args, plan, exe)?;
        let capacity = plan.sizing.capacity_bytes;
        // Blocks that an emulated disk has never held cost no more than others.
        if let (Some(raw), None) = (places.lab_disk(), &args.drive) {
            tell("writing the raw disk once");
            // So that the raw store does not pay for the host's first allocation of its image.
            fill(raw, capacity, self.interrupt)?;
        }
        for place in &places.places {
            self.interrupt.check()?;
            tell(&format!(
                "formatting {} ({}, blocks of {})",
                place.kind.name(),
                human::bytes(capacity),
                self.block_size
            ));
            let journal = format!("--journal-ratio={:.6}", plan.sizing.journal_ratio);
            let block_size = format!("--block-size={}", self.block_size);
            let mut format = places.command(exe);
            format.args(["format", &journal, &block_size]);
            process::format(format, &place.path, capacity, self.interrupt)?;
        }
        Ok(places)
    }

    fn start(&self, places: &Places) -> anyhow::Result<Server> {
        tell("starting the service");
        let mut command = places.command(self.exe);
        let stores = places.places.iter();
        let stores = stores.map(|place| (place.kind.name(), place.path.as_path()));
        serve(&mut command, stores, !self.args.no_probes);
        // By itself a raw disk with an arm would commit in runs and the files in order.
        command.args(["--commit", "ordered"]);
        Server::start(SERVICE, command, self.interrupt)
    }
}

/// Runs the workload against one store and asks what its disk did.
async fn run_store(context: &Context<'_>, place: &PlannedStore) -> anyhow::Result<StoreView> {
    let (store, args) = (place.kind.name(), context.pass.args);
    let watch = TraceWatch::start(&context.service.url, store).await;
    let second = SecondOpinion::start(context, store).await?;
    let outcome = drive(context, store).await?;
    let mut view = StoreView {
        kind: place.kind,
        block_size: context.pass.block_size,
        path: place.path.clone(),
        client: ClientView::new(&outcome, args.depth),
        modelled: Vec::new(),
        model_note: String::new(),
        disk: None,
        tracer: None,
        for_report: ForReport {
            curves: report::curves(&outcome),
            ..ForReport::default()
        },
    };
    settle(context.places, place);
    if let Some(second) = second {
        view.tracer = Some(second.finish(context, store).await?);
    }
    match watch {
        Ok(watch) => {
            let seen = watch.finish().await;
            if !seen.missing.is_empty() {
                view.model_note =
                    format!("of its block requests some are missing: {}", seen.missing);
            }
            model(args, &seen, &outcome.requests, &mut view)?;
            view.for_report.seen = Some(seen);
        }
        Err(why) => view.model_note = why,
    }
    view.disk = fetch_report(&context.service.url, store).await?;
    let device = view.disk.as_ref().map_or("", |disk| disk.device.as_str());
    if args.study.output.has_charts() && !device.is_empty() {
        view.for_report.disk = experiment::report::disk(&Path::new("/dev").join(device));
    }
    Ok(view)
}

/// Replays what the disk was asked for on each of the drives.
fn model(
    args: &CompareArgs,
    seen: &DiskObservations,
    kinds: &BTreeMap<u64, Kind>,
    view: &mut StoreView,
) -> anyhow::Result<()> {
    let inodes = args.no_ext4_journal && view.kind == StoreKind::Ext4;
    for drive in &args.models()? {
        let drive = predict::scaled(drive, args.scale, &seen.trace);
        view.modelled.push(modelled::modelled(
            (seen, inodes),
            kinds,
            &drive,
            args.rule,
        )?);
    }
    Ok(())
}

/// Makes the file system write now what the workload has left it to write later, so that a short
/// run shows it too. It is no part of the time measured.
fn settle(places: &Places, place: &PlannedStore) {
    if place.kind == StoreKind::Raw {
        return;
    }
    let mut command = places.command(Path::new("sync"));
    command.arg("--file-system").arg(&place.path);
    // Without it the report is a little smaller, nothing else.
    if let Err(error) = command.stdin(Stdio::null()).status() {
        tell(&format!("cannot run sync: {error}"));
    }
}

async fn drive(context: &Context<'_>, store: &'static str) -> anyhow::Result<RunOutcome> {
    let Pass {
        args,
        plan,
        interrupt,
        ..
    } = context.pass;
    interrupt.check()?;
    let target = Target::Service {
        service: Options::new(&context.service.url),
        store: store.to_owned(),
        durability: None,
    };
    let options = RunOptions {
        clients: args.depth,
        verify_bytes: args.verify,
        ..RunOptions::default()
    };
    let commands = plan.stream.commands.len();
    let title = format!(
        "{store}: {} commands of {}",
        human::count_of(commands),
        args.workload
    );
    tell(&title);
    let outcome = tokio::select! {
        outcome = runner::run(&plan.stream, &target, &options) => outcome,
        () = interrupt.wait() => return Err(Interrupted.into()),
    };
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            interrupt.check()?;
            // Let the reader of the service's log catch up.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let log = context.service.last_words();
            let failed = format!("{store}: {error}. The service's last words:\n{log}");
            Err(anyhow::Error::new(error).context(failed))
        }
    }
}

/// `None`: the service knows the store but has nothing to report.
pub(in crate::studies) async fn fetch_report(
    server: &str,
    store: &str,
) -> anyhow::Result<Option<StoreReport>> {
    let request = ReportRequest {
        store: store.to_owned(),
        without_heat: false,
    };
    let reply = async {
        Client::connect(Options::new(server))
            .await?
            .report(request)
            .await
    };
    let reply = reply.await;
    let reply = reply.map_err(|error| anyhow!("{store}: cannot fetch the report: {error}"))?;
    let mut reports = reply.stores.into_iter();
    Ok(reports.find(|report| report.store == store))
}
