//! `lumpscope`: the service, its client and its tools in one binary.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod admin;
mod client;
mod copy;
mod data;
mod directory;
mod doctor;
mod error;
mod evacuate;
mod examples;
mod format;
mod help;
mod inspect;
#[cfg(feature = "lab")]
mod lab;
mod notify;
mod observe;
mod output;
mod progress;
mod serve;
mod shell;
mod token;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use lumpscope_server::config::ServeArgs;

use crate::error::{Interrupted, system};

/// Unfinished tasks get this long to be dropped when the command ends.
const LAST_TASKS: Duration = Duration::from_millis(500);

/// Lump store on raw disks that shows the work of the disk for every request.
#[derive(Parser)]
#[command(
    name = "lumpscope",
    version,
    about,
    max_term_width = 100,
    after_help = "Exit codes: 0 done; 1 failed or refused; 2 the arguments make no sense; 3 there is \
                  no such lump, store or request; 4 done, but for the lumps listed; 130 interrupted, but 0 where Ctrl-C is the way to \
                  end"
)]
struct Cli {
    /// Colours on standard output: auto is a terminal, unless NO_COLOR is set
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Make a store on a device or file; refuse if it holds anything
    Format(format::FormatArgs),
    /// Serve stores over gRPC and S3
    Serve(Box<ServeArgs>),
    /// Store a lump from a file or from standard input
    Put(data::PutArgs),
    /// Write a lump to a file or to standard output
    Get(data::GetArgs),
    /// Show the size and the place of a lump
    Head(data::HeadArgs),
    /// Remove lumps
    Delete(data::DeleteArgs),
    /// Remove all lumps from one id up to, not including, another
    DeleteRange(data::range::DeleteRangeArgs),
    /// List ids in ascending order
    List(data::range::ListArgs),
    /// Show the space used
    Usage(data::range::UsageArgs),
    /// List the stores of a service
    Stores(data::stores::StoresArgs),
    /// Show the properties, the condition and the numbers of a store
    Stat(data::stores::StoreArgs),
    /// Check, without a token, that a service takes requests: exit code 0 if it does, 1 if not
    Health(data::stores::HealthArgs),
    /// Wait until everything that a store has acknowledged is on stable storage
    Sync(data::stores::StoreArgs),
    /// Store a folder with its contents
    Upload(directory::UploadArgs),
    /// Restore a folder stored by `upload`
    Download(directory::DownloadArgs),
    /// Copy all lumps of a store that is being served to another store
    Evacuate(Box<evacuate::EvacuateArgs>),
    /// Administer a service: scrubber, garbage collection, drain, stores, reload
    #[command(subcommand)]
    Admin(admin::AdminCommand),
    /// Show the contents of a store that is not in use; never writes
    Inspect(inspect::InspectArgs),
    /// Verify every lump of a store that is not in use; never writes
    Check(inspect::CheckArgs),
    /// Copy a store that is not in use to another device or file, and check the copy
    Copy(copy::CopyArgs),
    /// Make a store as large as its device, or its file larger
    Grow(copy::GrowArgs),
    /// Make a token, and its entry for the service's token file
    Token(token::TokenArgs),
    /// Explain a request, or the slowest ones: stages, block requests, and who moved the head
    Explain(observe::explain::ExplainArgs),
    /// Show block requests as they complete, two lines each, until Ctrl-C
    Trace(observe::trace::TraceArgs),
    /// Show rates, latency, seeks and interference of each store, until Ctrl-C
    Top(observe::top::TopArgs),
    /// Record the observer's input to a file that can be replayed anywhere, until Ctrl-C
    Record(observe::record::RecordArgs),
    /// Check this machine for serving and observing
    Doctor(doctor::DoctorArgs),
    /// Print the completions of the commands for a shell
    Completions(shell::CompletionsArgs),
    /// Write the manual's pages, one a command
    Man(shell::ManArgs),
    #[cfg(feature = "lab")]
    #[command(flatten)]
    Lab(lab::LabCommand),
}

/// Runs one command and prints its error as one line. `inspect` and `check` have exit codes of
/// their own, which their help explains.
fn main() -> ExitCode {
    let matches = commands().try_get_matches();
    let cli = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match cli {
        Ok(cli) => cli,
        Err(error) => return help::exit(&error),
    };
    match cli.color {
        ColorChoice::Auto => {}
        ColorChoice::Always => console::set_colors_enabled(true),
        ColorChoice::Never => console::set_colors_enabled(false),
    }
    match run(cli.command) {
        Ok(code) => code,
        Err(error) => {
            error::complain(&error);
            error::exit_code(&error)
        }
    }
}

/// All commands, as their help shows them.
fn commands() -> clap::Command {
    examples::with_examples(Cli::command())
}

fn run(command: Command) -> Result<ExitCode> {
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
        Command::Evacuate(args) => block_on(evacuate::run(*args)),
        Command::Admin(command) => block_on(admin::run(command)),
        Command::Inspect(args) => inspect::inspect(&args),
        Command::Check(args) => inspect::check(&args),
        Command::Copy(args) => copy::copy(&args),
        Command::Grow(args) => copy::grow(&args),
        Command::Token(args) => token::run(&args),
        Command::Explain(args) => block_on(observe::explain::run(args)),
        Command::Trace(args) => block_on_live(observe::trace::run(args)),
        Command::Top(args) => block_on_live(observe::top::run(args)),
        Command::Record(args) => block_on_live(observe::record::run(args)),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => shell::completions(&args, commands()),
        Command::Man(args) => shell::man(&args, commands()),
        #[cfg(feature = "lab")]
        Command::Lab(command) => lab::run(command),
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
