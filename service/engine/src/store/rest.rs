//! Reading a lump piece by piece, as its reader sees it.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::Store;
use crate::error::Error;
use crate::opened::{Beginning, OpenLump, PieceSize};
use crate::payload::LumpData;
use crate::request::RequestCtx;
use crate::times::OnDone;

/// A lump, or a range of one, of which the beginning has been read
/// ([`Store::submit_open`](crate::Store::submit_open)).
#[derive(Debug)]
pub struct Opened {
    /// The first bytes of what was asked for.
    pub first: LumpData,
    /// First of them within the lump.
    pub offset: u64,
    /// Bytes asked for; fewer where the lump ends.
    pub length: u64,
    /// Bytes of the whole lump.
    pub total_length: u64,
    /// CRC32C of the whole lump; `None`: it is not verified, or only a part was asked for.
    pub crc32c: Option<u32>,
    /// The rest of what was asked for; `None`: the first bytes are all.
    pub rest: Option<Rest>,
}

/// The rest of a lump that was opened: verified bytes of the version that was opened, piece by
/// piece, even if it has been replaced or removed since. While this exists, its blocks are not
/// used for another lump, and no put waits for them.
pub struct Rest {
    store: Store,
    ctx: RequestCtx,
    lump: Arc<OpenLump>,
    size: PieceSize,
    /// Bytes of the lump that have not been asked for.
    bytes: Range<u64>,
}

impl fmt::Debug for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rest")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

impl Opened {
    pub(super) fn new(beginning: Beginning, store: Store, ctx: RequestCtx) -> Self {
        let Range { start, end } = beginning.wanted;
        let is_whole = end - start == beginning.total_length;
        let first = beginning.first;
        let crc32c = match &beginning.rest {
            None => first.crc32c(),
            Some(lump) => lump.trailer.payload_crc,
        };
        let next = start + first.len() as u64;
        let rest = beginning.rest.map(|lump| Rest {
            store,
            ctx,
            size: PieceSize::first(lump.chunks().chunk_len()).next(),
            lump: Arc::new(lump),
            bytes: next..end,
        });
        Self {
            crc32c: (first.verified && is_whole).then_some(crc32c),
            first,
            offset: start,
            length: end - start,
            total_length: beginning.total_length,
            rest,
        }
    }
}

impl Rest {
    /// Bytes that have not been asked for.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// Reads the next piece and verifies it. It counts against the store's
    /// [`buffer_budget`](crate::StoreOptions::buffer_budget) until it is dropped, and waits in the
    /// queue with the deadline of its lump; it is not refused because the queue is full.
    ///
    /// Who keeps pieces must not ask for more before the one before has come: pieces that have
    /// overtaken those before them could hold all memory.
    ///
    /// # Errors
    /// [`Error::Closed`]; in the callback also [`Error::ChecksumMismatch`],
    /// [`Error::DeadlineExceeded`], [`Error::Io`].
    pub fn submit_next(&mut self, on_done: OnDone<LumpData>) -> Result<(), Error> {
        let Range { start, end } = self.bytes;
        let chunk = self.lump.chunks().chunk_len();
        let to = self.size.end(start - start % chunk, end);
        self.store
            .submit_piece(self.ctx, (Arc::clone(&self.lump), start..to), on_done)?;
        self.bytes.start = to;
        self.size = self.size.next();
        Ok(())
    }
}
