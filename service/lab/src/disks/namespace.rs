//! A mount namespace of our own.
//!
//! It is held by a descriptor, not by a thread: when the process is gone, however it went, the
//! kernel takes the namespace down and with it every mount in it.
#![expect(unsafe_code, reason = "unshare")]

use std::ffi::CStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::StoreKind;
use super::refused;
use crate::failure::{cannot, message};
use lumpscope_units::tell;

/// Directories that are empty on most machines: a tmpfs on one of them, inside our namespace,
/// hides nothing from anybody.
const MOUNT_BASES: [&str; 3] = ["/mnt", "/media", "/srv"];

#[derive(Debug)]
pub(super) struct MountNamespace {
    handle: Arc<OwnedFd>,
    base: PathBuf,
    /// Made by us because no base was empty; removed at the end.
    made_base: bool,
    mounted: Vec<PathBuf>,
}

impl MountNamespace {
    /// A copy of the calling thread's namespace in which mounts stay among ourselves. Mounts and
    /// unmounts of the host are still seen, so that we pin nothing of it.
    ///
    /// `dir` takes the mount point if no usual place is free.
    pub(super) fn create(dir: &Path) -> anyhow::Result<MountNamespace> {
        let (base, made_base) = choose_base(dir)?;
        let target = base.clone();
        let handle = in_new_thread(move || {
            // SAFETY: unsharing mounts (and with them the working directory) concerns only this
            // thread, which ends right after; descriptors stay shared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNS) }
                .map_err(refused("make a mount namespace for", &target))?;
            let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            rustix::mount::mount_change("/", slave)
                .map_err(refused("keep mounts private below", "/"))?;
            rustix::mount::mount(
                "lumpscope-lab",
                &target,
                "tmpfs",
                MountFlags::NOSUID | MountFlags::NODEV,
                c"size=1m,mode=0755",
            )
            .map_err(refused("mount a tmpfs on", &target))?;
            let link = "/proc/thread-self/ns/mnt";
            rustix::fs::open(link, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(refused("open", &link))
        });
        match handle {
            Ok(handle) => Ok(MountNamespace {
                handle: Arc::new(handle),
                base,
                made_base,
                mounted: Vec::new(),
            }),
            Err(error) => {
                remove_base(&base, made_base);
                Err(error)
            }
        }
    }

    /// For children that shall see the mounts.
    pub(super) fn handle(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.handle)
    }

    /// Mounts the device's file system and returns where.
    pub(super) fn mount(&mut self, kind: StoreKind, device: &Path) -> anyhow::Result<PathBuf> {
        let target = self.base.join(format!("lumpscope-{}", kind.name()));
        // Right after mkfs ext4 would go on initialising and reading ahead in the background.
        let options: Option<&CStr> = match kind {
            StoreKind::Ext4 => Some(c"noinit_itable,no_prefetch_block_bitmaps"),
            StoreKind::Raw | StoreKind::Xfs => None,
        };
        self.inside(|| {
            fs::create_dir(&target).map_err(cannot("create mount point", &target))?;
            mount_device(device, &target, kind, options)
        })?;
        self.mounted.push(target.clone());
        Ok(target)
    }

    pub(super) fn enter_current_thread(&self) -> anyhow::Result<()> {
        enter(&self.handle)
    }

    /// Runs `work` in a thread of its own that sees the mounts.
    fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        in_new_thread(|| {
            enter(&self.handle)?;
            work()
        })
    }
}

impl Drop for MountNamespace {
    fn drop(&mut self) {
        let mounted = std::mem::take(&mut self.mounted);
        let unmounted = self.inside(|| {
            for target in mounted.iter().rev() {
                let plain = rustix::mount::unmount(target, UnmountFlags::empty());
                if plain.is_err() {
                    // Somebody still has a file open: it goes when that is closed.
                    rustix::mount::unmount(target, UnmountFlags::DETACH)
                        .map_err(refused("unmount", &target))?;
                }
            }
            rustix::mount::unmount(&self.base, UnmountFlags::DETACH)
                .map_err(refused("unmount", &self.base))
        });
        if let Err(error) = unmounted {
            // The namespace itself ends with its last holder, and takes its mounts along.
            tell(&format!(
                "{}; it goes when this process ends",
                message(&error)
            ));
        }
        remove_base(&self.base, self.made_base);
    }
}

fn mount_device(
    device: &Path,
    target: &Path,
    kind: StoreKind,
    options: Option<&CStr>,
) -> anyhow::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    match rustix::mount::mount(device, target, kind.name(), flags, options) {
        // An older kernel does not know one of the options, which only keep the kernel quiet.
        Err(Errno::INVAL) if options.is_some() => mount_device(device, target, kind, None),
        other => other.map_err(refused("mount", &device)),
    }
}

fn enter(handle: &OwnedFd) -> anyhow::Result<()> {
    // SAFETY: unsharing the working directory concerns only this thread; descriptors stay shared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }
        .map_err(refused("leave the process's", "working directory"))?;
    move_into_link_name_space(handle.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(refused("enter", "the lab's mount namespace"))
}

/// An empty directory that is there, else a new one in `dir`.
fn choose_base(dir: &Path) -> anyhow::Result<(PathBuf, bool)> {
    for base in MOUNT_BASES {
        let is_dir = fs::symlink_metadata(base).is_ok_and(|meta| meta.is_dir());
        let is_empty = fs::read_dir(base).is_ok_and(|mut entries| entries.next().is_none());
        if is_dir && is_empty {
            return Ok((base.into(), false));
        }
    }
    let base = dir.join(format!("lumpscope-{}-mounts", std::process::id()));
    match fs::create_dir(&base) {
        Ok(()) => Ok((base, true)),
        Err(error) => Err(cannot("create directory", &base)(error)),
    }
}

fn remove_base(base: &Path, made: bool) {
    if made && let Err(error) = fs::remove_dir(base) {
        tell(&format!("cannot remove {}: {error}", base.display()));
    }
}

pub(super) fn in_new_thread<T: Send>(
    work: impl FnOnce() -> anyhow::Result<T> + Send,
) -> anyhow::Result<T> {
    thread::scope(|scope| match scope.spawn(work).join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}
