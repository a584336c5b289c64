//! Blocks of JuiceFS volumes: a lump each, and no record. The engine's
//! index knows them; the metadata of a block stands behind its bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lumpscope_engine::{
    Error, ListOutcome, LumpBuf, LumpId, LumpRange, Placement, PutOutcome, Rest,
};
use tokio::sync::oneshot;

use crate::Objects;
use crate::catalogue::Entry;
use crate::commit::KeyReservation;
use crate::ctx::Ctx;
use crate::error::ObjectError;
use crate::id::LumpKind;
use crate::journal::{Change, PendingAnswer, put_record};
use crate::juicefs::{self, BlockKey};
use crate::record::{Record, VolumeRecord};
use crate::state::{ObjectsShared, Path, VolumeName, background};
use crate::trailer::{self, MAX_TRAILER_BYTES};
use crate::types::{Committed, ObjectInfo};

/// Place of the object of a key.
pub(crate) enum Sought {
    /// In the catalogue.
    Entry(Entry),
    /// In a lump; its id is given to no other block while the watch is held.
    Block(BlockWatch, LumpId),
}

/// Bytes of a block that is read at once, with its metadata.
const SMALL: u64 = 512 * 1024;

/// A look-up or a read of a block.
pub(crate) struct BlockWatch {
    inner: Arc<ObjectsShared>,
    ids: LumpRange,
}

impl Drop for BlockWatch {
    fn drop(&mut self) {
        let mut state = self.inner.state();
        if let Some(count) = state.watched.get_mut(&self.ids.start) {
            *count -= 1;
            if *count == 0 {
                state.watched.remove(&self.ids.start);
            }
        }
    }
}

/// Bytes of a block, and its metadata.
pub(crate) struct Loaded {
    pub(crate) info: ObjectInfo,
    /// Of the first byte within the block.
    pub(crate) first: u64,
    pub(crate) bytes: Bytes,
    /// What follows these bytes.
    pub(crate) rest: Option<Rest>,
}

/// A block that is going to be put.
pub(crate) struct NewBlock {
    id: LumpId,
    info: ObjectInfo,
    trailer: Vec<u8>,
}

fn told<T: Send + 'static>() -> (lumpscope_engine::OnDone<T>, PendingAnswer<T>) {
    let (told, answer) = oneshot::channel();
    let on_done = Box::new(move |result: Result<T, Error>, _| {
        let _ = told.send(result.map_err(ObjectError::from));
    });
    (on_done, PendingAnswer(answer))
}

impl ObjectsShared {
    /// The first ids of a range.
    pub(crate) async fn ids(
        &self,
        range: LumpRange,
        limit: usize,
    ) -> Result<ListOutcome, ObjectError> {
        let (on_done, answer) = told();
        self.store
            .submit_list(background(), range, limit, on_done)?;
        answer.await
    }

    /// The ids that the block of a key has, if it is one of a volume that is known.
    fn block_ids(&self, bucket: u32, key: &str) -> Option<LumpRange> {
        let (prefix, block) = BlockKey::parse(key)?;
        let name = VolumeName::new(bucket, prefix, block.layout);
        let volume = *self.state().volumes.get(&name)?;
        Some(block.ids(volume))
    }

    /// The block of a key, for who holds the key.
    pub(crate) async fn block(
        &self,
        bucket: u32,
        key: &str,
    ) -> Result<Option<LumpId>, ObjectError> {
        let Some(ids) = self.block_ids(bucket, key) else {
            return Ok(None);
        };
        Ok(self.ids(ids, 1).await?.ids.first().copied())
    }

    fn watch(self: &Arc<Self>, ids: LumpRange) -> BlockWatch {
        *self.state().watched.entry(ids.start).or_insert(0) += 1;
        BlockWatch {
            inner: Arc::clone(self),
            ids,
        }
    }

    /// Finds the object of a key.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchKey`], [`ObjectError::Engine`].
    pub(crate) async fn seek(
        self: &Arc<Self>,
        bucket: &str,
        key: &str,
    ) -> Result<Sought, ObjectError> {
        loop {
            let missing = match self.state().entry(bucket, key) {
                Ok(entry) => return Ok(Sought::Entry(entry)),
                Err(missing @ ObjectError::NoSuchKey { .. }) => missing,
                Err(error) => return Err(error),
            };
            let number = self.state().bucket(bucket)?.number;
            let Some(ids) = self.block_ids(number, key) else {
                return Err(missing);
            };
            // Before asking the index: a put of a block checks for watches when no block is there.
            let watch = self.watch(ids);
            if let Some(&id) = self.ids(ids, 1).await?.ids.first() {
                return Ok(Sought::Block(watch, id));
            }
            if !self.has_moved(number, key).await {
                return Err(missing);
            }
        }
    }

    /// True when an object that was found in neither place may have changed its place
    /// meanwhile. Waits until that is over.
    async fn has_moved(self: &Arc<Self>, bucket: u32, key: &str) -> bool {
        let moving = {
            let state = self.state();
            if state.catalogue.get(bucket, key).is_some() {
                return true;
            }
            state.moving.contains_key(&(bucket, key.to_owned()))
        };
        if moving {
            drop(self.hold(Path::Key(bucket, key.to_owned())).await);
        }
        moving
    }

    /// Reads the metadata of a block, and some or all of its bytes.
    ///
    /// # Errors
    /// [`ObjectError::Engine`] with [`Error::NotFound`] when it is gone,
    /// [`ObjectError::Damaged`].
    pub(crate) async fn load(
        &self,
        ctx: Ctx<'_>,
        (bucket, key, id): (&str, &str, LumpId),
        part: Option<Range<u64>>,
    ) -> Result<Loaded, ObjectError> {
        let damaged = |why| ObjectError::Damaged {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            id,
            why,
        };
        let size = size_of(id);
        let behind = size..size + MAX_TRAILER_BYTES as u64 + 1;
        // One read is enough for all of a small one.
        let part = part.or((size > SMALL).then_some(0..size));
        let mut rest = None;
        let (first, bytes, trailer) = match part {
            None => {
                let whole = self.ask_whole(ctx, id)?.await?;
                let mut bytes = Bytes::from_owner(whole.into_bytes_owner());
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                if bytes.len() < size {
                    return Err(damaged("the lump is shorter than the block"));
                }
                let trailer = bytes.split_off(size);
                (0, bytes, trailer)
            }
            Some(part) => {
                let trailer = self.ask_range(ctx, id, behind)?;
                let (first, mut bytes) = (part.start, Bytes::new());
                if !part.is_empty() {
                    let opening = self.ask_open(ctx, id, part.start, part.end - part.start)?;
                    let opened = opening.get(ctx).await?;
                    rest = opened.rest;
                    bytes = Bytes::from_owner(opened.first.into_bytes_owner());
                }
                let trailer = Bytes::from_owner(trailer.await?.into_bytes_owner());
                (first, bytes, trailer)
            }
        };
        let info = trailer::decode(id, &trailer).map_err(|why| damaged(why.0))?;
        Ok(Loaded {
            info,
            first,
            bytes,
            rest,
        })
    }
}

/// Bytes of the block with this id.
pub(crate) fn size_of(id: LumpId) -> u64 {
    // The size does not depend on the layout.
    let (block, _) = BlockKey::of_id(id, juicefs::Layout::Plain);
    block.size.into()
}

impl Objects {
    /// The number of a volume, which is given one if it has none; `None`: all are taken.
    async fn volume(&self, ctx: Ctx<'_>, name: VolumeName) -> Result<Option<u8>, ObjectError> {
        let found = self.inner.state().volumes.get(&name).copied();
        if found.is_some() {
            return Ok(found);
        }
        let held = self.inner.hold(Path::Volumes).await;
        let number = {
            let state = self.inner.state();
            if let Some(found) = state.volumes.get(&name) {
                return Ok(Some(*found));
            }
            u8::try_from(state.next_volume).ok()
        };
        let Some(number) = number else {
            return Ok(None);
        };
        let record = Record::Volume(VolumeRecord {
            bucket: name.bucket,
            prefix: name.prefix.clone(),
            layout: name.layout,
        });
        let inner = Arc::clone(&self.inner);
        let id = LumpKind::Volume.id(number.into(), 0);
        put_record(&self.inner, ctx, Change::of(id, &record), move || {
            let mut state = inner.state();
            state.volumes.insert(name, number);
            state.next_volume = u16::from(number) + 1;
            drop(state);
            drop(held);
        })?
        .await?;
        Ok(Some(number))
    }

    /// The planned lump of a block; the caller holds the key and found no object there. `None`:
    /// the object must go to the catalogue.
    pub(crate) async fn new_block(
        &self,
        ctx: Ctx<'_>,
        (bucket, key): (u32, &str),
        info: &ObjectInfo,
        room: usize,
    ) -> Result<Option<NewBlock>, ObjectError> {
        let Some((prefix, block)) = BlockKey::parse(key) else {
            return Ok(None);
        };
        let name = VolumeName::new(bucket, prefix, block.layout);
        let Some(volume) = self.volume(ctx, name).await? else {
            return Ok(None);
        };
        // A reader may still hold a deleted block whose id the new one would get.
        let ids = block.ids(volume);
        if self.inner.state().watched.contains_key(&ids.start) {
            return Ok(None);
        }
        let id = block.id(volume, info.modified_ms);
        let trailer = trailer::encode(id, info, room);
        Ok(trailer.map(|trailer| NewBlock {
            id,
            info: info.clone(),
            trailer,
        }))
    }

    /// Puts a block whose bytes are in `buf`, which has room for its trailer.
    pub(crate) fn put_block(
        &self,
        ctx: Ctx<'_>,
        place: KeyReservation,
        mut buf: LumpBuf,
        block: NewBlock,
    ) -> Result<PendingAnswer<Committed>, ObjectError> {
        let NewBlock { id, info, trailer } = block;
        buf.extend(&trailer)?;
        let (told, answer) = oneshot::channel();
        let used = ctx.meter();
        let on_done = Box::new(move |result: Result<PutOutcome, Error>, times| {
            used(times);
            drop(place);
            let done = result.map(|_| Committed {
                info,
                replaced: false,
            });
            let _ = told.send(done.map_err(ObjectError::from));
        });
        let durability = self.inner.options.durability;
        self.inner
            .store
            .submit_put(ctx.engine, id, buf, Placement::Data, durability, on_done)?;
        Ok(PendingAnswer(answer))
    }

    /// True when a bucket holds a block.
    pub(crate) async fn has_blocks(&self, bucket: u32) -> Result<bool, ObjectError> {
        let volumes = self.inner.state().volumes_of(bucket);
        for (_, volume) in volumes {
            let first = self.inner.ids(juicefs::volume(volume), 1).await?;
            if !first.ids.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Removes the volumes of a deleted bucket, which have no blocks.
    pub(crate) fn drop_volumes(&self, bucket: u32) {
        let mut state = self.inner.state();
        let volumes = state.volumes_of(bucket);
        state.volumes.retain(|name, _| name.bucket != bucket);
        drop(state);
        let ids = volumes
            .into_iter()
            .map(|(_, number)| LumpKind::Volume.id(number.into(), 0));
        self.inner.free(ids.map(|id| (id, LumpId(id.0 + 1))));
    }
}
