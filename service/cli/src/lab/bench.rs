//! `lumpscope bench`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use lumpscope_lab::{engine, grpc, observe, orders, peers, run as workload, seeds};
use lumpscope_server::config::ServeConfig;

use super::program;

#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// Measure the engine against fio and the original engine, in alternating rounds on one file
    Engine(Box<engine::EngineBenchArgs>),
    /// Measure the service through gRPC against one that stores nothing, and its memory
    Grpc(Box<grpc::GrpcBenchArgs>),
    /// Measure the cost of observation: probes not loaded, histograms only, all events
    Observe(Box<observe::ObserveBenchArgs>),
    /// Run one workload on one store, time every command, and print a table like the published ones
    Run(Box<workload::RunArgs>),
    /// Repeat the published tables that this project began with, and explain them
    #[command(subcommand)]
    Seeds(seeds::SeedTable),
    /// Compare the orders in which waiting gets are started, on an emulated disk in virtual time
    Orders(Box<orders::OrdersArgs>),
    /// Run one mix of puts and gets on everything installed: the original, fio, files, MinIO
    Peers(Box<peers::PeersArgs>),
    /// Service that stores nothing, which `bench grpc` measures against
    #[command(hide = true)]
    GrpcPeer(grpc::GrpcPeerArgs),
}

pub(super) fn run(command: BenchCommand) -> Result<ExitCode> {
    Ok(match command {
        BenchCommand::Engine(args) => engine::run(&args)?,
        BenchCommand::Grpc(args) => grpc::run(&args, &program()?)?,
        BenchCommand::Observe(args) => observe::run(&args, &program()?)?,
        BenchCommand::Run(args) => workload::run(&args, &program()?)?,
        BenchCommand::Seeds(table) => seeds::run(&table, &program()?)?,
        BenchCommand::Orders(args) => orders::run(&args)?,
        BenchCommand::Peers(args) => peers::run(&args, &program()?)?,
        BenchCommand::GrpcPeer(args) => grpc::serve_peer(&args, default_transport())?,
    })
}

/// The settings of HTTP/2 and gRPC that `serve` has without flags, which a peer must have too.
fn default_transport() -> grpc::Transport {
    let config = ServeConfig::default();
    grpc::Transport {
        stream_window: config.stream_window.as_u32(),
        connection_window: config.connection_window.as_u32(),
        frame_size: config.frame_size.as_u32(),
        max_streams: config.max_streams,
        max_header_bytes: config.max_header_bytes.as_u32(),
        max_message: config.max_message.as_usize(),
    }
}
