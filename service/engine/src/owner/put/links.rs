//! Puts in runs (FORMAT.md section 8.2): what a put needs in one, and the link that ties it to it.

use super::{Put, embedded_len};
use crate::format::Portion;
use crate::format::record::PUT_LEN;
use crate::format::run::{Annex, LINK_LEN, Link};
use crate::payload::LinkSlot;
use crate::request::PutCondition;
use crate::storage::Storage;
use crate::units::BlockCount;

impl Put {
    /// Blocks that it needs in a run; `None`: it is not for one.
    pub(in crate::owner) fn blocks_in_run(&self) -> Option<BlockCount> {
        let data = self.data.as_ref()?;
        let slot = data.slot.as_ref()?;
        let annex = if self.needs_annex() {
            Annex::len_with(self.records.len())
        } else {
            0
        };
        (annex + LINK_LEN <= slot.padding.len()).then_some(data.blocks)
    }

    /// The place that its first pieces have, if there are any.
    pub(in crate::owner) fn begun_at(&self) -> Option<Portion> {
        self.data.as_ref()?.begun.as_ref()?.place()
    }

    /// True: it is more than one lump that replaces whatever there is.
    fn needs_annex(&self) -> bool {
        self.condition != PutCondition::Always || !self.records.is_empty()
    }

    /// Ties its data to a run by this link, but for what only the put knows; `forced`: it is durable
    /// when it is written.
    pub(in crate::owner) fn link(&mut self, link: Link, forced: bool) {
        let annexed = self.needs_annex();
        let Some(data) = &mut self.data else { return };
        let (Some(slot), Some(buf)) = (&mut data.slot, &mut data.buf) else {
            return;
        };
        let link = Link {
            id: data.id,
            blocks: data.blocks.0,
            samples: slot.samples,
            annexed,
            ..link
        };
        let annex = annexed.then(|| Annex {
            if_absent: self.condition == PutCondition::IfAbsent,
            records: self.records.clone(),
        });
        let mut bytes = annex
            .and_then(|annex| annex.encode(&link))
            .unwrap_or_default();
        bytes.extend_from_slice(&link.encode());
        let at = slot.padding.end.saturating_sub(bytes.len());
        if let Some(place) = buf.get_mut(at..slot.padding.end) {
            place.copy_from_slice(&bytes);
            // A flush makes the pieces before it durable, too.
            (slot.linked, slot.forced) = (true, forced && data.start == 0);
        }
    }

    /// It is applied before it has records.
    pub(in crate::owner) fn note_unrecorded(&self, storage: &mut Storage) {
        let (tail, unrecorded) = (storage.journal.tail(), &mut storage.unrecorded);
        if let Some((id, len)) = self.embedded {
            let len = usize::try_from(embedded_len(len)).unwrap_or(usize::MAX);
            let record = self.records.get(..len).unwrap_or_default();
            unrecorded.note_embedded(id, tail, record.to_vec());
        }
        let lumps = self.lumps().chain(self.deletes.iter().copied());
        unrecorded.note(lumps, self.record_bytes());
    }

    /// Bytes of all its records.
    pub(in crate::owner) fn record_bytes(&self) -> u64 {
        (PUT_LEN + self.records.len()) as u64
    }

    /// Takes its place away from it.
    pub(in crate::owner) fn take_place(&mut self) -> Option<Portion> {
        self.data.as_mut()?.portion.take()
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
