//! Why a store was not copied.

use std::path::PathBuf;

use crate::error::Error;
use crate::guard::FormatError;

/// Why a store was not copied, or not to the end.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CopyError {
    /// The source cannot be opened, or fails every read. Lumps that cannot be read are no error.
    #[error("the source: {0}")]
    Source(#[source] Error),
    /// The target fails, or is full. What was copied stays there, and copying goes on with it.
    #[error("the target: {0}")]
    Target(#[source] Error),
    /// The target cannot be made a store.
    #[error("the target: {0}")]
    Format(#[from] FormatError),
    /// The lumps do not fit. Nothing was written.
    #[error(
        "{path} is too small: its data region would have {data} bytes, and the lumps take {needed}; \
         use a larger one, or say more with --capacity"
    )]
    TooSmall {
        /// The target.
        path: PathBuf,
        /// Bytes of the data region that the lumps take.
        needed: u64,
        /// Bytes of its data region.
        data: u64,
    },
    /// The target is a copy of another store. Nothing was written.
    #[error(
        "{path} is a copy of the store {of} that is not finished: go on from there, or begin \
         anew with --force"
    )]
    OtherSource {
        /// The target.
        path: PathBuf,
        /// UUID of the store that it is a copy of.
        of: uuid::Uuid,
    },
    /// The source has taken changes since copying began. Nothing was written.
    #[error(
        "{path} is a copy that was begun before the source was changed: begin anew with --force"
    )]
    SourceChanged {
        /// The target.
        path: PathBuf,
    },
    /// The copy is not what was written.
    #[error("the copy at {path} is damaged: {why}; use another target, or begin anew with --force")]
    Damaged {
        /// The target.
        path: PathBuf,
        /// The first finding.
        why: String,
    },
}
