//! The end of uploads: as an object, or without.

use std::collections::HashSet;
use std::time::Duration;

use lumpscope_engine::LumpId;

use crate::Objects;
use crate::commit::NewObject;
use crate::ctx::Ctx;
use crate::error::{Limited, ObjectError};
use crate::id::{self, LumpKind};
use crate::journal::delete_lump;
use crate::record::{PartRecord, Segment};
use crate::state::now_ms;
use crate::types::{CommitInfo, Committed, ETag, MAX_LIST, MAX_OBJECT_BYTES, PutInfo};
use crate::uploads::{Name, part_info};

/// The range of one id.
pub(crate) fn one(id: LumpId) -> (LumpId, LumpId) {
    (id, LumpId(id.0 + 1))
}

/// The records of the parts of an upload.
fn part_records(number: u64) -> (LumpId, LumpId) {
    let start = LumpKind::Part.id(number, 0);
    (start, LumpId(start.0 + u128::from(u32::MAX)))
}

impl Objects {
    /// Makes an object of parts of an upload, which is over then; its other parts are gone. The
    /// ETag of the object comes with `commit`: the caller derives it from the MD5s of the parts.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::NoSuchUpload`],
    /// [`ObjectError::InvalidPartOrder`], [`ObjectError::InvalidPart`],
    /// [`ObjectError::PartTooSmall`], [`ObjectError::ConditionFailed`], [`ObjectError::TooLarge`]
    /// when the object or its record would be (some 6,500 parts always fit, 10,000 when they were
    /// written in any order and are alike), [`ObjectError::Engine`]. The upload is as it was then.
    pub async fn complete(
        &self,
        ctx: Ctx<'_>,
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
            .place(ctx, (bucket, bucket_number), key, commit.condition)
            .await?;
        let kept: HashSet<u64> = segments.iter().map(|segment| segment.number).collect();
        let new = NewObject {
            put,
            commit,
            size,
            segments,
            written: None,
            last: None,
            deletes: vec![LumpKind::Upload.id(number, 0)],
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
        ctx: Ctx<'_>,
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
            LumpKind::Upload.id(number, 0),
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
    pub async fn expire(&self, ctx: Ctx<'_>, age: Duration) -> Result<u64, ObjectError> {
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
        // The records first: none may name deleted data.
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
            self.inner.free([one(LumpKind::Upload.id(number, 0))]);
            self.drop_upload(number, &HashSet::new());
        }
    }
}
