//! A workload on our service, through gRPC.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::engine::EngineRun;
use super::{RunStats, WorkloadRunError, until_stopped};
use crate::engine::interrupt::Interrupt;
use crate::grpc::server::{SERVICE, Server};
use crate::runner::{self, Target};
use crate::workload::CommandStream;

/// Name of the store in the service that is started for the run.
const STORE: &str = "bench";

/// Starts the service without probes on a store that is there.
fn start(exe: &Path, path: &Path, interrupt: &Interrupt) -> Result<Server, WorkloadRunError> {
    let mut command = Command::new(exe);
    let mut named = std::ffi::OsString::from(format!("{STORE}="));
    named.push(path);
    command.arg("serve").arg("--store").arg(named);
    command.args(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
    command.arg("--no-probes");
    Ok(Server::start(SERVICE, command, interrupt)?)
}

/// Runs the commands through a service that is started for a store that is there, and ends that.
/// `exe` is the program that understands `serve`; it is started by the calling thread, and sees the
/// mounts that this thread sees.
pub(crate) fn on_service(
    exe: &Path,
    stream: &CommandStream,
    path: &Path,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> Result<RunStats, WorkloadRunError> {
    let runtime = super::runtime()?;
    let server = start(exe, path, interrupt)?;
    let target = |server: &Server| Target::Service {
        server: server.url.clone(),
        store: STORE.to_owned(),
        durability: Some(run.durability),
    };
    let finished = Arc::new(AtomicU64::new(0));
    let outcome = runtime.block_on(until_stopped(
        runner::run(stream, &target(&server), &run.options, finished),
        interrupt,
    ))?;
    // Ends it in order, and waits for that.
    drop(server);
    let verified = if run.verify {
        let server = start(exe, path, interrupt)?;
        let target = target(&server);
        let verify = runner::verify_survivors(stream, &target, run.options.content);
        Some(runtime.block_on(until_stopped(verify, interrupt))?)
    } else {
        None
    };
    let durability = super::promise(run.durability).to_owned();
    let engine = format!("lumpscope {} through gRPC", env!("CARGO_PKG_VERSION"));
    Ok(RunStats::new(engine, durability, outcome, verified))
}

/// Runs the commands on an empty store of a service that runs already, and deletes what they put.
/// It cannot be reopened, so what lives is compared without that.
pub(crate) fn on_running_service(
    target: &Target,
    stream: &CommandStream,
    run: &EngineRun,
    interrupt: &Interrupt,
) -> Result<RunStats, WorkloadRunError> {
    let runtime = super::runtime()?;
    runtime.block_on(until_stopped(runner::insist_on_empty(target), interrupt))?;
    let done = runtime.block_on(until_stopped(
        async {
            let finished = Arc::new(AtomicU64::new(0));
            let outcome = runner::run(stream, target, &run.options, finished).await?;
            let verified = if run.verify {
                Some(runner::verify_survivors(stream, target, run.options.content).await?)
            } else {
                None
            };
            Ok((outcome, verified))
        },
        interrupt,
    ));
    // The store was empty: whatever became of the run, what is there now is ours.
    let cleared = runtime.block_on(runner::delete_all(stream, target));
    let (outcome, verified) = done?;
    cleared?;
    let durability = super::promise(run.durability).to_owned();
    let engine = "a running service through gRPC".to_owned();
    Ok(RunStats::new(engine, durability, outcome, verified))
}
