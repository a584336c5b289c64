//! Seek times of the arm.
//!
//! With x the distance as a share of all cylinders, a seek takes
//!
//! `t2t + B * sqrt(x)` up to the knee at x = 0.2, and from there `t2t + B * sqrt(0.2) + M * (x - 0.2)`
//!
//! for the arm first accelerates and brakes, and then coasts. B and M follow from the mean over all
//! pairs of cylinders, whose distances have the density `2 * (1 - x)`, and from the full stroke; where
//! that is not known, the line is the curve's tangent.

use std::time::Duration;

use crate::drive::{Drive, DriveError};

/// Where the line begins, as a share of all cylinders.
const KNEE: f64 = 0.2;

/// Seek time by distance, in integers: the same on every machine.
#[derive(Debug, Clone)]
pub(super) struct SeekCurve {
    track_to_track_ns: u64,
    /// Distance in cylinders at which the line begins.
    knee: u64,
    /// Square of the root's factor for one cylinder.
    root_squared: u64,
    /// Time at the knee.
    knee_ns: u64,
    /// Time that the line adds from the knee to the full stroke.
    line_ns: u64,
    /// Cylinders of the line.
    line: u64,
}

impl SeekCurve {
    pub(super) fn new(drive: &Drive, cylinders: u64) -> Result<SeekCurve, DriveError> {
        let (root_ns, slope_ns) = solve(drive)?;
        let far = cylinders.saturating_sub(1).max(1);
        let root = u128::from(root_ns);
        let squared = root * root / u128::from(far);
        let knee = far / 5;
        let mut curve = SeekCurve {
            track_to_track_ns: drive.track_to_track_ns,
            knee,
            root_squared: u64::try_from(squared).unwrap_or(u64::MAX),
            knee_ns: 0,
            line_ns: slope_ns,
            line: far,
        };
        curve.knee_ns = curve.root_ns(knee);
        Ok(curve)
    }

    fn root_ns(&self, distance: u64) -> u64 {
        let squared = u128::from(self.root_squared) * u128::from(distance);
        let root = match u64::try_from(squared) {
            Ok(squared) => squared.isqrt(),
            Err(_) => u64::try_from(squared.isqrt()).unwrap_or(u64::MAX),
        };
        self.track_to_track_ns + root
    }

    /// Seek over `distance` cylinders. A seek to the next one is `track_to_track_ns`.
    pub(super) fn ns(&self, distance: u64) -> u64 {
        match distance {
            0 => 0,
            1 => self.track_to_track_ns,
            near if near <= self.knee => self.root_ns(near),
            far => self.knee_ns + self.line_ns * (far - self.knee) / self.line,
        }
    }
}

/// B and M in nanoseconds.
fn solve(drive: &Drive) -> Result<(u64, u64), DriveError> {
    let wrong = |why| DriveError::Contradiction {
        drive: drive.name.to_string(),
        why,
    };
    let beyond = |ns: u64, why| {
        let rest = ns.checked_sub(drive.track_to_track_ns);
        rest.map(|rest| Duration::from_nanos(rest).as_secs_f64())
            .ok_or_else(|| wrong(why))
    };
    let mean = beyond(
        drive.average_seek_ns,
        "average_seek_ns is less than track_to_track_ns",
    )?;
    // Means of sqrt(min(x, knee)) and of max(x - knee, 0) over the density of distances.
    let rest = 1.0 - KNEE;
    let mean_root =
        2.0 * (KNEE.powf(1.5) * 2.0 / 3.0 - KNEE.powf(2.5) * 2.0 / 5.0) + KNEE.sqrt() * rest * rest;
    let mean_line = rest * rest * rest / 3.0;
    let (root, slope) = match drive.full_stroke_ns {
        None => {
            let tangent = 0.5 / KNEE.sqrt();
            let root = mean / (mean_root + tangent * mean_line);
            (root, root * tangent)
        }
        Some(full) => {
            let full = beyond(full, "full_stroke_ns is less than track_to_track_ns")?;
            let root =
                (mean - mean_line * full / rest) / (mean_root - mean_line * KNEE.sqrt() / rest);
            (root, (full - root * KNEE.sqrt()) / rest)
        }
    };
    let ns = |seconds: f64| {
        let time = Duration::try_from_secs_f64(seconds).ok()?;
        u64::try_from(time.as_nanos()).ok()
    };
    match (ns(root), ns(slope)) {
        (Some(root), Some(slope)) => Ok((root, slope)),
        _ => Err(wrong(
            "no seek curve has this average_seek_ns and this full_stroke_ns",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{DRIVES, MS, by_name};

    const CYLINDERS: u64 = 100_000;

    #[test]
    fn the_curve_of_the_published_drive() {
        let curve = SeekCurve::new(&by_name("st1000dm003").unwrap(), CYLINDERS).unwrap();
        let at = |share: u64| curve.ns(share * (CYLINDERS - 1) / 10_000) / 10_000;
        // 1 %, a third and all of the stroke, in hundredths of a millisecond.
        assert_eq!([at(100), at(3333), at(10_000)], [228, 868, 1828]);
        assert_eq!((curve.ns(0), curve.ns(1)), (0, MS));
    }

    #[test]
    fn the_mean_over_all_pairs_is_the_drives_average() {
        for drive in DRIVES {
            let curve = SeekCurve::new(drive, CYLINDERS).unwrap();
            let (mut sum, mut pairs) = (0_u128, 0_u128);
            for distance in 1..CYLINDERS {
                let weight = u128::from(CYLINDERS - distance);
                sum += weight * u128::from(curve.ns(distance));
                pairs += weight;
            }
            let mean = u64::try_from(sum / pairs).unwrap();
            let off = mean.abs_diff(drive.average_seek_ns);
            assert!(off < drive.average_seek_ns / 200, "{}: {mean}", drive.name);
            if let Some(full) = drive.full_stroke_ns {
                let off = curve.ns(CYLINDERS - 1).abs_diff(full);
                assert!(off < full / 200, "{}", drive.name);
            }
        }
    }

    #[test]
    fn farther_never_takes_less() {
        for drive in DRIVES {
            for cylinders in [1, 2, 3, 10, 5000] {
                let curve = SeekCurve::new(drive, cylinders).unwrap();
                let times: Vec<u64> = (0..cylinders).map(|far| curve.ns(far)).collect();
                assert!(times.is_sorted(), "{} {cylinders}", drive.name);
            }
        }
    }
}
