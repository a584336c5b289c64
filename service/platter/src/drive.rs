//! Drives: what a disk is made of, and where each number comes from.

mod error;
mod named;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use error::DriveError;
pub use named::DRIVES;

/// Bytes of a sector, the unit of all addresses.
pub const SECTOR: u64 = 512;

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;

/// Parameters, the last of a data sheet, that only drives of overlapping tracks have.
const SHINGLED: usize = 3;

/// Where a number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The maker's manual or data sheet of this drive.
    Manual,
    /// The maker's manual of a sibling of this drive.
    Sibling,
    /// Measured on such a drive by those who published benchmark tables.
    Tables,
    /// Follows from other numbers.
    Derived,
    /// Nothing better is known.
    Guess,
}

/// A parameter's source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cited {
    /// Name of the field of [`Drive`].
    pub parameter: Cow<'static, str>,
    /// Kind of source.
    pub source: Source,
    /// Which one, or why this guess.
    pub note: Cow<'static, str>,
}

/// One line of a drive's data sheet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Name of the field of [`Drive`].
    pub name: String,
    /// Value with its unit.
    pub value: String,
    /// Kind of source.
    pub source: Source,
    /// Which one, or why this guess.
    pub note: String,
}

/// A drive: plain data, which [`Disk::new`](crate::disk::Disk::new) checks. The defaults are those
/// of [`DRIVES`]; any field may be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drive {
    /// Short name, by which [`by_name`] finds it.
    pub name: Cow<'static, str>,
    /// Description for people.
    pub title: Cow<'static, str>,
    /// Capacity in sectors of 512 bytes; at most 2^42.
    pub sectors: u64,
    /// Bytes that the drive writes at once: 512, or 4096 for one that emulates sectors of 512.
    pub physical_bytes: u32,
    /// Revolutions a minute; 60 to 100,000.
    pub rpm: u32,
    /// Surfaces with a head; 1 to 64.
    pub heads: u32,
    /// Arms that move by themselves, each with an equal part of the heads, of the sectors in their
    /// order and of the cache; 1 to 8.
    #[serde(default = "one")]
    pub actuators: u32,
    /// Zones; the sectors of a track fall linearly from the first to the last. 1 to 1024.
    pub zones: u32,
    /// Sustained rate of the outermost zone in bytes a second, switches of head and cylinder
    /// included.
    pub outer_rate: u64,
    /// Rate of the innermost zone in bytes a second; not more than `outer_rate`.
    pub inner_rate: u64,
    /// Seek to the next cylinder, for reading, settled.
    pub track_to_track_ns: u64,
    /// Mean seek for reading over all pairs of cylinders.
    pub average_seek_ns: u64,
    /// Seek over all cylinders for reading; `None`: follows from the two above.
    pub full_stroke_ns: Option<u64>,
    /// Additional time of a seek of more than one cylinder before a write, in nanoseconds.
    pub write_settle_ns: u64,
    /// From one head to another on the same cylinder.
    pub head_switch_ns: u64,
    /// How far the first sector of a track lies behind that of the track before, as time; not
    /// less than the head switch.
    pub track_skew_ns: u64,
    /// Skew from the last track of a cylinder to the first of the next, in nanoseconds; not less
    /// than `track_to_track_ns`.
    pub cylinder_skew_ns: u64,
    /// Electronics, for each command.
    pub overhead_ns: u64,
    /// Rate of the interface in bytes a second.
    pub bus_rate: u64,
    /// Memory for writes that are not on the platters yet, in bytes; at least 1 MiB.
    pub cache_bytes: u64,
    /// Dirty bytes at which writing to the platters begins, until the cache is empty.
    pub destage_at_bytes: u64,
    /// Bytes in a row that are written before a read gets its turn.
    pub destage_run_bytes: u64,
    /// A drive without commands for so long begins to write what is dirty.
    pub destage_idle_ns: u64,
    /// Bytes read ahead behind a read.
    pub read_ahead_bytes: u64,
    /// Stretches of what was read that are remembered.
    pub read_segments: u32,
    /// Bytes of a band of tracks that overlap like shingles, and can only be written in their order;
    /// 0: tracks do not overlap.
    #[serde(default)]
    pub band_bytes: u64,
    /// Bytes of the log, outside of all bands, for what cannot be written to its place.
    #[serde(default)]
    pub media_cache_bytes: u64,
    /// A drive without commands for so long begins to clean bands.
    #[serde(default)]
    pub clean_idle_ns: u64,
    /// Where each of these comes from.
    pub sources: Cow<'static, [Cited]>,
}

/// The drive of this name, in upper or lower case.
#[must_use]
pub fn by_name(name: &str) -> Option<Drive> {
    let found = DRIVES
        .iter()
        .find(|drive| drive.name.eq_ignore_ascii_case(name));
    found.cloned()
}

/// Actuators of a drive that says nothing of them.
fn one() -> u32 {
    1
}

impl Drive {
    /// First address and sectors of the log of a drive of overlapping tracks.
    pub(crate) fn log(&self) -> (u64, u64) {
        let unit = self.physical_sectors();
        let sectors = match self.band_bytes {
            0 => 0,
            _ => self.media_cache_bytes / SECTOR / unit * unit,
        };
        (self.sectors.next_multiple_of(unit), sectors)
    }

    /// The part of each actuator as a drive of its own: all but the last have equally many sectors. A
    /// drive too small to be divided is one.
    pub(crate) fn by_actuator(&self) -> Vec<Drive> {
        let unit = self.physical_sectors().max(8);
        let count = u64::from(self.actuators.max(1));
        let each = self.sectors / count / unit * unit;
        if count == 1 || each == 0 {
            return vec![self.clone()];
        }
        let parts = (1..=count).map(|number| Drive {
            sectors: match number == count {
                true => self.sectors - each * (count - 1),
                false => each,
            },
            heads: self.heads / self.actuators,
            actuators: 1,
            cache_bytes: (self.cache_bytes / count).max(1 << 20),
            destage_at_bytes: (self.destage_at_bytes / count).max(1),
            ..self.clone()
        });
        parts.collect()
    }

    /// These mechanics with another capacity: fewer or more cylinders of equal tracks, which the
    /// arm crosses in the same time.
    #[must_use]
    pub fn resized(&self, sectors: u64) -> Drive {
        Drive {
            sectors,
            ..self.clone()
        }
    }

    /// Capacity in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.sectors.saturating_mul(SECTOR)
    }

    /// Nanoseconds of one revolution.
    #[must_use]
    pub fn revolution_ns(&self) -> u64 {
        60_000_000_000 / u64::from(self.rpm.max(1))
    }

    /// Sectors that are written at once.
    #[must_use]
    pub fn physical_sectors(&self) -> u64 {
        (u64::from(self.physical_bytes) / SECTOR).max(1)
    }

    /// The data sheet: every parameter with its source.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let ms = |ns: u64| format!("{} ms", Millis(ns));
        let rate = |bytes: u64| format!("{} MB/s", bytes / 1_000_000);
        let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
        let full = self.full_stroke_ns.map_or("from the curve".to_owned(), ms);
        let lines = [
            ("sectors", self.sectors.to_string()),
            ("physical_bytes", format!("{} B", self.physical_bytes)),
            ("rpm", self.rpm.to_string()),
            ("heads", self.heads.to_string()),
            ("actuators", self.actuators.to_string()),
            ("zones", self.zones.to_string()),
            ("outer_rate", rate(self.outer_rate)),
            ("inner_rate", rate(self.inner_rate)),
            ("track_to_track_ns", ms(self.track_to_track_ns)),
            ("average_seek_ns", ms(self.average_seek_ns)),
            ("full_stroke_ns", full),
            ("write_settle_ns", ms(self.write_settle_ns)),
            ("head_switch_ns", ms(self.head_switch_ns)),
            ("track_skew_ns", ms(self.track_skew_ns)),
            ("cylinder_skew_ns", ms(self.cylinder_skew_ns)),
            ("overhead_ns", ms(self.overhead_ns)),
            ("bus_rate", rate(self.bus_rate)),
            ("cache_bytes", mib(self.cache_bytes)),
            ("destage_at_bytes", mib(self.destage_at_bytes)),
            ("destage_run_bytes", mib(self.destage_run_bytes)),
            ("destage_idle_ns", ms(self.destage_idle_ns)),
            ("read_ahead_bytes", mib(self.read_ahead_bytes)),
            ("read_segments", self.read_segments.to_string()),
            ("band_bytes", mib(self.band_bytes)),
            ("media_cache_bytes", mib(self.media_cache_bytes)),
            ("clean_idle_ns", ms(self.clean_idle_ns)),
        ];
        // What a drive whose tracks do not overlap has no use for.
        let shown = if self.band_bytes > 0 {
            lines.len()
        } else {
            lines.len() - SHINGLED
        };
        let cite = |(name, value): (&str, String)| {
            let cited = self.sources.iter().find(|cited| cited.parameter == name);
            Parameter {
                name: name.to_owned(),
                value,
                source: cited.map_or(Source::Guess, |cited| cited.source),
                note: cited.map_or(String::new(), |cited| cited.note.to_string()),
            }
        };
        lines.into_iter().take(shown).map(cite).collect()
    }
}

/// Milliseconds without needless zeros.
struct Millis(u64);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, rest) = (self.0 / MS, self.0 % MS);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = format!("{rest:06}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parameter_of_every_drive_says_where_it_comes_from() {
        for drive in DRIVES {
            let parameters = drive.parameters();
            for parameter in &parameters {
                assert!(
                    !parameter.note.is_empty(),
                    "{}: {} has no source",
                    drive.name,
                    parameter.name
                );
            }
            for cited in drive.sources.iter() {
                let known = parameters.iter().any(|one| one.name == cited.parameter);
                assert!(known, "{}: no parameter {}", drive.name, cited.parameter);
            }
            // Name, title and sources are no parameters.
            let fields = serde_json::to_value(drive).unwrap();
            let hidden = if drive.band_bytes > 0 { 0 } else { SHINGLED };
            let fields = fields.as_object().unwrap().len();
            assert_eq!(fields, parameters.len() + hidden + 3);
        }
    }

    #[test]
    fn drives_are_found_by_name_and_survive_json() {
        for drive in DRIVES {
            let found = by_name(&drive.name.to_uppercase()).unwrap();
            assert_eq!(found, *drive);
            let json = serde_json::to_string(drive).unwrap();
            assert_eq!(serde_json::from_str::<Drive>(&json).unwrap(), found);
        }
        assert_eq!(by_name("st1000dm00"), None);
    }

    #[test]
    fn milliseconds_are_short() {
        let shown = [8_500_000, 100_000, 0, 1_000_001].map(|ns| Millis(ns).to_string());
        assert_eq!(shown, ["8.5", "0.1", "0", "1.000001"]);
    }
}
