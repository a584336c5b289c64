//! Lumps whose newest record names blocks that the data region does not have.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::format::{Geometry, Portion};
use crate::lump::LumpId;
use crate::units::RingPosition;

/// The lumps whose last put names blocks outside the data region. The index cannot hold them. Such
/// a put matters only while nothing newer is known of its lump.
#[derive(Debug, Default)]
pub(crate) struct Outside(BTreeMap<LumpId, (RingPosition, Portion)>);

impl Outside {
    /// Notes a put. True: its portion lies outside.
    pub(crate) fn put(
        &mut self,
        geometry: &Geometry,
        id: LumpId,
        portion: Portion,
        record: RingPosition,
    ) -> bool {
        if portion.check_within(geometry.data_blocks()).is_ok() {
            self.forget(id);
            return false;
        }
        self.0.insert(id, (record, portion));
        true
    }

    /// The lump was embedded or deleted.
    pub(crate) fn forget(&mut self, id: LumpId) {
        if !self.0.is_empty() {
            self.0.remove(&id);
        }
    }

    /// The lumps `start <= id < end` were deleted.
    pub(crate) fn forget_range(&mut self, start: LumpId, end: LumpId) {
        self.0.retain(|&id, _| id < start || id >= end);
    }

    /// Records left at the end of the journal.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (LumpId, RingPosition, Portion)> + '_ {
        self.0
            .iter()
            .map(|(&id, &(record, portion))| (id, record, portion))
    }

    /// Refuses a journal with such a lump.
    pub(super) fn refuse(&self, geometry: &Geometry) -> Result<(), Error> {
        let first = self.iter().min_by_key(|(_, record, _)| record.0);
        let Some((id, record, portion)) = first else {
            return Ok(());
        };
        let Err(error) = portion.check_within(geometry.data_blocks()) else {
            return Ok(());
        };
        Err(Error::CorruptJournal {
            ring_position: record.0,
            why: format!("the put of lump {id}: {error}"),
        })
    }
}
