//! Figures that follow from a drive's parameters.

use serde::{Deserialize, Serialize};

use crate::disk::{Disk, Policy};
use crate::drive::{Drive, DriveError};

/// Expected figures of a drive, by formula from its parameters; tests check that the model matches
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Cylinders, which follow from capacity and rates.
    pub cylinders: u64,
    /// One turn.
    pub revolution_ns: u64,
    /// Mean seek over all pairs of cylinders, for reading.
    pub average_seek_ns: u64,
    /// Seek over all cylinders, for reading.
    pub full_stroke_ns: u64,
    /// Sustained rate of the outermost zone in bytes a second.
    pub outer_rate: u64,
    /// Sustained rate of the innermost zone in bytes a second.
    pub inner_rate: u64,
    /// Read of 4 KiB anywhere: overhead, mean seek, half a turn, and 4 KiB at the mean rate.
    pub random_read_ns: u64,
}

impl Figures {
    /// # Errors
    /// The drive makes no sense.
    pub fn of(drive: &Drive) -> Result<Figures, DriveError> {
        let disk = Disk::new(drive, Policy::default())?;
        let revolution_ns = drive.revolution_ns();
        let mean_rate = drive.inner_rate.midpoint(drive.outer_rate);
        let passing_ns = 4096 * 1_000_000_000 / mean_rate;
        Ok(Figures {
            cylinders: disk.cylinders(),
            revolution_ns,
            average_seek_ns: drive.average_seek_ns,
            full_stroke_ns: disk.seek_ns(disk.cylinders()),
            outer_rate: drive.outer_rate,
            inner_rate: drive.inner_rate,
            random_read_ns: drive.overhead_ns
                + drive.average_seek_ns
                + revolution_ns / 2
                + passing_ns,
        })
    }
}
