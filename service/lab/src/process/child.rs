//! Programs that are started, and children that end with us.
#![expect(unsafe_code, reason = "code between fork and exec")]

use std::env;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::sync::Arc;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A child that is killed and reaped when nobody waits for it any more.
#[derive(Debug)]
pub(crate) struct ChildGuard(pub(crate) Child);

impl ChildGuard {
    pub(super) fn end(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Drop for ChildGuard {
    fn drop(&mut self) {
        self.end();
    }
}

/// A program of this name in `PATH`.
pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut files = env::split_paths(&path).map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

/// Makes the kernel kill the command's process (`SIGKILL`) when the thread that starts it ends,
/// and starts it in the given mount namespace, in the present working directory.
pub fn tie_to_parent(command: &mut Command, mount_namespace: Option<Arc<OwnedFd>>) {
    let parent = getpid();
    let working_dir = env::current_dir()
        .ok()
        .map(|dir| dir.into_os_string().into_vec());
    let working_dir = working_dir.and_then(|dir| CString::new(dir).ok());
    let before_exec = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Some(parent) {
            // The parent ended before the line above: nobody would ever kill this process.
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(namespace) = &mount_namespace {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))?;
            if let Some(dir) = &working_dir {
                // Entering a mount namespace leads to its root.
                rustix::process::chdir(dir.as_c_str())?;
            }
        }
        Ok(())
    };
    // SAFETY: the closure only makes system calls; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(before_exec);
    }
}
