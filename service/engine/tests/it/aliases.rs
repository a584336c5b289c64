//! One set of bytes under several names: a file, loop devices over it, device mapper over these.
//! Whoever has it by one name keeps it from all others.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::disks::{Image, Mount, forced, refusal, require, run, try_run, user_of};
use crate::support::{but, options};
use lumpscope_engine::create::format;
use lumpscope_engine::guard::{FormatError, User};
use lumpscope_engine::{Error, Store};
use rustix::thread::CapabilitySet;

const MIB: u64 = 1024 * 1024;

fn open(path: &Path) -> Store {
    Store::open(path, options()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Refused for as long as `holder` is open, for serve and for format; afterwards it can be had.
fn assert_kept(image: &Image, holder: Store, other: &Path) {
    let refused = Store::open(other, options());
    assert!(matches!(&refused, Err(Error::InUse { .. })), "{refused:?}");
    let error = refusal(image, other, &forced());
    assert!(matches!(&error, FormatError::InUse { .. }), "{error}");
    holder.close().unwrap();
}

#[test]
fn two_loop_devices_on_one_file_are_not_both_served() {
    require!();
    let image = Image::new(16 * MIB);
    let (one, two) = (image.attach(&[]), image.attach(&[]));
    format(one.path(), &forced()).unwrap();
    assert_kept(&image, open(one.path()), two.path());
    assert_kept(&image, open(two.path()), one.path());
}

#[test]
fn a_file_and_a_loop_device_on_it_are_not_both_served() {
    require!();
    let image = Image::new(16 * MIB);
    format(&image.path(), &forced()).unwrap();
    let served = open(&image.path());
    let device = image.attach(&[]);
    assert_kept(&image, served, device.path());
    format(device.path(), &forced()).unwrap();
    assert_kept(&image, open(device.path()), &image.path());
}

#[test]
fn loop_devices_on_different_parts_of_a_file_are_both_served() {
    require!();
    let image = Image::new(32 * MIB);
    let (half, rest) = ((16 * MIB).to_string(), "--offset=16777216");
    let (one, two) = (image.attach(&["--sizelimit", &half]), image.attach(&[rest]));
    format(one.path(), &forced()).unwrap();
    format(two.path(), &forced()).unwrap();
    let (a, b) = (open(one.path()), open(two.path()));
    a.close().unwrap();
    b.close().unwrap();
}

#[test]
fn what_lies_under_device_mapper_is_kept_too() {
    require!("dmsetup");
    let image = Image::new(16 * MIB);
    let device = image.attach(&[]);
    let name = format!("lumpscope-alias-{}", std::process::id());
    let table = format!("0 32768 linear {} 0", device.path().display());
    let create = ["create", &name, "--noudevsync", "--table", &table];
    if let Err(error) = try_run("dmsetup", &create) {
        return lumpscope_needs::skipped(&format!("no device mapper: {error}"));
    }
    let mapped = Mapped(name);
    // The node that the kernel makes itself; the one by name is left to udev.
    let minor = ["info", "-c", "--noheadings", "-o", "minor", &mapped.0];
    let path = PathBuf::from(format!("/dev/dm-{}", run("dmsetup", &minor)));
    format(&path, &forced()).unwrap();
    let other = image.attach(&[]);
    assert_kept(&image, open(&path), other.path());
    assert_kept(&image, open(&path), &image.path());
}

/// A device of device mapper; removed on drop.
struct Mapped(String);

impl Drop for Mapped {
    fn drop(&mut self) {
        run("dmsetup", &["remove", "--noudevsync", "--retry", &self.0]);
    }
}

#[test]
fn the_file_of_a_mounted_loop_device_is_known_under_another_name() {
    require!("mkfs.ext4");
    let image = Image::made(32 * MIB, "mkfs.ext4", "-qF");
    let device = image.attach(&[]);
    let mount = Mount::new(device.path(), image.mount_point());
    let other = image.path().with_extension("other");
    std::fs::hard_link(image.path(), &other).unwrap();
    std::fs::remove_file(image.path()).unwrap();
    let error = format(&other, &forced()).expect_err("it is mounted");
    assert!(matches!(user_of(&error), User::Loop { .. }), "{error}");
    let find = ["--find", "--show"].map(Path::new);
    let second = run("losetup", &[&find[..], &[&other]].concat());
    let error = format(Path::new(&second), &forced());
    let served = Store::open(Path::new(&second), options());
    run("losetup", &["--detach", &second]);
    assert!(matches!(error, Err(FormatError::InUse { .. })), "{error:?}");
    assert!(matches!(served, Err(Error::InUse { .. })), "{served:?}");
    drop(mount);
    std::fs::rename(&other, image.path()).unwrap();
}

/// The kernel's list of locks has the file, whatever name it had for the loop device.
#[test]
fn a_loop_device_on_a_name_that_is_gone_is_kept_from_the_file() {
    require!();
    assert_kept_without_a_name(&Image::new(16 * MIB));
}

/// The loop device and the list of locks have different numbers for the file system.
#[test]
fn a_name_that_is_gone_on_a_file_system_with_a_number_of_its_own() {
    require!("mount", "mkfs.btrfs");
    let disk = Image::made(256 * MIB, "mkfs.btrfs", "-q");
    let device = disk.attach(&[]);
    let Some(btrfs) = Mount::btrfs(device.path(), disk.mount_point()) else {
        return;
    };
    assert_kept_without_a_name(&Image::new_in(&btrfs.at, 16 * MIB));
}

fn assert_kept_without_a_name(image: &Image) {
    format(&image.path(), &forced()).unwrap();
    let holder = open(&image.path());
    let other = image.path().with_extension("other");
    std::fs::hard_link(image.path(), &other).unwrap();
    let find = ["--find", "--show"].map(Path::new);
    let second = run("losetup", &[&find[..], &[&other]].concat());
    std::fs::remove_file(&other).unwrap();
    let served = Store::open(Path::new(&second), options());
    let error = format(Path::new(&second), &forced());
    run("losetup", &["--detach", &second]);
    assert!(matches!(served, Err(Error::InUse { .. })), "{served:?}");
    assert!(matches!(error, Err(FormatError::InUse { .. })), "{error:?}");
    holder.close().unwrap();
}

#[test]
fn a_loop_device_on_a_node_that_is_gone_is_kept_from_the_device() {
    require!("mknod");
    let image = Image::new(16 * MIB);
    let device = image.attach(&[]);
    format(device.path(), &forced()).unwrap();
    let holder = open(device.path());
    let number = std::fs::metadata(device.path()).unwrap().rdev();
    let node = image.path().with_extension("node");
    let numbers = [rustix::fs::major(number), rustix::fs::minor(number)].map(|it| it.to_string());
    let node_words = [node.to_str().unwrap(), "b", &numbers[0], &numbers[1]];
    run("mknod", &node_words);
    let find = ["--find", "--show"].map(Path::new);
    let second = run("losetup", &[&find[..], &[&node]].concat());
    std::fs::remove_file(&node).unwrap();
    let served = Store::open(Path::new(&second), options());
    run("losetup", &["--detach", &second]);
    assert!(matches!(served, Err(Error::InUse { .. })), "{served:?}");
    holder.close().unwrap();
}

/// The service may use the device, and not the file of another user.
#[test]
fn a_loop_device_on_a_file_that_may_not_be_opened_is_kept_from_it() {
    require!();
    let image = Image::new(16 * MIB);
    format(&image.path(), &forced()).unwrap();
    let holder = open(&image.path());
    let device = image.attach(&[]);
    std::fs::set_permissions(image.path(), Permissions::from_mode(0o000)).unwrap();
    let served = std::thread::scope(|scope| {
        let service = scope.spawn(|| {
            let mut own = rustix::thread::capabilities(None).unwrap();
            let all_files = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            own.effective.remove(all_files);
            rustix::thread::set_capabilities(None, own).unwrap();
            std::fs::File::open(image.path()).expect_err("not its own");
            Store::open(device.path(), options())
        });
        service.join().unwrap()
    });
    assert!(matches!(served, Err(Error::InUse { .. })), "{served:?}");
    holder.close().unwrap();
}

/// The name leads to a file of ours when it is looked at, and to one in use when it is opened.
#[test]
fn a_name_that_changes_its_meaning_does_not_get_another_file_formatted() {
    require!();
    let (ours, theirs) = (Image::new(MIB), Image::new(16 * MIB));
    let device = theirs.attach(&[]);
    let before = theirs.hash();
    let name = ours.path().with_extension("name");
    let (to_ours, to_theirs) = (name.with_extension("a"), name.with_extension("b"));
    std::os::unix::fs::symlink(ours.path(), &name).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for (link, file) in [(&to_theirs, theirs.path()), (&to_ours, ours.path())] {
                    std::os::unix::fs::symlink(file, link).unwrap();
                    std::fs::rename(link, &name).unwrap();
                }
            }
        });
        let small = but(forced(), |it| it.capacity = Some(MIB));
        for _ in 0..150 {
            // Either file may be found, and only one may be formatted.
            let _ = format(&name, &small);
        }
        stop.store(true, Ordering::Relaxed);
    });
    let device = device.path().display();
    assert_eq!(theirs.hash(), before, "the file under {device} was changed");
}
