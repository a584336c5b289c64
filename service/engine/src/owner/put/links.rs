//! Puts in runs (FORMAT.md section 8.2): what a put needs in one, and the link that ties it to it.

use super::Put;
use crate::format::run::{LINK_LEN, Link};
use crate::payload::LinkSlot;
use crate::request::PutCondition;
use crate::units::BlockCount;

impl Put {
    /// Blocks that it needs in a run; `None`: it is not for one. A put that may be refused is not,
    /// since opening would find it; nor is one that is more than a lump of data.
    pub(in crate::owner) fn blocks_in_run(&self) -> Option<BlockCount> {
        let data = self.data.as_ref()?;
        let is_for_run = data.slot.is_some()
            && self.condition == PutCondition::Always
            && self.records.is_empty();
        is_for_run.then_some(data.blocks)
    }

    /// Ties its data to a run by this link, but for what only the put knows; `forced`: it is durable
    /// when it is written.
    pub(in crate::owner) fn link(&mut self, link: Link, forced: bool) {
        let Some(data) = &mut self.data else { return };
        let (Some(slot), Some(buf)) = (&mut data.slot, &mut data.buf) else {
            return;
        };
        let link = Link {
            id: data.id,
            blocks: data.blocks.0,
            samples: slot.samples,
            ..link
        };
        if let Some(place) = buf.get_mut(slot.at..slot.at + LINK_LEN) {
            place.copy_from_slice(&link.encode());
            (slot.linked, slot.forced) = (true, forced);
        }
    }

    /// True: it was placed in a run that the journal names.
    pub(super) fn is_linked(&self) -> bool {
        self.slot().is_some_and(|slot| slot.linked)
    }

    /// True: its data is durable as soon as it is written.
    pub(in crate::owner) fn is_forced(&self) -> bool {
        self.slot().is_some_and(|slot| slot.forced)
    }

    fn slot(&self) -> Option<&LinkSlot> {
        self.data.as_ref()?.slot.as_deref()
    }
}
