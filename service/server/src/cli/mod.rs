//! The command line: one binary for the service, its client and its tools.

mod admin;
mod client;
mod data;
mod directory;
mod doctor;
mod format;
mod inspect;
mod lab;
mod load;
mod notify;
mod observe;
mod output;
mod platter;
mod progress;
mod serve;
mod token;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use lumpscope_units::Size;

use crate::config;
use crate::error::ServerError;

pub use directory::DirectoryError;

/// What a command has begun gets this long to be dropped when the command ends.
const LAST_TASKS: Duration = Duration::from_millis(500);

/// Lump store on raw disks that shows what the disk did for every request.
#[derive(Parser)]
#[command(
    name = "lumpscope",
    version,
    about,
    max_term_width = 100,
    after_help = "Exit codes: 0 done; 1 failed or refused; 2 the arguments make no sense; 3 there is \
                  no such lump, store or request; 130 interrupted, but 0 where Ctrl-C is the way to \
                  end"
)]
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
    /// Remove lumps
    Delete(data::DeleteArgs),
    /// Remove all lumps from one id up to, not including, another
    DeleteRange(data::range::DeleteRangeArgs),
    /// List ids in ascending order
    List(data::range::ListArgs),
    /// Say how much space is used
    Usage(data::range::UsageArgs),
    /// List the stores of a service
    Stores(data::stores::StoresArgs),
    /// Say what a store is, how it is, and its numbers
    Stat(data::stores::StoreArgs),
    /// Ask whether a service takes requests, without a token: ends with 0 when it does, 1 when not
    Health(data::stores::HealthArgs),
    /// Return when everything a store has acknowledged is on stable storage
    Sync(data::stores::StoreArgs),
    /// Store a folder with all that is in it
    Upload(directory::UploadArgs),
    /// Make a folder from what `upload` has stored
    Download(directory::DownloadArgs),
    /// Run a service: scrubber, garbage collection, drain, stores, reload
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Say what a store that nobody uses holds, without writing to it
    Inspect(inspect::InspectArgs),
    /// Read every lump of a store that nobody uses and say what is wrong, without writing to it
    Check(inspect::CheckArgs),
    /// Make a token and the entry for the service's file of tokens
    Token(token::TokenArgs),
    /// Tell what happened to a request, or to the slowest: its stages, its block requests, and
    /// who moved the head
    Explain(observe::explain::ExplainArgs),
    /// Show block requests as they complete, one a line, until Ctrl-C
    Trace(observe::trace::TraceArgs),
    /// Show rates, latency, seeks and interference of each store, until Ctrl-C
    Top(observe::top::TopArgs),
    /// Write what the observer learns to a file that can be replayed anywhere, until Ctrl-C
    Record(observe::record::RecordArgs),
    /// Say what this machine has and lacks for serving and observing
    Doctor(doctor::DoctorArgs),
    /// Run one workload against a raw, an ext4 and an xfs store and compare them
    Compare(Box<lumpscope_lab::compare::CompareArgs>),
    /// Serve three stores on disks of loop devices, raw, ext4 and xfs, that vanish at the end
    Lab(lab::LabArgs),
    /// Put, get and delete lumps until Ctrl-C, so that there is something to see
    Load(load::LoadArgs),
    /// A disk of spinning platters, as a model and under the kernel
    #[command(subcommand)]
    Platter(platter::PlatterCommand),
    /// Measure speed
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Subcommand)]
enum BenchCommand {
    /// Measure the engine against fio and the original engine, in alternating rounds on one file
    Engine(Box<lumpscope_lab::engine::EngineBenchArgs>),
    /// Measure the service through gRPC against one that stores nothing, its memory, and resets
    Grpc(Box<lumpscope_lab::grpc::GrpcBenchArgs>),
    /// Measure what observation costs: probes not loaded, histograms only, with all events
    Observe(Box<lumpscope_lab::observe::ObserveBenchArgs>),
    /// Print the commands that a workload comes to, without running them
    Commands(lumpscope_lab::commands::CommandsArgs),
    /// Run one workload on one store, time every command, and print it as the published tables do
    Run(Box<lumpscope_lab::run::RunArgs>),
    /// Repeat the published tables that this project began with, and say what explains them
    #[command(subcommand)]
    Seeds(lumpscope_lab::seeds::SeedsCommand),
    /// Compare the orders in which waiting gets are started, on an emulated disk in virtual time
    Orders(Box<lumpscope_lab::orders::OrdersArgs>),
    /// Run the same mix of puts and gets on whatever is installed: the original, fio, files, MinIO
    Peers(Box<lumpscope_lab::peers::PeersArgs>),
    /// What `bench grpc` measures against
    #[command(hide = true)]
    GrpcPeer(lumpscope_lab::grpc::GrpcPeerArgs),
}

/// Parses the arguments, does what they say, and turns errors into one line each.
///
/// The exit code is 0, or 1 when it failed or was refused, or 2 when the arguments could not be
/// understood, or 3 when the service has no such lump, store or request, or 130 after Ctrl-C. `inspect` and `check` have codes of their own, which their help explains.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lumpscope: {error}");
            exit_code(&error)
        }
    }
}

fn exit_code(error: &ServerError) -> ExitCode {
    match error {
        ServerError::Client(error) if error.code() == Some(tonic::Code::NotFound) => {
            ExitCode::from(3)
        }
        ServerError::Interrupted => ExitCode::from(130),
        _ => ExitCode::FAILURE,
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
        Command::DeleteRange(args) => block_on(data::range::delete_range(args)),
        Command::List(args) => block_on(data::range::list(args)),
        Command::Usage(args) => block_on(data::range::usage(args)),
        Command::Stores(args) => block_on(data::stores::stores(args)),
        Command::Stat(args) => block_on(data::stores::stat(args)),
        Command::Health(args) => block_on(data::stores::health(args)),
        Command::Sync(args) => block_on(data::stores::sync(args)),
        Command::Upload(args) => block_on(directory::upload(args)),
        Command::Download(args) => block_on(directory::download(args)),
        Command::Admin(command) => block_on(admin::run(command)),
        Command::Inspect(args) => Ok(inspect::inspect(&args)),
        Command::Check(args) => Ok(inspect::check(&args)),
        Command::Token(args) => token::run(&args),
        Command::Explain(args) => block_on(observe::explain::run(args)),
        Command::Trace(args) => block_on_live(observe::trace::run(args)),
        Command::Top(args) => block_on_live(observe::top::run(args)),
        Command::Record(args) => block_on_live(observe::record::run(args)),
        Command::Doctor(args) => Ok(doctor::run(&args)),
        Command::Compare(args) => Ok(lumpscope_lab::compare::run(&args, this_program()?)?),
        Command::Lab(args) => lab::run(args, &this_program()?),
        Command::Load(args) => block_on_live(load::run(args)),
        Command::Platter(command) => platter::run(command, &this_program()?),
        Command::Bench(command) => bench(command),
    }
}

fn bench(command: BenchCommand) -> Result<ExitCode, ServerError> {
    use lumpscope_lab::{engine, grpc};
    Ok(match command {
        BenchCommand::Engine(args) => engine::run(&args)?,
        BenchCommand::Grpc(args) => grpc::run(&args, &this_program()?, default_transport())?,
        BenchCommand::Observe(args) => {
            lumpscope_lab::observe::run(&args, &this_program()?, default_transport())?
        }
        BenchCommand::Commands(args) => lumpscope_lab::commands::run(&args)?,
        BenchCommand::Run(args) => lumpscope_lab::run::run(&args, &this_program()?)?,
        BenchCommand::Seeds(command) => {
            lumpscope_lab::seeds::run(&command, &this_program()?, default_transport())?
        }
        BenchCommand::Orders(args) => lumpscope_lab::orders::run(&args)?,
        BenchCommand::Peers(args) => lumpscope_lab::peers::run(&args, &this_program()?)?,
        BenchCommand::GrpcPeer(args) => grpc::serve_peer(&args, default_transport())?,
    })
}

/// The settings of HTTP/2 and gRPC that `serve` has without flags, which a peer must have too.
fn default_transport() -> lumpscope_lab::grpc::Transport {
    let bytes = |size: Size| u32::try_from(size.0).unwrap_or(u32::MAX);
    lumpscope_lab::grpc::Transport {
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
    work: impl Future<Output = Result<ExitCode, ServerError>> + Send + 'static,
) -> Result<ExitCode, ServerError> {
    block_on_live(async {
        let mut work = tokio::spawn(work);
        tokio::select! {
            result = &mut work => joined(result),
            _ = tokio::signal::ctrl_c() => Err(ServerError::Interrupted),
        }
    })
}

/// The same for what Ctrl-C ends in order, and not in the middle: it looks for that itself.
fn block_on_live(
    work: impl Future<Output = Result<ExitCode, ServerError>> + Send + 'static,
) -> Result<ExitCode, ServerError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|source| ServerError::System {
            what: "start the runtime",
            source,
        })?;
    let work = runtime.spawn(work);
    let result = joined(runtime.block_on(work));
    // What was begun is dropped, and takes its temporary files with it; a pipe that nobody reads
    // or writes is not waited for.
    runtime.shutdown_timeout(LAST_TASKS);
    result
}

fn joined(
    result: Result<Result<ExitCode, ServerError>, tokio::task::JoinError>,
) -> Result<ExitCode, ServerError> {
    result.unwrap_or_else(|failed| match failed.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(ServerError::Interrupted),
    })
}
