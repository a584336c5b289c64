//! Reading an object: piece by piece, the next one on its way.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use lumpscope_engine::{Error, LumpData, LumpId, RangeOutcome};
use tokio::sync::oneshot;

use crate::Objects;
use crate::blocks::{Loaded, Sought, size_of};
use crate::ctx::Ctx;
use crate::error::ObjectError;
use crate::id;
use crate::journal::Answer;
use crate::record::{Body, Segment};
use crate::state::{Inner, Reading, decode};
use crate::types::ObjectInfo;

/// A piece that is read next.
#[derive(Clone, Copy, Debug)]
struct Next {
    id: LumpId,
    /// Bytes of the piece wanted, and all of it.
    from: u64,
    len: u64,
    total: u64,
}

/// The object as it was when the reader began, unaffected by later commits and deletes.
pub struct Reader {
    source: Source,
    info: ObjectInfo,
    range: Range<u64>,
}

enum Source {
    Pieces(Pieces),
    /// Bytes read of a block, until they are taken: place of the first, and the bytes.
    Block(u64, Option<Bytes>),
}

struct Pieces {
    reading: Reading,
    bucket: String,
    key: String,
    segments: std::vec::IntoIter<Segment>,
    /// The rest of the present segment: first byte, end, and the segment.
    part: Option<(u64, u64, Segment)>,
    /// Bytes of the object before the next segment.
    before: u64,
    ahead: Option<(Next, Answer<LumpData>)>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader")
            .field("range", &self.range)
            .finish_non_exhaustive()
    }
}

impl Objects {
    /// Metadata of an object. For a JuiceFS block it is read from the disk.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchKey`], [`ObjectError::Engine`],
    /// [`ObjectError::Damaged`].
    pub async fn head(
        &self,
        ctx: Ctx<'_>,
        bucket: &str,
        key: &str,
    ) -> Result<ObjectInfo, ObjectError> {
        loop {
            match self.inner.seek(bucket, key).await? {
                Sought::Entry(entry) => return Ok(decode(&entry)?.info),
                Sought::Block(_watch, id) => {
                    let loaded = self.inner.load(ctx, (bucket, key, id), Some(0..0)).await;
                    if !is_gone(&loaded) {
                        return Ok(loaded?.info);
                    }
                }
            }
        }
    }

    /// Begins to read an object.
    ///
    /// # Errors
    /// As [`Objects::read_part`].
    pub async fn read(&self, ctx: Ctx<'_>, bucket: &str, key: &str) -> Result<Reader, ObjectError> {
        self.read_part(ctx, bucket, key, |_| None).await
    }

    /// Begins to read an object of which perhaps not all is wanted: `part` tells, from its size,
    /// what is going to be selected, within it. A JuiceFS block, which is one lump, is read at
    /// once, and only so much of it.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchKey`]; of a JuiceFS block also
    /// [`ObjectError::Engine`], [`ObjectError::Damaged`].
    pub async fn read_part(
        &self,
        ctx: Ctx<'_>,
        bucket: &str,
        key: &str,
        part: impl Fn(u64) -> Option<Range<u64>>,
    ) -> Result<Reader, ObjectError> {
        loop {
            match self.inner.seek(bucket, key).await? {
                Sought::Entry(_) => return self.read_pieces(bucket, key),
                Sought::Block(_watch, id) => {
                    let size = size_of(id);
                    let within = |part: &Range<u64>| part.start <= part.end && part.end <= size;
                    let part = part(size).filter(within);
                    let loaded = self.inner.load(ctx, (bucket, key, id), part).await;
                    if !is_gone(&loaded) {
                        let Loaded { info, first, bytes } = loaded?;
                        return Ok(Reader {
                            source: Source::Block(first, Some(bytes)),
                            range: 0..info.size,
                            info,
                        });
                    }
                }
            }
        }
    }

    fn read_pieces(&self, bucket: &str, key: &str) -> Result<Reader, ObjectError> {
        let (reading, body) = self.inner.reading(bucket, key)?;
        let Body { info, segments, .. } = body;
        let pieces = Pieces {
            reading,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            segments: segments.into_iter(),
            part: None,
            before: 0,
            ahead: None,
        };
        Ok(Reader {
            source: Source::Pieces(pieces),
            range: 0..info.size,
            info,
        })
    }
}

/// The block was deleted, or has moved, since it was found.
fn is_gone(loaded: &Result<Loaded, ObjectError>) -> bool {
    matches!(loaded, Err(ObjectError::Engine(Error::NotFound { .. })))
}

impl Reader {
    /// Metadata of the object.
    #[must_use]
    pub fn info(&self) -> &ObjectInfo {
        &self.info
    }

    /// Bytes of each part that it was uploaded in; none: it was put whole. To be called before
    /// [`Reader::next`].
    #[must_use]
    pub fn parts(&self) -> Vec<u64> {
        let count = usize::from(self.info.etag.parts);
        let mut sizes = match &self.source {
            Source::Pieces(pieces) if count > 0 => {
                let segments = pieces.segments.as_slice().iter();
                segments.map(|segment| segment.size).collect()
            }
            _ => Vec::new(),
        };
        // Only the last may be empty, and has no data then.
        sizes.resize(count, 0);
        sizes
    }

    /// Reads only these bytes of it; an end behind the object's is its end. To be called before
    /// [`Reader::next`].
    ///
    /// # Errors
    /// [`ObjectError::RangeOutside`] when it begins behind the last byte.
    pub fn select(&mut self, range: Range<u64>) -> Result<(), ObjectError> {
        let size = self.info.size;
        if range.start >= size {
            return Err(ObjectError::RangeOutside {
                start: range.start,
                size,
            });
        }
        self.range = range.start..range.end.min(size);
        Ok(())
    }

    /// The bytes that are selected.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// The next bytes, verified, up to a piece at a time; `None`: that was all. They are the
    /// memory that the device wrote to, and count against the store's budget until dropped.
    pub async fn next(&mut self, ctx: Ctx<'_>) -> Option<Result<Bytes, ObjectError>> {
        match &mut self.source {
            Source::Pieces(pieces) => pieces.next(ctx, &self.range).await,
            Source::Block(first, bytes) => {
                bytes.take().map(|bytes| cut(&bytes, *first, &self.range))
            }
        }
    }
}

/// The bytes `range` of a block of which those from `first` on were read.
fn cut(bytes: &Bytes, first: u64, range: &Range<u64>) -> Result<Bytes, ObjectError> {
    let at = |place: u64| usize::try_from(place.checked_sub(first)?).ok();
    match (at(range.start), at(range.end)) {
        (Some(start), Some(end)) if start <= end && end <= bytes.len() => {
            Ok(bytes.slice(start..end))
        }
        _ => Err(ObjectError::Invalid {
            what: "the range of a block",
            why: "it is not within what was asked to be read",
        }),
    }
}

impl Pieces {
    async fn next(
        &mut self,
        ctx: Ctx<'_>,
        range: &Range<u64>,
    ) -> Option<Result<Bytes, ObjectError>> {
        let (next, answer) = match self.ahead.take() {
            Some(ahead) => ahead,
            None => match self.start(ctx, range)? {
                Ok(started) => started,
                Err(error) => return Some(Err(error)),
            },
        };
        // The next one is read while this one is waited for and used. If the store is too busy
        // for that, it is asked for again when it is wanted.
        let mark = (self.segments.clone(), self.part, self.before);
        match self.start(ctx, range) {
            Some(Ok(ahead)) => self.ahead = Some(ahead),
            Some(Err(_)) => (self.segments, self.part, self.before) = mark,
            None => {}
        }
        let result = answer.await;
        Some(self.judge(next, result))
    }

    fn judge(
        &self,
        next: Next,
        result: Result<LumpData, ObjectError>,
    ) -> Result<Bytes, ObjectError> {
        let damaged = |why| ObjectError::Damaged {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            id: next.id,
            why,
        };
        match result {
            Ok(data) if data.len() as u64 == next.len => {
                Ok(Bytes::from_owner(data.into_bytes_owner()))
            }
            Ok(_) => Err(damaged("a piece is not as long as it was")),
            Err(ObjectError::Engine(Error::NotFound { .. })) => {
                Err(damaged("a piece is not there"))
            }
            Err(error) => Err(error),
        }
    }

    /// Starts to read the next piece; `None`: there is none.
    fn start(
        &mut self,
        ctx: Ctx<'_>,
        range: &Range<u64>,
    ) -> Option<Result<(Next, Answer<LumpData>), ObjectError>> {
        let next = self.next_piece(range)?;
        Some(ask(&self.reading.inner, ctx, next).map(|answer| (next, answer)))
    }

    fn next_piece(&mut self, range: &Range<u64>) -> Option<Next> {
        while self.part.is_none() {
            let segment = self.segments.next()?;
            let start = range.start.saturating_sub(self.before);
            let end = range.end.saturating_sub(self.before).min(segment.size);
            self.before += segment.size;
            if start < end {
                self.part = Some((start, end, segment));
            }
        }
        let (start, end, segment) = self.part?;
        let piece = u64::from(segment.piece);
        let (index, from) = (start / piece, start % piece);
        let total = (segment.size - index * piece).min(piece);
        let len = (total - from).min(end - start);
        self.part = (start + len < end).then_some((start + len, end, segment));
        Some(Next {
            id: id::piece(segment.number, index),
            from,
            len,
            total,
        })
    }
}

fn ask(inner: &Arc<Inner>, ctx: Ctx<'_>, next: Next) -> Result<Answer<LumpData>, ObjectError> {
    let Next {
        id,
        from,
        len,
        total,
    } = next;
    if len == total {
        inner.ask_whole(ctx, id)
    } else {
        inner.ask_range(ctx, id, from..from + len)
    }
}

impl Inner {
    /// Starts to read a lump.
    pub(crate) fn ask_whole(
        &self,
        ctx: Ctx<'_>,
        id: LumpId,
    ) -> Result<Answer<LumpData>, ObjectError> {
        let (told, answer) = oneshot::channel();
        let used = ctx.meter();
        let on_done = Box::new(move |result: Result<LumpData, Error>, times| {
            used(times);
            let _ = told.send(result.map_err(ObjectError::from));
        });
        self.store.submit_get(ctx.engine, id, on_done)?;
        Ok(Answer(answer))
    }

    /// Starts to read some bytes of a lump, clipped to its length.
    pub(crate) fn ask_range(
        &self,
        ctx: Ctx<'_>,
        id: LumpId,
        range: Range<u64>,
    ) -> Result<Answer<LumpData>, ObjectError> {
        let (told, answer) = oneshot::channel();
        let used = ctx.meter();
        let on_done = Box::new(move |result: Result<RangeOutcome, Error>, times| {
            used(times);
            let data = result.map(|outcome| outcome.data);
            let _ = told.send(data.map_err(ObjectError::from));
        });
        let len = range.end - range.start;
        self.store
            .submit_get_range(ctx.engine, id, range.start, len, on_done)?;
        Ok(Answer(answer))
    }
}
