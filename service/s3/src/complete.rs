//! Making an object of the parts of an upload.

use std::collections::HashSet;

use lumpscope_objects::{CommitInfo, ETag, MAX_PART_NUMBER, PartInfo};
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{
    CompleteMultipartUploadInput, CompleteMultipartUploadOutput, CompletedMultipartUpload,
    CompletedPart,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::endpoint::{Endpoint, Inside, etag, signed};
use super::{multipart, put};

/// The number and the `ETag` of a part, as the client has them.
fn part(given: &CompletedPart) -> S3Result<(u16, ETag)> {
    let number = multipart::number(given.part_number.unwrap_or(0))?;
    let parsed = given.e_tag.as_ref().map(|tag| tag.value().parse());
    match parsed {
        Some(Ok(tag)) => Ok((number, tag)),
        _ => Err(S3Error::with_message(
            S3ErrorCode::InvalidPart,
            format!("part {number} has no ETag, or not one of this service"),
        )),
    }
}

fn parts(given: Option<CompletedMultipartUpload>) -> S3Result<Vec<(u16, ETag)>> {
    let given = given.and_then(|upload| upload.parts).unwrap_or_default();
    if given.is_empty() || given.len() > usize::from(MAX_PART_NUMBER) {
        let why = format!("an upload has 1 to {MAX_PART_NUMBER} parts");
        return Err(S3Error::with_message(S3ErrorCode::MalformedXML, why));
    }
    given.iter().map(part).collect()
}

/// Entity tag of an object of these parts.
fn of_parts(parts: &[(u16, ETag)]) -> ETag {
    let mut md5 = Md5::new();
    for (_, tag) in parts {
        md5.update(&tag.md5);
    }
    ETag {
        md5: md5.finalize(),
        parts: u16::try_from(parts.len()).unwrap_or(u16::MAX),
    }
}

impl Endpoint {
    /// Refuses parts that are not as long together as the client thinks.
    fn check_size(
        &self,
        inside: &Inside,
        (bucket, key, upload): (&str, &str, &str),
        (parts, announced): (&[(u16, ETag)], i64),
    ) -> S3Result<()> {
        let all = usize::from(MAX_PART_NUMBER);
        let page = inside.objects.parts(bucket, key, upload, (0, all));
        let page = page.map_err(|failure| self.failed(failure))?;
        let parts: HashSet<(u16, ETag)> = parts.iter().copied().collect();
        let meant = |info: &&PartInfo| parts.contains(&(info.number, info.etag));
        let size: u64 = page.parts.iter().filter(meant).map(|info| info.size).sum();
        if signed(size) == announced {
            return Ok(());
        }
        let why = format!("the parts have {size} bytes, x-amz-mp-object-size is {announced}");
        Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why))
    }

    pub(super) async fn complete(
        &self,
        request: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let condition = put::condition(input.if_match.as_ref(), input.if_none_match.as_ref())?;
        let parts = parts(input.multipart_upload)?;
        let inside = self.enter(&asked)?;
        let place = (&*input.bucket, &*input.key, &*input.upload_id);
        if let Some(announced) = input.mpu_object_size {
            self.check_size(&inside, place, (&parts, announced))?;
        }
        let commit = CommitInfo {
            etag: of_parts(&parts),
            condition,
            ..CommitInfo::default()
        };
        let ctx = asked.scope.context();
        let completed = inside.objects.complete(ctx, place, &parts, commit).await;
        let committed = completed.map_err(|failure| self.failed(failure))?;
        Ok(S3Response::new(CompleteMultipartUploadOutput {
            e_tag: Some(etag(committed.info.etag)),
            location: Some(format!("/{}/{}", input.bucket, input.key)),
            bucket: Some(input.bucket),
            key: Some(input.key),
            ..CompleteMultipartUploadOutput::default()
        }))
    }
}
