//! Puts and deletes of the engine as futures. The change in memory is made by the engine's
//! callback, so that it happens even if the caller is gone.

use std::sync::Arc;

use lumpscope_engine::{
    DeleteOutcome, Durability, Error, LumpBuf, LumpId, Placement, PutGroup, PutOutcome,
};
use tokio::sync::oneshot;

use crate::ctx::Ctx;
use crate::error::{Limited, ObjectError};
use crate::id;
use crate::record::Record;
use crate::state::{ObjectsShared, PendingData};

/// Most bytes of a record: those of an embedded lump, less the record of the piece before it.
pub(crate) const MAX_RECORD_BYTES: usize = 65_535 - 64;

/// An answer of the engine that is to come.
pub(crate) struct PendingAnswer<T>(pub(crate) oneshot::Receiver<Result<T, ObjectError>>);

impl<T> IntoFuture for PendingAnswer<T>
where
    T: Send + 'static,
{
    type Output = Result<T, ObjectError>;
    type IntoFuture = std::pin::Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move { self.0.await.unwrap_or(Err(Error::Closed.into())) })
    }
}

/// A buffer with a record.
pub(crate) fn record_buf(inner: &ObjectsShared, record: &Record) -> Result<LumpBuf, ObjectError> {
    let bytes = record.encode();
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(ObjectError::TooLarge {
            what: Limited::Record,
            got: bytes.len() as u64,
            max: MAX_RECORD_BYTES as u64,
        });
    }
    let mut buf = inner.store.lump_buf(bytes.len() as u64)?;
    buf.extend(&bytes)?;
    Ok(buf)
}

/// One change in the journal.
pub(crate) struct Change<'a> {
    /// The last piece of the data that the record names.
    pub(crate) piece: Option<(LumpId, LumpBuf)>,
    pub(crate) id: LumpId,
    pub(crate) record: &'a Record,
    /// Records that the change deletes.
    pub(crate) deletes: Vec<LumpId>,
}

impl<'a> Change<'a> {
    /// Of a record alone.
    pub(crate) fn of(id: LumpId, record: &'a Record) -> Self {
        Self {
            piece: None,
            id,
            record,
            deletes: Vec::new(),
        }
    }
}

/// Puts a record with its group; `then` is called when that is durable.
pub(crate) fn put_record<T: Send + 'static>(
    inner: &Arc<ObjectsShared>,
    ctx: Ctx<'_>,
    change: Change<'_>,
    then: impl FnOnce() -> T + Send + 'static,
) -> Result<PendingAnswer<T>, ObjectError> {
    let group = PutGroup {
        embedded: (change.id, record_buf(inner, change.record)?),
        data: change.piece,
        deletes: change.deletes,
    };
    let (told, answer) = oneshot::channel();
    let used = ctx.meter();
    let on_done = Box::new(move |result: Result<PutOutcome, Error>, times| {
        used(times);
        // Also when the caller is gone.
        let result = result.map(|_| then()).map_err(ObjectError::from);
        let _ = told.send(result);
    });
    let durability = inner.options.durability;
    inner
        .store
        .submit_put_group(ctx.engine, group, durability, on_done)?;
    Ok(PendingAnswer(answer))
}

/// Deletes a lump; `then` is called when that is durable, or has failed.
pub(crate) fn delete_lump(
    inner: &Arc<ObjectsShared>,
    ctx: Ctx<'_>,
    id: LumpId,
    then: impl FnOnce(&Result<DeleteOutcome, Error>) + Send + 'static,
) -> Result<PendingAnswer<()>, ObjectError> {
    let (told, answer) = oneshot::channel();
    let used = ctx.meter();
    let on_done = Box::new(move |result: Result<DeleteOutcome, Error>, times| {
        used(times);
        then(&result);
        let _ = told.send(result.map(drop).map_err(ObjectError::from));
    });
    let durability = inner.options.durability;
    inner
        .store
        .submit_delete(ctx.engine, id, durability, on_done)?;
    Ok(PendingAnswer(answer))
}

/// Durability of lumps that are not acknowledged before their commit.
pub(crate) const BEFORE_COMMIT: Durability = Durability::Journaled;

/// A piece on its way: completes when its record is in the journal.
pub(crate) fn put_piece(
    inner: &Arc<ObjectsShared>,
    ctx: Ctx<'_>,
    (written, index): (Arc<PendingData>, u64),
    buf: LumpBuf,
) -> Result<PendingAnswer<()>, ObjectError> {
    let (told, answer) = oneshot::channel();
    let id = id::piece(written.number, index);
    let used = ctx.meter();
    let on_done = Box::new(move |result: Result<PutOutcome, Error>, times| {
        used(times);
        let _ = told.send(result.map(drop).map_err(ObjectError::from));
        drop(written);
    });
    let durability = BEFORE_COMMIT;
    inner
        .store
        .submit_put(ctx.engine, id, buf, Placement::Data, durability, on_done)?;
    Ok(PendingAnswer(answer))
}
