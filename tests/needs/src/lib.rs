//! Tests that need root, a kernel feature or a tool: outside CI they are skipped with the reason printed, in CI
//! (`CI=true`) the missing thing is a failure.

use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A requirement of a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Effective user 0: mounts, probes, devices.
    Root,
    /// Root, and a kernel that makes loop devices.
    LoopDevices,
    /// FUSE, for emulated disks.
    Fuse,
    /// A program beside the build, on `PATH` or in the system's sbin folders.
    Tool(&'static str),
}

/// Of tests that need root and nothing else.
pub const ROOT: &[Need] = &[Need::Root];
/// Of tests on loop devices.
pub const LOOPS: &[Need] = &[Need::LoopDevices];

impl Need {
    fn missing(self) -> Option<String> {
        match self {
            Need::Root if rustix::process::geteuid().is_root() => None,
            Need::Root => Some("root is needed (loop devices, mounts, probes)".to_owned()),
            Need::LoopDevices if !Path::new("/dev/loop-control").exists() => {
                Some("there is no /dev/loop-control (modprobe loop)".to_owned())
            }
            Need::LoopDevices => Need::Root.missing(),
            Need::Fuse if Path::new("/dev/fuse").exists() => None,
            Need::Fuse => Some("/dev/fuse is not there (modprobe fuse)".to_owned()),
            Need::Tool(name) => {
                if find_tool(name).is_some() {
                    None
                } else {
                    Some(format!(
                        "'{name}' is not installed (./dev setup all installs it)"
                    ))
                }
            }
        }
    }
}

/// Path of a program: beside the build, where `./dev setup` installs, on `PATH`, or in the system's
/// sbin folders.
#[must_use]
pub fn find_tool(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    beside_the_build()
        .into_iter()
        .chain(env::split_paths(&path))
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// TARGET/tools/bin; a test lives in TARGET/PROFILE/deps.
fn beside_the_build() -> Option<PathBuf> {
    let test = env::current_exe().ok()?;
    Some(test.ancestors().nth(3)?.join("tools/bin"))
}

/// True when every need is met. Otherwise prints the reason and returns false, so that the test can return. `./dev quick`
/// sets `LUMPSCOPE_QUICK`, which skips the tests that need root, whoever runs them.
///
/// # Panics
/// With `CI=true`, when a need is missing: CI must never pass by skipping.
pub fn available(needs: &[Need]) -> bool {
    let of_root = [Need::Root, Need::LoopDevices, Need::Fuse];
    let quick = env::var_os("LUMPSCOPE_QUICK").is_some();
    if quick && needs.iter().any(|need| of_root.contains(need)) {
        skipped("./dev quick leaves out what needs root");
        return false;
    }
    match needs.iter().find_map(|need| need.missing()) {
        Some(reason) => {
            missing(&reason);
            false
        }
        None => true,
    }
}

/// Prints that the current test is skipped, because something is missing that every CI machine has.
///
/// # Panics
/// With `CI=true`.
pub fn missing(reason: &str) {
    assert!(
        env::var("CI").as_deref() != Ok("true"),
        "needed in CI: {reason}"
    );
    skipped(reason);
}

/// Prints that the current test is skipped on this kernel, in CI too: for abilities that no setup can bring, and
/// that the tests on other kernels do not skip.
pub fn skipped(reason: &str) {
    // The test runner names each thread after its test, and hides what a passing test prints by `eprintln!`.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    // The reason is lost when standard error is closed; nothing can be done then.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}

/// The turn of one test at what the machine has once: loop devices, mounts, probes, kernel counters. Ends when dropped.
#[derive(Debug)]
pub struct Alone {
    // Dropped in this order: the next test of this process must find the file free.
    _machine: File,
    _process: MutexGuard<'static, ()>,
}

/// Waits for this test's turn when every need is there; otherwise answers as [`available`] does. No two tests with a turn
/// run at the same time, in this binary or in another, and one that fails passes its turn on.
///
/// # Panics
/// With `CI=true`, when a need is missing; and when the file that stands for the machine, in the temporary folder, cannot
/// be locked.
#[must_use]
pub fn alone(needs: &[Need]) -> Option<Alone> {
    static TURN: Mutex<()> = Mutex::new(());
    if !available(needs) {
        return None;
    }
    let process = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let path = env::temp_dir().join("lumpscope-tests.lock");
    // Reading is enough for a lock, and all that another user's file allows.
    let machine = File::open(&path)
        .or_else(|_| OpenOptions::new().append(true).create(true).open(&path))
        .expect("the temporary folder can be written");
    machine.lock().expect("a file can be locked");
    Some(Alone {
        _machine: machine,
        _process: process,
    })
}
