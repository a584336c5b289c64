//! The keys of blocks in the order of their bytes, out of the engine's index, which has them in
//! the order of their numbers.
//!
//! Numbers are written without zeros in front, so the two orders agree among numbers of as many
//! digits: the folders of such slices have as many digits too. So the blocks of a folder that
//! begins with a hash, or of a volume without such folders, are at most 13 ascending runs, one for
//! each number of digits, which are merged. Within a slice, keys are sorted. Memory: one chunk of
//! each run, and the blocks of one slice.

use std::collections::VecDeque;

use lumpscope_engine::LumpId;

use crate::error::ObjectError;
use crate::juicefs::{BlockKey, Layout, MAX_SLICE, field_of, fields};
use crate::state::{ObjectsShared, ObjectsState, VolumeName};

/// Ids that are asked for at a time, at least and at most.
const CHUNK: std::ops::RangeInclusive<usize> = 16..=256;
/// Digits of the largest slice.
const MAX_DIGITS: u32 = 13;

/// Where keys begin.
#[derive(Clone, Debug)]
pub(crate) struct From {
    pub(crate) key: String,
    /// True: behind this key.
    pub(crate) behind: bool,
}

impl From {
    pub(crate) fn admits(&self, key: &str) -> bool {
        *key > *self.key || (!self.behind && key == self.key)
    }

    /// Whether all keys with this prefix come before.
    fn is_behind_all_of(&self, prefix: &str) -> bool {
        *prefix < *self.key && !self.key.starts_with(prefix)
    }
}

impl ObjectsState {
    /// Adds to the blocks found those of `from` to `to` that the catalogue is about to
    /// replace: they may already be gone from the index, and not yet be in the catalogue.
    pub(crate) fn add_moving(
        &self,
        bucket: u32,
        (from, to): (&From, Option<&str>),
        blocks: &mut VecDeque<(String, LumpId)>,
    ) {
        let first = (bucket, from.key.clone());
        let moving = self.moving.range(first..);
        let moving =
            moving.take_while(|((of, key), _)| *of == bucket && to.is_none_or(|to| **key <= *to));
        for ((_, key), id) in moving.filter(|((_, key), _)| from.admits(key)) {
            if let Err(place) = blocks.binary_search_by(|(block, _)| block.cmp(key)) {
                blocks.insert(place, (key.clone(), *id));
            }
        }
    }
}

/// Keys of one volume, with slices of as many digits (and one hash) each: they ascend.
struct KeyRun {
    /// As slices stand in ids.
    next: u64,
    end: u64,
    ready: VecDeque<(String, LumpId)>,
}

/// All keys of a volume.
struct Stream<'a> {
    inner: &'a ObjectsShared,
    name: &'a VolumeName,
    volume: u8,
    from: &'a From,
    runs: Vec<KeyRun>,
    /// The next folder of the hashed layout.
    hash: u64,
    chunk: usize,
}

impl<'a> Stream<'a> {
    fn new(
        inner: &'a ObjectsShared,
        (name, volume): &'a (VolumeName, u8),
        (from, most): (&'a From, usize),
    ) -> Self {
        let mut stream = Self {
            inner,
            name,
            volume: *volume,
            from,
            runs: Vec::new(),
            hash: 0,
            chunk: most.clamp(*CHUNK.start(), *CHUNK.end()),
        };
        match name.layout {
            Layout::Plain => stream.runs = stream.runs_of(0),
            Layout::Hashed => {
                let is_before = |hash: &u64| {
                    let folder = name.layout.folder(*hash);
                    from.is_behind_all_of(&format!("{}{folder}", name.prefix))
                };
                stream.hash = (0..256).find(|hash| !is_before(hash)).unwrap_or(256);
            }
        }
        stream
    }

    /// The slices with so many digits that have this hash, as they stand in ids.
    fn fields_of(&self, digits: u32, hash: u64) -> (u64, u64) {
        let from = if digits == 1 {
            0
        } else {
            10_u64.pow(digits - 1)
        };
        let to = 10_u64.pow(digits).min(MAX_SLICE);
        match self.name.layout {
            Layout::Plain => (from, to),
            Layout::Hashed => {
                let first = |slice: u64| {
                    let above = slice.saturating_sub(hash).div_ceil(256);
                    self.name.layout.field(hash) + above
                };
                (first(from), first(to))
            }
        }
    }

    fn runs_of(&self, hash: u64) -> Vec<KeyRun> {
        let runs = (1..=MAX_DIGITS).map(|digits| {
            let (from, end) = self.fields_of(digits, hash);
            KeyRun {
                next: self.first_within(from, end),
                end,
                ready: VecDeque::new(),
            }
        });
        runs.filter(|run| run.next < run.end).collect()
    }

    /// The first of these slices that is not wholly before the keys wanted.
    fn first_within(&self, mut from: u64, mut end: u64) -> u64 {
        while from < end {
            let middle = from + (end - from) / 2;
            let slice = self.name.layout.slice(middle);
            let begin = format!("{}{}", self.name.prefix, self.name.layout.begin(slice));
            if self.from.is_behind_all_of(&begin) {
                from = middle + 1;
            } else {
                end = middle;
            }
        }
        from
    }

    /// Has every run know its first key.
    async fn fill(&mut self) -> Result<(), ObjectError> {
        loop {
            for run in &mut self.runs {
                while run.ready.is_empty() && run.next < run.end {
                    let name = (self.name, self.volume);
                    run.read((self.inner, self.chunk), name, self.from).await?;
                }
            }
            self.runs.retain(|run| !run.ready.is_empty());
            if !self.runs.is_empty() || self.name.layout == Layout::Plain {
                return Ok(());
            }
            // The next folder that there is.
            let first = Layout::Hashed.field(self.hash);
            let rest = fields(self.volume, first, MAX_SLICE);
            let found = match self.hash {
                256.. => None,
                _ => self.inner.ids(rest, 1).await?.ids.first().copied(),
            };
            let Some(found) = found else { return Ok(()) };
            let hash = Layout::Hashed.slice(field_of(found)) & 0xff;
            self.runs = self.runs_of(hash);
            self.hash = hash + 1;
        }
    }

    fn first(&self) -> Option<&str> {
        let firsts = self.runs.iter().filter_map(|run| run.ready.front());
        firsts.map(|(key, _)| key.as_str()).min()
    }

    fn take(&mut self) -> Option<(String, LumpId)> {
        let ahead = self.runs.iter_mut().filter(|run| !run.ready.is_empty());
        let run = ahead.min_by(|one, other| one.ready.front().cmp(&other.ready.front()))?;
        run.ready.pop_front()
    }
}

impl KeyRun {
    /// Reads the next ids, to the end of a slice.
    async fn read(
        &mut self,
        (inner, chunk): (&ObjectsShared, usize),
        (name, volume): (&VolumeName, u8),
        from: &From,
    ) -> Result<(), ObjectError> {
        let mut range = fields(volume, self.next, self.end);
        let mut page = inner.ids(range, chunk).await?;
        let mut ids = std::mem::take(&mut page.ids);
        self.next = match ids.last() {
            Some(last) if page.next.is_some() => field_of(*last) + 1,
            _ => self.end,
        };
        range.end = fields(volume, 0, self.next).end;
        while let Some(next) = page.next.filter(|next| Some(*next) < range.end) {
            range.start = next;
            page = inner.ids(range, *CHUNK.end()).await?;
            ids.append(&mut page.ids);
        }
        let keys = ids.into_iter().map(|id| {
            let (block, _) = BlockKey::of_id(id, name.layout);
            (format!("{}{block}", name.prefix), id)
        });
        let mut keys: Vec<_> = keys.filter(|(key, _)| from.admits(key)).collect();
        keys.sort_unstable();
        self.ready = keys.into();
        Ok(())
    }
}

/// Keys of blocks, ascending.
pub(crate) struct Keys {
    pub(crate) found: VecDeque<(String, LumpId)>,
    /// True: there is no further one that begins with the prefix.
    pub(crate) whole: bool,
}

/// The first `most` keys of the blocks of some volumes that begin with `prefix`. `from` is not
/// before the prefix.
pub(crate) async fn keys(
    inner: &ObjectsShared,
    volumes: &[(VolumeName, u8)],
    (prefix, from): (&str, &From),
    most: usize,
) -> Result<Keys, ObjectError> {
    let mut found = VecDeque::new();
    let mut streams: Vec<Stream<'_>> = volumes
        .iter()
        .filter(|(name, _)| name.may_begin(prefix))
        .map(|volume| Stream::new(inner, volume, (from, most)))
        .collect();
    while found.len() < most {
        for stream in &mut streams {
            stream.fill().await?;
        }
        let ahead = streams.iter_mut().filter(|it| it.first().is_some());
        let next = ahead.min_by(|one, other| one.first().cmp(&other.first()));
        let next = next.and_then(Stream::take);
        match next.filter(|(key, _)| key.starts_with(prefix)) {
            Some(next) => found.push_back(next),
            None => return Ok(Keys { found, whole: true }),
        }
    }
    Ok(Keys {
        found,
        whole: false,
    })
}
