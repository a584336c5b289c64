//! `lumpscope doctor`: what this machine has, what it lacks, what will not work because of it,
//! and how to get it. It changes nothing.

mod files;
mod held;
mod summary;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser};
use lumpscope_observer::{Finding, Level, Observer};
use lumpscope_server::config::ServeArgs;

use super::error::Exit;
use super::output::{escaped, escaped_json, print, print_as_is, table, width};

/// `lumpscope doctor`.
#[derive(Args)]
pub(super) struct DoctorArgs {
    /// Print JSON, with everything found
    #[arg(long)]
    json: bool,
    /// Show everything found, and the settings; implied by --config and --pid
    #[arg(long)]
    all: bool,
    /// Show the settings that `serve` would use with this configuration file
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_CONFIG")]
    config: Option<PathBuf>,
    /// Show the remaining privileges of the service with this process id
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,
}

/// Looks at everything; what does not work at all is a problem.
pub(super) fn run(args: &DoctorArgs) -> Result<ExitCode> {
    let machine = machine(args);
    let details = args.all || args.config.is_some() || args.pid.is_some();
    let settings = settings(args);
    let wrong = settings.iter().filter(|f| f.level != Level::Good);
    let told: Vec<Finding> = machine.iter().chain(wrong).cloned().collect();
    let findings: Vec<Finding> = machine.into_iter().chain(settings).collect();
    if args.json {
        print_as_is(&escaped_json(&serde_json::to_string_pretty(&findings)?))?;
    } else {
        if details {
            print(&report(&findings))?;
        }
        print(&summary::of(&told, details, width()))?;
    }
    let works = findings.iter().all(|f| f.level != Level::Missing);
    Ok(Exit::clean(works))
}

/// What the machine has, and the process that was asked for.
fn machine(args: &DoctorArgs) -> Vec<Finding> {
    let mut findings = Observer::doctor();
    findings.extend([
        io_uring(),
        huge_pages(),
        root(),
        loop_devices(),
        #[cfg(feature = "lab")]
        emulated_disks(),
        tools("ext4", "mkfs.ext4", "e2fsprogs"),
        tools("xfs", "mkfs.xfs", "xfsprogs"),
    ]);
    findings.extend(args.pid.map(held::findings).unwrap_or_default());
    findings
}

/// Checks the settings that `serve` would give to the engine.
fn settings(args: &DoctorArgs) -> Vec<Finding> {
    let resolved = from_environment().and_then(|mut serve| {
        serve.config.clone_from(&args.config);
        serve.resolve_settings().map_err(|error| error.to_string())
    });
    match resolved {
        Ok(config) => {
            let config = config.with_places();
            let settings = config.settings().into_iter();
            let mut found: Vec<Finding> = settings
                .map(|(key, value)| Finding::good(&key, value))
                .collect();
            found.extend(files::findings(&config));
            found
        }
        Err(why) => vec![Finding::lacking(
            "configuration",
            Level::Missing,
            why,
            "`lumpscope serve` does not start with it",
            "correct it",
        )],
    }
}

/// Settings of `serve` from the environment.
fn from_environment() -> Result<ServeArgs, String> {
    #[derive(Parser)]
    struct Environment {
        #[command(flatten)]
        serve: ServeArgs,
    }
    match Environment::try_parse_from(["serve"]) {
        Ok(environment) => Ok(environment.serve),
        Err(error) => Err(error
            .to_string()
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned()),
    }
}

fn report(findings: &[Finding]) -> String {
    let mut table = table(&["", "topic", "found"]);
    let mut advice = String::new();
    for f in findings {
        let word = match f.level {
            Level::Good => "good",
            Level::Degraded => "degraded",
            Level::Missing => "MISSING",
        };
        table.add_row([word, &f.topic, &f.found]);
        if f.level != Level::Good {
            advice.push_str(&format!(
                "\n{}: {}\n  -> {}\n",
                escaped(&f.topic),
                escaped(&f.consequence),
                escaped(&f.remedy)
            ));
        }
    }
    format!("{table}\n{advice}")
}

fn io_uring() -> Finding {
    match io_uring::IoUring::new(8) {
        Ok(_) => Finding::good("io_uring", "works"),
        Err(error) => Finding::lacking(
            "io_uring",
            Level::Degraded,
            format!("cannot be set up: {error}"),
            "stores do their I/O with a pool of threads, which needs more CPU time",
            "on the host: sysctl kernel.io_uring_disabled=0; in a container: a seccomp profile \
             that allows io_uring_setup",
        ),
    }
}

fn huge_pages() -> Finding {
    let topic = "huge pages";
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    let chosen = mode.as_deref().ok().and_then(|text| {
        let (_, rest) = text.split_once('[')?;
        Some(rest.split_once(']')?.0.to_owned())
    });
    match chosen.as_deref() {
        Some(mode @ ("always" | "madvise")) => Finding::good(topic, format!("transparent: {mode}")),
        other => Finding::lacking(
            topic,
            Level::Degraded,
            format!("transparent: {}", other.unwrap_or("unknown")),
            "large lumps are read and written with more, smaller block requests",
            "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        ),
    }
}

fn root() -> Finding {
    let topic = "privileges";
    if rustix::process::geteuid().is_root() {
        return Finding::good(topic, "root");
    }
    let user = rustix::process::geteuid().as_raw();
    Finding::lacking(
        topic,
        Level::Degraded,
        format!("user {user}"),
        "files can be served; raw devices need access rights, and `lumpscope compare` cannot make \
         loop devices or mount file systems",
        "run as root, or give the user rights on the device (group disk) and CAP_SYS_ADMIN for \
         compare",
    )
}

fn loop_devices() -> Finding {
    let topic = "loop devices";
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/loop-control");
    match opened {
        Ok(_) => Finding::good(topic, "can be made"),
        Err(error) => Finding::lacking(
            topic,
            Level::Degraded,
            format!("/dev/loop-control: {error}"),
            "`lumpscope compare` cannot make its own disks",
            "run as root, load the module (modprobe loop), or give compare real devices \
             (--raw, --ext4, --xfs)",
        ),
    }
}

#[cfg(feature = "lab")]
fn emulated_disks() -> Finding {
    let topic = "emulated disks";
    match lumpscope_platter::live::possible() {
        Ok(()) => Finding::good(
            topic,
            "FUSE is available; memory is unlimited and can be locked",
        ),
        Err(error) => Finding::lacking(
            topic,
            Level::Degraded,
            error.to_string(),
            "`lumpscope platter attach` cannot emulate a disk, nor can compare and lab with --drive",
            "run as root, load the module (modprobe fuse); in a container: --device /dev/fuse, \
             CAP_IPC_LOCK and no memory limit",
        ),
    }
}

fn tools(file_system: &str, program: &str, package: &str) -> Finding {
    let topic = format!("{file_system} tools");
    match find(program) {
        Some(path) => Finding::good(&topic, path.display().to_string()),
        None => Finding::lacking(
            &topic,
            Level::Degraded,
            format!("{program} is not installed"),
            &format!("`lumpscope compare` cannot make its {file_system} store"),
            &format!("install the package {package}"),
        ),
    }
}

/// A program on the path, or in the folders for administrators, which users often lack.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(admin)
        .map(|folder| folder.join(program))
        .find(|file| Path::is_file(file))
}
