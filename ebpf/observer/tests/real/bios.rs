//! Disks that make no requests, and kernels that lack a tracepoint.

use std::path::{Path, PathBuf};
use std::process::Command;

use lumpscope_needs::skipped;
use lumpscope_observer::{Flavour, Op, Purpose, StoreReport, Tuning};

use crate::support::{
    LoopDevice, Watched, dd, forced, mount_tracefs, observer_of, owned, ready, sh, until_complete,
};

const MIB: u64 = 1 << 20;
const KIB: usize = 1 << 10;
const FLAVOURS: [Flavour; 3] = [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic];

/// A zram disk; gone when dropped. `None`: this kernel has no zram.
struct Zram(String);

impl Zram {
    fn new() -> Option<Zram> {
        let number = std::fs::read_to_string("/sys/class/zram-control/hot_add").ok()?;
        let zram = Zram(number.trim().to_owned());
        std::fs::write(format!("/sys/block/zram{}/disksize", zram.0), "64M").ok()?;
        Some(zram)
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.0))
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = std::fs::write("/sys/class/zram-control/hot_remove", &self.0);
    }
}

/// A disk of the device mapper, straight on a loop device; gone when dropped.
pub(crate) struct Mapped {
    name: String,
    below: LoopDevice,
}

impl Mapped {
    /// `None`: this kernel has no device mapper.
    pub(crate) fn new(bytes: u64) -> Option<Mapped> {
        let found = Command::new("dmsetup").arg("targets").output().ok()?;
        if !String::from_utf8_lossy(&found.stdout).contains("linear") {
            return None;
        }
        let below = LoopDevice::new(bytes);
        let name = format!("lumpscope-{}", std::process::id());
        let table = format!("0 {} linear {} 0", bytes / 512, below.path.display());
        let args = ["create", &name, "--noudevsync", "--table", &table];
        sh("dmsetup", &args);
        Some(Mapped { name, below })
    }

    /// The node that the kernel makes itself; the one by name is left to udev.
    pub(crate) fn path(&self) -> PathBuf {
        let args = ["info", "-c", "--noheadings", "-o", "minor", &self.name];
        PathBuf::from(format!("/dev/dm-{}", sh("dmsetup", &args).trim()))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let args = ["remove", "--noudevsync", &self.name];
        let _ = Command::new("dmsetup").args(args).status();
        let _ = &self.below;
    }
}

/// Known I/O; `flushes`: the disk has a cache that can be flushed.
fn known_io(path: &Path, tuning: Tuning) -> StoreReport {
    let it = Watched::new(path, tuning);
    assert_eq!(it.observer.store_status("it").expect("it").mode, "bio");
    it.request(1, "put", 64 << 10, || it.write(1, MIB, 64 * KIB));
    it.request(2, "put", 4 << 10, || it.write(2, 8 * MIB, 4 * KIB));
    it.request(3, "put", 4 << 10, || {
        it.write(3, 8 * MIB + 4096, 4 * KIB);
        it.io(&[3], Purpose::Flush, Op::Flush, 0, 0);
    });
    it.request(4, "get", 64 << 10, || {
        it.io(&[4], Purpose::Data, Op::Read, MIB, 64 * KIB)
    });
    it.report()
}

fn every_bio_is_attributed(path: &Path, flavour: Flavour) {
    let report = until_complete(|| known_io(path, forced(flavour)));
    eprintln!("{}: {}", report.device, report.audit.finding);
    assert_eq!(report.audit.seen_bytes, (64 + 4 + 4 + 64) << 10);
    assert_eq!(report.block.attributed_bytes, (64 + 4 + 4 + 64) << 10);
    assert_eq!(report.block.unattributed_bytes, 0, "{:?}", report.block);
    assert_eq!(owned(&report, "request", "write"), (3, 72 << 10));
    assert_eq!(owned(&report, "request", "read"), (1, 64 << 10));
    let at = |id: u64| {
        let found = report.slowest.iter().find(|s| s.request_id == id);
        let first = found.expect("among the slowest").blocks[0].clone();
        // It is queued and sent at once.
        assert_eq!(first.queue_ns, 0, "{first:?}");
        (first.sector, first.sectors, first.seek_bytes)
    };
    assert_eq!(at(1), (2048, 128, None));
    assert_eq!(at(2), (16384, 8, Some((7 << 20) - (64 << 10))));
    assert_eq!(at(3), (16392, 8, Some(0)));
    assert_eq!(at(4), (2048, 128, Some(-(7 << 20) - (8 << 10))));
    // Of a flush, too: whoever asked for it made it.
    for block in report.slowest.iter().flat_map(|told| &told.blocks) {
        assert!(!block.uncertain, "{block:?}");
    }
}

/// What a file system does: discards, flushes before data, FUA, reads and writes of all lengths.
fn every_kind_of_bio_is_counted(path: &Path, flavour: Flavour) {
    let report = until_complete(|| {
        let it = Watched::new(path, forced(flavour));
        it.request(1, "put", 4096, || it.write(1, MIB, 4 * KIB));
        let (device, dir) = (path.to_str().expect("UTF-8"), tempfile::tempdir());
        let dir = dir.expect("a folder");
        let at = dir.path().to_str().expect("UTF-8");
        sh("mkfs.ext4", &["-q", "-F", device]);
        sh("mount", &[device, at]);
        for name in ["a", "b", "c"] {
            dd(&format!(
                "if=/dev/zero of={at}/{name} bs=64K count=16 conv=fsync"
            ));
        }
        sh("umount", &[at]);
        it.report()
    });
    eprintln!("{}: {}", report.device, report.audit.finding);
    assert!(report.audit.seen_bytes > 3 * MIB, "{:?}", report.audit);
}

#[test]
fn what_a_driver_counts_its_own_way_makes_no_audit_incomplete() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in FLAVOURS {
        if let Some(mapped) = Mapped::new(64 * MIB) {
            every_kind_of_bio_is_counted(&mapped.path(), flavour);
        }
        if let Some(zram) = Zram::new() {
            every_kind_of_bio_is_counted(&zram.path(), flavour);
        }
        // Its driver counts nothing.
        if Path::new("/dev/ram0").exists() {
            every_kind_of_bio_is_counted(Path::new("/dev/ram0"), flavour);
        }
    }
}

#[test]
fn a_bio_disk_in_memory_is_observed() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in FLAVOURS {
        let Some(zram) = Zram::new() else {
            skipped("this kernel has no zram");
            return;
        };
        every_bio_is_attributed(&zram.path(), flavour);
    }
}

#[test]
fn a_bio_disk_of_the_device_mapper_is_observed() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in FLAVOURS {
        let Some(mapped) = Mapped::new(64 * MIB) else {
            skipped("this kernel has no device mapper");
            return;
        };
        every_bio_is_attributed(&mapped.path(), flavour);
    }
}

/// An NVMe disk to which several controllers may lead: it is given bios, and its paths make the requests.
#[test]
fn a_disk_with_paths_is_observed_on_them() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let disks = std::fs::read_dir("/sys/block")
        .expect("the disks")
        .flatten();
    let names = disks.filter_map(|disk| disk.file_name().into_string().ok());
    let makes_requests = |name: &str| Path::new(&format!("/sys/block/{name}/mq")).exists();
    let mut nvme = names.filter(|name| name.starts_with("nvme"));
    let Some(disk) = nvme.find(|name| !makes_requests(name)) else {
        skipped("there is no NVMe disk with several paths");
        return;
    };
    let disk = &Path::new("/dev").join(disk);
    for flavour in FLAVOURS {
        let report = until_complete(|| {
            let it = Watched::new(disk, forced(flavour));
            let status = it.observer.store_status("it").expect("it");
            assert_eq!(status.mode, flavour.name());
            for request in 1..=4 {
                it.request(request, "put", 64 << 10, || {
                    it.write(request, request * MIB, 64 * KIB);
                    it.io(&[request], Purpose::Flush, Op::Flush, 0, 0);
                });
            }
            let mut report = it.report();
            eprintln!("{flavour:?}: {}", report.audit.finding);
            report.audit.complete &= report.audit.found_late == 0;
            report
        });
        assert_eq!(owned(&report, "request", "write"), (4, 256 << 10));
    }
}

/// Both kinds of disks at once: none shows up in the other's numbers.
#[test]
fn a_bio_disk_and_the_disk_below_it_are_two() {
    let Some(_one) = ready() else { return };
    let Some(mapped) = Mapped::new(64 * MIB) else {
        skipped("this kernel has no device mapper");
        return;
    };
    let below = Watched::new(&mapped.below.path, Tuning::default());
    let above = Watched::added(&below.observer, &mapped.path(), "above");
    above.request(1, "put", 4096, || above.write(1, MIB, 4 * KIB));
    let (above, below) = (above.report(), below.report());
    assert_eq!(above.block.attributed_bytes, 4096, "{:?}", above.block);
    assert_eq!(above.audit.seen_requests, 1, "{:?}", above.audit);
    assert_eq!(below.audit.seen_requests, 1, "{:?}", below.audit);
    assert_eq!(below.block.attributed_bytes, 0, "{:?}", below.block);
}

#[test]
fn without_the_start_of_requests_the_rest_is_observed() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    for flavour in FLAVOURS {
        let report = until_complete(|| {
            let device = LoopDevice::new(64 * MIB);
            let tuning = Tuning {
                hidden_hooks: vec!["block_io_start".to_owned(), "block_getrq".to_owned()],
                ..forced(flavour)
            };
            let it = Watched::new(&device.path, tuning);
            let programs = it.observer.programs();
            let start = programs.iter().find(|p| p.name.starts_with("start"));
            let start = start.expect("it is listed");
            assert!(!start.attached, "{start:?}");
            let because = &start.not_attached_because;
            assert!(because.contains("no tracepoint"), "{start:?}");
            it.request(1, "put", 4096, || it.write(1, 8 * MIB, 4 * KIB));
            it.request(2, "put", 4096, || {
                it.write(2, MIB, 4 * KIB);
                it.io(&[2], Purpose::Flush, Op::Flush, 0, 0);
            });
            it.report()
        });
        let audit = &report.audit;
        assert!(audit.finding.contains("does not show when"), "{audit:?}");
        assert_eq!(report.block.attributed_bytes, 8192, "{:?}", report.block);
        let second = report.slowest.iter().find(|s| s.request_id == 2);
        let block = &second.expect("it").blocks[0];
        assert_eq!(block.seek_bytes, Some(-(7 << 20) - 4096), "{block:?}");
        assert_eq!((block.queue_ns, block.queued_at_ns), (0, None), "{block:?}");
    }
}

#[test]
fn without_what_is_needed_nothing_is_observed() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(MIB);
    let tuning = Tuning {
        hidden_hooks: vec!["block_rq_issue".to_owned()],
        ..Tuning::default()
    };
    let status = observer_of(&device.path, tuning).store_status("it");
    let status = status.expect("it");
    assert!(!status.observed, "{status:?}");
    let lacks = "no tracepoint block_rq_issue";
    assert!(status.why_not.contains(lacks), "{status:?}");
}
