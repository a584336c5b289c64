//! The verbs that hand a request over and are called back.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Opened, Rest, Store, check_count};
use crate::error::Error;
use crate::lump::LumpId;
use crate::opened::{Beginning, OpenLump, PieceSize};
use crate::owner::command::read::Wanted;
use crate::owner::command::{StoreCommand, TimedReply};
use crate::payload::{LumpBuf, LumpData};
use crate::request::{
    DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, EmbeddedPage, HeadOutcome,
    ListOutcome, LumpRange, Placement, PutCondition, PutGroup, PutOptions, PutOutcome,
    RangeOutcome, RequestCtx, UsageOutcome,
};
use crate::times::OnDone;

impl Store {
    /// Stores a lump; an older one with this id is replaced atomically.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::StoreFull`],
    /// [`Error::JournalFull`], [`Error::Failed`], [`Error::Io`], [`Error::LengthMismatch`].
    pub fn submit_put(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        placement: Placement,
        durability: Durability,
        on_done: OnDone<PutOutcome>,
    ) -> Result<(), Error> {
        let options = PutOptions {
            placement: Some(placement),
            durability,
            condition: PutCondition::Always,
        };
        self.submit_put_with(ctx, id, buf, options, on_done)
    }

    /// Stores a lump, perhaps only if there is none with this id ([`PutCondition::IfAbsent`]).
    ///
    /// Whether there is one is decided when the record joins the journal, so of concurrent puts
    /// with this condition exactly one succeeds, also across a crash: a put that is refused leaves
    /// nothing behind. "There is one already" is said only when that one is as durable as it was
    /// asked to be. A put that meets a durable lump is refused before its bytes are written.
    ///
    /// # Errors
    /// As [`Store::submit_put`]; in the callback also [`Error::AlreadyExists`].
    pub fn submit_put_with(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        buf: LumpBuf,
        options: PutOptions,
        on_done: OnDone<PutOutcome>,
    ) -> Result<(), Error> {
        let reply = TimedReply::new(on_done);
        let command = self.put_command(ctx, id, buf, options, reply)?;
        self.send(ctx, command)
    }

    /// Puts an embedded lump, perhaps one in the data region before it, and removes others, as one
    /// change: their records stand side by side in one batch of the journal, after a flush of the
    /// data. It costs what the put of the data costs alone. `created` in the outcome is about the
    /// embedded lump.
    ///
    /// # Errors
    /// [`Error::LumpTooLarge`] when the records together have more than 65,558 bytes (28 for the
    /// lump in the data region, 23 and its bytes for the embedded one, 21 for each that is
    /// removed); else as [`Store::submit_put`].
    pub fn submit_put_group(
        &self,
        ctx: RequestCtx,
        group: PutGroup,
        durability: Durability,
        on_done: OnDone<PutOutcome>,
    ) -> Result<(), Error> {
        let command = self.group_command(ctx, group, durability, TimedReply::new(on_done))?;
        self.send(ctx, command)
    }

    /// The embedded lumps of a range, a page at a time, in the order of their records: the journal
    /// is read in large pieces from its head to its end, instead of a read for each lump.
    /// `from`: 0, then what the page before says.
    ///
    /// Every lump that is there from the first page to the last is in at least one of them; of one
    /// that is in several, the last is the newest. One that is put or removed meanwhile may be
    /// missing or there.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`]; in the callback also
    /// [`Error::CorruptJournal`], [`Error::Io`].
    pub fn submit_embedded(
        &self,
        range: LumpRange,
        from: u64,
        on_done: OnDone<EmbeddedPage>,
    ) -> Result<(), Error> {
        let command = StoreCommand::Embedded {
            range: range.check()?,
            from,
            reply: TimedReply::new(on_done),
        };
        self.send(RequestCtx::default(), command)
    }

    /// Reads a whole lump and verifies its checksum.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::NotFound`],
    /// [`Error::ChecksumMismatch`], [`Error::Io`].
    pub fn submit_get(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        on_done: OnDone<LumpData>,
    ) -> Result<(), Error> {
        let command = StoreCommand::Get {
            id,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// Reads `len` bytes of a lump from byte `offset` on, and verifies them by the checksums of the
    /// chunks that hold them: the disk reads these chunks (at least 64 KiB, at most 1/56 of the
    /// lump more on either side) and the last block, not the whole lump.
    ///
    /// A range that goes beyond the end is clipped; one that starts at the end is empty.
    ///
    /// ```no_run
    /// # use lumpscope_engine::{Error, LumpId, RequestCtx, Store};
    /// # fn main() -> Result<(), Error> {
    /// # let store = Store::open("a".as_ref(), lumpscope_engine::StoreOptions::new("a"))?;
    /// let part = store.get_range(RequestCtx::default(), LumpId(1), 1 << 20, 4096)?;
    /// println!("{} of {} bytes", part.data.len(), part.total_length);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::NotFound`],
    /// [`Error::RangeOutside`] when it starts behind the end, [`Error::ChecksumMismatch`] when one
    /// of these chunks or the last block is damaged, [`Error::Io`].
    pub fn submit_get_range(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        offset: u64,
        len: u64,
        on_done: OnDone<RangeOutcome>,
    ) -> Result<(), Error> {
        self.send(
            ctx,
            range_command(id, (offset, len), TimedReply::new(on_done)),
        )
    }

    /// Opens a lump to read `len` bytes from byte `offset` on, clipped to it: reads and verifies the
    /// beginning of them. If that is not all, the rest comes piece by piece ([`Rest`](crate::Rest));
    /// the memory that this takes is that of a few pieces, however large the lump is. A lump that may have been written by another engine is read whole.
    ///
    /// # Errors
    /// As [`Store::submit_get_range`].
    pub fn submit_open(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        (offset, len): (u64, u64),
        on_done: OnDone<Opened>,
    ) -> Result<(), Error> {
        let store = self.clone();
        let reply = TimedReply::new(on_done);
        let piece = PieceSize::on(self.inner.info.disk);
        let reply = reply.of(move |beginning: Beginning| {
            Opened::new(beginning, |lump, bytes| {
                Rest::new(store, ctx, (lump, piece), bytes)
            })
        });
        let wanted = Wanted {
            offset,
            len,
            piece: Some(piece),
        };
        self.send(ctx, StoreCommand::GetRange { id, wanted, reply })
    }

    /// Reads a piece of a lump that is open; the queue of the store had room for the lump, so it
    /// has room for its pieces.
    pub(crate) fn submit_piece(
        &self,
        ctx: RequestCtx,
        (lump, wanted): (Arc<OpenLump>, Range<u64>),
        on_done: OnDone<LumpData>,
    ) -> Result<(), Error> {
        let command = StoreCommand::GetPiece {
            lump,
            wanted,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// The exact size of a lump.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::NotFound`],
    /// [`Error::Io`].
    pub fn submit_head(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        on_done: OnDone<HeadOutcome>,
    ) -> Result<(), Error> {
        self.submit_head_with(ctx, id, false, on_done)
    }

    /// As [`Store::submit_head`]; with `sum` also the checksum that is stored with the bytes of a lump
    /// in the data region, which always costs a read of its last block.
    ///
    /// # Errors
    /// As [`Store::submit_head`].
    pub fn submit_head_with(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        sum: bool,
        on_done: OnDone<HeadOutcome>,
    ) -> Result<(), Error> {
        let reply = TimedReply::new(on_done);
        self.send(ctx, StoreCommand::Head { id, sum, reply })
    }

    /// Removes a lump; removing one that is not there succeeds and says so.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::Failed`].
    pub fn submit_delete(
        &self,
        ctx: RequestCtx,
        id: LumpId,
        durability: Durability,
        on_done: OnDone<DeleteOutcome>,
    ) -> Result<(), Error> {
        let command = StoreCommand::Delete {
            id,
            durability,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// Removes many lumps by one request. Their records go into the journal together: they
    /// survive a crash all or not at all, and are gone for readers at the same moment, if they fit
    /// into one batch (1 MiB of records, which is about 49,000 ids) and into the room that the
    /// journal has; this is not promised when they do not.
    ///
    /// An error stands for the whole request, of which a part may have been carried out; it can
    /// be repeated.
    ///
    /// # Errors
    /// [`Error::TooManyIds`] for more than [`Store::MAX_DELETE_IDS`], [`Error::Busy`],
    /// [`Error::Closed`]; in the callback also [`Error::JournalFull`], [`Error::Failed`].
    pub fn submit_delete_many(
        &self,
        ctx: RequestCtx,
        ids: Vec<LumpId>,
        durability: Durability,
        on_done: OnDone<DeleteManyOutcome>,
    ) -> Result<(), Error> {
        check_count(&ids)?;
        let command = StoreCommand::DeleteMany {
            ids,
            durability,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// Removes all lumps with `start <= id < end`, atomically.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`]; in the callback also
    /// [`Error::Failed`].
    pub fn submit_delete_range(
        &self,
        ctx: RequestCtx,
        start: LumpId,
        end: LumpId,
        durability: Durability,
        on_done: OnDone<DeleteRangeOutcome>,
    ) -> Result<(), Error> {
        LumpRange {
            start,
            end: Some(end),
        }
        .check()?;
        let command = StoreCommand::DeleteRange {
            start,
            end,
            durability,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// The first `limit` ids of a range, ascending.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`].
    pub fn submit_list(
        &self,
        ctx: RequestCtx,
        range: LumpRange,
        limit: usize,
        on_done: OnDone<ListOutcome>,
    ) -> Result<(), Error> {
        let command = StoreCommand::List {
            range: range.check()?,
            limit,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// The space the lumps of a range take.
    ///
    /// # Errors
    /// [`Error::ReversedRange`], [`Error::Busy`], [`Error::Closed`].
    pub fn submit_usage(
        &self,
        ctx: RequestCtx,
        range: LumpRange,
        on_done: OnDone<UsageOutcome>,
    ) -> Result<(), Error> {
        let command = StoreCommand::Usage {
            range: range.check()?,
            reply: TimedReply::new(on_done),
        };
        self.send(ctx, command)
    }

    /// Refuses puts and deletes from now on, until [`Store::thaw`] or the store is opened again, and
    /// calls back when those under way are done. Reads and [`Store::submit_sync`] go on.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn submit_freeze(&self, on_done: OnDone<()>) -> Result<(), Error> {
        self.inner.shared.frozen.store(true, Ordering::SeqCst);
        let reply = TimedReply::new(on_done);
        self.send(RequestCtx::default(), StoreCommand::Settle { reply })
    }

    /// Takes puts and deletes again.
    pub fn thaw(&self) {
        self.inner.shared.frozen.store(false, Ordering::SeqCst);
    }

    /// True: puts and deletes are refused ([`Store::submit_freeze`]).
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.inner.shared.frozen.load(Ordering::SeqCst)
    }

    /// Calls back when everything acknowledged before the call is on stable storage.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::Closed`]; in the callback also [`Error::Failed`].
    pub fn submit_sync(&self, on_done: OnDone<()>) -> Result<(), Error> {
        self.send(
            RequestCtx::default(),
            StoreCommand::Sync {
                reply: TimedReply::new(on_done),
            },
        )
    }
}

/// A command that reads a range at once.
pub(super) fn range_command(
    id: LumpId,
    (offset, len): (u64, u64),
    reply: TimedReply<RangeOutcome>,
) -> StoreCommand {
    let wanted = Wanted {
        offset,
        len,
        piece: None,
    };
    let reply = reply.of(Beginning::into_range);
    StoreCommand::GetRange { id, wanted, reply }
}
