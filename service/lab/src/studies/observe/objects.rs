//! Lumps of 1 MiB through gRPC.

use std::path::Path;
use std::time::Duration;

use super::mode::{Meter, Mode};
use super::report::MeasuredRun;
use super::{LUMPS_MIB, ObserveBench};
use crate::experiment::report::Unit;
use crate::experiment::rotate;
use crate::load::grpc::{Call, Clients, Length, Room, Setting};

/// Connections, and calls under way on each.
const CONNECTIONS: usize = 4;
const CALLS: usize = 4;

fn setting(call: Call) -> Setting {
    Setting {
        call,
        mib: 1,
        connections: CONNECTIONS,
    }
}

/// Puts the lumps that will be got.
pub(super) async fn fill(bench: &ObserveBench<'_>, store: &Path) -> anyhow::Result<()> {
    let server = Mode::Off.start(bench.exe, store, bench.interrupt)?;
    let mut clients = Clients::connect(&server, 1).await?;
    clients
        .fill(setting(Call::Get), Room::of(LUMPS_MIB, 1))
        .await
}

/// One round: puts and gets in every mode.
pub(super) async fn round(
    bench: &ObserveBench<'_>,
    store: &Path,
    round: usize,
    runs: &mut Vec<MeasuredRun>,
) -> anyhow::Result<()> {
    for &mode in rotate(&Mode::ALL, round) {
        let server = mode.start(bench.exe, store, bench.interrupt)?;
        let clients = Clients::connect(&server, CONNECTIONS).await?;
        for call in [Call::Put, Call::Get] {
            bench.interrupt.check()?;
            let setting = setting(call);
            let room = Room::of(LUMPS_MIB, 1);
            let length = Length {
                calls: CALLS,
                time: Duration::from_secs_f64(bench.args.seconds),
                patient: false,
            };
            let meter = mode.meter(&server)?;
            let outcome = clients.run(&server, setting, room, length).await?;
            runs.push(MeasuredRun {
                figure: format!("{}, gRPC", setting.name()),
                unit: Unit::BytesPerSecond,
                mode,
                round,
                value: outcome.measured.bytes_per_second(),
                share: meter.map(Meter::share).transpose()?,
            });
        }
    }
    Ok(())
}
