//! Making an object of the parts of an upload.

use std::collections::HashMap;

use lumpscope_objects::{CommitInfo, ETag, MAX_PART_NUMBER, ObjectError, ObjectInfo, PartInfo};
use s3s::crypto::{Checksum as _, Md5};
use s3s::dto::{Checksum, CompleteMultipartUploadOutput, CompletedMultipartUpload, CompletedPart};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::call::Call;
use super::checks::{self, KINDS, TYPE, of_kind};
use super::endpoint::{Endpoint, etag};
use super::inside::Inside;
use super::list::readable;
use super::reply::{self, Answer};
use super::whole::{self, Promised};
use super::{multipart, put};

/// The attribute of an object that names the upload it was made of.
const UPLOAD: &str = "lumpscope-upload";

/// A part as the client has it.
struct Meant {
    number: u16,
    etag: ETag,
    sums: Checksum,
}

/// The number and the `ETag` of a part, as the client has them.
fn part(given: &CompletedPart) -> S3Result<Meant> {
    let number = multipart::number(given.part_number.or(Some(0)))?;
    let parsed = given.e_tag.as_ref().map(|tag| tag.value().parse());
    match parsed {
        Some(Ok(etag)) => Ok(Meant {
            number,
            etag,
            sums: whole::announced(given),
        }),
        _ => Err(S3Error::with_message(
            S3ErrorCode::InvalidPart,
            format!("part {number} has no ETag, or not one of this service"),
        )),
    }
}

fn parts(given: Option<CompletedMultipartUpload>) -> S3Result<Vec<Meant>> {
    let given = given.and_then(|upload| upload.parts).unwrap_or_default();
    if given.is_empty() || given.len() > usize::from(MAX_PART_NUMBER) {
        let why = format!("an upload has 1 to {MAX_PART_NUMBER} parts");
        return Err(S3Error::with_message(S3ErrorCode::MalformedXML, why));
    }
    given.iter().map(part).collect()
}

/// Entity tag of an object of these parts.
fn of_parts(parts: &[Meant]) -> ETag {
    let mut md5 = Md5::new();
    for part in parts {
        md5.update(&part.etag.md5);
    }
    ETag {
        md5: md5.finalize(),
        parts: u16::try_from(parts.len()).unwrap_or(u16::MAX),
    }
}

/// Refuses parts whose checksums are not those that the client has. Whether they are there at all
/// is for the catalogue to say.
fn check_parts(meant: &[Meant], there: &[Option<(u64, Checksum)>]) -> S3Result<()> {
    for (part, found) in meant.iter().zip(there) {
        let Some((_, found)) = found else { continue };
        for kind in KINDS {
            let given = of_kind(&part.sums, kind);
            if given.is_some() && given != of_kind(found, kind) {
                let why = format!("{kind} of part {} is not the one given", part.number);
                return Err(S3Error::with_message(S3ErrorCode::InvalidPart, why));
            }
        }
    }
    Ok(())
}

/// Refuses a checksum of the whole that is not that of the parts.
fn check_whole(announced: &Checksum, parts: &[Option<(u64, Checksum)>]) -> S3Result<()> {
    for kind in KINDS {
        let Some(given) = of_kind(announced, kind) else {
            continue;
        };
        let sums = of_each(kind, parts);
        let full = whole::full(kind, &sums).filter(|_| !given.contains('-'));
        // Some clients send that of the checksums without the number of them.
        let known = [full, whole::composite(kind, &sums)];
        let mut known = known.into_iter().flatten().peekable();
        let Some(first) = known.peek().cloned() else {
            let why = format!("{kind} of the whole cannot be checked: parts came without theirs");
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
        };
        if !known.any(|known| known == *given || known.split('-').next() == Some(given)) {
            let why = format!("{kind} of the parts is {first}, not the one given");
            return Err(S3Error::with_message(S3ErrorCode::BadDigest, why));
        }
    }
    Ok(())
}

/// Refuses a type that is not the one that the upload was begun with.
fn check_type(given: Option<&str>, promised: Option<Promised>) -> S3Result<()> {
    let Some((given, promised)) = given.zip(promised.map(Promised::type_)) else {
        return Ok(());
    };
    if given == promised.as_str() {
        return Ok(());
    }
    let why = format!("the upload was begun with {TYPE} {}", promised.as_str());
    Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why))
}

fn of_each<'a>(kind: &str, parts: &'a [Option<(u64, Checksum)>]) -> Vec<(u64, Option<&'a String>)> {
    let each = parts.iter().map(|part| match part {
        Some((size, sums)) => (*size, of_kind(sums, kind)),
        None => (0, None),
    });
    each.collect()
}

/// What is kept of the checksums of the whole; `promised`: the one that the upload was begun with.
fn kept(parts: &[Option<(u64, Checksum)>], upload: &str, promised: Option<Promised>) -> CommitInfo {
    let full = |kind: &str| whole::full(kind, &of_each(kind, parts));
    let promises = promised.map(|it| it.of_object(&of_each(it.kind, parts)));
    let mut attributes = promises.unwrap_or_default();
    if promised.is_none_or(|it| !it.composite) {
        for kind in [KINDS[0], KINDS[2]] {
            let sum = full(kind).filter(|_| promised.is_none_or(|it| it.kind != kind));
            attributes.extend(sum.map(|sum| (kind.to_owned(), sum)));
        }
    }
    attributes.push((UPLOAD.to_owned(), upload.to_owned()));
    CommitInfo {
        crc32c: full(KINDS[1]).as_deref().and_then(checks::crc32c_of),
        attributes,
        ..CommitInfo::default()
    }
}

fn answer(call: &Call, info: &ObjectInfo, address: String) -> S3Result<Answer> {
    let sums = checks::told(info.crc32c, &info.attributes);
    reply::xml(&CompleteMultipartUploadOutput {
        e_tag: Some(etag(info.etag)),
        location: Some(address),
        bucket: Some(call.bucket.clone()),
        key: Some(readable(call.key.clone())),
        checksum_type: sums.checksum_type,
        checksum_crc32: sums.checksum_crc32,
        checksum_crc32c: sums.checksum_crc32c,
        checksum_crc64nvme: sums.checksum_crc64nvme,
        checksum_sha1: sums.checksum_sha1,
        checksum_sha256: sums.checksum_sha256,
        ..CompleteMultipartUploadOutput::default()
    })
}

/// The checksums of the whole that a client has.
fn announced(call: &Call) -> S3Result<Checksum> {
    let text = |at: usize| Ok::<_, S3Error>(call.header(KINDS[at])?.map(str::to_owned));
    Ok(Checksum {
        checksum_crc32: text(0)?,
        checksum_crc32c: text(1)?,
        checksum_crc64nvme: text(2)?,
        checksum_sha1: text(3)?,
        checksum_sha256: text(4)?,
        ..Checksum::default()
    })
}

impl Endpoint {
    /// Sizes and checksums of the parts that are meant; `None`: it is not there so.
    fn there(
        inside: &Inside,
        call: &Call,
        meant: &[Meant],
    ) -> Result<Vec<Option<(u64, Checksum)>>, ObjectError> {
        let all = usize::from(MAX_PART_NUMBER);
        let (bucket, key) = call.place();
        let page = inside.objects.parts(bucket, key, call.upload(), (0, all))?;
        let parts = page.parts.into_iter();
        let parts: HashMap<u16, PartInfo> = parts.map(|info| (info.number, info)).collect();
        let find = |part: &Meant| {
            let info = parts.get(&part.number);
            let info = info.filter(|info| info.etag == part.etag)?;
            Some((info.size, checks::kept(info.crc32c, &info.attributes)))
        };
        Ok(meant.iter().map(find).collect())
    }

    /// The object that this upload was made into before, as when the answer was lost.
    ///
    /// # Errors
    /// `failure`: there is none.
    async fn completed(
        inside: &Inside,
        call: &Call,
        (whole, address, failure): (ETag, String, ObjectError),
    ) -> S3Result<Answer> {
        let (bucket, key) = call.place();
        let is_of = |(name, id): &(String, String)| name == UPLOAD && id == call.upload();
        if let ObjectError::NoSuchUpload { .. } = failure
            && let Ok(info) = inside.objects.head(call.scope.context(), bucket, key).await
            && info.etag == whole
            && info.attributes.iter().any(is_of)
        {
            return answer(call, &info, address);
        }
        Err(inside.failed(failure))
    }

    pub(super) async fn complete(&self, call: &Call) -> S3Result<Answer> {
        let given: Option<CompletedMultipartUpload> = call.read()?;
        let condition = put::condition(call)?;
        let address = self.address(&call.headers, call.place());
        let inside = self.enter(call, &call.bucket)?;
        let meant = match parts(given) {
            Ok(meant) => meant,
            // That there is no such upload is said before what is wrong with its parts.
            Err(wrong) => return Self::promised(&inside, call).and(Err(wrong)),
        };
        let whole = of_parts(&meant);
        let lost = |failure| Self::completed(&inside, call, (whole, address.clone(), failure));
        let there = match Self::there(&inside, call, &meant) {
            Ok(there) => there,
            Err(failure) => return lost(failure).await,
        };
        let size: u64 = there.iter().flatten().map(|(size, _)| size).sum();
        let wanted = call.parsed::<u64>("x-amz-mp-object-size")?;
        if let Some(wanted) = wanted.filter(|wanted| *wanted != size) {
            let why = format!("the parts have {size} bytes, x-amz-mp-object-size is {wanted}");
            return Err(S3Error::with_message(S3ErrorCode::InvalidRequest, why));
        }
        check_parts(&meant, &there)?;
        // It may have ended since; then there is nothing to keep, and the commit says so.
        let promised = Self::promised(&inside, call).unwrap_or_default();
        check_type(call.header(TYPE)?, promised)?;
        if there.iter().all(Option::is_some) {
            check_whole(&announced(call)?, &there)?;
        }
        let commit = CommitInfo {
            etag: whole,
            condition,
            ..kept(&there, call.upload(), promised)
        };
        let numbers: Vec<(u16, ETag)> = meant.iter().map(|it| (it.number, it.etag)).collect();
        let (ctx, (bucket, key)) = (call.scope.context(), call.place());
        let place = (bucket, key, call.upload());
        let completed = inside.objects.complete(ctx, place, &numbers, commit).await;
        match completed {
            Ok(committed) => answer(call, &committed.info, address),
            Err(failure) => lost(failure).await,
        }
    }
}
