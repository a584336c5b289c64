//! SCSI completes a failed request in parts: what could be read, and the failure.

use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use lumpscope_needs::skipped;
use lumpscope_observer::{Flavour, Op, Purpose};

use crate::support::{Aligned, Watched, forced, mount_tracefs, owned, ready, until_complete};

const DRIVER: &str = "/sys/bus/pseudo/drivers/scsi_debug";
/// The first of ten sectors that the kernel's SCSI disk for tests cannot read, once it is told so.
const BAD: u64 = 0x1234;
/// Its option for that.
const MEDIUM_ERRORS: &str = "2";

/// `None`: this kernel has no such disk.
fn disk() -> Option<PathBuf> {
    std::fs::write(format!("{DRIVER}/opts"), MEDIUM_ERRORS).ok()?;
    let model = |name: &str| std::fs::read_to_string(format!("/sys/block/{name}/device/model"));
    let disks = std::fs::read_dir("/sys/block").ok()?.flatten();
    let mut names = disks.filter_map(|disk| disk.file_name().into_string().ok());
    let name = names.find(|name| model(name).is_ok_and(|model| model.trim() == "scsi_debug"))?;
    Some(PathBuf::from(format!("/dev/{name}")))
}

#[test]
fn a_failed_read_is_one_request() {
    let Some(_one) = ready() else { return };
    mount_tracefs();
    let Some(disk) = disk() else {
        skipped("this kernel has no SCSI disk for tests (modprobe scsi_debug)");
        return;
    };
    for flavour in [Flavour::TpBtf, Flavour::RawTp, Flavour::Classic] {
        let report = until_complete(|| {
            let it = Watched::new(&disk, forced(flavour));
            it.write(1, 0, 4096);
            // Nothing can be read of the one; of the other what is before the bad sector.
            for first in [BAD, BAD - 12] {
                let at = (first * 512, 8192);
                it.declared(&[2], Purpose::Data, Op::Read, at, |_| {
                    let read = it.file.read_at(Aligned::new(at.1).get(), at.0);
                    let error = read.expect_err("it is bad").raw_os_error();
                    assert_eq!(error, Some(libc::ENODATA));
                });
            }
            it.io(&[3], Purpose::Data, Op::Read, 0, 4096);
            let report = it.report();
            eprintln!("{flavour:?}: {}", report.audit.finding);
            report
        });
        assert_eq!(report.audit.failed, 2, "{:?}", report.audit);
        assert_eq!(owned(&report, "request", "read"), (3, 8192 * 2 + 4096));
        assert_eq!(report.audit.seen_requests, 4, "{:?}", report.audit);
    }
}
