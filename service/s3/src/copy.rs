//! Copying an object, or a range of one into a part: through memory, piece by piece.

use http::header::{HeaderMap, HeaderName, IF_MATCH, IF_NONE_MATCH};
use lumpscope_objects::{CommitInfo, Condition, Ctx, ObjectInfo, PartCommit, PutInfo, Reader};
use s3s::dto::{
    CopyObjectInput, CopyObjectOutput, CopyObjectResult, CopyPartResult, CopySource, ETagCondition,
    MetadataDirective, Range, UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::attributes::{put_info, timestamp};
use super::checks::{Checked, Checks};
use super::endpoint::{Endpoint, etag, no_version};
use super::get::Conditions;
use super::inside::Inside;
use super::put::Sink;
use super::whole::Promised;
use super::{attributes, multipart, put, tags};
use lumpscope_server::config::S3Etag;
use lumpscope_server::door::Access;

/// Conditions on the source of a copy, taken out of its input.
macro_rules! source_conditions {
    ($input:expr) => {
        Conditions {
            matches: $input.copy_source_if_match.take(),
            none_match: $input.copy_source_if_none_match.take(),
            modified_since: $input.copy_source_if_modified_since.take(),
            unmodified_since: $input.copy_source_if_unmodified_since.take(),
        }
    };
}

struct Source {
    inside: Inside,
    reader: Reader,
    info: ObjectInfo,
    bucket: String,
    key: String,
}

impl Endpoint {
    /// Finds the source of a copy, which the caller may read and the conditions hold for.
    async fn source(
        &self,
        asked: &Asked,
        source: &CopySource,
        conditions: &Conditions,
    ) -> S3Result<Source> {
        let CopySource::Bucket {
            bucket,
            key,
            version_id,
        } = source
        else {
            let why = "a copy has a source BUCKET/KEY";
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
        };
        no_version(version_id.as_deref().map(str::to_owned))?;
        asked.check(Access::Read, bucket, key)?;
        let inside = self.enter(asked, bucket)?;
        let read = inside.objects.read(asked.scope.context(), bucket, key);
        let reader = read.await.map_err(|failure| inside.failed(failure))?;
        let info = reader.info().clone();
        // Of a copy, both kinds of conditions that fail are called the same.
        conditions
            .check(&info)
            .map_err(|_| S3Error::new(S3ErrorCode::PreconditionFailed))?;
        Ok(Source {
            inside,
            reader,
            info,
            bucket: bucket.to_string(),
            key: key.to_string(),
        })
    }

    /// Copies all that the reader has selected; `kind`: the checksum that is asked for.
    async fn pour(
        ctx: Ctx<'_>,
        (from, kind): (&mut Source, Option<&'static str>),
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

    pub(super) async fn copy(
        &self,
        request: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let asked = Asked::of(&request)?;
        let condition = destination(&request.headers)?;
        let mut input = request.input;
        let conditions = source_conditions!(input);
        let source = self.source(&asked, &input.copy_source, &conditions);
        let mut from = source.await?;
        let inside = self.enter(&asked, &input.bucket)?;
        let replaces = match input
            .metadata_directive
            .as_ref()
            .map(MetadataDirective::as_str)
        {
            None | Some("" | MetadataDirective::COPY) => false,
            Some(MetadataDirective::REPLACE) => true,
            Some(_) => {
                let why = "x-amz-metadata-directive is COPY or REPLACE";
                return Err(S3Error::with_message(S3ErrorCode::InvalidArgument, why));
            }
        };
        if !replaces && (&from.bucket, &from.key) == (&input.bucket, &input.key) {
            let why = "an object is copied onto itself only with metadata that replaces the old";
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        let (ctx, len) = (asked.scope.context(), from.info.size);
        let mut info = match replaces {
            true => put_info!(input, Some(len), &request.extensions),
            false => kept(&from.info),
        };
        let directive = input.tagging_directive.as_ref();
        let tags = tags::of_copy(&from.info, directive, input.tagging.as_deref())?;
        info.attributes.extend(tags);
        let memory = self
            .whole_room(&inside, &asked, len.min(self.max_body))
            .await?;
        let begun = inside.objects.begin(&input.bucket, &input.key, info);
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let kind = Promised::of(input.checksum_algorithm.as_ref(), None)?.map(|it| it.kind);
        let copied = Self::pour(ctx, (&mut from, kind), (&inside, &mut writer)).await?;
        asked.scope.add_bytes(len);
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
        Ok(S3Response::new(CopyObjectOutput {
            copy_object_result: Some(CopyObjectResult {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                e_tag: Some(etag(committed.info.etag)),
                last_modified: Some(timestamp(committed.info.modified_ms)),
                ..CopyObjectResult::default()
            }),
            expiration: self.ends(&inside, (&input.bucket, &input.key), &committed.info),
            ..CopyObjectOutput::default()
        }))
    }

    pub(super) async fn copy_part(
        &self,
        request: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let asked = Asked::of(&request)?;
        let mut input = request.input;
        let number = multipart::number(input.part_number)?;
        let conditions = source_conditions!(input);
        let source = self.source(&asked, &input.copy_source, &conditions);
        let mut from = source.await?;
        let inside = self.enter(&asked, &input.bucket)?;
        let mut len = from.info.size;
        if let Some(text) = input.copy_source_range.as_deref().filter(|t| !t.is_empty()) {
            let range = range(text, len)?;
            len = range.end - range.start;
            let selected = from.reader.select(range);
            selected.map_err(|failure| from.inside.failed(failure))?;
        }
        let memory = self.whole_room(&inside, &asked, len).await?;
        let (bucket, key, upload) = (&input.bucket, &input.key, &input.upload_id);
        let promised = self.promised(&inside, (bucket, key, upload))?;
        let objects = &inside.objects;
        let begun = objects.upload_part(bucket, key, upload, number, Some(len));
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let ctx = asked.scope.context();
        let source = (&mut from, promised.map(|it| it.kind));
        let copied = Self::pour(ctx, source, (&inside, &mut writer)).await?;
        asked.scope.add_bytes(len);
        let commit = PartCommit {
            md5: copied.etag.md5,
            crc32c: copied.crc32c,
            attributes: copied.attributes,
        };
        let committed = writer.commit(ctx, commit).await;
        let info = committed.map_err(|failure| inside.failed(failure))?;
        drop(memory);
        let sums = copied.checksum;
        Ok(S3Response::new(UploadPartCopyOutput {
            copy_part_result: Some(CopyPartResult {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                e_tag: Some(multipart::part_etag(&info)),
                last_modified: Some(timestamp(info.modified_ms)),
            }),
            ..UploadPartCopyOutput::default()
        }))
    }
}

/// The range of a source: both ends are given, and within it.
fn range(text: &str, size: u64) -> S3Result<std::ops::Range<u64>> {
    let wrong = || {
        let why = "the range of a source is bytes=FIRST-LAST, within it";
        S3Error::with_message(S3ErrorCode::InvalidArgument, why)
    };
    match Range::parse(text).map_err(|_| wrong())? {
        Range::Int {
            first,
            last: Some(last),
        } if last < size => Ok(first..last + 1),
        _ => Err(wrong()),
    }
}

/// Conditions on the destination of a copy; s3s does not read them.
fn destination(headers: &HeaderMap) -> S3Result<Condition> {
    let read = |name: HeaderName| {
        let given = headers.get(&name).filter(|value| !value.is_empty());
        let parsed = given.map(|value| ETagCondition::parse_http_header(value.as_bytes()));
        parsed.transpose().map_err(|_| {
            let why = format!("{name} is an ETag or *");
            S3Error::with_message(S3ErrorCode::InvalidArgument, why)
        })
    };
    let (matches, none_match) = (read(IF_MATCH)?, read(IF_NONE_MATCH)?);
    put::condition(matches.as_ref(), none_match.as_ref())
}

fn kept(info: &ObjectInfo) -> PutInfo {
    PutInfo {
        content_type: info.content_type.clone(),
        metadata: info.metadata.clone(),
        attributes: attributes::of(attributes::back(&info.attributes)),
        size: Some(info.size),
    }
}
