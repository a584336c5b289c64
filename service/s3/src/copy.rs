//! Copying an object, or a range of one into a part: through memory, piece by piece.

use http::HeaderMap;
use lumpscope_objects::{CommitInfo, Ctx, ObjectInfo, PartCommit, Reader};
use s3s::dto::{CopyObjectResult, CopyPartResult, CopySource, MetadataDirective, Range};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::attributes::timestamp;
use super::call::{Call, wrong};
use super::checks::{Checked, Checks};
use super::endpoint::{EXPIRATION, Endpoint, etag, no_version};
use super::get::Conditions;
use super::inside::Inside;
use super::put::Sink;
use super::reply::{self, Answer};
use super::whole::{ALGORITHM, Promised};
use super::{attributes, multipart, put, tags};
use lumpscope_server::config::S3Etag;
use lumpscope_server::door::Access;

/// Source of a copy.
struct SourceObject {
    inside: Inside,
    reader: Reader,
    info: ObjectInfo,
    place: (String, String),
}

impl Endpoint {
    /// Finds the source of a copy, which the caller may read and the conditions hold for.
    async fn source(&self, call: &Call) -> S3Result<SourceObject> {
        let named = call.header("x-amz-copy-source")?.unwrap_or_default();
        let parsed = CopySource::parse(named);
        let parsed = parsed.map_err(|error| wrong(format!("x-amz-copy-source: {error}")))?;
        let CopySource::Bucket {
            bucket,
            key,
            version_id,
        } = parsed
        else {
            let why = "a copy has a source BUCKET/KEY";
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
        };
        let conditions = Conditions {
            matches: call.tags("x-amz-copy-source-if-match")?,
            none_match: call.tags("x-amz-copy-source-if-none-match")?,
            modified_since: call.date("x-amz-copy-source-if-modified-since")?,
            unmodified_since: call.date("x-amz-copy-source-if-unmodified-since")?,
        };
        no_version(version_id.as_deref())?;
        call.check(Access::Read, &bucket, &key)?;
        let inside = self.enter(call, &bucket)?;
        let read = inside.objects.read(call.scope.context(), &bucket, &key);
        let reader = read.await.map_err(|failure| inside.failed(failure))?;
        let info = reader.info().clone();
        // Of a copy, both kinds of conditions that fail are called the same.
        conditions
            .check(&info)
            .map_err(|_| S3Error::new(S3ErrorCode::PreconditionFailed))?;
        Ok(SourceObject {
            inside,
            reader,
            info,
            place: (bucket.to_string(), key.to_string()),
        })
    }

    /// Copies all that the reader has selected; `kind`: the checksum that is asked for.
    async fn pour(
        ctx: Ctx<'_>,
        (from, kind): (&mut SourceObject, Option<&'static str>),
        (inside, sink): (&Inside, &mut impl Sink),
    ) -> S3Result<Checked> {
        let mut checks = Checks::of(&HeaderMap::new(), S3Etag::Md5)?;
        if let Some(kind) = kind {
            checks.want(kind);
        }
        while let Some(piece) = from.reader.next(ctx).await {
            let piece = piece.map_err(|failure| from.inside.failed(failure))?;
            checks.update(&piece);
            let written = sink.write(ctx, &piece).await;
            written.map_err(|failure| inside.failed(failure))?;
        }
        checks.finish(None)
    }

    pub(super) async fn copy(&self, call: &Call) -> S3Result<Answer> {
        let condition = put::condition(call)?;
        let mut from = self.source(call).await?;
        let inside = self.enter(call, &call.bucket)?;
        let replaces = match call.header("x-amz-metadata-directive")? {
            None | Some(MetadataDirective::COPY) => false,
            Some(MetadataDirective::REPLACE) => true,
            Some(_) => return Err(wrong("x-amz-metadata-directive is COPY or REPLACE")),
        };
        if !replaces && (&*from.place.0, &*from.place.1) == call.place() {
            let why = "an object is copied onto itself only with metadata that replaces the old";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        let (ctx, len) = (call.scope.context(), from.info.size);
        let mut info = match replaces {
            true => attributes::put_info(call, Some(len))?,
            false => attributes::of_copy(&from.info),
        };
        let given = (
            call.header("x-amz-tagging-directive")?,
            call.header("x-amz-tagging")?,
        );
        info.attributes.extend(tags::of_copy(&from.info, given)?);
        let memory = self
            .whole_room(&inside, call, len.min(self.max_body))
            .await?;
        let begun = inside.objects.begin(&call.bucket, &call.key, info);
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let kind = Promised::of(call.header(ALGORITHM)?, None)?.map(|it| it.kind);
        let copied = Self::pour(ctx, (&mut from, kind), (&inside, &mut writer)).await?;
        call.scope.add_bytes(len);
        let commit = CommitInfo {
            etag: copied.etag,
            crc32c: copied.crc32c,
            attributes: copied.attributes,
            condition,
        };
        let committed = writer.commit(ctx, commit).await;
        let committed = committed.map_err(|failure| inside.failed(failure))?;
        drop(memory);
        let sums = copied.checksum;
        let mut answer = reply::xml(&CopyObjectResult {
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            e_tag: Some(etag(committed.info.etag)),
            last_modified: Some(timestamp(committed.info.modified_ms)),
            ..CopyObjectResult::default()
        })?;
        let ends = self.ends(&inside, call.place(), &committed.info);
        reply::set(&mut answer, EXPIRATION, ends);
        Ok(answer)
    }

    pub(super) async fn copy_part(&self, call: &Call) -> S3Result<Answer> {
        let number = multipart::number(call.number("partNumber")?)?;
        let mut from = self.source(call).await?;
        let inside = self.enter(call, &call.bucket)?;
        let mut len = from.info.size;
        if let Some(text) = call.header("x-amz-copy-source-range")? {
            let range = range(text, len)?;
            len = range.end - range.start;
            let selected = from.reader.select(range);
            selected.map_err(|failure| from.inside.failed(failure))?;
        }
        let memory = self.whole_room(&inside, call, len).await?;
        let promised = Self::promised(&inside, call)?;
        let (objects, (bucket, key)) = (&inside.objects, call.place());
        let begun = objects.upload_part(bucket, key, call.upload(), number, Some(len));
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let ctx = call.scope.context();
        let source = (&mut from, promised.map(|it| it.kind));
        let copied = Self::pour(ctx, source, (&inside, &mut writer)).await?;
        call.scope.add_bytes(len);
        let commit = PartCommit {
            md5: copied.etag.md5,
            crc32c: copied.crc32c,
            attributes: copied.attributes,
        };
        let committed = writer.commit(ctx, commit).await;
        let info = committed.map_err(|failure| inside.failed(failure))?;
        drop(memory);
        let sums = copied.checksum;
        reply::xml(&CopyPartResult {
            checksum_crc32: sums.checksum_crc32,
            checksum_crc32c: sums.checksum_crc32c,
            checksum_crc64nvme: sums.checksum_crc64nvme,
            checksum_sha1: sums.checksum_sha1,
            checksum_sha256: sums.checksum_sha256,
            e_tag: Some(etag(info.etag)),
            last_modified: Some(timestamp(info.modified_ms)),
        })
    }
}

/// The range of a source: both ends are given, and within it.
fn range(text: &str, size: u64) -> S3Result<std::ops::Range<u64>> {
    let outside = || wrong("the range of a source is bytes=FIRST-LAST, within it");
    match Range::parse(text).map_err(|_| outside())? {
        Range::Int {
            first,
            last: Some(last),
        } if last < size => Ok(first..last + 1),
        _ => Err(outside()),
    }
}
