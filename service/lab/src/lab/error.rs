//! Why a lab could not be made.

use std::path::PathBuf;
use std::process::ExitStatus;

use lumpscope_platter::live::LiveError;
use lumpscope_platter::loops::LoopError;

/// Why a lab could not be made. Nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// Not root.
    #[error(
        "loop devices and mounts need root (CAP_SYS_ADMIN): the kernel refused to {what} {}. Run \
         it with sudo; in a container, with what docker-compose.yml gives its demo",
        path.display()
    )]
    NotPermitted {
        /// What was refused.
        what: &'static str,
        /// With what.
        path: PathBuf,
    },
    /// The loop driver is not there.
    #[error("{} is not there: load the loop driver (modprobe loop)", path.display())]
    NoLoopDriver {
        /// The missing device.
        path: PathBuf,
    },
    /// A program is not there.
    #[error("{tool} is not installed; it comes with the package {package}")]
    ToolMissing {
        /// The program.
        tool: &'static str,
        /// Debian's name of its package.
        package: &'static str,
    },
    /// A program failed.
    #[error("{tool} {} failed ({status}): {stderr}", device.display())]
    ToolFailed {
        /// The program.
        tool: &'static str,
        /// Its device.
        device: PathBuf,
        /// How it ended.
        status: ExitStatus,
        /// What it said.
        stderr: String,
    },
    /// The directory is too full.
    #[error(
        "the images will take {needed_mib} MiB, and {} has {free_mib} MiB free. Choose another \
         directory with --dir, or less with --scale or --size",
        dir.display()
    )]
    NoRoom {
        /// Directory.
        dir: PathBuf,
        /// Needed, in MiB.
        needed_mib: u64,
        /// Free, in MiB.
        free_mib: u64,
    },
    /// The images would go through the page cache.
    #[error(
        "files in {} cannot be used with direct I/O, so memory would be measured instead of a \
         disk. Choose a directory on another file system with --dir",
        dir.display()
    )]
    NoDirectIo {
        /// Directory.
        dir: PathBuf,
    },
    /// A disk could not be emulated.
    #[error(transparent)]
    Emulated(#[from] LiveError),
    /// A system call failed.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
}

impl LabError {
    /// The error of a failed system call; a refusal for want of privilege becomes its own kind.
    pub(super) fn io(
        what: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(rustix::io::Errno) -> LabError {
        let path = path.into();
        move |errno| match errno {
            rustix::io::Errno::PERM | rustix::io::Errno::ACCESS => {
                LabError::NotPermitted { what, path }
            }
            other => LabError::Io {
                what,
                path,
                source: other.into(),
            },
        }
    }
}

impl From<LoopError> for LabError {
    fn from(error: LoopError) -> LabError {
        match error {
            LoopError::NoDriver { path } => LabError::NoLoopDriver { path },
            LoopError::Io { what, path, source } => match source.kind() {
                std::io::ErrorKind::PermissionDenied => LabError::NotPermitted { what, path },
                _ => LabError::Io { what, path, source },
            },
        }
    }
}
