//! Everything that can go wrong with objects, as one type.

use lumpscope_engine::{Error, LumpId};

/// Part of an object that exceeds its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Limited {
    /// All its bytes.
    #[error("the object's size in bytes")]
    Object,
    /// The bytes of its key.
    #[error("the key's length in bytes")]
    Key,
    /// The bytes of its user metadata.
    #[error("the user metadata in bytes")]
    Metadata,
    /// The bytes of its content type and attributes.
    #[error("content type and attributes in bytes")]
    Attributes,
    /// The bytes of its record.
    #[error("the record of the object (its parts, or their attributes) in bytes")]
    Record,
    /// The numbers of buckets: all have been given out.
    #[error("the number of the bucket")]
    Bucket,
}

/// An error of the objects.
#[derive(Clone, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum ObjectError {
    /// There is no bucket of this name.
    #[error("there is no bucket {bucket:?}; create it first")]
    NoSuchBucket {
        /// The name asked for.
        bucket: String,
    },
    /// There is a bucket of this name already.
    #[error("there is already a bucket {bucket:?}")]
    BucketExists { bucket: String },
    /// The bucket still holds objects.
    #[error("bucket {bucket:?} is not empty; delete its objects first")]
    BucketNotEmpty { bucket: String },
    /// There is no object with this key.
    #[error("there is no object {key:?} in bucket {bucket:?}")]
    NoSuchKey {
        bucket: String,
        /// The key asked for.
        key: String,
    },
    /// There is no such upload: it never was, it was completed or aborted, or it has expired.
    #[error("there is no upload {upload}; it was completed, aborted, or has expired")]
    NoSuchUpload {
        /// The id as it was given.
        upload: String,
    },
    /// A part of the list is not there, or is not the one meant. Nothing was changed.
    #[error("part {part} of upload {upload} is not there, or has another ETag; upload it again")]
    InvalidPart { upload: String, part: u16 },
    /// The numbers of the parts do not ascend, or there is none. Nothing was changed.
    #[error("the parts of upload {upload} must be at least one, in ascending order")]
    InvalidPartOrder { upload: String },
    /// A part other than the last is smaller than allowed. Nothing was changed.
    #[error("part {part} has {size} bytes: all but the last need at least {least}")]
    PartTooSmall {
        part: u16,
        size: u64,
        /// Least bytes.
        least: u64,
    },
    /// The condition of a change does not hold. Nothing was changed.
    #[error("the condition does not hold: {why}")]
    ConditionFailed { why: &'static str },
    /// A value is outside the limits.
    #[error("{what}: {got} is more than {max}; shorten it")]
    TooLarge {
        /// The part that is too large.
        what: Limited,
        got: u64,
        max: u64,
    },
    /// A value is not allowed.
    #[error("{what} is not valid: {why}")]
    Invalid {
        what: &'static str,
        why: &'static str,
    },
    /// The bytes that came are not as many as were announced. Nothing was changed.
    #[error("{announced} bytes were announced and {got} came")]
    LengthMismatch {
        /// Bytes announced.
        announced: u64,
        /// Bytes that came, or would have.
        got: u64,
    },
    /// The range begins behind the end of the object.
    #[error("the range begins at byte {start}, the object has {size}")]
    RangeOutside {
        /// First byte asked for.
        start: u64,
        size: u64,
    },
    /// A piece of the object is not there, or not as long as it was. Restore the object.
    #[error("object {key:?} in bucket {bucket:?} has lost bytes: {why} (lump {id})")]
    Damaged {
        bucket: String,
        key: String,
        id: LumpId,
        why: &'static str,
    },
    /// The engine could not do its part. [`Error::Busy`] and [`Error::BuffersExhausted`] say when
    /// to come back; [`Error::StoreFull`] and [`Error::JournalFull`] that something has to be
    /// deleted first. Nothing was changed, except after [`Error::Failed`] and [`Error::Io`] of a
    /// commit, when the store takes no changes any more and the object may be the old or the new
    /// one once it is opened again.
    #[error(transparent)]
    Engine(#[from] Error),
}
