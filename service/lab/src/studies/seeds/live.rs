//! Runs on the emulated drive itself, in real time.

use std::path::Path;

use lumpscope_platter::drive::{Drive, SECTOR};
use lumpscope_platter::live::LiveOptions;

use crate::disks::{EmulatedView, LabDrive, LabOptions};
use crate::experiment::report::{Findings, Spread};
use crate::experiment::text;
use crate::studies::predict::Rule;

/// Predicted and measured times that are no further apart agree.
const NEAR: f64 = 0.05;

/// Where the drive that is emulated comes from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Live<'a> {
    /// The program, a process of which becomes the disk.
    pub(super) exe: &'a Path,
    /// Name of the drive.
    pub(super) drive: &'a str,
    /// Supposed rule of the firmware.
    pub(super) rule: Rule,
}

impl Live<'_> {
    /// The lab with emulated disks that are the first sectors of the drive.
    pub(super) fn first_sectors(self, lab: LabOptions) -> LabOptions {
        let bytes = lab.disk_bytes;
        self.lab(lab, bytes, false)
    }

    /// The lab with emulated disks that are a small version of the drive.
    pub(super) fn scaled(self, lab: LabOptions, sectors: u64) -> LabOptions {
        self.lab(lab, sectors * SECTOR, true)
    }

    fn lab(self, lab: LabOptions, bytes: u64, whole_stroke: bool) -> LabOptions {
        let options = LiveOptions {
            bytes: Some(bytes.next_multiple_of(4096)),
            whole_stroke,
            policy: self.rule.policy(),
            ..LiveOptions::new(self.drive)
        };
        LabOptions {
            drive: Some(LabDrive {
                exe: self.exe.to_owned(),
                options,
            }),
            ..lab
        }
    }
}

/// Sectors of a drive scaled like its workload, which has room for `least` bytes. Whole blocks of
/// 4 KiB, as an emulated disk has them.
pub(super) fn scaled_sectors(drive: &Drive, scale: f64, least: u64) -> u64 {
    let wanted = crate::human::as_float(drive.sectors) * scale;
    let least = least.div_ceil(SECTOR);
    let sectors = crate::human::whole(wanted).max(least).next_multiple_of(8);
    sectors.min(drive.sectors / 8 * 8)
}

/// Says whether what was measured is what is predicted from its record.
pub(super) fn compared(
    (name, rule): (&str, Rule),
    over: Option<Spread>,
    runs: usize,
    findings: &mut Findings,
) {
    let Some(over) = over else { return };
    let line = format!(
        "{name}, {}: measured live over predicted from the record of the same run: {}.",
        rule.name(),
        text::spread(over)
    );
    findings.file(line, over.judged(runs, &(1.0 - NEAR..=1.0 + NEAR)));
}

/// How late the emulated disks were, for people: the worst of them.
pub(super) fn lateness<'a>(views: impl Iterator<Item = &'a EmulatedView>) -> Option<String> {
    EmulatedView::worst(views).map(|worst| format!("the latest of all runs, {worst}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::studies::predict::drive_named;

    #[test]
    fn a_scaled_drive_has_room_and_is_never_larger_than_the_drive() {
        let drive = drive_named(crate::studies::seeds::DRIVE).expect("it is there");
        let whole = drive.sectors / 8 * 8;
        assert_eq!(scaled_sectors(&drive, 1.0, 1 << 30), whole);
        assert_eq!(
            scaled_sectors(&drive, 0.5, 1 << 30),
            (whole / 2).next_multiple_of(8)
        );
        assert_eq!(scaled_sectors(&drive, 0.0001, 8 << 30), (8 << 30) / 512);
        let live = Live {
            exe: Path::new("/bin/lumpscope"),
            drive: crate::studies::seeds::DRIVE,
            rule: Rule::Overlap,
        };
        let lab = live.scaled(
            LabOptions::new(1 << 30),
            scaled_sectors(&drive, 0.05, 8 << 30),
        );
        let options = lab.drive.expect("it is emulated").options.checked();
        let options = options.expect("it can be made");
        let model = options.model().expect("it can be modelled");
        assert_eq!(model.policy(), Rule::Overlap.policy());
        assert_eq!(model.drive().sectors, options.bytes.expect("a size") / 512);
    }
}
