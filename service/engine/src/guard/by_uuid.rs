//! Finds the block device that has an image.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use super::twins::is_same_disk;
use crate::layout::{read_head, uuid_in};

/// The kernel's list of block devices.
const BLOCK_DEVICES: &str = "/sys/class/block";
/// How long a device may take to show its first bytes: one that is gone never does.
const PATIENCE: Duration = Duration::from_secs(10);

/// The block device that has the image with this UUID, as `/dev/sdb`. Of several paths to one disk
/// the first; what device mapper or md has made from a device stands for it.
///
/// # Errors
/// None has it, or several have; the text says which, and what to do.
pub fn find_image(uuid: uuid::Uuid) -> Result<PathBuf, String> {
    let names = names().map_err(|error| format!("cannot list {BLOCK_DEVICES}: {error}"))?;
    let (to, answers) = mpsc::channel();
    let asked = names.len();
    for name in names {
        ask(name, to.clone());
    }
    drop(to);
    let until = Instant::now() + PATIENCE;
    let mut told = Vec::new();
    while let Ok(answer) = answers.recv_timeout(until.saturating_duration_since(Instant::now())) {
        told.push(answer);
    }
    let silent = asked - told.len();
    let with_it = told.into_iter().filter(|(_, image)| *image == Some(uuid));
    let mut found: Vec<PathBuf> = with_it.map(|(path, _)| path).collect();
    found.sort();
    match found.as_slice() {
        [] if silent > 0 => Err(format!(
            "no block device has the image {uuid}, and {silent} did not answer within {} s",
            PATIENCE.as_secs()
        )),
        [] => Err(format!(
            "no block device that can be read has the image {uuid}; `lumpscope check --quick` shows \
             the UUID of a store, and a store in a file is named by its path"
        )),
        [first, others @ ..] if others.iter().all(|path| is_same_disk(first, path)) => {
            Ok(first.clone())
        }
        several => {
            let paths: Vec<String> = several.iter().map(|it| it.display().to_string()).collect();
            Err(format!(
                "{} have the image {uuid}: give the one that is meant by its path below \
                 /dev/disk/by-id",
                paths.join(" and ")
            ))
        }
    }
}

/// Asks on a thread of its own, which a device that does not answer may hold.
fn ask(name: String, to: Sender<(PathBuf, Option<uuid::Uuid>)>) {
    let path = Path::new("/dev").join(name);
    // Without a thread, this device counts as silent; nobody listens any more after the patience.
    let _ = thread::Builder::new().spawn(move || {
        let image = image_of(&path);
        let _ = to.send((path, image));
    });
}

/// Devices of a size on which nothing is built.
fn names() -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(BLOCK_DEVICES)? {
        let (name, sysfs) = {
            let entry = entry?;
            (entry.file_name().into_string(), entry.path())
        };
        let size = fs::read_to_string(sysfs.join("size")).unwrap_or_default();
        let holders = fs::read_dir(sysfs.join("holders"));
        let is_top = holders.is_ok_and(|mut holders| holders.next().is_none());
        if let (Ok(name), true) = (name, is_top && size.trim() != "0") {
            names.push(name);
        }
    }
    Ok(names)
}

fn image_of(path: &Path) -> Option<uuid::Uuid> {
    let head = read_head(&File::open(path).ok()?).ok()?;
    uuid_in(&head).map(uuid::Uuid::from_bytes)
}
