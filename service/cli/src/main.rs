//! `lumpscope`: the service, its client and its tools in one binary.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod check;
mod client;
mod data;
mod doctor;
mod error;
mod evacuate;
mod examples;
mod format;
mod grow;
mod help;
#[cfg(feature = "lab")]
mod lab;
mod notify;
mod observe;
mod output;
mod progress;
mod rename;
mod serve;
mod shell;
mod token;
mod variables;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lumpscope_server::config::ServeArgs;

use crate::client::ConnectionArgs;
use crate::error::{Exit, Interrupted, system};

/// Unfinished tasks get this long to be dropped when the command ends.
const LAST_TASKS: Duration = Duration::from_millis(500);

/// Lump store on raw disks that shows the work of the disk for every request.
#[derive(Parser)]
#[command(name = "lumpscope", version, about, max_term_width = 100)]
struct Cli {
    /// Colours on standard output; auto: on a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(flatten, next_help_heading = "Connection")]
    connection: ConnectionArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a store on a device or file; refuses if it is not empty
    Format(format::FormatArgs),
    /// Serve stores over gRPC and S3
    Serve(Box<ServeArgs>),
    /// Store a lump from a file or from standard input
    Put(data::PutArgs),
    /// Write a lump to a file or to standard output, or show its size and location
    Get(data::GetArgs),
    /// Delete lumps, or all lumps in a range of ids
    Delete(data::DeleteArgs),
    /// List ids in ascending order
    List(data::ListArgs),
    /// List the stores of a service
    Stores(data::stores::StoresArgs),
    /// Show the properties, state, space and counters of a store
    Stat(data::stores::StatArgs),
    /// Check without a token that a service accepts requests: exit code 0 if so, 1 if not
    Health(data::stores::HealthArgs),
    /// Wait until all acknowledged changes are on stable storage
    Sync(data::stores::StoreArgs),
    /// Copy all lumps of a store in service to another store
    Evacuate(Box<evacuate::EvacuateArgs>),
    /// Administer a service: scrubber, garbage collection, drain, stores, reload
    Admin(admin::AdminArgs),
    /// Verify or list the lumps of a store that is not being served; never writes
    Check(check::CheckArgs),
    /// Make a store as large as its device, or its file larger
    Grow(grow::GrowArgs),
    /// Change the name in the image of a store that is not being served
    Rename(rename::RenameArgs),
    /// Make a token and its entry for the service's token file
    Token(token::TokenArgs),
    /// Explain a request, or the slowest ones: stages, block requests, and what moved the head
    Explain(observe::explain::ExplainArgs),
    /// Show block requests as they complete, until Ctrl-C
    Trace(observe::trace::TraceArgs),
    /// Show rates, latency, seeks and interference of each store, until Ctrl-C
    Top(observe::top::TopArgs),
    /// Record the observer's input to a file that can be replayed anywhere, until Ctrl-C
    Record(observe::record::RecordArgs),
    /// Convert a recording for other tools: CSV, fio, blkparse or Perfetto
    Export(observe::export::ExportArgs),
    /// Run a bpftrace script on the disk of a store and on its service
    Bpftrace(observe::bpftrace::BpftraceArgs),
    /// Check whether this machine can serve and observe
    Doctor(doctor::DoctorArgs),
    /// Print the completions of the commands for a shell
    #[command(hide = true)]
    Completions(shell::CompletionsArgs),
    /// Write the manual, one page per command
    #[command(hide = true)]
    Man(shell::ManArgs),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab::LabCommand),
}

/// Runs one command and prints its error as one line.
fn main() -> ExitCode {
    let matches = help::grouped(commands()).try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return every_problem().unwrap_or_else(|| help::exit(error)),
    };
    match cli.color {
        ColorChoice::Auto => {}
        ColorChoice::Always => console::set_colors_enabled(true),
        ColorChoice::Never => console::set_colors_enabled(false),
    }
    match run(cli.connection, cli.command) {
        Ok(code) => code,
        Err(error) => {
            error::complain(&error);
            error::exit_code(&error)
        }
    }
}

/// What `serve --check-config` says when an argument is wrong; `None`: it is another command.
fn every_problem() -> Option<ExitCode> {
    let arguments: Vec<_> = std::env::args_os().collect();
    if !arguments
        .iter()
        .any(|argument| argument == "--check-config")
    {
        return None;
    }
    let (matches, wrong) = variables::without_wrong(commands(), arguments)?;
    let cli = Cli::from_arg_matches(&matches).ok()?;
    let Command::Serve(args) = cli.command else {
        return None;
    };
    serve::check(*args, wrong).ok()
}

/// All commands, as manual pages and completions show them.
fn commands() -> clap::Command {
    examples::with_examples(Cli::command().after_help(Exit::help()))
}

fn run(connection: ConnectionArgs, command: Command) -> Result<ExitCode> {
    match command {
        Command::Format(args) => format::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Put(args) => block_on(data::put(connection, args)),
        Command::Get(args) => block_on(data::get(connection, args)),
        Command::Delete(args) => block_on(data::delete(connection, args)),
        Command::List(args) => block_on(data::list(connection, args)),
        Command::Stores(args) => block_on(data::stores::stores(connection, args)),
        Command::Stat(args) => block_on(data::stores::stat(connection, args)),
        Command::Health(args) => block_on(data::stores::health(connection, args)),
        Command::Sync(args) => block_on(data::stores::sync(connection, args)),
        Command::Evacuate(args) => block_on(evacuate::run(connection, *args)),
        Command::Admin(args) => block_on(admin::run(connection, args)),
        Command::Check(args) => check::run(&args),
        Command::Grow(args) => grow::grow(&args),
        Command::Rename(args) => rename::run(&args),
        Command::Token(args) => token::run(&args),
        Command::Explain(args) => block_on(observe::explain::run(connection, args)),
        Command::Trace(args) => block_on_live(observe::trace::run(connection, args)),
        Command::Top(args) => block_on_live(observe::top::run(connection, args)),
        Command::Record(args) => block_on_live(observe::record::run(connection, args)),
        Command::Export(args) => block_on(observe::export::run(args)),
        Command::Bpftrace(args) => block_on_live(observe::bpftrace::run(connection, args)),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => shell::completions(&args, commands()),
        Command::Man(args) => shell::man(&args, commands()),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(connection, command),
    }
}

fn block_on(work: impl Future<Output = Result<ExitCode>> + Send + 'static) -> Result<ExitCode> {
    block_on_live(async {
        let mut work = tokio::spawn(work);
        tokio::select! {
            result = &mut work => joined(result),
            _ = tokio::signal::ctrl_c() => Err(Interrupted.into()),
        }
    })
}

/// For work that handles Ctrl-C itself, to end in order.
fn block_on_live(
    work: impl Future<Output = Result<ExitCode>> + Send + 'static,
) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let work = runtime.spawn(work);
    let result = joined(runtime.block_on(work));
    // What was begun is dropped, and takes its temporary files with it; a pipe that nobody reads
    // or writes is not waited for.
    runtime.shutdown_timeout(LAST_TASKS);
    result
}

fn joined(result: Result<Result<ExitCode>, tokio::task::JoinError>) -> Result<ExitCode> {
    result.unwrap_or_else(|failed| match failed.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(_) => Err(Interrupted.into()),
    })
}
