//! `lumpscope serve`: signals in, ready line out.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

use crate::config::ServeArgs;
use crate::error::ServerError;
use crate::serve::Service;
use crate::telemetry::logs;

/// Tasks of connections that were cut off get this long to notice.
const LAST_TASKS: Duration = Duration::from_secs(1);

pub(super) fn run(args: ServeArgs) -> Result<ExitCode, ServerError> {
    let config = args.resolve()?;
    logs::start(config.log_format, &config.log)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .thread_name("lumpscope-rpc")
        .build()
        .map_err(|source| ServerError::System {
            what: "start the runtime",
            source,
        })?;
    let result = runtime.block_on(async {
        // Before the ready line: whoever reads it may send a signal at once.
        let mut terminate = listen(SignalKind::terminate())?;
        let mut interrupt = listen(SignalKind::interrupt())?;
        let service = tokio::select! {
            service = Service::start(config) => service?,
            () = first(&mut terminate, &mut interrupt) => return Ok(()),
        };
        let mut stdout = std::io::stdout();
        // Nobody has to read it: a closed standard output is no reason to stop.
        let _ = writeln!(
            stdout,
            "lumpscope ready grpc={} metrics={}",
            service.grpc, service.metrics
        )
        .and_then(|()| stdout.flush());
        service
            .run_until(first(&mut terminate, &mut interrupt))
            .await
    });
    runtime.shutdown_timeout(LAST_TASKS);
    result.map(|()| ExitCode::SUCCESS)
}

fn listen(kind: SignalKind) -> Result<Signal, ServerError> {
    signal(kind).map_err(|source| ServerError::System {
        what: "listen for signals",
        source,
    })
}

async fn first(terminate: &mut Signal, interrupt: &mut Signal) {
    let name = tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    };
    info!(signal = name, "asked to stop");
}
