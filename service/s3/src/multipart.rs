//! Uploads in parts.

use lumpscope_objects::{
    Ctx, MAX_LIST, ObjectError, Objects, PartCommit, PartInfo, PartWriter, UploadAfter, UploadPage,
};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CommonPrefix,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, Initiator, ListMultipartUploadsInput,
    ListMultipartUploadsOutput, ListPartsInput, ListPartsOutput, MultipartUpload, Owner, Part,
    StorageClass, UploadPartInput, UploadPartOutput,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::attributes::put_info;
use super::attributes::timestamp;
use super::endpoint::{Endpoint, etag, given, signed};
use super::inside::Inside;
use super::list::{self, Encoding, MAX_KEYS, page_size, readable};
use super::put::{Incoming, Sink};
use super::whole::Promised;
use super::{checks, tags};
use lumpscope_server::config::S3Etag;
use lumpscope_server::door::Access;

impl Sink for PartWriter {
    async fn write(&mut self, ctx: Ctx<'_>, bytes: &[u8]) -> Result<(), ObjectError> {
        Self::write(self, ctx, bytes).await
    }
}

/// The number of a part.
///
/// # Errors
/// `InvalidArgument`.
pub(super) fn number(given: i32) -> S3Result<u16> {
    u16::try_from(given).map_err(|_| {
        let why = "the number of a part is 1 to 10,000";
        S3Error::with_message(S3ErrorCode::InvalidArgument, why)
    })
}

/// The `ETag` of a part.
pub(super) fn part_etag(info: &PartInfo) -> s3s::dto::ETag {
    etag(info.etag)
}

/// A page of uploads, and the beginnings, up to the delimiter behind the prefix, of keys that have
/// it: each is told once, and counts as one entry.
fn grouped(
    objects: &Objects,
    bucket: &str,
    (prefix, delimiter): (&str, &str),
    (after, max): (Option<&UploadAfter>, usize),
) -> Result<(UploadPage, Vec<String>), ObjectError> {
    let (mut page, mut groups) = (UploadPage::default(), Vec::<String>::new());
    let (mut from, mut last) = (after.cloned(), None);
    loop {
        let found = objects.uploads(bucket, prefix, (from.as_ref(), MAX_LIST))?;
        for info in found.uploads {
            let end = info.key[prefix.len()..].find(delimiter);
            let end = end.map(|at| prefix.len() + at + delimiter.len());
            let group = end.map(|end| info.key[..end].to_owned());
            let told = groups.last().or(after.map(|after| &after.key));
            if group.is_some() && group.as_ref() == told {
                continue;
            }
            if page.uploads.len() + groups.len() == max {
                page.next = last;
                return Ok((page, groups));
            }
            last = Some(UploadAfter {
                key: group.clone().unwrap_or_else(|| info.key.clone()),
                id: group.is_none().then(|| info.id.clone()),
            });
            match group {
                Some(group) => groups.push(group),
                None => page.uploads.push(info),
            }
        }
        from = found.next;
        if from.is_none() {
            return Ok((page, groups));
        }
    }
}

/// Whoever may see an upload has begun it.
fn initiator(owner: &Owner) -> Initiator {
    Initiator {
        display_name: owner.display_name.clone(),
        id: owner.id.clone(),
    }
}

impl Endpoint {
    /// The checksum that an upload was begun with.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`.
    pub(super) fn promised(
        &self,
        inside: &Inside,
        (bucket, key, upload): (&str, &str, &str),
    ) -> S3Result<Option<Promised>> {
        let info = inside.objects.upload(bucket, key, upload);
        let info = info.map_err(|failure| inside.failed(failure))?;
        Ok(Promised::kept(&info.attributes))
    }

    pub(super) async fn create_upload(
        &self,
        request: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let asked = Asked::of(&request)?;
        let mut input = request.input;
        let inside = self.enter(&asked, &input.bucket)?;
        let mut info = put_info!(input, None, &request.extensions);
        info.attributes
            .extend(tags::of_header(input.tagging.as_deref())?);
        let promised = Promised::of(
            input.checksum_algorithm.as_ref(),
            input.checksum_type.as_ref(),
        )?;
        info.attributes
            .extend(promised.map(Promised::attributes).unwrap_or_default());
        let ctx = asked.scope.context();
        let created = inside
            .objects
            .create_upload(ctx, &input.bucket, &input.key, info);
        let upload = created.await.map_err(|failure| inside.failed(failure))?;
        Ok(S3Response::new(CreateMultipartUploadOutput {
            bucket: Some(input.bucket),
            key: Some(readable(input.key)),
            upload_id: Some(upload),
            checksum_algorithm: promised.map(Promised::algorithm),
            checksum_type: promised.map(Promised::type_),
            ..CreateMultipartUploadOutput::default()
        }))
    }

    pub(super) async fn part(
        &self,
        mut request: S3Request<UploadPartInput>,
    ) -> S3Result<S3Response<UploadPartOutput>> {
        let asked = Asked::of(&request)?;
        let body = request.input.body.take();
        let mut incoming = Incoming::of(&request, body, request.input.content_length, S3Etag::Md5)?;
        let input = request.input;
        let number = number(input.part_number)?;
        let inside = self.enter(&asked, &input.bucket)?;
        let (bucket, key, upload) = (&input.bucket, &input.key, &input.upload_id);
        if let Some(promised) = self.promised(&inside, (bucket, key, upload))? {
            incoming.want(promised.kind);
        }
        let mut room = self
            .room(&inside, &asked, incoming.len, incoming.holds)
            .await?;
        let len = incoming.len;
        let begun = inside
            .objects
            .upload_part(bucket, key, upload, number, Some(len));
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let checked = incoming
            .into_sink((&inside, &asked.scope), &mut room, &mut writer)
            .await?;
        asked.scope.add_bytes(len);
        let commit = PartCommit {
            md5: checked.etag.md5,
            crc32c: checked.crc32c,
            attributes: checked.attributes,
        };
        let committed = writer.commit(asked.scope.context(), commit).await;
        let info = committed.map_err(|failure| inside.failed(failure))?;
        drop(room);
        Ok(S3Response::new(UploadPartOutput {
            e_tag: Some(part_etag(&info)),
            checksum_crc32: checked.checksum.checksum_crc32,
            checksum_crc32c: checked.checksum.checksum_crc32c,
            checksum_crc64nvme: checked.checksum.checksum_crc64nvme,
            checksum_sha1: checked.checksum.checksum_sha1,
            checksum_sha256: checked.checksum.checksum_sha256,
            ..UploadPartOutput::default()
        }))
    }

    pub(super) async fn abort(
        &self,
        request: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let asked = Asked::of(&request)?;
        let (ctx, input) = (asked.scope.context(), request.input);
        let inside = self.enter(&asked, &input.bucket)?;
        let aborted = inside
            .objects
            .abort(ctx, &input.bucket, &input.key, &input.upload_id);
        aborted.await.map_err(|failure| inside.failed(failure))?;
        Ok(S3Response::new(AbortMultipartUploadOutput::default()))
    }

    pub(super) fn parts(
        &self,
        request: S3Request<ListPartsInput>,
    ) -> S3Result<S3Response<ListPartsOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let inside = self.enter(&asked, &input.bucket)?;
        let max = page_size(input.max_parts)?;
        let after = number(input.part_number_marker.unwrap_or(0))?;
        let (bucket, key, upload) = (&input.bucket, &input.key, &input.upload_id);
        let promised = self.promised(&inside, (bucket, key, upload))?;
        let page = inside.objects.parts(bucket, key, upload, (after, max));
        let page = page.map_err(|failure| inside.failed(failure))?;
        let next = page.next;
        let parts = page.parts.into_iter().map(|info| {
            let sums = checks::kept(info.crc32c, &info.attributes);
            Part {
                checksum_crc32: sums.checksum_crc32,
                checksum_crc32c: sums.checksum_crc32c,
                checksum_crc64nvme: sums.checksum_crc64nvme,
                checksum_sha1: sums.checksum_sha1,
                checksum_sha256: sums.checksum_sha256,
                e_tag: Some(part_etag(&info)),
                last_modified: Some(timestamp(info.modified_ms)),
                part_number: Some(info.number.into()),
                size: Some(signed(info.size)),
            }
        });
        let owner = list::owner(&asked);
        Ok(S3Response::new(ListPartsOutput {
            checksum_algorithm: promised.map(Promised::algorithm),
            checksum_type: promised.map(Promised::type_),
            initiator: Some(initiator(&owner)),
            owner: Some(owner),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            is_truncated: Some(next.is_some()),
            max_parts: Some(input.max_parts.unwrap_or(MAX_KEYS).min(MAX_KEYS)),
            next_part_number_marker: next.map(i32::from),
            part_number_marker: Some(after.into()),
            parts: Some(parts.collect()),
            bucket: Some(input.bucket),
            key: Some(readable(input.key)),
            upload_id: Some(input.upload_id),
            ..ListPartsOutput::default()
        }))
    }

    pub(super) fn uploads(
        &self,
        request: S3Request<ListMultipartUploadsInput>,
    ) -> S3Result<S3Response<ListMultipartUploadsOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let prefix = input.prefix.clone().unwrap_or_default();
        asked.check(Access::Write, &input.bucket, &prefix)?;
        let inside = self.enter(&asked, &input.bucket)?;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_uploads)?;
        let owner = list::owner(&asked);
        let after = given(input.key_marker).map(|key| UploadAfter {
            key,
            id: given(input.upload_id_marker),
        });
        let delimiter = given(input.delimiter);
        let (bucket, objects) = (&input.bucket, &inside.objects);
        let page = match &delimiter {
            None => {
                let page = objects.uploads(bucket, &prefix, (after.as_ref(), max));
                page.map(|page| (page, Vec::new()))
            }
            Some(delimiter) => {
                let of = (prefix.as_str(), delimiter.as_str());
                grouped(objects, bucket, of, (after.as_ref(), max))
            }
        };
        let (page, groups) = page.map_err(|failure| inside.failed(failure))?;
        let keys = page.uploads.iter().map(|info| &info.key).chain(&groups);
        let asked = after.iter().map(|after| &after.key).chain(&delimiter);
        let encoding = encoding.fit(keys.chain(asked).chain([&prefix]).map(String::as_str));
        let uploads = page.uploads.into_iter().map(|info| {
            let promised = Promised::kept(&info.attributes);
            MultipartUpload {
                checksum_algorithm: promised.map(Promised::algorithm),
                checksum_type: promised.map(Promised::type_),
                initiated: Some(timestamp(info.created_ms)),
                initiator: Some(initiator(&owner)),
                key: Some(encoding.text(info.key)),
                owner: Some(owner.clone()),
                storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
                upload_id: Some(info.id),
            }
        });
        let groups = groups.into_iter().map(|group| CommonPrefix {
            prefix: Some(encoding.text(group)),
        });
        let next = page.next;
        Ok(S3Response::new(ListMultipartUploadsOutput {
            bucket: Some(input.bucket),
            common_prefixes: Some(groups.collect()),
            delimiter: delimiter.map(|text| encoding.text(text)),
            encoding_type: encoding.name(),
            is_truncated: Some(next.is_some()),
            key_marker: after.map(|after| encoding.text(after.key)),
            max_uploads: Some(input.max_uploads.unwrap_or(MAX_KEYS).min(MAX_KEYS)),
            next_key_marker: next.as_ref().map(|next| encoding.text(next.key.clone())),
            next_upload_id_marker: next.and_then(|next| next.id),
            prefix: Some(encoding.text(prefix)),
            uploads: Some(uploads.collect()),
            ..ListMultipartUploadsOutput::default()
        }))
    }
}
