//! Multipart uploads: parts are written like objects, each with a record, and become one object.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use lumpscope_engine::{LumpId, RequestCtx};
use tokio::sync::RwLock;

use crate::Objects;
use crate::commit::{Change, NewObject, check_info, check_key, delete_lump, put_record};
use crate::error::{Limited, ObjectError};
use crate::id::{self, Kind};
use crate::record::{PartRecord, Record, Segment, UploadRecord};
use crate::state::{Path, State, now_ms};
use crate::types::{
    CommitInfo, Committed, ETag, MAX_LIST, MAX_OBJECT_BYTES, MAX_PART_NUMBER, PartCommit, PartInfo,
    PartPage, PutInfo, UploadAfter, UploadInfo, UploadPage,
};
use crate::write::Data;

/// An upload that was begun.
pub(crate) struct Upload {
    pub(crate) record: UploadRecord,
    pub(crate) parts: BTreeMap<u16, PartRecord>,
    /// Shared by those who commit parts; alone: who completes or aborts.
    gate: Arc<RwLock<()>>,
}

impl Upload {
    pub(crate) fn new(record: UploadRecord) -> Self {
        Self {
            record,
            parts: BTreeMap::new(),
            gate: Arc::default(),
        }
    }

    fn info(&self, number: u64) -> UploadInfo {
        let record = &self.record;
        UploadInfo {
            id: text(number, record.token),
            key: record.key.clone(),
            created_ms: record.created_ms,
            content_type: record.content_type.clone(),
            metadata: record.metadata.clone(),
            attributes: record.attributes.clone(),
        }
    }
}

/// The id of an upload as clients know it.
fn text(number: u64, token: u64) -> String {
    format!("{number:016x}{token:016x}")
}

fn part_info(number: u16, record: &PartRecord) -> PartInfo {
    PartInfo {
        number,
        size: record.segment.size,
        etag: ETag {
            md5: record.md5,
            parts: 0,
        },
        crc32c: record.crc32c,
        modified_ms: record.modified_ms,
        attributes: record.attributes.clone(),
    }
}

/// An upload as a client names it.
#[derive(Clone, Debug)]
struct Name {
    bucket: String,
    key: String,
    upload: String,
}

impl Name {
    fn new(bucket: &str, key: &str, upload: &str) -> Self {
        Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            upload: upload.to_owned(),
        }
    }

    fn unknown(&self) -> ObjectError {
        ObjectError::NoSuchUpload {
            upload: self.upload.chars().take(64).collect(),
        }
    }

    /// Its number.
    fn find(&self, state: &State) -> Result<u64, ObjectError> {
        let bucket = state.bucket(&self.bucket)?.number;
        let number = self.upload.get(..16);
        let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let number = number.ok_or_else(|| self.unknown())?;
        let fits = |upload: &&Upload| {
            let record = &upload.record;
            text(number, record.token) == self.upload
                && record.bucket == bucket
                && record.key == self.key
        };
        let found = state.uploads.get(&number).filter(fits);
        found.map(|_| number).ok_or_else(|| self.unknown())
    }
}

/// A part on its way into the store. Dropped without [`PartWriter::commit`], it leaves nothing
/// behind.
pub struct PartWriter {
    data: Data,
    objects: Objects,
    name: Name,
    part: u16,
}

impl std::fmt::Debug for PartWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartWriter")
            .field("upload", &self.name.upload)
            .field("part", &self.part)
            .finish_non_exhaustive()
    }
}

impl PartWriter {
    /// Appends bytes, as [`Writer::write`](crate::Writer::write).
    ///
    /// # Errors
    /// As there.
    pub async fn write(&mut self, ctx: RequestCtx, bytes: &[u8]) -> Result<(), ObjectError> {
        self.data.write(ctx, bytes).await
    }

    /// Bytes that came.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.data.got
    }

    /// Makes it the part of its number; an older one is replaced.
    ///
    /// # Errors
    /// [`ObjectError::LengthMismatch`], [`ObjectError::NoSuchUpload`], [`ObjectError::TooLarge`],
    /// [`ObjectError::Engine`].
    pub async fn commit(
        mut self,
        ctx: RequestCtx,
        commit: PartCommit,
    ) -> Result<PartInfo, ObjectError> {
        check_info(None, &Vec::new(), &commit.attributes)?;
        let piece = self.data.end().await?;
        let Self {
            data,
            objects,
            name,
            part,
        } = self;
        let (number, gate) = objects.gate(&name)?;
        let shared = gate.read_owned().await;
        name.find(&objects.inner.state())?;
        let held = objects.inner.hold(Path::Part(number, part)).await;
        let record = PartRecord {
            modified_ms: now_ms(),
            md5: commit.md5,
            crc32c: commit.crc32c,
            segment: data.segment(),
            attributes: commit.attributes,
        };
        let info = part_info(part, &record);
        let (inner, written) = (Arc::clone(&objects.inner), Arc::clone(&data.written));
        let id = Kind::Part.id(number, part.into());
        let kept = Record::Part(record.clone());
        let change = Change {
            piece,
            ..Change::of(id, &kept)
        };
        put_record(&objects.inner, ctx, change, move || {
            written.keep();
            let mut state = inner.state();
            let old = match state.uploads.get_mut(&number) {
                Some(upload) => upload.parts.insert(part, record),
                // Its bucket is gone, with all uploads.
                None => Some(record),
            };
            let gone = !state.uploads.contains_key(&number);
            drop(state);
            let data = old.map(|old| id::pieces(old.segment.number));
            let record = gone.then(|| one(id));
            inner.free(data.into_iter().chain(record));
            drop((held, shared));
        })?
        .await?;
        Ok(info)
    }
}

/// The range of one id.
fn one(id: LumpId) -> (LumpId, LumpId) {
    (id, LumpId(id.0 + 1))
}

/// The records of the parts of an upload.
fn part_records(number: u64) -> (LumpId, LumpId) {
    let start = Kind::Part.id(number, 0);
    (start, LumpId(start.0 + u128::from(u32::MAX)))
}

impl Objects {
    /// Begins an upload and returns its id: 32 characters that a URL can hold.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::Invalid`], [`ObjectError::TooLarge`],
    /// [`ObjectError::Engine`].
    pub async fn create_upload(
        &self,
        ctx: RequestCtx,
        bucket: &str,
        key: &str,
        put: PutInfo,
    ) -> Result<String, ObjectError> {
        check_key(key)?;
        check_info(put.content_type.as_ref(), &put.metadata, &put.attributes)?;
        let record = UploadRecord {
            bucket: self.inner.state().bucket(bucket)?.number,
            key: key.to_owned(),
            created_ms: now_ms(),
            token: lumpscope_engine::clock::random_u64(),
            content_type: put.content_type,
            metadata: put.metadata,
            attributes: put.attributes,
        };
        let number = self.inner.number();
        let id = text(number, record.token);
        let inner = Arc::clone(&self.inner);
        let lump = Kind::Upload.id(number, 0);
        let kept = Upload::new(record.clone());
        let record = Record::Upload(record);
        put_record(&self.inner, ctx, Change::of(lump, &record), move || {
            inner.state().uploads.insert(number, kept);
        })?
        .await?;
        Ok(id)
    }

    fn gate(&self, name: &Name) -> Result<(u64, Arc<RwLock<()>>), ObjectError> {
        let state = self.inner.state();
        let number = name.find(&state)?;
        let upload = state.uploads.get(&number);
        let gate = upload.map(|upload| Arc::clone(&upload.gate));
        Ok((number, gate.ok_or_else(|| name.unknown())?))
    }

    /// Begins to write a part, of number 1 to [`MAX_PART_NUMBER`]. `size` as in
    /// [`PutInfo::size`].
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchUpload`], [`ObjectError::Invalid`],
    /// [`ObjectError::TooLarge`].
    pub fn upload_part(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        part: u16,
        size: Option<u64>,
    ) -> Result<PartWriter, ObjectError> {
        if !(1..=MAX_PART_NUMBER).contains(&part) {
            return Err(ObjectError::Invalid {
                what: "the number of the part",
                why: "it must be 1 to 10,000",
            });
        }
        let name = Name::new(bucket, key, upload);
        name.find(&self.inner.state())?;
        Ok(PartWriter {
            data: Data::new(self, size)?,
            objects: self.clone(),
            name,
            part,
        })
    }

    /// What is known of an upload.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchUpload`].
    pub fn upload(&self, bucket: &str, key: &str, upload: &str) -> Result<UploadInfo, ObjectError> {
        let name = Name::new(bucket, key, upload);
        let state = self.inner.state();
        let number = name.find(&state)?;
        let found = state.uploads.get(&number).map(|found| found.info(number));
        found.ok_or_else(|| name.unknown())
    }

    /// A page of the parts of an upload, those with numbers above `after`.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchUpload`].
    pub fn parts(
        &self,
        bucket: &str,
        key: &str,
        upload: &str,
        (after, max): (u16, usize),
    ) -> Result<PartPage, ObjectError> {
        let name = Name::new(bucket, key, upload);
        let state = self.inner.state();
        let number = name.find(&state)?;
        let found = state.uploads.get(&number).ok_or_else(|| name.unknown())?;
        let mut rest = found.parts.range(after.saturating_add(1)..);
        let some = rest.by_ref().take(max.min(MAX_LIST));
        let parts: Vec<PartInfo> = some
            .map(|(&part, record)| part_info(part, record))
            .collect();
        let last = parts.last().map(|part| part.number);
        let next = rest.next().and(last);
        Ok(PartPage { parts, next })
    }

    /// A page of the uploads that were begun in a bucket, for keys that begin with `prefix`, in the
    /// order of keys and ids, behind `after`.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`].
    pub fn uploads(
        &self,
        bucket: &str,
        prefix: &str,
        (after, max): (Option<&UploadAfter>, usize),
    ) -> Result<UploadPage, ObjectError> {
        let state = self.inner.state();
        let number = state.bucket(bucket)?.number;
        let behind = |info: &UploadInfo| match after {
            None => true,
            Some(UploadAfter { key, id: None }) => info.key > *key,
            Some(UploadAfter { key, id: Some(id) }) => (&info.key, &info.id) > (key, id),
        };
        let within = |upload: &Upload| {
            upload.record.bucket == number && upload.record.key.starts_with(prefix)
        };
        let found = state.uploads.iter().filter(|(_, upload)| within(upload));
        let mut found: Vec<UploadInfo> = found
            .map(|(&number, upload)| upload.info(number))
            .filter(behind)
            .collect();
        found.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        let max = max.min(MAX_LIST);
        let more = found.len() > max;
        found.truncate(max);
        let next = found.last().filter(|_| more).map(|last| UploadAfter {
            key: last.key.clone(),
            id: Some(last.id.clone()),
        });
        Ok(UploadPage {
            uploads: found,
            next,
        })
    }

    /// Makes an object of parts of an upload, which is over then; its other parts are gone. The
    /// ETag of the object is that of `commit`: who computes MD5s knows it from those of the parts.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchUpload`],
    /// [`ObjectError::InvalidPartOrder`], [`ObjectError::InvalidPart`],
    /// [`ObjectError::PartTooSmall`], [`ObjectError::ConditionFailed`], [`ObjectError::TooLarge`]
    /// when the object or its record would be (some 6,500 parts always fit, 10,000 when they were
    /// written in any order and are alike), [`ObjectError::Engine`]. The upload is as it was then.
    pub async fn complete(
        &self,
        ctx: RequestCtx,
        (bucket, key, upload): (&str, &str, &str),
        parts: &[(u16, ETag)],
        commit: CommitInfo,
    ) -> Result<Committed, ObjectError> {
        let name = Name::new(bucket, key, upload);
        let (number, gate) = self.gate(&name)?;
        let alone = gate.write_owned().await;
        let (bucket_number, put, segments) = self.chosen(&name, parts)?;
        let size: u64 = segments.iter().map(|segment| segment.size).sum();
        if size > MAX_OBJECT_BYTES {
            return Err(ObjectError::TooLarge {
                what: Limited::Object,
                got: size,
                max: MAX_OBJECT_BYTES,
            });
        }
        let place = self
            .place((bucket, bucket_number), key, commit.condition)
            .await?;
        let kept: HashSet<u64> = segments.iter().map(|segment| segment.number).collect();
        let new = NewObject {
            put,
            commit,
            size,
            segments,
            written: None,
            last: None,
            deletes: vec![Kind::Upload.id(number, 0)],
        };
        let objects = self.clone();
        let then = move || {
            objects.drop_upload(number, &kept);
            drop(alone);
        };
        self.commit_object(ctx, place, new, then)?.await
    }

    /// The parts that are going to be an object.
    fn chosen(
        &self,
        name: &Name,
        parts: &[(u16, ETag)],
    ) -> Result<(u32, PutInfo, Vec<Segment>), ObjectError> {
        let state = self.inner.state();
        let number = name.find(&state)?;
        let found = state.uploads.get(&number).ok_or_else(|| name.unknown())?;
        let upload = || name.upload.clone();
        if parts.is_empty() || !parts.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(ObjectError::InvalidPartOrder { upload: upload() });
        }
        let mut segments = Vec::with_capacity(parts.len());
        for (at, &(part, etag)) in parts.iter().enumerate() {
            let there = found.parts.get(&part);
            let there = there.filter(|record| part_info(part, record).etag == etag);
            let Some(PartRecord { segment, .. }) = there else {
                return Err(ObjectError::InvalidPart {
                    upload: upload(),
                    part,
                });
            };
            let least = self.inner.options.min_part_bytes;
            if segment.size < least && at + 1 < parts.len() {
                return Err(ObjectError::PartTooSmall {
                    part,
                    size: segment.size,
                    least,
                });
            }
            segments.extend((segment.size > 0).then_some(*segment));
        }
        let record = &found.record;
        let put = PutInfo {
            content_type: record.content_type.clone(),
            metadata: record.metadata.clone(),
            attributes: record.attributes.clone(),
            size: None,
        };
        Ok((record.bucket, put, segments))
    }

    /// Ends an upload without an object. Its parts are gone.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchUpload`], [`ObjectError::Engine`].
    pub async fn abort(
        &self,
        ctx: RequestCtx,
        bucket: &str,
        key: &str,
        upload: &str,
    ) -> Result<(), ObjectError> {
        let name = Name::new(bucket, key, upload);
        let (number, gate) = self.gate(&name)?;
        let alone = gate.write_owned().await;
        name.find(&self.inner.state())?;
        let objects = self.clone();
        delete_lump(
            &self.inner,
            ctx,
            Kind::Upload.id(number, 0),
            move |result| {
                if result.is_ok() {
                    objects.drop_upload(number, &HashSet::new());
                }
                drop(alone);
            },
        )?
        .await
    }

    /// Aborts the uploads that were begun longer ago than this, and returns how many.
    ///
    /// # Errors
    /// [`ObjectError::Engine`].
    pub async fn expire(&self, ctx: RequestCtx, age: Duration) -> Result<u64, ObjectError> {
        let age = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
        let before = now_ms().saturating_sub(age);
        let mut forgotten = Vec::new();
        for bucket in self.buckets() {
            let mut after = None;
            loop {
                // Its bucket may be gone by now, with its uploads.
                let page = self.uploads(&bucket.name, "", (after.as_ref(), MAX_LIST));
                let page = page.unwrap_or_default();
                let old = page.uploads.into_iter();
                let old = old.filter(|it| it.created_ms < before);
                forgotten.extend(old.map(|it| (bucket.name.clone(), it)));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
        }
        let mut expired = 0;
        for (bucket, upload) in forgotten {
            match self.abort(ctx, &bucket, &upload.key, &upload.id).await {
                Ok(()) => expired += 1,
                Err(error @ ObjectError::Engine(_)) => return Err(error),
                // Somebody else has ended it.
                Err(_) => {}
            }
        }
        Ok(expired)
    }

    /// The record of an upload is gone: forgets it and frees its parts, except for data that an
    /// object has now.
    pub(crate) fn drop_upload(&self, number: u64, kept: &HashSet<u64>) {
        let Some(upload) = self.inner.state().uploads.remove(&number) else {
            return;
        };
        let numbers = upload.parts.values().map(|part| part.segment.number);
        let unused = numbers.filter(|number| !kept.contains(number));
        // The records first: none may name what is gone.
        let freed = unused.map(id::pieces);
        self.inner
            .free(std::iter::once(part_records(number)).chain(freed));
    }

    /// A bucket is gone: so are its uploads.
    pub(crate) fn drop_uploads(&self, bucket: u32) {
        let state = self.inner.state();
        let within = state
            .uploads
            .iter()
            .filter(|(_, it)| it.record.bucket == bucket);
        let numbers: Vec<u64> = within.map(|(&number, _)| number).collect();
        drop(state);
        for number in numbers {
            self.inner.free([one(Kind::Upload.id(number, 0))]);
            self.drop_upload(number, &HashSet::new());
        }
    }
}
