//! A put and its data: what it asks for, and how far it has come.

use std::sync::Arc;

use super::TimedReply;
use crate::buffer::AlignedBuf;
use crate::declaration::RequestId;
use crate::error::Error;
use crate::format::Portion;
use crate::format::record::{EMBED_PREFIX_LEN, PUT_LEN};
use crate::format::run::{Annex, LINK_LEN, Link};
use crate::lump::LumpId;
use crate::payload::pieces::Begun;
use crate::payload::{LinkSlot, SealedLump};
use crate::request::{Durability, PutCondition, PutOutcome};
use crate::storage::Storage;
use crate::units::{BlockCount, to_usize};

/// Lumps that are put, and others that are removed, by one change.
pub(crate) struct Put {
    pub(crate) request: RequestId,
    pub(crate) durability: Durability,
    /// About the one lump of a put without deletes.
    pub(crate) condition: PutCondition,
    pub(crate) data: Option<DataLump>,
    /// A lump in the journal, and its bytes.
    pub(crate) embedded: Option<(LumpId, u16)>,
    /// Removed after the puts.
    pub(crate) deletes: Vec<LumpId>,
    /// Encoded, in the order of the log: the embedded lump, the deletes. That of the data goes
    /// before them once its blocks are known and its bytes durable.
    pub(crate) records: Vec<u8>,
    pub(crate) reply: TimedReply<PutOutcome>,
}

/// A lump for the data region.
pub(crate) struct DataLump {
    pub(in crate::owner) id: LumpId,
    pub(in crate::owner) blocks: BlockCount,
    /// Bytes of its payload.
    pub(in crate::owner) len: u64,
    /// Value of the padding-length field.
    pub(in crate::owner) padding: Option<u16>,
    /// Until it is written.
    pub(in crate::owner) buf: Option<AlignedBuf>,
    /// First byte of `buf` within the portion.
    pub(in crate::owner) start: u64,
    /// The place of the bytes before; `None`: there are none, or `portion` says it.
    pub(in crate::owner) begun: Option<Arc<Begun>>,
    /// From its write on.
    pub(in crate::owner) portion: Option<Portion>,
    /// The last place that the device refused to write.
    pub(in crate::owner) refused: Option<Box<Refused>>,
    /// Room for a link; `None`: it is not for a run.
    pub(in crate::owner) slot: Option<Box<LinkSlot>>,
}

/// A place that the device refused to write.
pub(in crate::owner) struct Refused {
    pub(in crate::owner) portion: Portion,
    pub(in crate::owner) error: Error,
    /// The one before.
    pub(in crate::owner) before: Option<Box<Refused>>,
}

impl Refused {
    /// This place and those before it.
    pub(in crate::owner) fn all(last: Option<&Self>) -> impl Iterator<Item = &Self> {
        std::iter::successors(last, |refused| refused.before.as_deref())
    }
}

impl DataLump {
    pub(crate) fn new(id: LumpId, sealed: SealedLump) -> Self {
        let SealedLump {
            buf,
            start,
            begun,
            slot,
            blocks,
            len,
        } = sealed;
        let total = start + buf.len() as u64;
        Self {
            id,
            blocks,
            len,
            padding: u16::try_from(total.saturating_sub(len + 2)).ok(),
            buf: Some(buf),
            start,
            begun,
            portion: None,
            refused: None,
            slot: slot.map(Box::new),
        }
    }

    /// True: the first pieces of it are written.
    pub(crate) fn is_begun(&self) -> bool {
        self.start > 0
    }
}

/// A piece of a lump that comes in.
pub(crate) struct PieceWrite {
    pub(crate) request: RequestId,
    pub(crate) begun: Arc<Begun>,
    /// First byte of the piece within the portion.
    pub(crate) at: u64,
    /// Until it is written.
    pub(crate) buf: Option<AlignedBuf>,
    pub(crate) reply: TimedReply<AlignedBuf>,
}

/// A put whose data the device refused to write.
pub(in crate::owner) struct Misplaced {
    pub(in crate::owner) put: Box<Put>,
    pub(in crate::owner) buf: Option<AlignedBuf>,
    pub(in crate::owner) error: Error,
}

impl Put {
    /// The lump that must not be there.
    pub(in crate::owner) fn absent(&self) -> Option<LumpId> {
        if self.condition == PutCondition::Always {
            return None;
        }
        self.lumps().next()
    }

    /// Ids of the lumps that are put.
    pub(in crate::owner) fn lumps(&self) -> impl Iterator<Item = LumpId> + use<> {
        let data = self.data.as_ref().map(|data| data.id);
        data.into_iter().chain(self.embedded.map(|(id, _)| id))
    }

    /// Where its data goes, from the beginning of its write on.
    pub(in crate::owner) fn place(&self) -> Option<Portion> {
        self.data.as_ref()?.portion
    }
}

/// The needs of a put in a run (FORMAT.md section 8.2), and the link that ties it to one.
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
            let len = to_usize(embedded_len(len));
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
    pub(in crate::owner) fn is_linked(&self) -> bool {
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

/// Bytes of the record of an embedded lump of `len` bytes.
pub(in crate::owner) fn embedded_len(len: u16) -> u64 {
    EMBED_PREFIX_LEN as u64 + u64::from(len)
}
