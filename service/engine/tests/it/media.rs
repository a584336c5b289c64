//! Places that lose what is put there: nothing is made in them unasked, and a store in one says so.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::disks::{Image, Mount, forced, plain, require, run, try_run};
use crate::support::{but, options};
use lumpscope_engine::Store;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_engine::guard::{FormatError, VolatileMedium};

const MIB: u64 = 1024 * 1024;

fn sized() -> CreateOptions<'static> {
    but(plain(), |it| it.capacity = Some(4 * MIB))
}

/// Refused, `--force` or not; made with `--volatile`; and the store says where it is.
fn assert_volatile(path: &Path, medium: VolatileMedium) {
    let existed = path.exists();
    for force in [false, true] {
        let options = CreateOptions { force, ..sized() };
        let error = format(path, &options).expect_err("it does not last");
        let FormatError::Volatile { medium: found, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!(*found, medium);
        assert!(error.to_string().contains("--volatile"), "{error}");
        assert_eq!(path.exists(), existed, "{}", path.display());
    }
    let options = but(sized(), |it| it.volatile = true);
    let made = format(path, &options).expect("asked for");
    assert_eq!(made.volatile, Some(medium));
    let store = Store::open(path, crate::support::options()).expect("it opens");
    assert_eq!(store.info().volatile, Some(medium));
    store.close().unwrap();
}

#[test]
fn a_misspelt_device_does_not_become_a_file_in_memory() {
    require!();
    for name in ["/dev/lumpscope-none", "/dev/./lumpscope-none"] {
        for options in [plain(), forced(), sized()] {
            let options = but(options, |it| it.volatile = true);
            let error = format(Path::new(name), &options).expect_err("there is none");
            let wanted = format!("there is no device {name}; lsblk lists them");
            assert_eq!(error.to_string(), wanted);
            assert!(!Path::new(name).exists());
        }
    }
    // What an earlier version has made there.
    let left = Path::new("/dev/lumpscope-left-behind");
    fs::write(left, [0; 4096]).unwrap();
    let error = format(left, &but(forced(), |it| it.volatile = true));
    let len = fs::metadata(left).unwrap().len();
    fs::remove_file(left).unwrap();
    let is_it = matches!(&error, Err(FormatError::NoDevice { .. }));
    assert!(is_it, "{error:?}");
    assert_eq!(len, 4096);
}

/// A mount of a file system without a device.
pub(crate) fn mount(kind: &str, options: &str, image: &Image) -> Mount {
    let at = image.mount_point();
    let words = ["-t", kind, "-o", options, "none"].map(OsStr::new);
    run("mount", &[&words[..], &[at.as_os_str()]].concat());
    Mount { at }
}

#[test]
fn memory_is_known_through_file_systems_and_devices() {
    require!("mount", "mkfs.ext4");
    let image = Image::new(MIB);
    let tmpfs = mount("tmpfs", "size=64m", &image);
    assert_volatile(&tmpfs.at.join("store.lusf"), VolatileMedium::Tmpfs);
    let inner = Image::new_in(&tmpfs.at, 32 * MIB);
    let device = inner.attach(&[]);
    assert_volatile(device.path(), VolatileMedium::Tmpfs);
    run("mkfs.ext4", &[Path::new("-qF"), device.path()]);
    let ext4 = Mount::new(device.path(), inner.mount_point());
    assert_volatile(&ext4.at.join("store.lusf"), VolatileMedium::Tmpfs);
    drop(ext4);
    // The file's name leads to another file system.
    let other = Image::new_in(&tmpfs.at, 32 * MIB);
    let device = other.attach(&[]);
    let _over = mount("ramfs", "mode=755", &image);
    let found = VolatileMedium::of_path(device.path());
    assert_eq!(found, Some(VolatileMedium::Tmpfs));
}

#[test]
fn memory_is_known_through_a_file_system_with_a_number_of_its_own() {
    require!("mount", "mkfs.btrfs");
    let image = Image::new(MIB);
    let tmpfs = mount("tmpfs", "size=256m", &image);
    // In memory as a whole, or one of two devices.
    for folder in [&tmpfs.at, image.path().parent().unwrap()] {
        let [first, second] = [folder, &tmpfs.at].map(|folder| Image::new_in(folder, 120 * MIB));
        let (one, two) = (first.attach(&[]), second.attach(&[]));
        run("mkfs.btrfs", &[Path::new("-q"), one.path(), two.path()]);
        let Some(btrfs) = Mount::btrfs(one.path(), first.mount_point()) else {
            return;
        };
        assert_volatile(&btrfs.at.join("store.lusf"), VolatileMedium::Tmpfs);
    }
}

#[test]
fn the_layer_of_a_container_is_known() {
    require!("mount");
    let image = Image::new(MIB);
    let beside = |name: &str| {
        let folder = image.path().with_extension(name);
        fs::create_dir(&folder).unwrap();
        folder.display().to_string()
    };
    let (lower, upper, work) = (beside("lower"), beside("upper"), beside("work"));
    let at = image.mount_point();
    let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
    let words = ["-t", "overlay", "-o", &layers, "none"].map(OsStr::new);
    if let Err(error) = try_run("mount", &[&words[..], &[at.as_os_str()]].concat()) {
        return lumpscope_needs::skipped(&format!("no overlay here: {error}"));
    }
    let overlay = Mount { at };
    assert_volatile(&overlay.at.join("store.lusf"), VolatileMedium::Overlay);
}

/// A disk in memory; removed on drop.
struct Zram(String);

impl Zram {
    /// `None`: the kernel has none.
    fn new(len: u64) -> Option<Self> {
        let number = fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let zram = Self(number.trim().to_owned());
        let size = format!("/sys/block/zram{}/disksize", zram.0);
        fs::write(size, len.to_string()).ok()?;
        Some(zram)
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = fs::write(format!("/sys/block/zram{}/reset", self.0), "1");
        let _ = fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

#[test]
fn a_disk_in_memory_is_known() {
    require!();
    let Some(zram) = Zram::new(64 * MIB) else {
        return lumpscope_needs::skipped("no zram here");
    };
    let path = PathBuf::from(format!("/dev/zram{}", zram.0));
    assert_volatile(&path, VolatileMedium::Zram);
}

#[test]
fn a_disk_is_not_memory() {
    require!("mkfs.ext4", "mount");
    let image = Image::new(64 * MIB);
    let device = image.attach(&[]);
    let made = format(device.path(), &plain()).expect("a disk");
    assert_eq!(made.volatile, None);
    let store = Store::open(device.path(), options()).unwrap();
    assert_eq!(store.info().volatile, None);
    store.close().unwrap();
    // One that is unmounted while in use is known by its number.
    run("mkfs.ext4", &[Path::new("-qF"), device.path()]);
    let ext4 = Mount::new(device.path(), image.mount_point());
    let inner = Image::new_in(&ext4.at, MIB);
    let upper = inner.attach(&[]);
    assert_eq!(VolatileMedium::of_path(upper.path()), None);
    run("umount", &[Path::new("--lazy"), &ext4.at]);
    std::mem::forget(ext4);
    assert_eq!(VolatileMedium::of_path(upper.path()), None);
}

/// Its files have a number that no mount has.
#[test]
fn a_file_on_btrfs_is_not_memory() {
    require!("mkfs.btrfs", "mount");
    let image = Image::made(256 * MIB, "mkfs.btrfs", "-q");
    let device = image.attach(&[]);
    let Some(btrfs) = Mount::btrfs(device.path(), image.mount_point()) else {
        return;
    };
    let inner = Image::new_in(&btrfs.at, MIB);
    let upper = inner.attach(&[]);
    assert_eq!(VolatileMedium::of_path(upper.path()), None);
    fs::remove_file(inner.path()).unwrap();
    assert_eq!(VolatileMedium::of_path(upper.path()), None);
}
