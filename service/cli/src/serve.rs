//! `lumpscope serve`: signals in, ready line out.
//!
//! SIGTERM and SIGINT stop the service in order. A second one ends the wait for requests under way,
//! a third one the closing of the stores too. SIGHUP reads certificates and
//! tokens again.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lumpscope_observer::Observer;
use lumpscope_server::config::{ServeArgs, ServeConfig};
use lumpscope_server::door::Reloader;
use lumpscope_server::error::ServerError;
use lumpscope_server::privileges;
use lumpscope_server::serve::Service;
use lumpscope_server::stores::Stores;
use lumpscope_server::telemetry::logs;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::notify;
use super::output::{complain, print_as_is};
use super::variables;
use crate::error::{CutOff, Exit, system};

/// Tasks of connections that were cut off get this long to notice.
const LAST_TASKS: Duration = Duration::from_secs(1);

pub(super) fn run(args: ServeArgs) -> Result<ExitCode> {
    if args.check_config {
        return check(args, Vec::new());
    }
    let config = args.resolve()?;
    logs::start(config.log_format, &config.log)?;
    for variable in variables::unknown(&crate::commands()) {
        warn!(
            variable,
            "no setting has this environment variable: it is ignored"
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("lumpscope-rpc")
        .build()
        .map_err(system("start the runtime"))?;
    let result = runtime.block_on(serve(config));
    match &result {
        // What is still under way may take any time: it is what was not to be waited for.
        Err(error) if error.is::<CutOff>() => runtime.shutdown_background(),
        _ => runtime.shutdown_timeout(LAST_TASKS),
    }
    result.map(|()| ExitCode::SUCCESS)
}

/// Prints what would be in force as a file for `--config`, or everything that is wrong. `wrong`: keys
/// that the arguments do not have because of their values, and why.
pub(super) fn check(args: ServeArgs, wrong: Vec<(String, String)>) -> Result<ExitCode> {
    let unknown = variables::unknown(&crate::commands());
    let bad_arguments = !wrong.is_empty() || !unknown.is_empty();
    let unknown = unknown.into_iter().map(|name| {
        format!("{name}: no setting has this environment variable; see `lumpscope serve --help`")
    });
    let checked = lumpscope_server::check::check(args, wrong);
    let mut problems: Vec<String> = unknown.collect();
    match checked {
        Ok(config) if problems.is_empty() => {
            print_as_is(&config.to_toml())?;
            return Ok(Exit::Done.into());
        }
        Ok(_) => {}
        Err(more) => problems.extend(more),
    }
    for problem in problems {
        complain(&format!("lumpscope: {problem}"));
    }
    Ok(match bad_arguments {
        true => Exit::Arguments.into(),
        false => Exit::Failed.into(),
    })
}

async fn serve(config: ServeConfig) -> Result<()> {
    // Before a secret is read, and again when the user has changed.
    privileges::hide().map_err(ServerError::from)?;
    // Before the ready line: whoever reads it may send a signal at once.
    let mut stop = Stop {
        terminate: listen(SignalKind::terminate())?,
        interrupt: listen(SignalKind::interrupt())?,
    };
    let hangup = listen(SignalKind::hangup())?;
    let service = tokio::select! {
        service = Service::start_with(config, Some(lumpscope_s3::serve), give_up) => service?,
        () = stop.asked() => return Ok(()),
    };
    let s3 = service.s3.map(|s3| format!(" s3={s3}"));
    let ready = print_as_is(&format!(
        "lumpscope ready grpc={} metrics={}{}",
        service.grpc,
        service.metrics,
        s3.unwrap_or_default()
    ));
    // The service works without a reader of this line.
    if let Err(error) = ready {
        warn!(%error, "cannot print that the service is ready");
    }
    let stores = service.stores();
    notify::ready(&stores);
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(reload(hangup, service.reloader(), stores.clone()));
    let watching = tasks.spawn(notify::watch(stores));
    if let Some(pings) = notify::watchdog(service.stores()) {
        tasks.spawn(pings);
    }
    let (ask, asked) = oneshot::channel::<()>();
    let (hurry, hurried) = oneshot::channel::<()>();
    let told = async |told: oneshot::Receiver<()>| {
        // The sender is kept until it is used.
        let _ = told.await;
    };
    let ending = service.run_until_or(told(asked), told(hurried));
    tokio::pin!(ending);
    tokio::select! {
        ended = &mut ending => return Ok(ended?),
        () = stop.asked() => {}
    }
    watching.abort();
    notify::stopping();
    let _ = ask.send(());
    tokio::select! {
        ended = &mut ending => return Ok(ended?),
        () = stop.asked() => {}
    }
    let _ = hurry.send(());
    tokio::select! {
        ended = ending => Ok(ended?),
        () = stop.asked() => Err(CutOff.into()),
    }
}

/// The stores are open and the probes attached: nothing more needs rights.
fn give_up(config: &ServeConfig, observer: &Observer) -> Result<(), ServerError> {
    if config.keep_privileges {
        let held = privileges::held().capabilities;
        warn!(held = held.join(" "), "all privileges are kept");
        return Ok(());
    }
    // What the guard is told goes through maps too.
    let observing = config.stores.iter().any(|spec| {
        let status = observer.store_status(&spec.name);
        let guard = observer.guard(&spec.name);
        status.is_some_and(|status| status.observed) || guard.is_some_and(|guard| guard.effective)
    });
    let mut reach = config.reach();
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(manager) if manager.as_encoded_bytes().starts_with(b"@") => {
            reach.abstract_sockets = true;
        }
        manager => reach.sockets.extend(manager.map(PathBuf::from)),
    }
    let held = privileges::give_up(config.user.as_deref(), observing, &reach)?;
    privileges::hide()?;
    if held.uid == 0 {
        // A target of its own: who serves for a moment can leave it out.
        warn!(
            target: "lumpscope::root",
            "this service runs as root: if compromised, it can read and write every file on this machine; \
             name a user (--user lumpscope, or User= in the systemd unit)"
        );
    }
    match privileges::forbid() {
        Ok(()) => info!(
            calls = privileges::forbidden().count(),
            "forbade system calls"
        ),
        // A container may allow no filter of its own.
        Err(error) => warn!(%error, "it serves without"),
    }
    warn_of_unreadable(config);
    Ok(())
}

/// Files that are read again later must be readable then too.
fn warn_of_unreadable(config: &ServeConfig) {
    for path in config.reloaded() {
        if let Err(error) = std::fs::File::open(path) {
            let path = path.display();
            warn!(%path, %error, "cannot be read without privileges: changes of it will not be seen");
        }
    }
}

async fn reload(mut hangup: Signal, reloader: Arc<Reloader>, stores: Stores) {
    while hangup.recv().await.is_some() {
        info!(signal = "SIGHUP", "asked to reload");
        notify::reloading();
        let reloader = Arc::clone(&reloader);
        // What is wrong is in the log; what was in force stays.
        let _ = tokio::task::spawn_blocking(move || reloader.reload()).await;
        notify::ready(&stores);
    }
}

fn listen(kind: SignalKind) -> Result<Signal> {
    signal(kind).map_err(system("listen for signals"))
}

/// The signals that ask to stop.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    async fn asked(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        info!(signal = name, "asked to stop");
    }
}
