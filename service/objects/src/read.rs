//! Reading an object: lump after lump, each piece by piece, the next piece on its way.

use std::ops::Range;

use bytes::Bytes;
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_engine::{EngineTimes, Error, LumpData, LumpId, OnDone, Opened, RangeOutcome, Rest};
use tokio::sync::oneshot;

use crate::Objects;
use crate::blocks::{Loaded, Sought, size_of};
use crate::ctx::Ctx;
use crate::error::ObjectError;
use crate::id;
use crate::journal::PendingAnswer;
use crate::record::{Body, Segment};
use crate::state::{ObjectPin, ObjectsShared, decode};
use crate::types::ObjectInfo;

/// A lump that is read next.
#[derive(Clone, Copy, Debug)]
struct Next {
    id: LumpId,
    /// Bytes of the lump wanted, and all of it.
    from: u64,
    len: u64,
    total: u64,
}

/// The object as it was when the reader began, unaffected by later commits and deletes.
pub struct Reader {
    source: ReaderSource,
    info: ObjectInfo,
    range: Range<u64>,
}

enum ReaderSource {
    Segments(Box<Segments>),
    Block(Block),
}

/// A block of which the beginning has been read.
struct Block {
    /// Where the next bytes belong.
    at: u64,
    /// End of the bytes that were asked for.
    end: u64,
    /// Bytes that were read, until they are taken.
    first: Option<Bytes>,
    rest: Option<Rest>,
}

struct Segments {
    reading: ObjectPin,
    bucket: String,
    key: String,
    segments: std::vec::IntoIter<Segment>,
    /// The rest of the present segment: first byte, end, and the segment.
    part: Option<(u64, u64, Segment)>,
    /// Bytes of the object before the next segment.
    before: u64,
    /// A lump that was asked for.
    ahead: Option<(Next, EngineReply<Opened>)>,
    /// The lump that is being read.
    lump: Option<Rest>,
}

/// An answer of the engine that costs a request only while it is waited for.
pub(crate) struct EngineReply<T>(oneshot::Receiver<(Result<T, Error>, EngineTimes)>);

impl<T: Send + 'static> EngineReply<T> {
    fn of(submit: impl FnOnce(OnDone<T>) -> Result<(), Error>) -> Result<Self, Error> {
        let (told, answer) = oneshot::channel();
        submit(Box::new(move |result, times| {
            drop(told.send((result, times)));
        }))?;
        Ok(Self(answer))
    }

    pub(crate) async fn get(self, ctx: Ctx<'_>) -> Result<T, ObjectError> {
        let since_ns = monotonic_ns();
        let (result, times) = self.0.await.map_err(|_| Error::Closed)?;
        ctx.waited(times, monotonic_ns().saturating_sub(since_ns));
        Ok(result?)
    }
}

/// The next piece of a lump, which costs its request only what it is waited for.
async fn next_of(rest: &mut Rest, ctx: Ctx<'_>) -> Option<Result<Bytes, ObjectError>> {
    let since_ns = monotonic_ns();
    let (result, times) = rest.next().await?;
    ctx.waited(times, monotonic_ns().saturating_sub(since_ns));
    Some(result.map(bytes_of).map_err(ObjectError::from))
}

fn bytes_of(data: LumpData) -> Bytes {
    Bytes::from_owner(data.into_bytes_owner())
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
                        let Loaded {
                            info,
                            first,
                            bytes,
                            rest,
                        } = loaded?;
                        let more = rest.as_ref().map_or(0, Rest::remaining);
                        let block = Block {
                            at: first,
                            end: first + bytes.len() as u64 + more,
                            first: Some(bytes),
                            rest,
                        };
                        return Ok(Reader {
                            source: ReaderSource::Block(block),
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
        let segments = Segments {
            reading,
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            segments: segments.into_iter(),
            part: None,
            before: 0,
            ahead: None,
            lump: None,
        };
        Ok(Reader {
            source: ReaderSource::Segments(Box::new(segments)),
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
            ReaderSource::Segments(segments) if count > 0 => {
                let segments = segments.segments.as_slice().iter();
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
            ReaderSource::Segments(segments) => segments.next(ctx, &self.range).await,
            ReaderSource::Block(block) => block.next(ctx, &self.range).await,
        }
    }
}

impl Block {
    /// The next of the bytes `range`.
    async fn next(
        &mut self,
        ctx: Ctx<'_>,
        range: &Range<u64>,
    ) -> Option<Result<Bytes, ObjectError>> {
        let outside = Err(ObjectError::Invalid {
            what: "the range of a block",
            why: "it is not within what was asked to be read",
        });
        if let Some(first) = &self.first {
            if range.start < self.at || range.end > self.end {
                return Some(outside);
            }
            if range.is_empty() {
                let nothing = first.slice(..0);
                self.first = None;
                return Some(Ok(nothing));
            }
        }
        while self.at < range.end {
            let bytes = if let Some(first) = self.first.take() {
                first
            } else {
                let Some(rest) = &mut self.rest else {
                    return Some(outside);
                };
                match next_of(rest, ctx).await {
                    Some(Ok(bytes)) => bytes,
                    Some(Err(error)) => return Some(Err(error)),
                    None => return Some(outside),
                }
            };
            let start = self.at;
            self.at += bytes.len() as u64;
            let wanted = range.start.max(start)..range.end.min(self.at);
            if !wanted.is_empty() {
                let within = |at: u64| usize::try_from(at - start).unwrap_or(bytes.len());
                return Some(Ok(bytes.slice(within(wanted.start)..within(wanted.end))));
            }
        }
        None
    }
}

impl Segments {
    async fn next(
        &mut self,
        ctx: Ctx<'_>,
        range: &Range<u64>,
    ) -> Option<Result<Bytes, ObjectError>> {
        let piece = match &mut self.lump {
            Some(rest) => next_of(rest, ctx).await?,
            None => {
                let (next, asked) = match self.ahead.take() {
                    Some(ahead) => ahead,
                    None => match self.start(ctx, range)? {
                        Ok(started) => started,
                        Err(error) => return Some(Err(error)),
                    },
                };
                let opened = self.judge(next, asked.get(ctx).await);
                opened.map(|Opened { first, rest, .. }| {
                    self.lump = rest;
                    bytes_of(first)
                })
            }
        };
        if piece.is_ok() {
            self.go_on(ctx, range);
        }
        Some(piece)
    }

    /// Has the beginning of the next lump read, once all of the one at hand has been: only then, so
    /// that nothing which comes later has its memory. If the store is too busy to open a lump, it is
    /// asked for again when it is wanted.
    fn go_on(&mut self, ctx: Ctx<'_>, range: &Range<u64>) {
        self.lump = self.lump.take().filter(|rest| rest.remaining() > 0);
        let is_read = self.lump.as_ref().is_none_or(Rest::is_read);
        if !is_read || self.ahead.is_some() {
            return;
        }
        let mark = (self.segments.clone(), self.part, self.before);
        match self.start(ctx, range) {
            Some(Ok(ahead)) => self.ahead = Some(ahead),
            Some(Err(_)) => (self.segments, self.part, self.before) = mark,
            None => {}
        }
    }

    fn judge(
        &self,
        next: Next,
        result: Result<Opened, ObjectError>,
    ) -> Result<Opened, ObjectError> {
        let damaged = |why| ObjectError::Damaged {
            bucket: self.bucket.clone(),
            key: self.key.clone(),
            id: next.id,
            why,
        };
        match result {
            Ok(opened) if (opened.length, opened.total_length) == (next.len, next.total) => {
                Ok(opened)
            }
            Ok(_) => Err(damaged("a piece is not as long as it was")),
            Err(ObjectError::Engine(Error::NotFound { .. })) => {
                Err(damaged("a piece is not there"))
            }
            Err(error) => Err(error),
        }
    }

    /// Begins to open the next lump; `None`: there is none.
    fn start(
        &mut self,
        ctx: Ctx<'_>,
        range: &Range<u64>,
    ) -> Option<Result<(Next, EngineReply<Opened>), ObjectError>> {
        let next = self.next_piece(range)?;
        let asked = self
            .reading
            .inner
            .ask_open(ctx, next.id, next.from, next.len);
        Some(asked.map(|asked| (next, asked)))
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

impl ObjectsShared {
    /// Begins to open a lump, to read some of its bytes.
    pub(crate) fn ask_open(
        &self,
        ctx: Ctx<'_>,
        id: LumpId,
        from: u64,
        len: u64,
    ) -> Result<EngineReply<Opened>, ObjectError> {
        let bytes = (from, len);
        Ok(EngineReply::of(|on_done| {
            self.store.submit_open(ctx.engine, id, bytes, on_done)
        })?)
    }

    /// Starts to read a lump.
    pub(crate) fn ask_whole(
        &self,
        ctx: Ctx<'_>,
        id: LumpId,
    ) -> Result<PendingAnswer<LumpData>, ObjectError> {
        let (told, answer) = oneshot::channel();
        let used = ctx.meter();
        let on_done = Box::new(move |result: Result<LumpData, Error>, times| {
            used(times);
            let _ = told.send(result.map_err(ObjectError::from));
        });
        self.store.submit_get(ctx.engine, id, on_done)?;
        Ok(PendingAnswer(answer))
    }

    /// Starts to read some bytes of a lump, clipped to its length.
    pub(crate) fn ask_range(
        &self,
        ctx: Ctx<'_>,
        id: LumpId,
        range: Range<u64>,
    ) -> Result<PendingAnswer<LumpData>, ObjectError> {
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
        Ok(PendingAnswer(answer))
    }
}
