//! Writing an object: its bytes are cut into pieces as they come.

use std::sync::Arc;
use std::time::Instant;

use lumpscope_engine::{Error, LumpBuf, LumpId, PutCondition, RequestCtx};

use crate::Objects;
use crate::commit::{NewObject, Old, check_info, check_key, info_of};
use crate::ctx::Ctx;
use crate::error::{Limited, ObjectError};
use crate::id;
use crate::journal::{PendingAnswer, put_piece};
use crate::juicefs::BlockKey;
use crate::record::Segment;
use crate::state::PendingData;
use crate::trailer;
use crate::types::{CommitInfo, Committed, MAX_OBJECT_BYTES, PutInfo, TAG};

/// The piece that is being filled.
enum Piece {
    /// Its length is known.
    Exact(LumpBuf),
    /// It may become shorter: the end is not known.
    Open(Vec<u8>),
}

impl Piece {
    fn room(&self, most: usize, behind: usize) -> usize {
        match self {
            Self::Exact(buf) => buf.remaining() - behind,
            Self::Open(bytes) => most - bytes.len(),
        }
    }
}

/// Bytes on their way into the store, for an object or a part.
pub(crate) struct DataWriter {
    objects: Objects,
    pub(crate) written: Arc<PendingData>,
    /// Announced number of bytes, if known.
    size: Option<u64>,
    /// Bytes received.
    pub(crate) got: u64,
    piece_bytes: u32,
    piece: Option<Piece>,
    /// Room behind the bytes of the only piece, for the trailer of a block; 0: no block.
    behind: usize,
    /// Pieces handed over.
    handed: u64,
    /// The last one of them.
    under_way: Option<PendingAnswer<()>>,
}

impl DataWriter {
    pub(crate) fn new(objects: &Objects, size: Option<u64>) -> Result<Self, ObjectError> {
        let got = size.unwrap_or(0);
        if got > MAX_OBJECT_BYTES {
            return Err(ObjectError::TooLarge {
                what: Limited::Object,
                got,
                max: MAX_OBJECT_BYTES,
            });
        }
        Ok(Self {
            objects: objects.clone(),
            written: objects.inner.written(),
            size,
            got: 0,
            piece_bytes: objects.inner.options.piece_bytes,
            piece: None,
            behind: 0,
            handed: 0,
            under_way: None,
        })
    }

    /// Places of the bytes, once all have been written.
    pub(crate) fn segment(&self) -> Segment {
        Segment {
            number: self.written.number,
            size: self.got,
            piece: self.piece_bytes,
        }
    }

    fn piece_len(&self) -> usize {
        usize::try_from(self.piece_bytes).unwrap_or(usize::MAX)
    }

    pub(crate) async fn write(
        &mut self,
        ctx: Ctx<'_>,
        mut bytes: &[u8],
    ) -> Result<(), ObjectError> {
        let announced = self.size.unwrap_or(MAX_OBJECT_BYTES);
        let got = self.got.saturating_add(bytes.len() as u64);
        if got > announced {
            return Err(ObjectError::LengthMismatch { announced, got });
        }
        let most = self.piece_len();
        while !bytes.is_empty() {
            // A full piece waits for more bytes: the last one belongs to the commit.
            if self
                .piece
                .as_ref()
                .is_some_and(|piece| piece.room(most, self.behind) == 0)
            {
                self.hand_over(ctx).await?;
            }
            if self.piece.is_none() {
                self.piece = Some(self.begin(ctx).await?);
            }
            let Some(piece) = &mut self.piece else {
                continue;
            };
            let (now, later) = bytes.split_at(piece.room(most, self.behind).min(bytes.len()));
            match piece {
                Piece::Exact(buf) => {
                    buf.write(now).await?;
                    if buf.remaining() == 0
                        && let Some((times, waited_ns)) = buf.piece_times()
                    {
                        ctx.waited(times, waited_ns);
                    }
                }
                Piece::Open(open) => {
                    let len = open.len() + now.len();
                    if len > open.capacity() {
                        // Grows twice as large, but never beyond a piece.
                        let room = (open.capacity() * 2).clamp(len, most);
                        open.reserve_exact(room - open.len());
                    }
                    open.extend_from_slice(now);
                }
            }
            self.got += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }

    /// A piece of the object is a lump. A large one is written while it comes, unless it may become
    /// a block, whose id is not known yet.
    async fn begin(&mut self, ctx: Ctx<'_>) -> Result<Piece, ObjectError> {
        match self.size {
            Some(size) => {
                let len = (size - self.got).min(self.piece_bytes.into());
                let id = id::piece(self.written.number, self.handed);
                let passes = self.behind == 0 && self.objects.inner.store.passes(len);
                let comes = passes.then_some((ctx.engine, id));
                let buf = self.memory(len + self.behind as u64, comes).await?;
                Ok(Piece::Exact(buf))
            }
            None => Ok(Piece::Open(Vec::new())),
        }
    }

    /// Memory for a piece, waiting for it if need be; `comes`: it is written while it comes.
    async fn memory(
        &mut self,
        len: u64,
        comes: Option<(RequestCtx, LumpId)>,
    ) -> Result<LumpBuf, ObjectError> {
        let since = Instant::now();
        loop {
            let inner = &self.objects.inner;
            let buf = match comes {
                None => inner.store.lump_buf(len),
                Some((ctx, id)) => {
                    let always = PutCondition::Always;
                    inner.store.lump_buf_in_pieces(ctx, (id, len), always)
                }
            };
            match buf {
                Err(Error::BuffersExhausted { .. }) if self.under_way.is_some() => {
                    self.landed().await?;
                }
                Err(Error::BuffersExhausted { retry_after, .. })
                    if since.elapsed() < inner.options.memory_wait =>
                {
                    tokio::time::sleep(retry_after).await;
                }
                other => return Ok(other?),
            }
        }
    }

    /// Waits until the piece handed over last is in the journal.
    async fn landed(&mut self) -> Result<(), ObjectError> {
        match self.under_way.take() {
            Some(answer) => answer.await,
            None => Ok(()),
        }
    }

    /// The piece that is being filled, sealed.
    async fn sealed(&mut self) -> Result<Option<LumpBuf>, ObjectError> {
        match self.piece.take() {
            None => Ok(None),
            Some(Piece::Exact(buf)) => Ok(Some(buf)),
            Some(Piece::Open(bytes)) => {
                let mut buf = self.memory(bytes.len() as u64, None).await?;
                buf.extend(&bytes)?;
                Ok(Some(buf))
            }
        }
    }

    /// Hands the piece over, one at a time.
    async fn hand_over(&mut self, ctx: Ctx<'_>) -> Result<(), ObjectError> {
        let Some(buf) = self.sealed().await? else {
            return Ok(());
        };
        self.landed().await?;
        let piece = (Arc::clone(&self.written), self.handed);
        self.under_way = Some(put_piece(&self.objects.inner, ctx, piece, buf)?);
        self.handed += 1;
        Ok(())
    }

    /// All bytes have come: every piece is in the journal, except for the last, which is handed
    /// back for the commit.
    pub(crate) async fn end(&mut self) -> Result<Option<(LumpId, LumpBuf)>, ObjectError> {
        if let Some(announced) = self.size.filter(|size| *size != self.got) {
            return Err(ObjectError::LengthMismatch {
                announced,
                got: self.got,
            });
        }
        let last = self.sealed().await?;
        self.landed().await?;
        Ok(last.map(|buf| (id::piece(self.written.number, self.handed), buf)))
    }

    /// Turns a planned block into a piece: no room behind its bytes.
    async fn without_room(&mut self, buf: LumpBuf) -> Result<LumpBuf, ObjectError> {
        let mut piece = self.memory(buf.filled().len() as u64, None).await?;
        piece.extend(buf.filled())?;
        Ok(piece)
    }
}

/// The room that an object needs behind its bytes, if it may be a block.
fn room_of(objects: &Objects, bucket: u32, key: &str, put: &PutInfo) -> Option<usize> {
    let (_, block) = BlockKey::parse(key)?;
    let piece = objects.inner.options.piece_bytes;
    if put.size != Some(block.size.into()) || block.size > piece {
        return None;
    }
    // Tags change, which only a record can.
    if put.attributes.iter().any(|(name, _)| name.starts_with(TAG)) {
        return None;
    }
    // An object of the catalogue stays there.
    if objects.inner.state().catalogue.get(bucket, key).is_some() {
        return None;
    }
    trailer::room(put)
}

/// An object on its way into the store. Keeps at most two pieces in memory. Dropped without
/// [`Writer::commit`], it leaves nothing behind.
pub struct Writer {
    data: DataWriter,
    bucket: (String, u32),
    key: String,
    put: PutInfo,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("bucket", &self.bucket.0)
            .field("written", &self.data.got)
            .finish_non_exhaustive()
    }
}

impl Objects {
    /// Begins to write an object. It is invisible until it is committed.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::Invalid`], [`ObjectError::TooLarge`].
    pub fn begin(&self, bucket: &str, key: &str, put: PutInfo) -> Result<Writer, ObjectError> {
        check_key(key)?;
        check_info(put.content_type.as_ref(), &put.metadata, &put.attributes)?;
        let number = self.inner.state().bucket(bucket)?.number;
        let mut data = DataWriter::new(self, put.size)?;
        data.behind = room_of(self, number, key, &put).unwrap_or(0);
        Ok(Writer {
            data,
            bucket: (bucket.to_owned(), number),
            key: key.to_owned(),
            put,
        })
    }
}

impl Writer {
    /// Appends bytes. Waits for memory and for the store.
    ///
    /// # Errors
    /// [`ObjectError::LengthMismatch`] when more come than were announced,
    /// [`ObjectError::Engine`]. The writer is of no use afterwards.
    pub async fn write(&mut self, ctx: Ctx<'_>, bytes: &[u8]) -> Result<(), ObjectError> {
        self.data.write(ctx, bytes).await
    }

    /// Bytes received.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.data.got
    }

    /// Commits the object under its key, if the condition holds then. When this returns, it is
    /// as durable as [`ObjectOptions::durability`](crate::ObjectOptions::durability) says.
    ///
    /// # Errors
    /// [`ObjectError::LengthMismatch`], [`ObjectError::ConditionFailed`],
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::TooLarge`], [`ObjectError::Engine`].
    pub async fn commit(
        mut self,
        ctx: Ctx<'_>,
        commit: CommitInfo,
    ) -> Result<Committed, ObjectError> {
        let mut last = self.data.end().await?;
        let Self {
            mut data,
            bucket: (name, number),
            key,
            put,
        } = self;
        let objects = data.objects.clone();
        let bucket = (name.as_str(), number);
        let place = objects.place(ctx, bucket, &key, commit.condition).await?;
        if let Some((id, buf)) = last.take_if(|_| data.behind > 0) {
            if matches!(place.old, Old::Absent) {
                let info = info_of(put.clone(), commit.clone(), data.got)?;
                let new = objects.new_block(ctx, (number, &key), &info, data.behind);
                if let Some(block) = new.await? {
                    // It has no pieces.
                    data.written.keep();
                    return objects.put_block(ctx, place, buf, block)?.await;
                }
            }
            last = Some((id, data.without_room(buf).await?));
        }
        let segment = data.segment();
        let new = NewObject {
            put,
            commit,
            size: segment.size,
            segments: (segment.size > 0).then_some(segment).into_iter().collect(),
            written: Some(Arc::clone(&data.written)),
            last,
            deletes: Vec::new(),
        };
        objects.commit_object(ctx, place, new, || {})?.await
    }
}
