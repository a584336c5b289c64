//! Maps that bpftool can read while the service runs: pinned in a folder of a bpffs on request.
//!
//! A folder is locked as long as its pins are in use, so that two services never share one. What a
//! killed service left is told by that: it is not locked. It is replaced when it is what would be
//! pinned anyway, a map of this name; anything else is left alone and refused.

use std::fs::File;
use std::path::{Path, PathBuf};

use aya::Ebpf;
use aya::maps::MapInfo;
use rustix::fs::{FlockOperation, flock, fstatfs};
use rustix::io::Errno;
use thiserror::Error;

/// The maps that are pinned, under their own names.
pub(crate) const PINNED: [&str; 4] = ["HISTOGRAM", "STATS", "LAST", "IN_FLIGHT"];
/// `BPF_FS_MAGIC` of `linux/magic.h`.
const BPF_FS: u64 = 0xcafe_4a11;

/// Why maps are not pinned.
#[derive(Debug, Error)]
pub(crate) enum PinError {
    /// The folder cannot be used.
    #[error("cannot {what} {}: {source}", dir.display())]
    Folder {
        what: &'static str,
        dir: PathBuf,
        source: std::io::Error,
    },
    #[error("{} is on no bpffs: mount one with `mount -t bpf bpf DIR` and make a folder in it", .0.display())]
    NoBpffs(PathBuf),
    #[error("another service that runs pins its maps in {}", .0.display())]
    InUse(PathBuf),
    /// Something that is not ours.
    #[error("{} is there and no map of ours: remove it or take another folder", .0.display())]
    Foreign(PathBuf),
    /// The kernel refused.
    #[error("cannot pin {}: {why}", path.display())]
    Pin { path: PathBuf, why: String },
}

/// Pinned maps. Dropping it unpins them.
#[derive(Debug)]
pub(crate) struct Pins {
    paths: Vec<PathBuf>,
    /// Holds the lock.
    _dir: File,
}

impl Pins {
    /// Pins the maps of a loaded object, all or none.
    pub(crate) fn new(ebpf: &Ebpf, dir: &Path) -> Result<Pins, PinError> {
        let mut pins = Pins {
            paths: Vec::new(),
            _dir: claim(dir)?,
        };
        let places = PINNED.map(|name| (name, dir.join(name)));
        for (name, path) in &places {
            if path.symlink_metadata().is_ok() && !is_ours(path, name) {
                return Err(PinError::Foreign(path.clone()));
            }
        }
        for (name, path) in places {
            let failed = |why: String| PinError::Pin {
                path: path.clone(),
                why,
            };
            if path.symlink_metadata().is_ok() {
                std::fs::remove_file(&path).map_err(|error| failed(error.to_string()))?;
            }
            let map = ebpf.map(name);
            let map = map.ok_or_else(|| failed("the object has no such map".to_owned()))?;
            map.pin(&path).map_err(|error| failed(error.to_string()))?;
            pins.paths.push(path);
        }
        Ok(pins)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        for path in &self.paths {
            if let Err(error) = std::fs::remove_file(path) {
                // The next service in this folder replaces it.
                tracing::warn!(path = %path.display(), %error, "a pinned map stays");
            }
        }
    }
}

/// Opens the folder and locks it.
fn claim(dir: &Path) -> Result<File, PinError> {
    let failed = |what| {
        move |source: std::io::Error| PinError::Folder {
            what,
            dir: dir.to_owned(),
            source,
        }
    };
    match std::fs::create_dir(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(failed("make")(error));
        }
        Ok(()) | Err(_) => {}
    }
    let file = File::open(dir).map_err(failed("open"))?;
    let stat = fstatfs(&file).map_err(|errno| failed("look at")(errno.into()))?;
    if u64::try_from(stat.f_type).ok() != Some(BPF_FS) {
        return Err(PinError::NoBpffs(dir.to_owned()));
    }
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(PinError::InUse(dir.to_owned())),
        Err(errno) => Err(failed("lock")(errno.into())),
    }
}

/// True: a map of this name is pinned there.
fn is_ours(path: &Path, name: &str) -> bool {
    MapInfo::from_pin(path).is_ok_and(|info| info.name_as_str() == Some(name))
}
