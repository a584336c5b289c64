//! Multipart uploads: their beginning, and lists of uploads and parts.

use std::sync::Arc;

use tokio::sync::RwLock;

use crate::Objects;
use crate::commit::{check_info, check_key};
use crate::ctx::Ctx;
use crate::error::ObjectError;
use crate::id::LumpKind;
use crate::journal::{Change, put_record};
use crate::record::{PartRecord, Record, UploadRecord};
use crate::state::{ObjectsState, Upload, now_ms};
use crate::types::{
    ETag, MAX_LIST, PartInfo, PartPage, PutInfo, UploadAfter, UploadInfo, UploadPage,
};

impl Upload {
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

pub(crate) fn part_info(number: u16, record: &PartRecord) -> PartInfo {
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
pub(crate) struct Name {
    bucket: String,
    key: String,
    pub(crate) upload: String,
}

impl Name {
    pub(crate) fn new(bucket: &str, key: &str, upload: &str) -> Self {
        Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            upload: upload.to_owned(),
        }
    }

    pub(crate) fn unknown(&self) -> ObjectError {
        ObjectError::NoSuchUpload {
            upload: self.upload.chars().take(64).collect(),
        }
    }

    /// Its number.
    pub(crate) fn find(&self, state: &ObjectsState) -> Result<u64, ObjectError> {
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

impl Objects {
    /// Begins an upload and returns its id: 32 characters that a URL can hold.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::Invalid`], [`ObjectError::TooLarge`],
    /// [`ObjectError::Engine`].
    pub async fn create_upload(
        &self,
        ctx: Ctx<'_>,
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
        let lump = LumpKind::Upload.id(number, 0);
        let kept = Upload::new(record.clone());
        let record = Record::Upload(record);
        put_record(&self.inner, ctx, Change::of(lump, &record), move || {
            inner.state().uploads.insert(number, kept);
        })?
        .await?;
        Ok(id)
    }

    pub(crate) fn gate(&self, name: &Name) -> Result<(u64, Arc<RwLock<()>>), ObjectError> {
        let state = self.inner.state();
        let number = name.find(&state)?;
        let upload = state.uploads.get(&number);
        let gate = upload.map(|upload| Arc::clone(&upload.gate));
        Ok((number, gate.ok_or_else(|| name.unknown())?))
    }

    /// Metadata of an upload.
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
}
