//! Drives that cannot be.

use thiserror::Error;

/// Why a [`Drive`](super::Drive) makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DriveError {
    /// A parameter is outside of what the model computes with.
    #[error("drive {drive}: {parameter} is {value}, but must be from {least} to {most}")]
    Range {
        /// Name of the drive.
        drive: String,
        /// Name of the field.
        parameter: &'static str,
        /// The value.
        value: u64,
        /// Smallest value that is taken.
        least: u64,
        /// Largest value that is taken.
        most: u64,
    },
    /// Two parameters contradict each other.
    #[error("drive {drive}: {why}")]
    Contradiction {
        /// Name of the drive.
        drive: String,
        /// Reason.
        why: &'static str,
    },
}
