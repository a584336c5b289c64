//! Other devices that lead to the same bytes: further paths to a disk, and volumes of device mapper
//! over the same place.
//!
//! The kernel knows that two devices are one disk only where multipathd has told it. Each of them
//! can be opened exclusively, so a store could be served twice. A disk tells its name (WWID or
//! serial number) whichever path leads to it. Some give a name that others have, too (bridges from
//! USB): only a device whose first bytes are the same is another way.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::OFlags;

use super::aliases::{Taken, claim_node};
use crate::layout;
use crate::loops::open_node;
use crate::sysfs::{DeviceNumber, names_in};

/// The kernel's list of whole devices.
const DISKS: &str = "/sys/block";

/// Takes the other ways to a block device, which is open as `target` for this process alone.
///
/// # Errors
/// Somebody has one of them, or the kernel does not say.
pub(super) fn take(target: &File, device: DeviceNumber, held: &mut Vec<File>) -> Result<(), Taken> {
    let paths = further_paths(Path::new(DISKS), device)?.into_iter();
    let mut others: Vec<(String, bool)> = paths.map(|name| (name, true)).collect();
    for below in device.whole().slaves()? {
        let volumes = names_in(&below.sysfs().join("holders"))?.into_iter();
        others.extend(volumes.map(|name| (name, false)));
    }
    for (name, same_disk) in others {
        let number = DeviceNumber::in_folder(&Path::new("/sys/class/block").join(&name));
        let Some(number) = number.filter(|number| *number != device) else {
            continue;
        };
        if shows_other_bytes(target, &name, number, same_disk) {
            continue;
        }
        held.extend(claim_node(&name, number)?);
    }
    Ok(())
}

/// True: both paths lead to one disk, or to one partition of it, by what it says of itself.
pub(super) fn is_same_disk(first: &Path, second: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let place = |path: &Path| {
        let number = DeviceNumber::of(fs::metadata(path).ok()?.rdev());
        place_of(&fs::canonicalize(number.sysfs()).ok()?)
    };
    place(first).is_some_and(|first| place(second) == Some(first))
}

/// Identity of the disk of a device, and where on it a partition lies.
fn place_of(sysfs: &Path) -> Option<([String; 2], Option<[String; 2]>)> {
    match sysfs.join("partition").exists() {
        true => Some((identity_in(sysfs.parent()?)?, Some(place_in(sysfs)?))),
        false => Some((identity_in(sysfs)?, None)),
    }
}

/// Names of the devices with the same bytes as `device`, on disks with the same identity.
fn further_paths(disks: &Path, device: DeviceNumber) -> io::Result<Vec<String>> {
    let Ok(own) = fs::canonicalize(device.whole().sysfs()) else {
        return Ok(Vec::new());
    };
    let part = (device.whole() != device).then(|| place_in(&device.sysfs()));
    paths_like(disks, &own, part.flatten())
}

/// `part`: the place of a partition.
fn paths_like(disks: &Path, own: &Path, part: Option<[String; 2]>) -> io::Result<Vec<String>> {
    let Some(identity) = identity_in(own) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for name in names_in(disks)? {
        let sysfs = disks.join(&name);
        if own.file_name() == sysfs.file_name() || identity_in(&sysfs).as_ref() != Some(&identity) {
            continue;
        }
        let Some(part) = &part else {
            found.push(name);
            continue;
        };
        let parts = names_in(&sysfs)?.into_iter();
        found.extend(parts.filter(|name| {
            let sysfs = sysfs.join(name);
            sysfs.join("partition").exists() && place_in(&sysfs).as_ref() == Some(part)
        }));
    }
    Ok(found)
}

/// What a disk says of itself, with its size. SCSI and NVMe, then virtio.
fn identity_in(disk: &Path) -> Option<[String; 2]> {
    let names = ["device/wwid", "wwid", "serial"].into_iter();
    let name = names.filter_map(|name| text_of(&disk.join(name))).next()?;
    Some([name, text_of(&disk.join("size"))?])
}

/// First sector and number of sectors of a partition.
fn place_in(partition: &Path) -> Option<[String; 2]> {
    let text = |name| text_of(&partition.join(name));
    Some([text("start")?, text("size")?])
}

fn text_of(file: &Path) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// True: the device begins otherwise. `same_disk`: it says the same of itself; then one that cannot be
/// read may be a path that is just not in use.
fn shows_other_bytes(target: &File, name: &str, number: DeviceNumber, same_disk: bool) -> bool {
    let Ok(other) = open_node(name, number, OFlags::DIRECT) else {
        return !same_disk;
    };
    let (Ok(ours), Ok(theirs)) = (layout::read_head(target), layout::read_head(&other)) else {
        return !same_disk;
    };
    match (layout::uuid_in(&ours), layout::uuid_in(&theirs)) {
        // An open store writes to its header blocks at any time.
        (Some(ours), Some(theirs)) => ours != theirs,
        // Two empty volumes are alike.
        _ => ours != theirs || (!same_disk && ours.iter().all(|byte| *byte == 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as `/sys/block`.
    fn sysfs(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    fn like(folder: &tempfile::TempDir, disk: &str, part: Option<[&str; 2]>) -> Vec<String> {
        let part = part.map(|part| part.map(str::to_owned));
        let mut found = paths_like(folder.path(), &folder.path().join(disk), part).unwrap();
        found.sort();
        found
    }

    #[test]
    fn disks_that_say_the_same_of_themselves_are_one() {
        let folder = sysfs(&[
            ("sda/device/wwid", "naa.5000c500a1b2c3d4\n"),
            ("sda/size", "100\n"),
            ("sdb/device/wwid", "naa.5000c500a1b2c3d4\n"),
            ("sdb/size", "100\n"),
            ("sdc/device/wwid", "naa.5000c500ffffffff\n"),
            ("sdc/size", "100\n"),
            ("sdd/device/wwid", "naa.5000c500a1b2c3d4\n"),
            ("sdd/size", "200\n"),
            ("vda/serial", "disk-1"),
            ("vda/size", "7"),
            ("vdb/serial", "disk-1"),
            ("vdb/size", "7"),
            ("vdc/serial", ""),
            ("vdc/size", "7"),
            ("vdd/serial", ""),
            ("vdd/size", "7"),
            ("nvme0n1/wwid", "eui.0025388b01"),
            ("nvme0n1/device/serial", "S1"),
            ("nvme0n1/size", "9"),
            ("nvme0n2/wwid", "eui.0025388b02"),
            ("nvme0n2/device/serial", "S1"),
            ("nvme0n2/size", "9"),
        ]);
        assert_eq!(like(&folder, "sda", None), ["sdb"]);
        assert_eq!(like(&folder, "vda", None), ["vdb"]);
        for alone in ["sdc", "sdd", "vdc", "nvme0n1"] {
            assert_eq!(like(&folder, alone, None), [""; 0], "{alone}");
        }
    }

    #[test]
    fn a_partition_is_that_at_the_same_place() {
        let folder = sysfs(&[
            ("sda/device/wwid", "naa.5"),
            ("sda/size", "100"),
            ("sdb/device/wwid", "naa.5"),
            ("sdb/size", "100"),
            ("sdb/sdb1/partition", "1"),
            ("sdb/sdb1/start", "8"),
            ("sdb/sdb1/size", "40"),
            ("sdb/sdb2/partition", "2"),
            ("sdb/sdb2/start", "48"),
            ("sdb/sdb2/size", "40"),
        ]);
        assert_eq!(like(&folder, "sda", Some(["48", "40"])), ["sdb2"]);
        assert_eq!(like(&folder, "sda", Some(["48", "8"])), [""; 0]);
        let place = |name| place_of(&folder.path().join(name)).unwrap();
        assert_eq!(place("sda"), place("sdb"));
        assert_ne!(place("sdb/sdb1"), place("sdb/sdb2"), "a copy of the image");
    }
}
