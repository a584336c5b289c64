//! The command line: one binary for the service, its client and its tools.

mod client;
mod data;
mod doctor;
mod format;
mod inspect;
mod notify;
mod output;
mod serve;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::config;
use crate::error::ServerError;
use crate::size::Size;

/// Lump store on raw disks that shows what the disk did for every request.
#[derive(Parser)]
#[command(name = "lumpscope", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a store on a device or file; what is there already is refused
    Format(format::FormatArgs),
    /// Serve stores over gRPC
    Serve(Box<config::ServeArgs>),
    /// Store a lump from a file or from standard input
    Put(data::PutArgs),
    /// Write a lump to a file or to standard output
    Get(data::GetArgs),
    /// Say how large a lump is and where it lives
    Head(data::HeadArgs),
    /// Remove a lump
    Delete(data::DeleteArgs),
    /// Remove all lumps from one id up to, not including, another
    DeleteRange(data::DeleteRangeArgs),
    /// List ids in ascending order
    List(data::ListArgs),
    /// Say how much space is used
    Usage(data::UsageArgs),
    /// List the stores of a service
    Stores(data::StoresArgs),
    /// Say what a store that nobody uses holds, without writing to it
    Inspect(inspect::InspectArgs),
    /// Read every lump of a store that nobody uses and say what is wrong, without writing to it
    Check(inspect::CheckArgs),
    /// Make a token and the entry for the service's file of tokens
    Token(token::TokenArgs),
    /// Say what this machine has and lacks for serving and observing
    Doctor(doctor::DoctorArgs),
    /// Run one workload against a raw, an ext4 and an xfs store and compare them
    Compare(Box<lumpscope_bench::compare::CompareArgs>),
    /// Measure speed
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Measure the engine against fio and the original engine, in alternating rounds on one file
    Engine(Box<lumpscope_bench::engine::EngineBenchArgs>),
    /// Measure the service through gRPC against one that stores nothing, its memory, and resets
    Grpc(Box<lumpscope_bench::grpc::GrpcBenchArgs>),
    /// What `bench grpc` measures against
    #[command(hide = true)]
    GrpcPeer(lumpscope_bench::grpc::GrpcPeerArgs),
}

/// Parses the arguments, does what they say, and turns errors into one line each.
///
/// The exit code is 0, or 1 when it failed, or 2 when the arguments could not be understood.
/// `inspect` and `check` have codes of their own, which their help explains.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lumpscope: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<ExitCode, ServerError> {
    match command {
        Command::Format(args) => format::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Put(args) => block_on(data::put(args)),
        Command::Get(args) => block_on(data::get(args)),
        Command::Head(args) => block_on(data::head(args)),
        Command::Delete(args) => block_on(data::delete(args)),
        Command::DeleteRange(args) => block_on(data::delete_range(args)),
        Command::List(args) => block_on(data::list(args)),
        Command::Usage(args) => block_on(data::usage(args)),
        Command::Stores(args) => block_on(data::stores(args)),
        Command::Inspect(args) => Ok(inspect::inspect(&args)),
        Command::Check(args) => Ok(inspect::check(&args)),
        Command::Token(args) => token::run(&args),
        Command::Doctor(args) => Ok(doctor::run(&args)),
        Command::Compare(args) => Ok(lumpscope_bench::compare::run(&args, this_program()?)?),
        Command::Bench(command) => bench(command),
    }
}

fn bench(command: BenchCommand) -> Result<ExitCode, ServerError> {
    use lumpscope_bench::{engine, grpc};
    Ok(match command {
        BenchCommand::Engine(args) => engine::run(&args)?,
        BenchCommand::Grpc(args) => grpc::run(&args, &this_program()?, default_transport())?,
        BenchCommand::GrpcPeer(args) => grpc::serve_peer(&args, default_transport())?,
    })
}

/// The settings of HTTP/2 and gRPC that `serve` has without flags, which a peer must have too.
fn default_transport() -> lumpscope_bench::grpc::Transport {
    let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    lumpscope_bench::grpc::Transport {
        stream_window: bytes(config::DEFAULT_STREAM_WINDOW),
        connection_window: bytes(config::DEFAULT_CONNECTION_WINDOW),
        frame_size: bytes(config::DEFAULT_FRAME_SIZE),
        max_streams: config::DEFAULT_MAX_STREAMS,
        max_header_bytes: bytes(config::DEFAULT_MAX_HEADER),
        max_message: usize::try_from(config::DEFAULT_MAX_MESSAGE.0).unwrap_or(usize::MAX),
    }
}

fn this_program() -> Result<PathBuf, ServerError> {
    std::env::current_exe().map_err(|source| ServerError::System {
        what: "find this program's own file",
        source,
    })
}

fn block_on(
    work: impl Future<Output = Result<ExitCode, ServerError>>,
) -> Result<ExitCode, ServerError> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| ServerError::System {
            what: "start the runtime",
            source,
        })?
        .block_on(work)
}
