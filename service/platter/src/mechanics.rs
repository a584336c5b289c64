//! Arm, heads and platters: where a sector is, and when a head can be there.
//!
//! Cylinders are numbered from the outside. Sectors fill the tracks of a cylinder, head by head,
//! then the next cylinder. Time is virtual, in nanoseconds; the platters stand at angle 0 at time
//! 0, and every angle is written as the time in which they turn by it.

mod seek;

use crate::drive::{Drive, DriveError, SECTOR};

use seek::SeekCurve;

/// Cylinders that a drive may have: more is a drive whose parameters are wrong.
const MOST_CYLINDERS: u64 = 1 << 32;

/// Cylinders with the same number of sectors on each track.
#[derive(Debug, Clone)]
struct Zone {
    first_sector: u64,
    first_cylinder: u64,
    /// Sectors of a track; whole physical sectors.
    per_track: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Track {
    pub(crate) cylinder: u64,
    pub(crate) head: u64,
}

/// Where a sector is.
#[derive(Debug, Clone, Copy)]
struct Place {
    track: Track,
    /// Number of the sector on its track.
    slot: u64,
    per_track: u64,
}

/// Time until a sector passes under its head.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Approach {
    pub(crate) seek_ns: u64,
    pub(crate) rotation_ns: u64,
    pub(crate) cylinders: u64,
}

impl Approach {
    pub(crate) fn total_ns(self) -> u64 {
        self.seek_ns + self.rotation_ns
    }

    pub(crate) fn add(&mut self, other: Approach) {
        self.seek_ns += other.seek_ns;
        self.rotation_ns += other.rotation_ns;
        self.cylinders += other.cylinders;
    }
}

/// Sectors that passed under the heads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pass {
    pub(crate) sectors: u64,
    pub(crate) end_ns: u64,
    pub(crate) track: Track,
}

/// The mechanics of a drive; they do not change.
#[derive(Debug, Clone)]
pub(crate) struct Mechanics {
    revolution_ns: u64,
    heads: u64,
    cylinders: u64,
    zones: Vec<Zone>,
    /// Sectors of the log of a drive of overlapping tracks, which are the outermost.
    log: u64,
    /// Their first address: behind all others.
    first_of_log: u64,
    seek: SeekCurve,
    head_switch_ns: u64,
    track_skew_ns: u64,
    cylinder_skew_ns: u64,
    write_settle_ns: u64,
}

impl Mechanics {
    /// # Errors
    /// A parameter is out of range or contradicts another.
    pub(crate) fn new(drive: &Drive) -> Result<Mechanics, DriveError> {
        check(drive)?;
        let heads = u64::from(drive.heads);
        let revolution_ns = drive.revolution_ns();
        let (first_of_log, log) = drive.log();
        let whole = drive.resized(drive.sectors + log);
        let (zones, cylinders) = zones(&whole, revolution_ns)?;
        Ok(Mechanics {
            revolution_ns,
            heads,
            cylinders,
            zones,
            log,
            first_of_log,
            seek: SeekCurve::new(drive, cylinders)?,
            head_switch_ns: drive.head_switch_ns,
            track_skew_ns: drive.track_skew_ns,
            cylinder_skew_ns: drive.cylinder_skew_ns,
            write_settle_ns: drive.write_settle_ns,
        })
    }

    pub(crate) fn cylinders(&self) -> u64 {
        self.cylinders
    }

    pub(crate) fn revolution_ns(&self) -> u64 {
        self.revolution_ns
    }

    pub(crate) fn track_of(&self, sector: u64) -> Track {
        self.place(sector).track
    }

    /// Seek over so many cylinders, for reading.
    pub(crate) fn seek_ns(&self, cylinders: u64) -> u64 {
        self.seek.ns(cylinders)
    }

    fn place(&self, sector: u64) -> Place {
        let sector = match self.log {
            0 => sector,
            _ if sector >= self.first_of_log => sector - self.first_of_log,
            log => sector + log,
        };
        let after = self
            .zones
            .partition_point(|zone| zone.first_sector <= sector);
        let zone = &self.zones[after.saturating_sub(1)];
        let within = sector - zone.first_sector;
        let track = within / zone.per_track;
        Place {
            track: Track {
                cylinder: zone.first_cylinder + track / self.heads,
                head: track % self.heads,
            },
            slot: within % zone.per_track,
            per_track: zone.per_track,
        }
    }

    /// How long after the track's first sector another one begins.
    fn slot_ns(&self, slot: u64, per_track: u64) -> u64 {
        slot * self.revolution_ns / per_track
    }

    /// Angle at which a sector begins: its place on the track, and the skews of all tracks before.
    fn angle_ns(&self, place: &Place) -> u64 {
        let Track { cylinder, head } = place.track;
        let of_cylinder = (self.heads - 1) * self.track_skew_ns + self.cylinder_skew_ns;
        let skew = cylinder * (of_cylinder % self.revolution_ns) + head * self.track_skew_ns;
        (skew + self.slot_ns(place.slot, place.per_track)) % self.revolution_ns
    }

    /// From `at_ns` until the platters stand at this angle.
    fn turn_ns(&self, at_ns: u64, angle_ns: u64) -> u64 {
        (angle_ns + self.revolution_ns - at_ns % self.revolution_ns) % self.revolution_ns
    }

    fn move_ns(&self, from: Track, to: Track, write: bool) -> u64 {
        match from.cylinder.abs_diff(to.cylinder) {
            0 if from.head == to.head => 0,
            0 => self.head_switch_ns,
            1 => self.seek.ns(1),
            far if write => self.seek.ns(far) + self.write_settle_ns,
            far => self.seek.ns(far),
        }
    }

    /// From `head` at `at_ns` until `sector` begins to pass under its head.
    pub(crate) fn approach(&self, head: Track, at_ns: u64, sector: u64, write: bool) -> Approach {
        let place = self.place(sector);
        let seek_ns = self.move_ns(head, place.track, write);
        Approach {
            seek_ns,
            rotation_ns: self.turn_ns(at_ns + seek_ns, self.angle_ns(&place)),
            cylinders: head.cylinder.abs_diff(place.track.cylinder),
        }
    }

    /// Lets `sectors` from `first` on pass, the first of which begins to at `at_ns`; not those that
    /// would end after `until_ns`.
    pub(crate) fn pass(&self, first: u64, sectors: u64, at_ns: u64, until_ns: u64) -> Pass {
        let mut place = self.place(first);
        let (mut done, mut now_ns) = (0, at_ns);
        loop {
            let begun_ns = self.slot_ns(place.slot, place.per_track);
            let mut count = (sectors - done).min(place.per_track - place.slot);
            let mut took_ns = self.slot_ns(place.slot + count, place.per_track) - begun_ns;
            let room_ns = until_ns.saturating_sub(now_ns);
            let short = took_ns > room_ns;
            if short {
                let slot = (begun_ns + room_ns) * place.per_track / self.revolution_ns;
                count = slot.saturating_sub(place.slot).min(count);
                took_ns = self.slot_ns(place.slot + count, place.per_track) - begun_ns;
            }
            done += count;
            now_ns += took_ns;
            if short || done == sectors {
                return Pass {
                    sectors: done,
                    end_ns: now_ns,
                    track: place.track,
                };
            }
            let next = self.place(first + done);
            let there_ns = now_ns + self.move_ns(place.track, next.track, false);
            let begins_ns = there_ns + self.turn_ns(there_ns, self.angle_ns(&next));
            if begins_ns > until_ns {
                return Pass {
                    sectors: done,
                    end_ns: now_ns,
                    track: place.track,
                };
            }
            now_ns = begins_ns;
            place = next;
        }
    }
}

/// Zones from the outside, and the number of all cylinders: as many as the capacity takes.
fn zones(drive: &Drive, revolution_ns: u64) -> Result<(Vec<Zone>, u64), DriveError> {
    let heads = u64::from(drive.heads);
    let count = u64::from(drive.zones);
    let skew_ns = ((heads - 1) * drive.track_skew_ns + drive.cylinder_skew_ns) / heads;
    let physical = drive.physical_sectors();
    // A track passes in a revolution and the skew to the next.
    let on_track = |rate: u64| {
        let bytes = u128::from(rate) * u128::from(revolution_ns + skew_ns) / 1_000_000_000;
        let units = u64::try_from(bytes).unwrap_or(u64::MAX) / (SECTOR * physical);
        units.max(1) * physical
    };
    let rate_of = |zone: u64| {
        let falls = drive.outer_rate - drive.inner_rate;
        drive.outer_rate - falls * zone / count.saturating_sub(1).max(1)
    };
    let tracks: Vec<u64> = (0..count).map(|zone| on_track(rate_of(zone))).collect();
    let per_cylinder: u64 = tracks.iter().sum::<u64>() * heads;
    // All zones have the same number of cylinders; the last one takes what rounding leaves.
    let each = (drive.sectors / per_cylinder).max(1);
    let (mut sector, mut cylinder) = (0, 0);
    let mut zones = Vec::new();
    for (number, per_track) in (1..).zip(tracks) {
        zones.push(Zone {
            first_sector: sector,
            first_cylinder: cylinder,
            per_track,
        });
        let left = drive.sectors.saturating_sub(sector);
        let rest = left.div_ceil(per_track * heads).max(1);
        let cylinders = if number == count {
            rest
        } else {
            each.min(rest)
        };
        sector += cylinders * per_track * heads;
        cylinder += cylinders;
    }
    within(drive, "cylinders", cylinder, 1, MOST_CYLINDERS)?;
    Ok((zones, cylinder))
}

fn within(
    drive: &Drive,
    parameter: &'static str,
    value: u64,
    least: u64,
    most: u64,
) -> Result<(), DriveError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(DriveError::Range {
        drive: drive.name.to_string(),
        parameter,
        value,
        least,
        most,
    })
}

/// Bounds within which no product or sum of the model leaves 64 bits.
pub(crate) fn check(drive: &Drive) -> Result<(), DriveError> {
    const SECOND: u64 = 1_000_000_000;
    const MOST_RATE: u64 = 100 * SECOND;
    let ranges = [
        ("sectors", drive.sectors, 8, 1 << 42),
        ("rpm", u64::from(drive.rpm), 60, 100_000),
        ("heads", u64::from(drive.heads), 1, 64),
        ("actuators", u64::from(drive.actuators), 1, 8),
        ("zones", u64::from(drive.zones), 1, 1024),
        ("outer_rate", drive.outer_rate, 100_000, MOST_RATE),
        ("inner_rate", drive.inner_rate, 100_000, drive.outer_rate),
        ("track_to_track_ns", drive.track_to_track_ns, 1, SECOND),
        ("average_seek_ns", drive.average_seek_ns, 1, SECOND),
        (
            "full_stroke_ns",
            drive.full_stroke_ns.unwrap_or(1),
            1,
            SECOND,
        ),
        ("write_settle_ns", drive.write_settle_ns, 0, SECOND),
        ("head_switch_ns", drive.head_switch_ns, 0, SECOND),
        ("track_skew_ns", drive.track_skew_ns, 0, SECOND),
        ("cylinder_skew_ns", drive.cylinder_skew_ns, 0, SECOND),
        ("overhead_ns", drive.overhead_ns, 0, SECOND),
        ("bus_rate", drive.bus_rate, 100_000, MOST_RATE),
        ("cache_bytes", drive.cache_bytes, 1 << 20, 1 << 40),
        (
            "destage_at_bytes",
            drive.destage_at_bytes,
            1,
            drive.cache_bytes,
        ),
        (
            "destage_run_bytes",
            drive.destage_run_bytes,
            1 << 12,
            1 << 40,
        ),
        ("destage_idle_ns", drive.destage_idle_ns, 0, 1 << 50),
        ("read_ahead_bytes", drive.read_ahead_bytes, 0, 1 << 40),
        ("read_segments", u64::from(drive.read_segments), 0, 4096),
        ("band_bytes", drive.band_bytes, 0, 1 << 40),
        ("media_cache_bytes", drive.media_cache_bytes, 0, 1 << 42),
        ("clean_idle_ns", drive.clean_idle_ns, 0, 1 << 50),
    ];
    for (parameter, value, least, most) in ranges {
        within(drive, parameter, value, least, most)?;
    }
    check_together(drive)
}

/// Parameters that contradict each other.
fn check_together(drive: &Drive) -> Result<(), DriveError> {
    let wrong = |why| {
        Err(DriveError::Contradiction {
            drive: drive.name.to_string(),
            why,
        })
    };
    let physical = drive.physical_bytes;
    if !physical.is_power_of_two() || !(512..=65_536).contains(&physical) {
        return wrong("physical_bytes must be a power of two from 512 to 65536");
    }
    if drive.band_bytes > 0
        && (drive.band_bytes < 1 << 20 || drive.media_cache_bytes < drive.band_bytes)
    {
        return wrong(
            "band_bytes must be a MiB or more, and media_cache_bytes not less than they are",
        );
    }
    if !drive.heads.is_multiple_of(drive.actuators) {
        return wrong("heads must be a multiple of actuators");
    }
    if drive.track_skew_ns < drive.head_switch_ns {
        return wrong("track_skew_ns is less than head_switch_ns: every track would lose a turn");
    }
    if drive.cylinder_skew_ns < drive.track_to_track_ns {
        return wrong(
            "cylinder_skew_ns is less than track_to_track_ns: every cylinder would lose a turn",
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{DRIVES, by_name};

    #[test]
    fn every_sector_has_a_place_of_its_own() {
        let drive = by_name("st1000dm003").unwrap().resized(2_000_000);
        let mechanics = Mechanics::new(&drive).unwrap();
        let mut last: Option<(Track, u64)> = None;
        for sector in 0..drive.sectors {
            let place = mechanics.place(sector);
            if let Some((track, slot)) = last {
                let follows = if track == place.track {
                    slot + 1 == place.slot
                } else if track.cylinder == place.track.cylinder {
                    place.slot == 0 && place.track.head == track.head + 1
                } else {
                    place.slot == 0
                        && place.track.head == 0
                        && place.track.cylinder == track.cylinder + 1
                };
                assert!(follows, "sector {sector} at {place:?} after {last:?}");
            }
            last = Some((place.track, place.slot));
        }
        assert!(last.unwrap().0.cylinder < mechanics.cylinders);
    }

    #[test]
    fn drives_are_as_dense_as_their_manuals_say() {
        // Constellation ES.3: 320,800 tracks a surface; the model has 6 % more.
        let manual = Mechanics::new(&by_name("st4000nm0023").unwrap()).unwrap();
        assert!(
            (300_000..345_000).contains(&manual.cylinders),
            "{}",
            manual.cylinders
        );
        let barracuda = Mechanics::new(&by_name("st1000dm003").unwrap()).unwrap();
        assert!(
            (345_000..355_000).contains(&barracuda.cylinders),
            "{}",
            barracuda.cylinders
        );
    }

    #[test]
    fn a_pass_can_stop_and_go_on_without_losing_a_nanosecond() {
        for drive in DRIVES {
            let mechanics = Mechanics::new(drive).unwrap();
            for first in [0, 12_345, drive.sectors - 100_000] {
                let whole = mechanics.pass(first, 50_000, 1_000_000, u64::MAX);
                assert_eq!(whole.sectors, 50_000);
                let mut at_ns = 1_000_000;
                let (mut done, mut steps) = (0, 0);
                while done < 50_000 {
                    let part = mechanics.pass(first + done, 50_000 - done, at_ns, at_ns + 700_000);
                    assert!(part.end_ns <= at_ns + 700_000 || part.sectors == 0);
                    done += part.sectors;
                    let head = part.track;
                    if done < 50_000 {
                        let next = mechanics.approach(head, part.end_ns, first + done, false);
                        at_ns = part.end_ns + next.total_ns();
                    } else {
                        assert_eq!(part.end_ns, whole.end_ns, "{}", drive.name);
                    }
                    steps += 1;
                }
                assert!(steps > 50);
            }
        }
    }

    #[test]
    fn drives_that_cannot_be_are_refused() {
        let good = by_name("st1000dm003").unwrap();
        let said = |change: fn(&mut Drive)| {
            let mut drive = good.clone();
            change(&mut drive);
            Mechanics::new(&drive).unwrap_err().to_string()
        };
        let expected = "drive st1000dm003: rpm is 0, but must be from 60 to 100000";
        assert_eq!(said(|drive| drive.rpm = 0), expected);
        assert!(said(|drive| drive.sectors = 0).contains("sectors"));
        assert!(said(|drive| drive.inner_rate = drive.outer_rate + 1).contains("inner_rate"));
        assert!(said(|drive| drive.track_skew_ns = 0).contains("lose a turn"));
        assert!(said(|drive| drive.cylinder_skew_ns = 0).contains("lose a turn"));
        assert!(said(|drive| drive.physical_bytes = 1000).contains("physical_bytes"));
        assert!(said(|drive| drive.average_seek_ns = 1).contains("average_seek_ns"));
        assert!(said(|drive| drive.full_stroke_ns = Some(9_000_000)).contains("seek"));
    }
}
