//! Changes of the catalogue. Each is one put or delete of one embedded lump.

use std::sync::Arc;

use lumpscope_engine::{LumpBuf, LumpId};

use crate::Objects;
use crate::catalogue::Entry;
use crate::ctx::Ctx;
use crate::error::{Limited, ObjectError};
use crate::id::LumpKind;
use crate::journal::{Change, PendingAnswer, delete_lump, put_record};
use crate::record::{Body, ObjectRecord, Record, Segment};
use crate::state::{ChangeLock, Moving, ObjectsShared, Path, PendingData, decode, now_ms};
use crate::types::{
    CommitInfo, Committed, Condition, Deleted, MAX_ATTRIBUTE_BYTES, MAX_KEY_BYTES,
    MAX_METADATA_BYTES, ObjectInfo, Pairs, PutInfo, TAG,
};

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
    inner: Arc<ObjectsShared>,
    bucket: String,
}

impl Drop for Committing {
    fn drop(&mut self) {
        if let Some(bucket) = self.inner.state().buckets.get_mut(&self.bucket) {
            bucket.commits -= 1;
        }
    }
}

/// A planned object.
pub(crate) struct NewObject {
    pub(crate) put: PutInfo,
    pub(crate) commit: CommitInfo,
    pub(crate) size: u64,
    pub(crate) segments: Vec<Segment>,
    /// The data that the segments name, if this object brought it.
    pub(crate) written: Option<Arc<PendingData>>,
    /// Its last piece.
    pub(crate) last: Option<(LumpId, LumpBuf)>,
    /// Records that the change deletes.
    pub(crate) deletes: Vec<LumpId>,
}

/// The metadata of a planned object.
pub(crate) fn info_of(
    put: PutInfo,
    commit: CommitInfo,
    size: u64,
) -> Result<ObjectInfo, ObjectError> {
    let mut attributes = put.attributes;
    attributes.extend(commit.attributes);
    check_info(put.content_type.as_ref(), &put.metadata, &attributes)?;
    Ok(ObjectInfo {
        size,
        etag: commit.etag,
        modified_ms: now_ms(),
        crc32c: commit.crc32c,
        content_type: put.content_type,
        metadata: put.metadata,
        attributes,
    })
}

/// Place of a new object. Holds the exclusive right to change its key.
pub(crate) struct KeyReservation {
    /// Let go before the key.
    moving: Option<Moving>,
    _counted: Committing,
    _held: ChangeLock,
    bucket: u32,
    key: String,
    pub(crate) old: Old,
}

/// The object that has the key now.
pub(crate) enum Old {
    Absent,
    Entry(Entry),
    Block(LumpId),
}

fn check_condition(
    (bucket, key): (&str, &str),
    condition: Condition,
    old: Option<&ObjectInfo>,
) -> Result<(), ObjectError> {
    let Some(old) = old else {
        return match condition {
            Condition::IfPresent
            | Condition::IfMatch(_)
            | Condition::IfLike { etag: Some(_), .. } => Err(ObjectError::NoSuchKey {
                bucket: bucket.to_owned(),
                key: key.to_owned(),
            }),
            _ => Ok(()),
        };
    };
    let (holds, why) = match condition {
        Condition::Always | Condition::IfPresent => return Ok(()),
        Condition::IfAbsent => (false, "there is such an object"),
        Condition::IfMatch(etag) => (old.etag == etag, "the object has another ETag"),
        Condition::UnlessMatch(etag) => (old.etag != etag, "the object has this ETag"),
        Condition::IfLike {
            size,
            modified_s,
            etag,
        } => {
            let like = size.is_none_or(|size| old.size == size)
                && modified_s.is_none_or(|time| old.modified_ms / 1000 == time)
                && etag.is_none_or(|etag| old.etag == etag);
            (like, "the object has another size, time or ETag")
        }
    };
    match holds {
        true => Ok(()),
        false => Err(ObjectError::ConditionFailed { why }),
    }
}

impl Objects {
    /// Waits for the key, and decides the condition.
    pub(crate) async fn place(
        &self,
        ctx: Ctx<'_>,
        bucket: (&str, u32),
        key: &str,
        condition: Condition,
    ) -> Result<KeyReservation, ObjectError> {
        let (name, number) = bucket;
        let held = self.inner.hold(Path::Key(number, key.to_owned())).await;
        let entry = {
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
        let (old, info) = match entry {
            Some(entry) => {
                let info = decode(&entry)?.info;
                (Old::Entry(entry), Some(info))
            }
            None => match self.inner.block(number, key).await? {
                None => (Old::Absent, None),
                Some(id) => {
                    let info = match condition {
                        Condition::Always | Condition::IfAbsent | Condition::IfPresent => {
                            ObjectInfo::default()
                        }
                        _ => {
                            let block = (name, key, id);
                            self.inner.load(ctx, block, Some(0..0)).await?.info
                        }
                    };
                    (Old::Block(id), Some(info))
                }
            },
        };
        check_condition((name, key), condition, info.as_ref())?;
        Ok(KeyReservation {
            moving: None,
            _counted: counted,
            _held: held,
            bucket: number,
            key: key.to_owned(),
            old,
        })
    }

    /// Commits an object. `then` is called when it is durable. The change is let go before the key,
    /// so that the next one for it finds the map as it is then.
    pub(crate) fn commit_object(
        &self,
        ctx: Ctx<'_>,
        mut place: KeyReservation,
        new: NewObject,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<PendingAnswer<Committed>, ObjectError> {
        let NewObject {
            put,
            commit,
            size,
            segments,
            written,
            last,
            mut deletes,
        } = new;
        let info = info_of(put, commit, size)?;
        let number = written
            .as_ref()
            .map_or_else(|| self.inner.number(), |written| written.number);
        let body = Body {
            number,
            info: info.clone(),
            segments,
        };
        let body: Arc<[u8]> = Arc::from(body.encode());
        let record_number = match &place.old {
            Old::Entry(old) => old.record,
            Old::Absent | Old::Block(_) => number,
        };
        let block = match place.old {
            Old::Block(id) => Some(id),
            Old::Absent | Old::Entry(_) => None,
        };
        deletes.extend(block);
        place.moving = block.map(|id| {
            let name = (place.bucket, place.key.clone());
            self.inner.moving(name, id)
        });
        let record = Record::Object(ObjectRecord {
            bucket: place.bucket,
            key: place.key.clone(),
            body: Arc::clone(&body),
        });
        let change = Change {
            piece: last,
            deletes,
            ..Change::of(LumpKind::Object.id(record_number, 0), &record)
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
            let replaced = old.is_some() || place.moving.is_some();
            drop(place);
            Committed { info, replaced }
        })
    }

    /// Replaces the tags of an object: its attributes whose names begin with [`TAG`]. Neither its
    /// bytes nor its time change.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchKey`], [`ObjectError::TooLarge`],
    /// [`ObjectError::Invalid`] for a block of JuiceFS, which has no record,
    /// [`ObjectError::Engine`].
    pub async fn retag(
        &self,
        ctx: Ctx<'_>,
        (bucket, key): (&str, &str),
        tags: Pairs,
    ) -> Result<(), ObjectError> {
        let number = self.inner.state().bucket(bucket)?.number;
        let condition = Condition::IfPresent;
        let place = self.place(ctx, (bucket, number), key, condition).await?;
        let Old::Entry(old) = &place.old else {
            return Err(ObjectError::Invalid {
                what: "a tag of a block of JuiceFS",
                why: "it has no record to hold one; copy the object to another key",
            });
        };
        let (record_number, mut body) = (old.record, decode(old)?);
        let info = &mut body.info;
        info.attributes.retain(|(name, _)| !name.starts_with(TAG));
        info.attributes.extend(tags);
        check_info(info.content_type.as_ref(), &info.metadata, &info.attributes)?;
        let body: Arc<[u8]> = Arc::from(body.encode());
        let record = Record::Object(ObjectRecord {
            bucket: place.bucket,
            key: place.key.clone(),
            body: Arc::clone(&body),
        });
        let change = Change::of(LumpKind::Object.id(record_number, 0), &record);
        let inner = Arc::clone(&self.inner);
        put_record(&self.inner, ctx, change, move || {
            let entry = Entry {
                record: record_number,
                body,
            };
            // Of the same number, with the same data: nothing is freed.
            let mut state = inner.state();
            state.catalogue.insert(place.bucket, &place.key, entry);
            drop(state);
            drop(place);
        })?
        .await
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchKey`] when the condition wants one,
    /// [`ObjectError::ConditionFailed`], [`ObjectError::Engine`].
    pub async fn delete(
        &self,
        ctx: Ctx<'_>,
        bucket: &str,
        key: &str,
        condition: Condition,
    ) -> Result<Deleted, ObjectError> {
        let number = self.inner.state().bucket(bucket)?.number;
        let place = self.place(ctx, (bucket, number), key, condition).await?;
        self.remove(ctx, place).await
    }

    /// Deletes an object if it is one that `judge` means, as it is when nobody else may change it.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::Engine`], [`ObjectError::Damaged`].
    pub async fn delete_if(
        &self,
        ctx: Ctx<'_>,
        (bucket, key): (&str, &str),
        judge: impl FnOnce(&ObjectInfo) -> bool + Send,
    ) -> Result<Deleted, ObjectError> {
        let number = self.inner.state().bucket(bucket)?.number;
        let always = Condition::Always;
        let place = self.place(ctx, (bucket, number), key, always).await?;
        let is_meant = match &place.old {
            Old::Absent => false,
            Old::Entry(old) => judge(&decode(old)?.info),
            Old::Block(id) => {
                let block = (bucket, key, *id);
                judge(&self.inner.load(ctx, block, Some(0..0)).await?.info)
            }
        };
        match is_meant {
            true => self.remove(ctx, place).await,
            false => Ok(Deleted { existed: false }),
        }
    }

    /// Deletes what has the key.
    async fn remove(&self, ctx: Ctx<'_>, place: KeyReservation) -> Result<Deleted, ObjectError> {
        let id = match &place.old {
            Old::Absent => return Ok(Deleted { existed: false }),
            Old::Entry(old) => LumpKind::Object.id(old.record, 0),
            Old::Block(id) => *id,
        };
        let inner = Arc::clone(&self.inner);
        delete_lump(&self.inner, ctx, id, move |result| {
            if let (Ok(_), Old::Entry(old)) = (result, &place.old) {
                inner.state().catalogue.remove(place.bucket, &place.key);
                inner.release(old);
            }
            drop(place);
        })?
        .await?;
        Ok(Deleted { existed: true })
    }
}
