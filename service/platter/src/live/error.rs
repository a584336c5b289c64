//! Why a disk could not be emulated.

use std::io;
use std::path::PathBuf;

use crate::loops::LoopError;

/// Why a disk could not be emulated, found or given up.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum LiveError {
    /// Not root.
    #[error(
        "an emulated disk needs root (CAP_SYS_ADMIN): the kernel refused to {what} {}. Run it with \
         sudo; in a container, with /dev/fuse, /dev/loop-control and that capability",
        path.display()
    )]
    NotPermitted { what: &'static str, path: PathBuf },
    /// No FUSE.
    #[error("{} is not there: load the driver (modprobe fuse)", path.display())]
    NoFuse { path: PathBuf },
    /// Something about the loop device.
    #[error(transparent)]
    Loop(LoopError),
    /// An option is out of its range.
    #[error("{option} {given}: {allowed}")]
    Option {
        option: &'static str,
        /// The value as given.
        given: String,
        allowed: String,
    },
    /// The process would wait for itself.
    #[error(
        "{} limits the memory of this process to {limit_mib} MiB. When that is used up, the kernel \
         makes the emulated disk wait for what only the disk itself can do, for ever. Start it \
         outside the limit, for example: echo 0 | sudo tee /sys/fs/cgroup/cgroup.procs (of a shell; \
         in a container: without a memory limit)",
        group.display()
    )]
    MemoryLimited {
        group: PathBuf,
        /// Its limit in MiB.
        limit_mib: u64,
    },
    /// Pages could be taken away while they are needed to get memory.
    #[error(
        "the memory of the emulated disk cannot be locked ({source}); unlocked, it can wait for \
         itself for ever. Allow it with CAP_IPC_LOCK or `ulimit -l unlimited`"
    )]
    NotLocked { source: io::Error },
    /// The process that serves the disk failed.
    #[error("the process that emulates the disk: {0}")]
    Server(String),
    /// Somebody has the device.
    #[error(
        "{} is in use: {holders}. Unmount or close it first; --force takes the disk away under its \
         users, as a pulled plug does",
        device.display()
    )]
    InUse { device: PathBuf, holders: String },
    /// Not one of ours.
    #[error("{} is no disk that `lumpscope platter attach` has made; `lumpscope platter status` lists \
             those", device.display())]
    NotOurs { device: PathBuf },
    /// It does not go.
    #[error("{} is still there after {seconds} s; see `lumpscope platter status`", device.display())]
    StillThere {
        device: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        what: &'static str,
        path: PathBuf,
        source: io::Error,
    },
}

impl LiveError {
    /// The error of a failed call; a refusal for want of privilege becomes its own kind.
    pub(super) fn io<E: Into<io::Error>>(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(E) -> LiveError {
        let path = path.into();
        move |error| {
            let source = error.into();
            match source.kind() {
                io::ErrorKind::PermissionDenied => LiveError::NotPermitted { what, path },
                _ => LiveError::Io { what, path, source },
            }
        }
    }
}

impl From<LoopError> for LiveError {
    fn from(error: LoopError) -> LiveError {
        match error {
            LoopError::Io { what, path, source } => LiveError::io(what, path)(source),
            other => LiveError::Loop(other),
        }
    }
}
