//! Drives that cannot be.

use thiserror::Error;

/// Why a [`Drive`](super::Drive) makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum DriveError {
    /// A parameter is outside of what the model computes with.
    #[error("drive {drive}: {parameter} is {value}, but must be from {least} to {most}")]
    Range {
        drive: String,
        parameter: &'static str,
        value: u64,
        least: u64,
        /// Largest value that is taken.
        most: u64,
    },
    /// Two parameters contradict each other.
    #[error("drive {drive}: {why}")]
    Contradiction { drive: String, why: &'static str },
}
