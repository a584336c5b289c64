//! Copying an object, within a store, through memory.

use crate::ctx::Ctx;
use crate::error::ObjectError;
use crate::types::{CommitInfo, Committed, Condition, PutInfo};
use crate::{Objects, Reader};

impl Objects {
    /// Copies the object of a reader to a key, piece by piece, and commits it. `put` replaces
    /// the metadata of the old object in the new one; its size is
    /// ignored. ETag and CRC32C are copied, so the reader must select the whole object.
    ///
    /// # Errors
    /// [`ObjectError::Invalid`] for a part of an object; those of a read and of a commit.
    pub async fn copy(
        &self,
        ctx: Ctx<'_>,
        mut from: Reader,
        (bucket, key): (&str, &str),
        (put, condition): (Option<PutInfo>, Condition),
    ) -> Result<Committed, ObjectError> {
        let info = from.info().clone();
        if from.range() != (0..info.size) {
            return Err(ObjectError::Invalid {
                what: "a copy of a part of an object",
                why: "its ETag would be another one",
            });
        }
        let put = PutInfo {
            size: Some(info.size),
            ..put.unwrap_or(PutInfo {
                content_type: info.content_type,
                metadata: info.metadata,
                attributes: info.attributes,
                size: None,
            })
        };
        let mut writer = self.begin(bucket, key, put)?;
        while let Some(bytes) = from.next(ctx).await {
            writer.write(ctx, &bytes?).await?;
        }
        let commit = CommitInfo {
            etag: info.etag,
            crc32c: info.crc32c,
            condition,
            ..CommitInfo::default()
        };
        writer.commit(ctx, commit).await
    }
}
