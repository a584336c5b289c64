//! `lumpscope compare`: one workload against a raw, an ext4 and an xfs store, side by side.
//!
//! Nothing is simulated: the stores are on real block devices, formatted by the real `format`, and
//! served by the real service, a child process to which the workload speaks gRPC. The parent only
//! builds ([`crate::disks`]), drives ([`crate::load::runner`]), asks the service what the disks did, and
//! shows it.
//!
//! The stores run one after the other, so that they do not compete for the machine.

mod args;
mod heatmap;
mod page;
mod place;
mod plan;
mod progress;
pub mod report;
mod second_opinion;
mod table;
mod text;
mod watch;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{anyhow, bail};
use lumpscope_proto::v1::ReportRequest;
use lumpscope_proto::v1::observe_client::ObserveClient;
use tonic::Status;

use crate::failure::{Interrupted, cannot_do};

pub use args::CompareArgs;

use crate::disks::{StoreKind, fill};
use crate::human;
use crate::load::runner::{self, RunError, RunOptions, RunOutcome, Target};
use crate::process::Interrupt;
use crate::process::{SERVICE, Server, serve};
use crate::workload;
use place::{Place, Places};
use plan::Plan;
use progress::Progress;
use report::{ClientView, Comparison, DiskView, ForReport, StoreView, WorkloadView};
use second_opinion::SecondOpinion;
use watch::Watch;

/// Exit code of shells for a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Everything a store's run needs.
struct Context<'a> {
    args: &'a CompareArgs,
    plan: &'a Plan,
    places: &'a Places,
    progress: &'a Progress,
    interrupt: &'a Interrupt,
    service: &'a Server,
}

/// Runs the comparison and prints it.
///
/// Blocks, installs signal handlers, and starts a runtime of its own: call it from the main thread,
/// outside any asynchronous runtime. `lumpscope_exe` is the binary that understands `format` and
/// `serve` (`std::env::current_exe()` in the real command).
///
/// The exit code is 1 when `--keep-going` went past a store that failed, and 130 when a signal
/// stopped it.
///
/// # Errors
/// Everything that keeps the three stores from being compared. The message says what to do.
pub fn run(args: &CompareArgs, lumpscope_exe: PathBuf) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.report {
        // Before anything is measured: what cannot be written later is refused now.
        crate::experiment::report::check(path)?;
    }
    let interrupt = Interrupt::install()?;
    let comparison = match compare(args, &lumpscope_exe, &interrupt) {
        Ok(comparison) => comparison,
        // Ctrl-C reaches the children as well: whatever failed, this is why.
        Err(_) if interrupt.check().is_err() => {
            eprintln!("lumpscope: {}", Interrupted);
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error),
    };
    if let Some(path) = &args.report {
        page::page(&comparison).write(path)?;
    }
    if args.json {
        let json = serde_json::to_string_pretty(&comparison).map_err(cannot_do("write JSON"))?;
        println!("{json}");
    } else {
        let stdout = std::io::stdout().is_terminal();
        let colour = stdout && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        print!("{}", text::render(&comparison, colour));
    }
    let failed = comparison
        .stores
        .iter()
        .any(|store| !store.failed.is_empty());
    Ok(if failed {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

fn compare(args: &CompareArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<Comparison> {
    let plan = Plan::new(args)?;
    let progress = Progress::new();
    let places = {
        let own = args.raw.is_some();
        let what = if own {
            "looking at the disks"
        } else {
            "making three disks"
        };
        let _step = progress.step(what);
        Places::new(args, &plan, exe)?
    };
    // What an emulated disk has never held costs no more than what it has.
    if let (Some(raw), None) = (places.lab_disk(), &args.drive) {
        let _step = progress.step("writing the raw disk once");
        write_once(raw, plan.sizing.capacity_bytes, interrupt)?;
    }
    for place in &places.places {
        interrupt.check()?;
        let capacity = human::bytes(plan.sizing.capacity_bytes);
        let _step = progress.step(&format!("formatting {} ({capacity})", place.kind.name()));
        format(exe, &places, place, &plan, interrupt)?;
    }
    // Declared in this order: on every way out the service ends before its disks go.
    let _raw_disk = places.give_back_raw_disk();
    let service = start(exe, &places, args, &progress, interrupt)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(cannot_do("start a runtime"))?;
    let context = Context {
        args,
        plan: &plan,
        places: &places,
        progress: &progress,
        interrupt,
        service: &service,
    };
    let mut stores = Vec::new();
    for place in &places.places {
        stores.push(runtime.block_on(run_store(&context, place))?);
    }
    let mut comparison = Comparison {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: rustix::system::uname()
            .release()
            .to_string_lossy()
            .into_owned(),
        workload: WorkloadView {
            name: args.workload.clone(),
            scale: args.scale.to_string(),
            commands: plan.stream.commands.len(),
            bytes_put: plan.stream.bytes_put(),
            peak_bytes: plan.stream.peak_bytes,
            published_ratios: workload::builtin(&args.workload)
                .map(|builtin| builtin.published_ratios),
        },
        clients: args.clients,
        disks: kind_of_disks(args, &places),
        ext4_journal: places.is_lab().then_some(args.ext4_journal),
        emulated: places.lateness()?,
        stores,
    };
    comparison.set_ratios();
    Ok(comparison)
}

fn kind_of_disks(args: &CompareArgs, places: &Places) -> String {
    match &args.drive {
        Some(drive) => format!("emulated {drive}"),
        None if places.is_lab() => "lab".to_owned(),
        None => "own".to_owned(),
    }
}

fn start(
    exe: &Path,
    places: &Places,
    args: &CompareArgs,
    progress: &Progress,
    interrupt: &Interrupt,
) -> anyhow::Result<Server> {
    let _step = progress.step("starting the service");
    let mut command = places.command(exe);
    let stores = places.places.iter();
    let stores = stores.map(|place| (place.kind.name(), place.path.as_path()));
    serve(&mut command, stores, !args.no_probes);
    Server::start(SERVICE, command, interrupt)
}

/// So that the raw store does not pay for the host's first allocation of its image.
fn write_once(raw: &Path, bytes: u64, interrupt: &Interrupt) -> anyhow::Result<()> {
    let filled = fill(raw, bytes, &|| interrupt.check().is_err());
    interrupt.check()?;
    filled.map_err(cannot_do(format!("write zeros to {}", raw.display())))
}

/// `lumpscope format`, never with `--force`.
fn format(
    exe: &Path,
    places: &Places,
    place: &Place,
    plan: &Plan,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let mut command = places.command(exe);
    command.arg("format").arg(&place.path);
    command
        .arg("--capacity")
        .arg(format!("{}M", plan.sizing.capacity_bytes >> 20));
    command
        .arg("--journal-ratio")
        .arg(format!("{:.6}", plan.sizing.journal_ratio));
    run_format(command, place.kind.name(), &place.path, interrupt)
}

/// Runs a `lumpscope format`; `store` and `path` are for the message.
pub(crate) fn run_format(
    command: Command,
    store: &'static str,
    path: &Path,
    interrupt: &Interrupt,
) -> anyhow::Result<()> {
    let ended = interrupt.output(command, Duration::MAX)?;
    // A terminal sends Ctrl-C to the child as well, which may end first.
    interrupt.check()?;
    if ended.status.success() {
        return Ok(());
    }
    let reason = ended.stderr.trim();
    let reason = reason.strip_prefix("lumpscope: ").unwrap_or(reason);
    let reason = if reason.is_empty() {
        ended.status.to_string()
    } else {
        reason.to_owned()
    };
    bail!(
        "cannot format the {store} store at {}: {reason}. (A comparison never overwrites anything: \
         empty the disk yourself if nothing on it is needed)",
        path.display()
    )
}

/// Runs the workload against one store and asks what its disk did.
async fn run_store(context: &Context<'_>, place: &Place) -> anyhow::Result<StoreView> {
    let mut view = StoreView {
        kind: place.kind,
        path: place.path.clone(),
        failed: String::new(),
        client: None,
        disk: None,
        tracer: None,
        for_report: ForReport::default(),
    };
    let store = place.kind.name();
    let watch = watch(context, store, &mut view.for_report).await;
    let second = SecondOpinion::start(context, store).await?;
    match drive(context, store).await {
        Ok(outcome) => {
            view.client = Some(ClientView::new(&outcome, context.args.clients));
            view.for_report.curves = report::curves(&outcome);
        }
        Err(error) => match error.downcast_ref::<RunError>() {
            Some(failed) if context.args.keep_going => view.failed = failed.to_string(),
            _ => return Err(error),
        },
    }
    settle(context.places, place);
    if let Some(second) = second {
        view.tracer = Some(second.finish(context, store).await?);
    }
    if let Some(watch) = watch {
        view.for_report.seen = Some(watch.finish().await);
    }
    match fetch_report(&context.service.url, store).await {
        Ok(disk) => {
            let device = disk.as_ref().map_or("", |disk| disk.device.as_str());
            if context.args.report.is_some() && !device.is_empty() {
                view.for_report.disk =
                    crate::experiment::report::disk(&Path::new("/dev").join(device));
            }
            view.disk = disk;
        }
        Err(status) if context.args.keep_going => {
            view.failed
                .push_str(&format!(" no report: {}", status.message()));
        }
        Err(status) => {
            return Err(no_report(store, &status));
        }
    }
    Ok(view)
}

/// For a report, looks on while the workload runs. That it cannot is a line of the report.
async fn watch(context: &Context<'_>, store: &str, view: &mut ForReport) -> Option<Watch> {
    context.args.report.as_ref()?;
    match Watch::start(&context.service.url, store).await {
        Ok(watch) => Some(watch),
        Err(why) => {
            view.not_seen_because = why;
            None
        }
    }
}

/// Makes the file system write now what the workload has left it to write later, so that a short
/// run shows it too. It is no part of the time measured.
fn settle(places: &Places, place: &Place) {
    if place.kind == StoreKind::Raw {
        return;
    }
    let mut command = places.command(Path::new("sync"));
    command.arg("--file-system").arg(&place.path);
    // Without it the report is a little smaller, nothing else.
    if let Err(error) = command.stdin(Stdio::null()).status() {
        eprintln!("cannot run sync: {error}");
    }
}

async fn drive(context: &Context<'_>, store: &'static str) -> anyhow::Result<RunOutcome> {
    context.interrupt.check()?;
    let Context { args, plan, .. } = context;
    let target = Target::Service {
        server: context.service.url.clone(),
        store: store.to_owned(),
        durability: None,
    };
    let options = RunOptions {
        clients: args.clients,
        verify_bytes: args.verify,
        ..RunOptions::default()
    };
    let commands = plan.stream.commands.len();
    let title = format!(
        "{store}: {} commands of {}",
        human::count_of(commands),
        args.workload
    );
    let step = context.progress.commands(&title, commands);
    let finished = Arc::new(AtomicU64::new(0));
    let outcome = tokio::select! {
        outcome = runner::run(&plan.stream, &target, &options, Arc::clone(&finished)) => outcome,
        never = step.follow(finished) => match never {},
        () = context.interrupt.wait() => return Err(Interrupted.into()),
    };
    match outcome {
        Ok(outcome) => Ok(outcome),
        Err(error) => {
            context.interrupt.check()?;
            // Let the reader of the service's log catch up.
            tokio::time::sleep(Duration::from_millis(50)).await;
            let log = context.service.last_words();
            let failed = format!("{store}: {error}. The service's last words:\n{log}");
            Err(anyhow::Error::new(error).context(failed))
        }
    }
}

fn no_report(store: &str, status: &Status) -> anyhow::Error {
    anyhow!(
        "{store}: cannot fetch the report: {} ({:?})",
        status.message(),
        status.code()
    )
}

/// `None`: the service knows the store but has nothing to report.
async fn fetch_report(server: &str, store: &str) -> Result<Option<DiskView>, Status> {
    let client = ObserveClient::connect(server.to_owned()).await;
    let mut client = client
        .map_err(|error| Status::unavailable(error.to_string()))?
        .max_decoding_message_size(64 << 20);
    let request = ReportRequest {
        store: store.to_owned(),
        without_heat: false,
    };
    let mut request = tonic::Request::new(request);
    request.set_timeout(Duration::from_secs(60));
    let reply = client.report(request).await?;
    let mut reports = reply.into_inner().stores.into_iter();
    Ok(reports
        .find(|report| report.store == store)
        .map(DiskView::from))
}
