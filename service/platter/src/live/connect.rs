//! The connection between kernel and emulated disk, without a place in the tree of files.
//!
//! The file system is mounted nowhere: whoever holds the descriptor can open its file, and it is
//! gone with the last file of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use super::LiveError;

pub(super) const FUSE: &str = "/dev/fuse";

/// Both ends of a new connection.
#[derive(Debug)]
pub(super) struct Ends {
    /// For the process that is the disk; the connection ends when the last descriptor is closed.
    pub(super) server: OwnedFd,
    /// The directory with the disk's file.
    pub(super) mount: OwnedFd,
}

/// Makes a connection. Needs `CAP_SYS_ADMIN`.
pub(super) fn connect() -> Result<Ends, LiveError> {
    let opened = OpenOptions::new().read(true).write(true).open(FUSE);
    let server = opened.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => LiveError::NoFuse { path: FUSE.into() },
        _ => LiveError::io("open", FUSE)(error),
    })?;
    let number = server.as_fd().as_raw_fd().to_string();
    // For the kernel's lists of mounts; and who may use it: root.
    let options = [
        ("source", "lumpscope-platter"),
        ("fd", number.as_str()),
        ("rootmode", "40000"),
        ("user_id", "0"),
        ("group_id", "0"),
    ];
    let mount = mount_detached("fuse", &options).map_err(LiveError::io("mount", "a FUSE"))?;
    Ok(Ends {
        server: server.into(),
        mount,
    })
}

/// Ends the FUSE connection of this number as the kernel's own way out of a hang: all that wait
/// get errors.
pub(super) fn abort(connection: u32) -> Result<(), LiveError> {
    let name = format!("{connection}/abort");
    let what = "abort the FUSE connection";
    let control = mount_detached("fusectl", &[]).map_err(LiveError::io(what, &name))?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&control, Path::new(&name), flags, Mode::empty())
        .map_err(LiveError::io(what, &name))?;
    let mut file = File::from(file);
    file.write_all(b"1").map_err(LiveError::io(what, &name))
}

fn mount_detached(kind: &str, options: &[(&str, &str)]) -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}
