//! Uploads in parts.

use http::header::ETAG;
use http::{HeaderName, StatusCode};
use lumpscope_objects::{
    Ctx, MAX_LIST, ObjectError, Objects, PartCommit, PartWriter, UploadAfter, UploadPage,
};
use s3s::S3Result;
use s3s::dto::{
    CommonPrefix, CreateMultipartUploadOutput, Initiator, ListMultipartUploadsOutput,
    ListPartsOutput, MultipartUpload, Owner, Part, StorageClass,
};

use super::attributes::{put_info, timestamp};
use super::call::{Call, wrong};
use super::checks::TYPE;
use super::endpoint::{Endpoint, etag, quoted, signed};
use super::inside::Inside;
use super::list::{self, Encoding, page_size, readable};
use super::put::{Incoming, Sink};
use super::reply::{self, Answer};
use super::whole::{ALGORITHM, Promised};
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
pub(super) fn number(given: Option<i32>) -> S3Result<u16> {
    let number = given.and_then(|number| u16::try_from(number).ok());
    number.ok_or_else(|| wrong("the number of a part is 1 to 10,000"))
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
    pub(super) fn promised(inside: &Inside, call: &Call) -> S3Result<Option<Promised>> {
        let (bucket, key) = call.place();
        let info = inside.objects.upload(bucket, key, call.upload());
        let info = info.map_err(|failure| inside.failed(failure))?;
        Ok(Promised::kept(&info.attributes))
    }

    pub(super) async fn create_upload(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        let mut info = put_info(call, None)?;
        let tags = tags::of_header(call.header("x-amz-tagging")?)?;
        info.attributes.extend(tags);
        let promised = Promised::of(call.header(ALGORITHM)?, call.header(TYPE)?)?;
        let promises = promised.map(Promised::attributes).unwrap_or_default();
        info.attributes.extend(promises);
        let ctx = call.scope.context();
        let created = inside
            .objects
            .create_upload(ctx, &call.bucket, &call.key, info);
        let upload = created.await.map_err(|failure| inside.failed(failure))?;
        let mut answer = reply::xml(&CreateMultipartUploadOutput {
            bucket: Some(call.bucket.clone()),
            key: Some(readable(call.key.clone())),
            upload_id: Some(upload),
            ..CreateMultipartUploadOutput::default()
        })?;
        if let Some(promised) = promised {
            let (algorithm, kind) = (promised.algorithm(), promised.type_());
            reply::set(
                &mut answer,
                HeaderName::from_static(ALGORITHM),
                Some(algorithm.as_str()),
            );
            reply::set(
                &mut answer,
                HeaderName::from_static(TYPE),
                Some(kind.as_str()),
            );
        }
        Ok(answer)
    }

    pub(super) async fn part(&self, call: &mut Call) -> S3Result<Answer> {
        let mut incoming = Incoming::of(call, S3Etag::Md5)?;
        let call = &*call;
        let number = number(call.number("partNumber")?)?;
        let inside = self.enter(call, &call.bucket)?;
        if let Some(promised) = Self::promised(&inside, call)? {
            incoming.want(promised.kind);
        }
        let mut room = self
            .room(&inside, call, incoming.len, incoming.holds)
            .await?;
        let len = incoming.len;
        let (bucket, key) = call.place();
        let begun = inside
            .objects
            .upload_part(bucket, key, call.upload(), number, Some(len));
        let mut writer = begun.map_err(|failure| inside.failed(failure))?;
        let checked = incoming
            .into_sink((&inside, &call.scope), &mut room, &mut writer)
            .await?;
        call.scope.add_bytes(len);
        let commit = PartCommit {
            md5: checked.etag.md5,
            crc32c: checked.crc32c,
            attributes: checked.attributes,
        };
        let committed = writer.commit(call.scope.context(), commit).await;
        let info = committed.map_err(|failure| inside.failed(failure))?;
        drop(room);
        let mut answer = reply::empty(StatusCode::OK);
        reply::set(&mut answer, ETAG, Some(quoted(info.etag)));
        reply::set_sums(&mut answer, &checked.checksum);
        Ok(answer)
    }

    pub(super) async fn abort(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        let (bucket, key) = call.place();
        let aborted = inside
            .objects
            .abort(call.scope.context(), bucket, key, call.upload());
        aborted.await.map_err(|failure| inside.failed(failure))?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) fn parts(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        let max = page_size(call.number("max-parts")?)?;
        let after = number(call.number("part-number-marker")?.or(Some(0)))?;
        let promised = Self::promised(&inside, call)?;
        let (bucket, key) = call.place();
        let page = inside
            .objects
            .parts(bucket, key, call.upload(), (after, max));
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
                e_tag: Some(etag(info.etag)),
                last_modified: Some(timestamp(info.modified_ms)),
                part_number: Some(info.number.into()),
                size: Some(signed(info.size)),
            }
        });
        let owner = list::owner(call);
        reply::xml(&ListPartsOutput {
            checksum_algorithm: promised.map(Promised::algorithm),
            checksum_type: promised.map(Promised::type_),
            initiator: Some(initiator(&owner)),
            owner: Some(owner),
            storage_class: Some(StorageClass::from_static(StorageClass::STANDARD)),
            is_truncated: Some(next.is_some()),
            max_parts: list::told(max),
            next_part_number_marker: next.map(i32::from),
            part_number_marker: Some(after.into()),
            parts: Some(parts.collect()),
            bucket: Some(call.bucket.clone()),
            key: Some(readable(call.key.clone())),
            upload_id: Some(call.upload().to_owned()),
            ..ListPartsOutput::default()
        })
    }

    pub(super) fn uploads(&self, call: &Call) -> S3Result<Answer> {
        let prefix = call.given("prefix").unwrap_or_default();
        call.check(Access::Write, &call.bucket, &prefix)?;
        let inside = self.enter(call, &call.bucket)?;
        let encoding = Encoding::of(call)?;
        let max = page_size(call.number("max-uploads")?)?;
        let owner = list::owner(call);
        let after = call.given("key-marker").map(|key| UploadAfter {
            key,
            id: call.given("upload-id-marker"),
        });
        let delimiter = call.given("delimiter");
        let (bucket, objects) = (&call.bucket, &inside.objects);
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
        reply::xml(&ListMultipartUploadsOutput {
            bucket: Some(call.bucket.clone()),
            common_prefixes: Some(groups.collect()),
            delimiter: delimiter.map(|text| encoding.text(text)),
            encoding_type: encoding.name(),
            is_truncated: Some(next.is_some()),
            key_marker: after.map(|after| encoding.text(after.key)),
            max_uploads: list::told(max),
            next_key_marker: next.as_ref().map(|next| encoding.text(next.key.clone())),
            next_upload_id_marker: next.and_then(|next| next.id),
            prefix: Some(encoding.text(prefix)),
            uploads: Some(uploads.collect()),
            ..ListMultipartUploadsOutput::default()
        })
    }
}
