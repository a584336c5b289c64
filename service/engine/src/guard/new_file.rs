//! Names of files that are about to be made or written.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use super::error::FormatError;
use crate::sysfs::DeviceNumber;

/// Where devices have their names.
const DEVICES: &str = "/dev";

/// Refuses a name for a new file where the system has its devices: it is a misspelt one of these,
/// and the file would lie in memory.
///
/// # Errors
/// [`FormatError::NoDevice`], [`FormatError::Io`].
pub fn check_new_file(path: &Path) -> Result<(), FormatError> {
    match folder_of(path)
        .canonicalize()
        .and_then(|it| is_for_devices(&it))
    {
        Ok(false) => Ok(()),
        Ok(true) => Err(FormatError::NoDevice {
            path: path.to_owned(),
        }),
        // Creating it says so.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FormatError::io(path, "looking at its folder", None, error)),
    }
}

/// Refuses a place for output that is a disk, or a new name where the system has its devices.
///
/// # Errors
/// [`FormatError::BlockDevice`]; those of [`check_new_file`].
pub fn check_output(path: &Path) -> Result<(), FormatError> {
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_block_device() => Err(FormatError::BlockDevice {
            path: path.to_owned(),
        }),
        Ok(_) => Ok(()),
        Err(_) => check_new_file(path),
    }
}

/// The folder in which a name stands: `.` for a name alone.
#[must_use]
pub fn folder_of(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|it| !it.as_os_str().is_empty());
    folder.unwrap_or(Path::new(".")).to_owned()
}

/// True: a folder of the devtmpfs, or of what is in its place in a container. A file system that
/// is mounted below it, as `/dev/shm`, is another one.
fn is_for_devices(folder: &Path) -> io::Result<bool> {
    let device = fs::metadata(folder)?.dev();
    if folder.starts_with(DEVICES) && fs::metadata(DEVICES)?.dev() == device {
        return Ok(true);
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let number = DeviceNumber::of(device);
    Ok(mounts.lines().any(|line| is_devtmpfs(line, number)))
}

/// True: a line of `mountinfo` about a devtmpfs with this number.
fn is_devtmpfs(line: &str, number: DeviceNumber) -> bool {
    let mut fields = line.split(' ');
    let device = fields.nth(2).and_then(DeviceNumber::parse);
    let mut kind = fields.skip_while(|field| *field != "-").skip(1);
    device == Some(number) && kind.next() == Some("devtmpfs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devtmpfs_is_known_wherever_it_is_mounted() {
        let number = DeviceNumber::parse("0:6").unwrap();
        let line = "25 1 0:6 / /mnt/dev rw,nosuid shared:2 - devtmpfs dev rw,size=4k";
        assert!(is_devtmpfs(line, number));
        assert!(!is_devtmpfs(line, DeviceNumber::parse("0:7").unwrap()));
        assert!(!is_devtmpfs(&line.replace("devtmpfs", "tmpfs"), number));
        for odd in ["", "1 2 0:6", "1 2 0:6 / / rw -", "- - - - -"] {
            assert!(!is_devtmpfs(odd, number), "{odd:?}");
        }
    }

    #[test]
    fn new_files_belong_beside_no_device() {
        for name in ["/dev/sdx9", "/dev/../dev/lumpscope-none"] {
            let refused = check_new_file(Path::new(name)).unwrap_err().to_string();
            let words = format!("there is no device {name}");
            assert!(refused.contains(&words), "{refused}");
        }
        check_output(Path::new("/dev/sdx9")).unwrap_err();
        check_output(Path::new("/dev/null")).unwrap();
        let names = crate::sysfs::names_in(Path::new("/sys/class/block")).unwrap();
        let mut disks = names.iter().map(|name| Path::new(DEVICES).join(name));
        if let Some(disk) = disks.find(|disk| disk.exists()) {
            let refused = check_output(&disk).unwrap_err();
            assert!(
                matches!(refused, FormatError::BlockDevice { .. }),
                "{refused}"
            );
        }
        let folder = tempfile::tempdir().unwrap();
        check_output(&folder.path().join("new")).unwrap();
        check_new_file(&folder.path().join("new")).unwrap();
        check_new_file(&folder.path().join("none/new")).unwrap();
    }
}
