//! `lumpscope watch`: what any program makes a disk do, by file and by kind.
//!
//! The program knows nothing of it. The probes see each block request of the disks below its files;
//! which file lies on its sectors is asked of the file system again and again meanwhile, and what is
//! in no file goes by what the kernel says of the request and by the process that made it.

mod account;
mod files;
mod processes;
mod text;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::anyhow;
use lumpscope_observer::{BlockTap, TappedDisk};
use lumpscope_platter::drive::Drive;
use lumpscope_units::{Span, nanoseconds};
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde::Serialize;

pub use self::account::{DiskView, Row};
use self::account::{Watched, account};
use self::files::{FileMap, Files};
use self::processes::{Family, is_alive};
use crate::experiment::JsonArgs;
use crate::failure::{cannot, cannot_do};
use crate::process::{Interrupt, tie_to_parent};
use crate::studies::predict::{Rule, drive_named};
use crate::studies::seeds::DRIVE;

/// How often new processes are looked for, and whether the watched one has ended.
const LOOK: Duration = Duration::from_millis(10);
/// How often files are looked for; no more than a twentieth of the time goes into it.
const FILES_PERIOD: Duration = Duration::from_millis(50);
/// How long a command may go on after it was told to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// Show what any program makes a disk do, by file and by kind: block requests, bytes, flushes, and
/// what they would cost on a disk with an arm.
#[derive(Debug, Clone, clap::Args)]
#[command(
    group = clap::ArgGroup::new("subject").args(["path", "pid", "command"]).required(true).multiple(true),
    after_help = "Needs root, for the probes. With COMMAND the result goes to standard error when COMMAND \
                  has ended and what it left in memory is written back; without, it goes to standard output \
                  when the process ends or at Ctrl-C. The exit code is that of COMMAND.\n\n\
                  Examples:\n  lumpscope watch --path /srv/data -- sqlite3 /srv/data/app.db .dump\n  \
                  lumpscope watch --pid 4711 --for 30s"
)]
pub struct WatchArgs {
    /// File or folder: its files are listed one by one, and the disk below it is watched. May be repeated
    /// [default: the current folder with COMMAND, else what the process has open]
    #[arg(long, value_name = "FILE|DIR")]
    pub path: Vec<PathBuf>,
    /// Watch this process and all that it starts
    #[arg(long, value_name = "PID", conflicts_with = "command")]
    pub pid: Option<u32>,
    /// End after this time
    #[arg(long = "for", value_name = "TIME", conflicts_with = "command")]
    pub time: Option<Span>,
    /// Drive to replay the block requests on; `lumpscope platter drives` lists them
    #[arg(long, default_value = DRIVE, value_name = "NAME")]
    pub model: String,
    /// What the modelled drive's firmware is supposed to do
    #[arg(long, value_enum, default_value_t = Rule::Overlap, value_name = "RULE")]
    pub(super) rule: Rule,
    /// Files to show, those with the most seek time
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub files: usize,
    #[command(flatten)]
    #[expect(
        missing_docs,
        reason = "its fields are the flags, and say what they are"
    )]
    pub data: JsonArgs,
    /// Program to start and watch, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,
}

/// What was seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatchReport {
    /// What was watched, as people name it.
    pub subject: String,
    /// From the start of the command, or of watching, to the end, in nanoseconds.
    pub elapsed_ns: u64,
    /// Name of the modelled drive.
    pub model: String,
    /// Processes that were seen; 0: only files were watched.
    pub processes: usize,
    /// Processes that go on.
    pub still_running: usize,
    /// True: there were more files than are told apart; some of theirs stand in other rows.
    pub files_overflowed: bool,
    /// Its disks.
    pub disks: Vec<DiskView>,
}

/// Watches, and prints or writes what was seen.
///
/// Installs signal handlers. The exit code is the command's, or 0.
///
/// # Errors
/// No privileges, no disk below the files, or the command cannot be started: the message says which.
pub fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    let drive = drive_named(&args.model)?;
    args.data.check()?;
    let interrupt = Interrupt::install()?;
    let watch = WatchSession::start(args)?;
    let begin = Instant::now();
    let code = match args.command.split_first() {
        Some((program, rest)) => run_command(program, rest, &interrupt)?,
        None => {
            wait(args, begin, &interrupt);
            ExitCode::SUCCESS
        }
    };
    let elapsed = begin.elapsed();
    let report = watch.finish(args, &drive, elapsed)?;
    print(args, &report)?;
    Ok(code)
}

/// Waits until the process has ended, the time is over, or a signal has come.
fn wait(args: &WatchArgs, begin: Instant, interrupt: &Interrupt) {
    let is_over = |time: &Span| begin.elapsed() >= time.0;
    while interrupt.check().is_ok()
        && !args.time.as_ref().is_some_and(is_over)
        && args.pid.is_none_or(is_alive)
    {
        thread::sleep(LOOK);
    }
}

/// Runs it to its end. A signal tells it to end; when it does not within ten seconds, it is killed.
fn run_command(
    program: &OsString,
    rest: &[OsString],
    interrupt: &Interrupt,
) -> anyhow::Result<ExitCode> {
    let mut command = Command::new(program);
    command.args(rest);
    tie_to_parent(&mut command, None);
    let mut child = command
        .spawn()
        .map_err(|error| anyhow!("{} cannot be started: {error}", program.display()))?;
    let mut told: Option<Instant> = None;
    loop {
        if let Some(status) = child
            .try_wait()
            .map_err(cannot_do("wait for the command"))?
        {
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
        match told {
            None if interrupt.check().is_err() => {
                told = Some(Instant::now());
                end(&child);
            }
            // Already ended: it is reaped above.
            Some(at) if at.elapsed() > PATIENCE => drop(child.kill()),
            _ => {}
        }
        thread::sleep(LOOK);
    }
}

/// Tells it to end. The number stays this child's, since it is not reaped.
fn end(child: &Child) {
    // It may have ended in this moment.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
}

/// Everything that looks on.
struct WatchSession {
    tap: BlockTap,
    family: Arc<Mutex<Family>>,
    /// Paths whose files are told apart.
    below: Vec<PathBuf>,
    /// Ends the two threads when it is dropped.
    ended: Vec<mpsc::Sender<()>>,
    processes: JoinHandle<()>,
    files: JoinHandle<Files>,
}

impl WatchSession {
    fn start(args: &WatchArgs) -> anyhow::Result<WatchSession> {
        let family = match (args.pid, args.command.is_empty()) {
            (Some(pid), _) if !is_alive(pid) => return Err(anyhow!("there is no process {pid}")),
            (Some(pid), _) => Family::of(pid, true),
            (None, true) => Family::default(),
            (None, false) => {
                // What a child of the command starts is ours when the child has ended.
                rustix::process::set_child_subreaper(Some(getpid()))
                    .map_err(cannot_do("become the parent of orphans"))?;
                Family::of(own_number(), false)
            }
        };
        let mut below = args.path.clone();
        if below.is_empty() && args.pid.is_none() {
            below.push(PathBuf::from("."));
        }
        let below: Vec<PathBuf> = below
            .iter()
            .map(|path| fs::canonicalize(path).map_err(cannot("look at", path)))
            .collect::<Result<_, _>>()?;
        let mut family = family;
        let mut files = Files::default();
        // The first look is over before the first request that is counted.
        files.look(&below, &family.open_files());
        let disks = disks(args, &below, &files)?;
        let paths: Vec<&Path> = disks.iter().map(PathBuf::as_path).collect();
        let tap = BlockTap::start(&paths)?;
        let family = Arc::new(Mutex::new(family));
        let (end_processes, processes_ended) = mpsc::channel();
        let (end_files, files_ended) = mpsc::channel();
        let (of_processes, of_files) = (Arc::clone(&family), Arc::clone(&family));
        let looked_at = below.clone();
        Ok(WatchSession {
            tap,
            family,
            below,
            ended: vec![end_processes, end_files],
            processes: spawn("processes", move || {
                while again(&processes_ended, LOOK) {
                    lock(&of_processes).look();
                }
            })?,
            files: spawn("files", move || {
                look_at_files(files, &looked_at, &of_files, &files_ended)
            })?,
        })
    }

    /// Ends: writes back what is in memory if a command was watched, and sums up.
    fn finish(
        self,
        args: &WatchArgs,
        drive: &Drive,
        elapsed: Duration,
    ) -> anyhow::Result<WatchReport> {
        if !args.command.is_empty() {
            for path in &self.below {
                let file = File::open(path).map_err(cannot("open", path))?;
                rustix::fs::syncfs(&file).map_err(cannot("write back", path))?;
            }
        }
        drop(self.ended);
        let panicked = |_| anyhow!("a thread that looked for files or processes has panicked");
        self.processes.join().map_err(panicked)?;
        let mut files = self.files.join().map_err(panicked)?;
        let mut family = std::mem::take(&mut *lock(&self.family));
        files.look(&self.below, &family.open_files());
        let tapped = self.tap.finish();
        let files_overflowed = files.overflowed;
        let (maps, names) = files.maps();
        let none = FileMap::default();
        let view = |disk: TappedDisk| {
            let watched = Watched {
                map: maps.get(&*disk.disk).unwrap_or(&none),
                names: &names,
                family: &family.seen,
                own: own_number(),
            };
            account(disk, &watched, (drive, args.rule))
        };
        let disks = tapped.into_iter().map(view).collect::<Result<_, _>>()?;
        Ok(WatchReport {
            subject: subject(args),
            elapsed_ns: nanoseconds(elapsed),
            model: drive.name.to_string(),
            processes: family.seen.len(),
            still_running: family.seen.iter().filter(|pid| is_alive(**pid)).count(),
            files_overflowed,
            disks,
        })
    }
}

/// Name of the row of all files.
pub(in crate::studies) const FILES: &str = "files";
/// Name of a store's bytes that are no data.
pub(in crate::studies) const BESIDE: &str = "the store's own";

/// Block requests of the disk below a path, between two moments of a study.
pub(in crate::studies) struct DiskWatch {
    tap: BlockTap,
    below: PathBuf,
}

impl DiskWatch {
    /// `below`: a disk, or a folder whose files are told apart.
    pub(in crate::studies) fn start(below: &Path) -> anyhow::Result<DiskWatch> {
        Ok(DiskWatch {
            tap: BlockTap::start(&[below])?,
            below: below.to_owned(),
        })
    }

    /// Ends. `family`: the processes that are watched; `store`: a file or disk, and the range of it
    /// outside of which its bytes count as [`BESIDE`]. Replayed on this drive under this rule.
    pub(in crate::studies) fn finish(
        self,
        family: &BTreeSet<u32>,
        store: Option<(&Path, &Range<u64>)>,
        (drive, rule): (&Drive, Rule),
    ) -> anyhow::Result<DiskView> {
        let disk = self.tap.finish().into_iter().next();
        let disk = disk.ok_or_else(|| anyhow!("no disk was watched"))?;
        let mut files = Files::default();
        files.look(&[self.below], &[]);
        if let Some((path, range)) = store {
            let file = File::open(path).map_err(cannot("open", path))?;
            let name = Arc::from(&*disk.disk);
            files.name_beside(&name, (&file, range), PathBuf::from(BESIDE));
        }
        let (maps, names) = files.maps();
        let none = FileMap::default();
        let watched = Watched {
            map: maps.get(&*disk.disk).unwrap_or(&none),
            names: &names,
            family,
            // This process makes its requests for the study.
            own: u32::MAX,
        };
        account(disk, &watched, (drive, rule))
    }
}

/// Looks for files again and again until it is told to end.
fn look_at_files(
    mut files: Files,
    below: &[PathBuf],
    family: &Mutex<Family>,
    ended: &mpsc::Receiver<()>,
) -> Files {
    let mut pause = FILES_PERIOD;
    while again(ended, pause) {
        let begin = Instant::now();
        let open = lock(family).open_files();
        files.look(below, &open);
        pause = FILES_PERIOD.max(begin.elapsed() * 20);
    }
    files
}

/// What stands for each disk that is watched.
fn disks(args: &WatchArgs, below: &[PathBuf], files: &Files) -> anyhow::Result<Vec<PathBuf>> {
    if !below.is_empty() {
        return Ok(below.to_vec());
    }
    let names: BTreeSet<&str> = files.disks().collect();
    if names.is_empty() {
        let pid = args.pid.unwrap_or(0);
        return Err(anyhow!(
            "process {pid} has no file open on a disk; name what it uses with --path"
        ));
    }
    Ok(names
        .iter()
        .map(|name| Path::new("/dev").join(name))
        .collect())
}

fn subject(args: &WatchArgs) -> String {
    let shown = |words: Vec<String>| words.join(" ");
    match args.pid {
        Some(pid) => format!("process {pid}"),
        None if args.command.is_empty() => shown(
            args.path
                .iter()
                .map(|path| path.display().to_string())
                .collect(),
        ),
        None => shown(
            args.command
                .iter()
                .map(|word| word.display().to_string())
                .collect(),
        ),
    }
}

/// To standard error where the command has standard output.
fn print(args: &WatchArgs, report: &WatchReport) -> anyhow::Result<()> {
    let text = || text::text(report, args.files) + "\n";
    match args.command.is_empty() {
        true => args.data.deliver(report, text, io::stdout()),
        false => args.data.deliver(report, text, io::stderr()),
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<JoinHandle<T>> {
    let thread = thread::Builder::new().name(name.to_owned());
    thread.spawn(work).map_err(cannot_do("start a thread"))
}

/// Waits; false: it is to end.
fn again(ended: &mpsc::Receiver<()>, pause: Duration) -> bool {
    ended.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout)
}

fn lock(family: &Mutex<Family>) -> std::sync::MutexGuard<'_, Family> {
    family.lock().unwrap_or_else(PoisonError::into_inner)
}

fn own_number() -> u32 {
    std::process::id()
}
