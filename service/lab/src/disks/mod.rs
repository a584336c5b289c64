//! Three disks of nothing: sparse images behind loop devices, raw, with an ext4 and with an xfs.
//!
//! # Nothing stays behind
//! A lab is built only from things that the kernel itself takes down when nobody holds them:
//!
//! | part | vanishes because |
//! |---|---|
//! | image `lumpscope-PID-NUMBER-NAME.img` | it is unlinked as soon as it is open |
//! | loop device | it is set to clear itself when its last user closes it |
//! | mounts | they live in a mount namespace that only this process (and its children) hold |
//! | mount points | they are directories of a small tmpfs inside that namespace |
//! | emulated disk | its process ends when the kernel lets the disk go ([`lumpscope_platter::live`]) |
//! | children | they are killed by the kernel when the thread that started them ends |
//!
//! So `kill -9` leaves no more behind than an orderly end does. An orderly end (return, error,
//! panic, a signal that the caller turns into a return) still unmounts first and waits until the
//! loop devices are free, so that the machine is as it was when [`Lab`] is gone.
//!
//! `losetup -a` names the images all the while, by the name they had, with `(deleted)`.
//!
//! # Who sees the mounts
//! Processes started with [`Lab::command`], and threads that called
//! [`Lab::enter_current_thread`] together with all threads and processes that these start. The
//! block devices are visible to everybody as usual.

mod borrowed;
mod emulated;
mod fill;
mod make_fs;
mod namespace;
mod space;
mod unnamed;

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::anyhow;
use lumpscope_platter::live::{Attached, LiveOptions, Log, Status};
use lumpscope_platter::loops::{LoopDevice, LoopError};
use rustix::io::Errno;

use crate::failure::cannot;

pub(crate) use borrowed::{BorrowedDevice, NewFile};
pub use emulated::{BUSY, EmulatedView};
pub(crate) use fill::{direct, fill};
pub use space::{default_dir, free_bytes};
pub(crate) use unnamed::{StoreFile, unnamed};

use namespace::MountNamespace;

/// For `map_err`: a system call failed; a refusal for want of privilege says how to get it.
fn refused<P: AsRef<Path> + ?Sized>(
    what: &str,
    path: &P,
) -> impl FnOnce(Errno) -> anyhow::Error + use<P> {
    let (what, path) = (what.to_owned(), path.as_ref().to_owned());
    move |errno| match errno {
        Errno::PERM | Errno::ACCESS => not_permitted(&what, &path),
        other => cannot(&what, &path)(std::io::Error::from(other)),
    }
}

fn not_permitted(what: &str, path: &Path) -> anyhow::Error {
    anyhow!(
        "loop devices and mounts need root (CAP_SYS_ADMIN): the kernel refused to {what} {}. Run \
         it with sudo; in a container, with what docker-compose.filesystems.yml gives its demo",
        path.display()
    )
}

fn explained(error: LoopError) -> anyhow::Error {
    match error {
        LoopError::Io { what, path, source } if source.kind() == ErrorKind::PermissionDenied => {
            not_permitted(what, &path)
        }
        other => other.into(),
    }
}

/// Kind of store that a lab disk is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// The bare block device.
    Raw,
    /// A file on an ext4.
    Ext4,
    /// A file on an xfs.
    Xfs,
}

impl StoreKind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [StoreKind; 3] = [StoreKind::Raw, StoreKind::Ext4, StoreKind::Xfs];

    /// `raw`, `ext4` or `xfs`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StoreKind::Raw => "raw",
            StoreKind::Ext4 => "ext4",
            StoreKind::Xfs => "xfs",
        }
    }
}

/// Has the disks of a lab emulated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabDrive {
    /// The `lumpscope` program, a process of which becomes each disk.
    pub exe: PathBuf,
    /// Options of the disks. Without a size they are as large as the drive; without a bound on
    /// their memory they share half of the available memory.
    pub options: LiveOptions,
}

/// What a lab is made of.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Directory for the images; absent: [`default_dir`].
    pub dir: Option<PathBuf>,
    /// Size of every disk in bytes; rounded up to 4 KiB. An xfs needs 300 MiB or more. Images are
    /// sparse: only what is written takes room.
    pub disk_bytes: u64,
    /// How many bytes all images together will really take, for the check that the directory has
    /// room; 0: no check.
    pub expected_bytes: u64,
    /// The ext4 has a journal.
    pub ext4_journal: bool,
    /// One disk for each, in this order.
    pub kinds: Vec<StoreKind>,
    /// The disks are emulated ones, and `dir`, `disk_bytes` and `expected_bytes` say nothing of
    /// them; absent: they are images, as fast as the machine.
    pub drive: Option<LabDrive>,
}

impl LabOptions {
    /// All three kinds, each with a disk of `disk_bytes`, default directory, no check for room.
    #[must_use]
    pub fn new(disk_bytes: u64) -> LabOptions {
        LabOptions {
            dir: None,
            disk_bytes,
            expected_bytes: 0,
            ext4_journal: true,
            kinds: StoreKind::ALL.to_vec(),
            drive: None,
        }
    }
}

/// One disk of a lab, ready to be formatted as a store.
#[derive(Debug, Clone)]
pub struct LabStore {
    /// What is below the store: the bare device, or a file system.
    pub kind: StoreKind,
    /// `raw`, `ext4` or `xfs`.
    pub name: &'static str,
    /// Path to format and serve: the device itself, or a file (not there yet) on its file system.
    pub store_path: PathBuf,
    /// The loop device, `/dev/loopN`.
    pub device: PathBuf,
    /// Its device number as `stat` shows it (`st_rdev`).
    pub devno: u64,
}

/// A lab; see the [module](self).
#[derive(Debug)]
pub struct Lab {
    stores: Vec<LabStore>,
    // Dropped in this order: mounts first, then the devices below them.
    /// `None`: no file system is mounted.
    namespace: Option<MountNamespace>,
    devices: Vec<Device>,
}

/// The device below a store.
#[derive(Debug)]
enum Device {
    Image(LoopDevice),
    Emulated(Box<Mutex<Attached>>),
}

impl Device {
    fn create(options: &LabOptions, dir: &Path, name: &str) -> anyhow::Result<Device> {
        let Some(drive) = &options.drive else {
            let image = LoopDevice::create(dir, name, options.disk_bytes).map_err(explained)?;
            return Ok(Device::Image(image));
        };
        let disk = drive.options.sharing(options.kinds.len())?;
        let disk = Attached::start(&drive.exe, &disk)?;
        Ok(Device::Emulated(Box::new(Mutex::new(disk))))
    }

    /// `/dev/loopN`, and its number.
    fn place(&self) -> (PathBuf, u64) {
        match self {
            Device::Image(device) => (device.path().to_owned(), device.devno()),
            Device::Emulated(disk) => {
                let disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
                (disk.path().to_owned(), disk.devno())
            }
        }
    }
}

impl Lab {
    /// Makes a lab. Needs root; with file systems, `CAP_SYS_ADMIN` for a mount namespace and the
    /// mounts, `mkfs.ext4` and `mkfs.xfs`.
    ///
    /// # Errors
    /// A privilege, a program, a kernel feature or room is missing; what had been made is gone.
    pub fn create(options: &LabOptions) -> anyhow::Result<Lab> {
        let dir = options.dir.clone().unwrap_or_else(default_dir);
        if options.drive.is_none() {
            space::check_room(&dir, options.expected_bytes)?;
        }
        let mut lab = Lab {
            stores: Vec::new(),
            namespace: None,
            devices: Vec::new(),
        };
        for kind in &options.kinds {
            let below = Device::create(options, &dir, kind.name())?;
            let (device, devno) = below.place();
            // Kept first: what is mounted goes before what is below it.
            lab.devices.push(below);
            let store_path = match kind {
                StoreKind::Raw => device.clone(),
                StoreKind::Ext4 | StoreKind::Xfs => {
                    let emulated = options.drive.is_some();
                    make_fs::make(*kind, &device, options.ext4_journal, emulated)?;
                    let namespace = match &mut lab.namespace {
                        Some(namespace) => namespace,
                        none => none.insert(MountNamespace::create(&dir)?),
                    };
                    namespace.mount(*kind, &device)?.join("lumpscope.lusf")
                }
            };
            lab.stores.push(LabStore {
                kind: *kind,
                name: kind.name(),
                store_path,
                device,
                devno,
            });
        }
        Ok(lab)
    }

    /// Status of each emulated disk, in the order of the stores; nothing for images.
    ///
    /// # Errors
    /// A disk's process is gone.
    pub fn emulated(&self) -> anyhow::Result<Vec<(&'static str, Status)>> {
        let mut said = Vec::new();
        for (store, device) in self.stores.iter().zip(&self.devices) {
            if let Device::Emulated(disk) = device {
                let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
                said.push((store.name, disk.status()?));
            }
        }
        Ok(said)
    }

    /// How late each emulated disk answered, in the order of the stores; nothing for images.
    ///
    /// # Errors
    /// A disk's process is gone.
    pub fn lateness(&self) -> anyhow::Result<Vec<EmulatedView>> {
        let said = self.emulated()?;
        let view = |(name, status): &(&'static str, Status)| EmulatedView::new(*name, status);
        Ok(said.iter().map(view).collect())
    }

    /// Requests of an emulated disk; `None`: an image, or no disk of this kind.
    ///
    /// # Errors
    /// The disk's process is gone.
    pub fn log(&self, kind: StoreKind) -> anyhow::Result<Option<Log>> {
        let place = self.stores.iter().position(|store| store.kind == kind);
        match place.and_then(|place| self.devices.get(place)) {
            Some(Device::Emulated(disk)) => {
                let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(Some(disk.log()?))
            }
            _ => Ok(None),
        }
    }

    /// The disks, in the order asked for.
    #[must_use]
    pub fn stores(&self) -> &[LabStore] {
        &self.stores
    }

    /// The first disk.
    pub(crate) fn first(&self) -> anyhow::Result<&LabStore> {
        let first = self.stores.first();
        first.ok_or_else(|| anyhow!("the lab has no disk"))
    }

    /// The first disk of a kind.
    #[must_use]
    pub fn store(&self, kind: StoreKind) -> Option<&LabStore> {
        self.stores.iter().find(|store| store.kind == kind)
    }

    /// A command whose process sees the mounts, and is killed when the thread that starts it ends.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        crate::process::tie_to_parent(
            &mut command,
            self.namespace.as_ref().map(MountNamespace::handle),
        );
        command
    }

    /// Lets the calling thread, and all threads and processes that it starts from now on, see the
    /// mounts. There is no way back for the thread; its working directory becomes `/`. Drop the
    /// lab only after such threads have closed their files on it.
    ///
    /// # Errors
    /// The kernel refuses, for want of `CAP_SYS_ADMIN`.
    pub fn enter_current_thread(&self) -> anyhow::Result<()> {
        match &self.namespace {
            Some(namespace) => namespace.enter_current_thread(),
            None => Ok(()),
        }
    }

    /// Does work in a thread of its own that sees the mounts, as do all threads and processes that it
    /// starts. Fails before the work where a file system is not mounted: the work would be done on
    /// this machine's own disk.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> anyhow::Result<T> + Send,
    ) -> anyhow::Result<T> {
        namespace::in_new_thread(|| {
            self.enter_current_thread()?;
            for store in &self.stores {
                store.check_mounted()?;
            }
            work()
        })
    }
}

impl LabStore {
    /// To be called by a thread that sees the mounts.
    fn check_mounted(&self) -> anyhow::Result<()> {
        let path = match self.kind {
            StoreKind::Raw => return Ok(()),
            _ => self.store_path.parent().unwrap_or(Path::new("/")),
        };
        let found = fs::metadata(path).map_err(cannot("look at", path))?;
        anyhow::ensure!(
            found.dev() == self.devno,
            "{} is not on {}: its file system is not mounted, and nothing was written",
            path.display(),
            self.device.display()
        );
        Ok(())
    }
}
