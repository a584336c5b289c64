//! The bytes of a store: pure conversions between bytes and values, no I/O.
//!
//! The format is CannyLS's `lusf` 1.1 with a checksum trailer in the bytes that CannyLS ignores,
//! inside a minfs on raw block devices. FORMAT.md, beside this crate, draws every structure; each
//! module names the section it implements. All integers of `lusf` are big-endian, those of minfs
//! little-endian.

pub mod bad_places;
pub mod checkpoint;
pub mod claim;
pub mod copies;
pub mod error;
pub mod geometry;
pub mod header;
pub mod journal_header;
pub mod label;
pub mod mark;
pub mod mend;
pub mod minfs;
pub mod portion;
pub mod proof;
pub mod record;
pub mod ring;
pub mod run;
pub mod seal;
pub mod sums;
pub mod trailer;
pub mod unfinished;
pub mod verify;

pub(crate) mod bytes;

pub use error::{DecodeError, DecodeErrorKind, Structure};
pub use geometry::Geometry;
pub use header::Header;
pub use portion::Portion;
pub use record::Record;
pub use seal::Seal;
