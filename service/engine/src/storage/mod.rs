//! Parts of a store in memory: index, data region, journal.
//!
//! No I/O happens here except in [`recover`] and what it calls; the owner thread drives it.

mod allocator;
pub(crate) mod checkpoint;
pub(crate) mod claim;
pub(crate) mod data_region;
pub(crate) mod finish;
mod gaps;
pub(crate) mod headers;
pub(crate) mod index;
pub(crate) mod io;
pub(crate) mod journal;
pub(crate) mod log_sum;
pub(crate) mod lumps;
pub(crate) mod outside;
pub(crate) mod progress;
pub(crate) mod recover;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod salvage;
mod space;
pub(crate) mod unrecorded;
pub(crate) mod unsettled;

use data_region::DataRegion;
use index::Index;
use journal::Journal;
use unrecorded::Unrecorded;

use crate::format::claim::Claim;
use crate::format::{Geometry, Header, Portion};
use crate::units::ByteOffset;

/// The state of an open store.
#[derive(Debug)]
pub(crate) struct Storage {
    pub(crate) header: Header,
    /// The name in the image.
    pub(crate) name: Option<String>,
    /// The claim in the image, which every write of the headers keeps.
    pub(crate) claim: Option<Claim>,
    pub(crate) geometry: Geometry,
    pub(crate) index: Index,
    pub(crate) data: DataRegion,
    pub(crate) journal: Journal,
    pub(crate) unrecorded: Unrecorded,
}

impl Storage {
    /// First byte of a portion in the device, and its bytes.
    pub(crate) fn extent_of(&self, portion: Portion) -> (ByteOffset, u64) {
        let len = portion.byte_len(self.geometry.block_size()).0;
        (self.geometry.portion_offset(portion), len)
    }
}
