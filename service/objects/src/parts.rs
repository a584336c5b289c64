//! Parts of uploads: written like objects, each with a record.

use std::sync::Arc;

use crate::Objects;
use crate::commit::check_info;
use crate::ctx::Ctx;
use crate::ending::one;
use crate::error::ObjectError;
use crate::id::{self, LumpKind};
use crate::journal::{Change, put_record};
use crate::record::{PartRecord, Record};
use crate::state::{Path, now_ms};
use crate::types::{MAX_PART_NUMBER, PartCommit, PartInfo};
use crate::uploads::{Name, part_info};
use crate::write::DataWriter;

/// A part on its way into the store. Dropped without [`PartWriter::commit`], it leaves nothing
/// behind.
pub struct PartWriter {
    data: DataWriter,
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
    /// As for [`Writer::write`](crate::Writer::write).
    pub async fn write(&mut self, ctx: Ctx<'_>, bytes: &[u8]) -> Result<(), ObjectError> {
        self.data.write(ctx, bytes).await
    }

    /// Bytes received.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.data.got
    }

    /// Commits the part under its number, replacing an older one.
    ///
    /// # Errors
    /// [`ObjectError::LengthMismatch`], [`ObjectError::NoSuchUpload`], [`ObjectError::TooLarge`],
    /// [`ObjectError::Engine`].
    pub async fn commit(
        mut self,
        ctx: Ctx<'_>,
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
        let id = LumpKind::Part.id(number, part.into());
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
                // The bucket is gone, with all its uploads.
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

impl Objects {
    /// Begins to write a part, of number 1 to [`MAX_PART_NUMBER`]. `size` as in
    /// [`PutInfo::size`](crate::PutInfo::size).
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
            data: DataWriter::new(self, size)?,
            objects: self.clone(),
            name,
            part,
        })
    }
}
