//! `lumpscope lab`: stores on disks of nothing, served until somebody ends it.
//!
//! The service is the real one, a child process in the lab's mount namespace. Signals that ask for
//! an end are passed on to it, each once; the disks go when it has ended. After `kill -9` the
//! kernel takes everything down ([`crate::disks`]).

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read, Write as _};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lumpscope_platter::live::LiveOptions;
use lumpscope_units::{Size, tell};
use rustix::process::{Pid, Signal, kill_process};

use crate::disks::{Lab, LabDrive, LabOptions, StoreKind, fill};
use crate::experiment::INTERRUPTED;
use crate::failure::{Interrupted, argument, cannot_do};
use crate::human;
use crate::process::{self, Interrupt};

const MIB: u64 = 1 << 20;
/// Room on each disk beside its store: an xfs needs 300 MiB for itself, and file systems a share.
const BESIDE_BYTES: u64 = 400 * MIB;
/// Smallest disk of a lab: a store of 105 MiB fits.
const MIN_DISK_BYTES: u64 = 512 * MIB;
/// Bytes that the two file systems write for themselves when they are made.
const FILE_SYSTEMS_BYTES: u64 = 2 * 160 * MIB;
/// The setting of what the service logs, as a variable.
const LOG: &str = "LUMPSCOPE_LOG";
/// How often is looked whether the service has ended or a signal has come.
const LOOK: Duration = Duration::from_millis(20);

/// `lumpscope lab`.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Needs root, mkfs.ext4 and mkfs.xfs. The stores are named raw, ext4 and xfs; all \
                  that was put into them is gone at the end, also after kill -9. Example:\n  \
                  lumpscope lab -- --otlp-endpoint http://127.0.0.1:4317"
)]
pub struct LabArgs {
    /// Directory for the three disk images [default: $TMPDIR, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Size of each disk, 512M or more; the part that a file system does not need is written once
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    size: Size,
    /// Emulate this drive below the stores; the disks are then as large as the drive, and --size
    /// only says how large the stores are
    #[arg(long, value_name = "NAME", conflicts_with = "dir")]
    drive: Option<String>,
    /// Make the ext4 without a journal, as the published benchmark did
    #[arg(long)]
    no_ext4_journal: bool,
    /// Make only this store; repeat for more. The raw one needs no mount, and no CAP_SYS_ADMIN
    #[arg(long, value_enum, value_name = "STORE")]
    only: Vec<StoreKind>,
    /// Further arguments of `lumpscope serve`
    #[arg(last = true, value_name = "ARGS OF serve")]
    serve: Vec<OsString>,
}

impl LabArgs {
    /// Stores to make and serve.
    fn kinds(&self) -> Vec<StoreKind> {
        let mut kinds = StoreKind::ALL.to_vec();
        kinds.retain(|kind| self.only.is_empty() || self.only.contains(kind));
        kinds
    }
}

/// Bytes of the store on a disk of a lab.
fn capacity(disk_bytes: u64) -> u64 {
    disk_bytes.saturating_sub(BESIDE_BYTES) / 17 * 16 / MIB * MIB
}

/// Makes the disks, formats and serves `raw`, `ext4` and `xfs` on them, and answers with the exit code of the service
/// (130: ended by a signal before it served).
///
/// Blocks and installs signal handlers: to be called from the main thread. `lumpscope_exe` is the binary that
/// understands `format` and `serve`.
///
/// # Errors
/// The disk size is too small, or the disks cannot be made, formatted, or the service not started. What was made is
/// gone again.
pub fn run(options: &LabArgs, lumpscope_exe: &Path) -> anyhow::Result<ExitCode> {
    let interrupt = Interrupt::install()?;
    match serve(options, lumpscope_exe, &interrupt) {
        Err(error) if error.is::<Interrupted>() => Ok(ExitCode::from(INTERRUPTED)),
        result => result,
    }
}

fn serve(options: &LabArgs, exe: &Path, interrupt: &Interrupt) -> anyhow::Result<ExitCode> {
    if options.size.0 < MIN_DISK_BYTES {
        return Err(argument("--size", "512M or more: an xfs alone takes 300M"));
    }
    let capacity = capacity(options.size.0);
    step(format!("makes {}", disks(options)));
    let lab = Lab::create(&LabOptions {
        dir: options.dir.clone(),
        expected_bytes: options.kinds().len() as u64 * capacity + FILE_SYSTEMS_BYTES,
        ext4_journal: !options.no_ext4_journal,
        kinds: options.kinds(),
        drive: options.drive.as_ref().map(|name| LabDrive {
            exe: exe.to_owned(),
            options: LiveOptions::new(name),
        }),
        ..LabOptions::new(options.size.0)
    })?;
    if let (Some(raw), None) = (lab.store(StoreKind::Raw), &options.drive) {
        step(format!(
            "writes {} of zeros to the raw one",
            human::bytes(capacity)
        ));
        fill(&raw.device, capacity, interrupt)?;
    }
    step(format!(
        "makes a store of {} on each",
        human::bytes(capacity)
    ));
    for store in lab.stores() {
        let mut format = lab.command(exe);
        format.arg("format");
        process::format(format, &store.store_path, capacity, interrupt)?;
    }
    step("serves them; Ctrl-C ends it and removes the disks".to_owned());
    let mut command = lab.command(exe);
    command.arg("serve");
    // That it stays root harms nobody: its stores go with it. Who says what to log is obeyed.
    if std::env::var_os(LOG).is_none() {
        command.env(LOG, "info,lumpscope::root=off");
    }
    for store in lab.stores() {
        let mut name = OsString::from(format!("{}=", store.name));
        name.push(&store.store_path);
        command.arg("--store").arg(name);
    }
    // In a process group of its own: Ctrl-C reaches it once, through us.
    let mut child = command
        .args(&options.serve)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(cannot_do(format!("run {}", exe.display())))?;
    let said = child.stdout.take().map(pass_on);
    let status = until_it_ends(child, interrupt)?;
    if let Some(said) = said {
        // It ends with the service, and has nothing to give back.
        let _ = said.join();
    }
    for disk in lab.lateness()? {
        tell(&disk.to_string());
    }
    Ok(exit_code(status))
}

/// The disks that are asked for, in words.
fn disks(options: &LabArgs) -> String {
    let kind = match &options.drive {
        Some(drive) => format!("emulated disks ({drive})"),
        None => "loop devices".to_owned(),
    };
    let journal = if options.no_ext4_journal {
        "without"
    } else {
        "with"
    };
    let of = |store: &StoreKind| match store {
        StoreKind::Raw => "one raw".to_owned(),
        StoreKind::Ext4 => format!("one with an ext4 {journal} its journal"),
        StoreKind::Xfs => "one with an xfs".to_owned(),
    };
    let disks: Vec<String> = options.kinds().iter().map(of).collect();
    format!("{kind}: {}", disks.join(", "))
}

/// Tells what comes now: each step may take a while.
fn step(what: String) {
    tell(&format!("lab: {what}"));
}

/// Prints what the service prints, and tells what to do with it when it is ready.
fn pass_on(stdout: impl Read + Send + 'static) -> JoinHandle<()> {
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // A reader of ours that has gone is no reason to stop reading.
            let _ = writeln!(io::stdout(), "{line}");
            if let Some((grpc, page)) = addresses(&line) {
                step(format!("page: http://{page}/"));
                next(grpc).into_iter().for_each(step);
            }
        }
    })
}

/// Addresses of gRPC and of the page, of the line by which the service says that it is ready.
fn addresses(line: &str) -> Option<(&str, &str)> {
    let words = line.strip_prefix("lumpscope ready ")?.split(' ');
    let of = |key| words.clone().find_map(|word| word.strip_prefix(key));
    Some((of("grpc=")?, of("metrics=")?))
}

/// Commands that use the stores.
fn next(grpc: &str) -> [String; 3] {
    let server = match grpc {
        "127.0.0.1:50051" => String::new(),
        other => format!(" --server http://{other}"),
    };
    ["load", "top", "explain --slowest 5"]
        .map(|command| format!("try `lumpscope {command}{server}`"))
}

/// Passes each signal on, until the service has ended.
fn until_it_ends(mut child: Child, interrupt: &Interrupt) -> anyhow::Result<ExitStatus> {
    loop {
        let ended = child.try_wait();
        if let Some(status) = ended.map_err(cannot_do("wait for the service"))? {
            return Ok(status);
        }
        if interrupt.take() {
            // It can only fail when the service has just ended.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        thread::sleep(LOOK);
    }
}

fn exit_code(status: ExitStatus) -> ExitCode {
    let by_signal = || status.signal().map_or(1, |signal| 128 + signal);
    let code = status.code().unwrap_or_else(by_signal);
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_and_server_are_where_the_ready_line_says() {
        let line = "lumpscope ready grpc=127.0.0.1:50051 metrics=[::1]:9090 s3=127.0.0.1:9000";
        assert_eq!(addresses(line), Some(("127.0.0.1:50051", "[::1]:9090")));
        assert_eq!(addresses("metrics=127.0.0.1:9090"), None);
    }

    #[test]
    fn commands_name_the_server_where_it_is_elsewhere() {
        let [load, top, _] = next("127.0.0.1:50051");
        assert_eq!([load, top], ["try `lumpscope load`", "try `lumpscope top`"]);
        let [.., explain] = next("[::1]:50051");
        let other = "try `lumpscope explain --slowest 5 --server http://[::1]:50051`";
        assert_eq!(explain, other);
    }

    #[test]
    fn a_store_leaves_room_for_the_file_system_below_it() {
        for disk in [MIN_DISK_BYTES, 1 << 30, 1 << 40] {
            let store = capacity(disk);
            assert!(store >= 100 * MIB && store.is_multiple_of(MIB), "{store}");
            assert!(disk - store >= 300 * MIB + store / 17, "{disk}");
        }
    }
}
