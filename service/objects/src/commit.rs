//! Changes of the catalogue. Each is one put or delete of one embedded lump; what it means in
//! memory is done by the engine's callback, so that it happens whoever waits for it.

use std::sync::Arc;

use lumpscope_engine::{
    DeleteOutcome, Durability, Error, LumpBuf, LumpId, Placement, PutGroup, PutOutcome, RequestCtx,
};
use tokio::sync::oneshot;

use crate::Objects;
use crate::catalogue::Entry;
use crate::error::{Limited, ObjectError};
use crate::id::{self, Kind};
use crate::record::{Body, ObjectRecord, Record, Segment};
use crate::state::{Held, Inner, Path, Written, decode, now_ms};
use crate::types::{
    CommitInfo, Committed, Condition, Deleted, MAX_ATTRIBUTE_BYTES, MAX_KEY_BYTES,
    MAX_METADATA_BYTES, ObjectInfo, Pairs, PutInfo,
};

/// Most bytes of a record: that of an embedded lump, less the record of the piece before it.
pub(crate) const MAX_RECORD_BYTES: usize = 65_535 - 64;

/// An answer of the engine that is to come.
pub(crate) struct Answer<T>(pub(crate) oneshot::Receiver<Result<T, ObjectError>>);

impl<T> IntoFuture for Answer<T>
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
pub(crate) fn record_buf(inner: &Inner, record: &Record) -> Result<LumpBuf, ObjectError> {
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

/// What is one change in the journal.
pub(crate) struct Change<'a> {
    /// The last piece of what the record names.
    pub(crate) piece: Option<(LumpId, LumpBuf)>,
    pub(crate) id: LumpId,
    pub(crate) record: &'a Record,
    /// Records that are gone by it.
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

/// Puts a record and what belongs to it; `then` is called when that is durable.
pub(crate) fn put_record<T: Send + 'static>(
    inner: &Arc<Inner>,
    ctx: RequestCtx,
    change: Change<'_>,
    then: impl FnOnce() -> T + Send + 'static,
) -> Result<Answer<T>, ObjectError> {
    let group = PutGroup {
        embedded: (change.id, record_buf(inner, change.record)?),
        data: change.piece,
        deletes: change.deletes,
    };
    let (told, answer) = oneshot::channel();
    let used = inner.meter(ctx);
    let on_done = Box::new(move |result: Result<PutOutcome, Error>, times| {
        used(times);
        // Also when nobody waits any more.
        let result = result.map(|_| then()).map_err(ObjectError::from);
        let _ = told.send(result);
    });
    let durability = inner.options.durability;
    inner
        .store
        .submit_put_group(ctx, group, durability, on_done)?;
    Ok(Answer(answer))
}

/// Deletes a lump; `then` is called when that is durable, or has failed.
pub(crate) fn delete_lump(
    inner: &Arc<Inner>,
    ctx: RequestCtx,
    id: LumpId,
    then: impl FnOnce(&Result<DeleteOutcome, Error>) + Send + 'static,
) -> Result<Answer<()>, ObjectError> {
    let (told, answer) = oneshot::channel();
    let used = inner.meter(ctx);
    let on_done = Box::new(move |result: Result<DeleteOutcome, Error>, times| {
        used(times);
        then(&result);
        let _ = told.send(result.map(drop).map_err(ObjectError::from));
    });
    let durability = inner.options.durability;
    inner.store.submit_delete(ctx, id, durability, on_done)?;
    Ok(Answer(answer))
}

/// Refuses keys outside the limits.
pub(crate) fn check_key(key: &str) -> Result<(), ObjectError> {
    if key.is_empty() {
        return Err(ObjectError::Invalid {
            what: "the key",
            why: "it is empty",
        });
    }
    if key.len() > MAX_KEY_BYTES {
        return Err(ObjectError::TooLarge {
            what: Limited::Key,
            got: key.len() as u64,
            max: MAX_KEY_BYTES as u64,
        });
    }
    Ok(())
}

fn bytes_of(pairs: &Pairs) -> usize {
    pairs
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

/// Refuses metadata outside the limits.
pub(crate) fn check_info(
    content_type: Option<&String>,
    metadata: &Pairs,
    attributes: &Pairs,
) -> Result<(), ObjectError> {
    let limits = [
        (Limited::Metadata, bytes_of(metadata), MAX_METADATA_BYTES),
        (
            Limited::Attributes,
            bytes_of(attributes) + content_type.map_or(0, String::len),
            MAX_ATTRIBUTE_BYTES,
        ),
    ];
    match limits.into_iter().find(|(_, got, max)| got > max) {
        None => Ok(()),
        Some((what, got, max)) => Err(ObjectError::TooLarge {
            what,
            got: got as u64,
            max: max as u64,
        }),
    }
}

/// Counts a commit to a bucket, which cannot be deleted meanwhile.
struct Committing {
    inner: Arc<Inner>,
    bucket: String,
}

impl Drop for Committing {
    fn drop(&mut self) {
        if let Some(bucket) = self.inner.state().buckets.get_mut(&self.bucket) {
            bucket.commits -= 1;
        }
    }
}

/// What an object is going to be.
pub(crate) struct NewObject {
    pub(crate) put: PutInfo,
    pub(crate) commit: CommitInfo,
    pub(crate) size: u64,
    pub(crate) segments: Vec<Segment>,
    /// The data that the segments name, if this object brought it.
    pub(crate) written: Option<Arc<Written>>,
    /// Its last piece.
    pub(crate) last: Option<(LumpId, LumpBuf)>,
    /// Records that are gone by it.
    pub(crate) deletes: Vec<LumpId>,
}

/// Where an object goes. Nobody else changes this key meanwhile.
pub(crate) struct Place {
    held: Held,
    counted: Committing,
    bucket: u32,
    key: String,
    old: Option<Entry>,
}

fn check_condition(
    (bucket, key): (&str, &str),
    condition: Condition,
    old: Option<&Entry>,
) -> Result<(), ObjectError> {
    let why = match (condition, old) {
        (Condition::Always, _) | (Condition::IfAbsent, None) | (Condition::IfPresent, Some(_)) => {
            return Ok(());
        }
        (Condition::IfAbsent, Some(_)) => "there is such an object",
        (Condition::IfPresent | Condition::IfMatch(_), None) => {
            return Err(ObjectError::NoSuchKey {
                bucket: bucket.to_owned(),
                key: key.to_owned(),
            });
        }
        (Condition::IfMatch(etag), Some(old)) => {
            if decode(old)?.info.etag == etag {
                return Ok(());
            }
            "the object has another ETag"
        }
    };
    Err(ObjectError::ConditionFailed { why })
}

impl Objects {
    /// Waits for the key, and decides the condition.
    pub(crate) async fn place(
        &self,
        bucket: (&str, u32),
        key: &str,
        condition: Condition,
    ) -> Result<Place, ObjectError> {
        let (name, number) = bucket;
        let held = self.inner.hold(Path::Key(number, key.to_owned())).await;
        let old = {
            let mut state = self.inner.state();
            let there = state.bucket(name)?.number == number;
            let gone = || ObjectError::NoSuchBucket {
                bucket: name.to_owned(),
            };
            let entry = state.buckets.get_mut(name).filter(|_| there);
            entry.ok_or_else(gone)?.commits += 1;
            state.catalogue.get(number, key)
        };
        let counted = Committing {
            inner: Arc::clone(&self.inner),
            bucket: name.to_owned(),
        };
        check_condition((name, key), condition, old.as_ref())?;
        Ok(Place {
            held,
            counted,
            bucket: number,
            key: key.to_owned(),
            old,
        })
    }

    /// Commits an object. `then` is called when it is durable. The change is let go before the key,
    /// so that the next one for it finds the map as it is then.
    pub(crate) fn commit_object(
        &self,
        ctx: RequestCtx,
        place: Place,
        new: NewObject,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<Answer<Committed>, ObjectError> {
        let NewObject {
            put,
            commit,
            size,
            segments,
            written,
            last,
            deletes,
        } = new;
        let mut attributes = put.attributes;
        attributes.extend(commit.attributes);
        check_info(put.content_type.as_ref(), &put.metadata, &attributes)?;
        let info = ObjectInfo {
            size,
            etag: commit.etag,
            modified_ms: now_ms(),
            crc32c: commit.crc32c,
            content_type: put.content_type,
            metadata: put.metadata,
            attributes,
        };
        let number = written
            .as_ref()
            .map_or_else(|| self.inner.number(), |written| written.number);
        let body = Body {
            number,
            info: info.clone(),
            segments,
        };
        let body: Arc<[u8]> = Arc::from(body.encode());
        let record_number = place.old.as_ref().map_or(number, |old| old.record);
        let record = Record::Object(ObjectRecord {
            bucket: place.bucket,
            key: place.key.clone(),
            body: Arc::clone(&body),
        });
        let change = Change {
            piece: last,
            deletes,
            ..Change::of(Kind::Object.id(record_number, 0), &record)
        };
        let inner = Arc::clone(&self.inner);
        put_record(&self.inner, ctx, change, move || {
            if let Some(written) = &written {
                written.keep();
            }
            let entry = Entry {
                record: record_number,
                body,
            };
            let mut state = inner.state();
            let old = state.catalogue.insert(place.bucket, &place.key, entry);
            drop(state);
            if let Some(old) = &old {
                inner.release(old);
            }
            then();
            drop((place.held, place.counted));
            Committed {
                info,
                replaced: old.is_some(),
            }
        })
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchKey`] when the condition wants one,
    /// [`ObjectError::ConditionFailed`], [`ObjectError::Engine`].
    pub async fn delete(
        &self,
        ctx: RequestCtx,
        bucket: &str,
        key: &str,
        condition: Condition,
    ) -> Result<Deleted, ObjectError> {
        let number = self.inner.state().bucket(bucket)?.number;
        let mut place = self.place((bucket, number), key, condition).await?;
        let Some(old) = place.old.take() else {
            return Ok(Deleted { existed: false });
        };
        let inner = Arc::clone(&self.inner);
        let id = Kind::Object.id(old.record, 0);
        delete_lump(&self.inner, ctx, id, move |result| {
            if result.is_ok() {
                inner.state().catalogue.remove(place.bucket, &place.key);
                inner.release(&old);
            }
            drop((place.held, place.counted));
        })?
        .await?;
        Ok(Deleted { existed: true })
    }

    /// Durability of what nobody is told of before its commit.
    pub(crate) const BEFORE_COMMIT: Durability = Durability::Journaled;
}

/// A piece on its way: told when its record is in the journal.
pub(crate) fn put_piece(
    inner: &Arc<Inner>,
    ctx: RequestCtx,
    (written, index): (Arc<Written>, u64),
    buf: LumpBuf,
) -> Result<Answer<()>, ObjectError> {
    let (told, answer) = oneshot::channel();
    let id = id::piece(written.number, index);
    let used = inner.meter(ctx);
    let on_done = Box::new(move |result: Result<PutOutcome, Error>, times| {
        used(times);
        let _ = told.send(result.map(drop).map_err(ObjectError::from));
        drop(written);
    });
    let durability = Objects::BEFORE_COMMIT;
    inner
        .store
        .submit_put(ctx, id, buf, Placement::Data, durability, on_done)?;
    Ok(Answer(answer))
}
