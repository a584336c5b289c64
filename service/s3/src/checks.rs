//! Checksums of a body: computed while it comes, compared with what the client announced.

use http::HeaderMap;
use lumpscope_objects::{ETag, Pairs};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use s3s::dto::{Checksum, ChecksumType};
use s3s::{S3Error, S3ErrorCode, S3Result};

use lumpscope_server::config::S3Etag;

/// Kinds of checksums: their headers, and the attributes under which they are kept.
pub(super) const KINDS: [&str; 5] = [
    "x-amz-checksum-crc32",
    "x-amz-checksum-crc32c",
    "x-amz-checksum-crc64nvme",
    "x-amz-checksum-sha1",
    "x-amz-checksum-sha256",
];
/// How all their names begin.
pub(super) const CHECKSUM: &str = "x-amz-checksum-";
/// Says which checksums come behind the body.
pub(super) const TRAILER: &str = "x-amz-trailer";
/// The attribute of an object of parts that tells whether its checksum is one of all bytes.
pub(super) const TYPE: &str = "x-amz-checksum-type";
/// Says which one the client would like to have, in letters of any size.
const ALGORITHM: &str = "x-amz-sdk-checksum-algorithm";

/// The hashers of one body.
pub(super) struct Checks {
    /// `None`: the `ETag` is made of the others.
    md5: Option<Md5>,
    others: ChecksumHasher,
    len: u64,
    /// Announced before the body, base64.
    content_md5: Option<String>,
    announced: Vec<(&'static str, String)>,
    /// Kinds that come behind the body.
    behind: Vec<&'static str>,
    /// Kinds that somebody asked for.
    wanted: Vec<&'static str>,
}

/// Checksums of a received body.
pub(super) struct Checked {
    pub(super) etag: ETag,
    pub(super) crc32c: Option<u32>,
    /// Those that were asked for, for the reply.
    pub(super) checksum: Checksum,
    /// Checksums to be kept, except CRC32C.
    pub(super) attributes: Pairs,
}

impl Checks {
    /// Announced checksums from the headers of a request, and the source of its `ETag`.
    ///
    /// # Errors
    /// `InvalidDigest`, `InvalidRequest`.
    pub(super) fn of(headers: &HeaderMap, etag: S3Etag) -> S3Result<Self> {
        let text = |name: &str| {
            let value = headers.get(name)?.as_bytes();
            Some(String::from_utf8_lossy(value).trim().to_owned())
        };
        let content_md5 = text("content-md5");
        if let Some(md5) = &content_md5
            && decoded(md5).is_none_or(|bytes| bytes.len() != 16)
        {
            return Err(S3Error::new(S3ErrorCode::InvalidDigest));
        }
        let announced: Vec<_> = KINDS
            .into_iter()
            .filter_map(|kind| Some((kind, text(kind)?)))
            .collect();
        let trailers = text(TRAILER).unwrap_or_default().to_ascii_lowercase();
        let named = |kind: &str| trailers.split(',').any(|name| name.trim() == kind);
        let behind: Vec<_> = KINDS.into_iter().filter(|kind| named(kind)).collect();
        let algorithm = text(ALGORITHM).unwrap_or_default().to_ascii_lowercase();
        let asked = |kind: &str| kind.strip_prefix(CHECKSUM) == Some(algorithm.as_str());
        let wanted: Vec<_> = KINDS
            .into_iter()
            .filter(|kind| {
                asked(kind) || behind.contains(kind) || announced.iter().any(|(k, _)| k == kind)
            })
            .collect();
        let has = |kind: &str| wanted.contains(&kind);
        let summed = !announced.is_empty() || !behind.is_empty();
        let with_md5 = etag == S3Etag::Md5 || content_md5.is_some() || !summed;
        let others = ChecksumHasher {
            crc32: has(KINDS[0]).then(Crc32::new),
            // Kept with every object.
            crc32c: Some(Crc32c::new()),
            crc64nvme: (has(KINDS[2]) || !with_md5).then(Crc64Nvme::new),
            sha1: has(KINDS[3]).then(Sha1::new),
            sha256: has(KINDS[4]).then(Sha256::new),
        };
        Ok(Self {
            md5: with_md5.then(Md5::new),
            others,
            len: 0,
            content_md5,
            announced,
            behind,
            wanted,
        })
    }

    /// Computes and keeps this kind, too.
    pub(super) fn want(&mut self, kind: &'static str) {
        if self.wanted.contains(&kind) {
            return;
        }
        self.wanted.push(kind);
        let others = hasher(kind);
        let mine = &mut self.others;
        mine.crc32 = mine.crc32.take().or(others.crc32);
        mine.crc64nvme = mine.crc64nvme.take().or(others.crc64nvme);
        mine.sha1 = mine.sha1.take().or(others.sha1);
        mine.sha256 = mine.sha256.take().or(others.sha256);
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        if let Some(md5) = &mut self.md5 {
            md5.update(bytes);
        }
        self.others.update(bytes);
        self.len += bytes.len() as u64;
    }

    /// Compares with what was announced, before the body or behind it.
    ///
    /// # Errors
    /// `BadDigest`, `IncompleteBody` when not exactly what was announced came behind the body.
    pub(super) fn finish(self, trailers: Option<&HeaderMap>) -> S3Result<Checked> {
        let md5: Option<[u8; 16]> = self.md5.map(Md5::finalize);
        let mut checksum = self.others.finalize();
        let etag = match md5 {
            Some(md5) => ETag { md5, parts: 0 },
            None => of_crcs(&checksum, self.len),
        };
        if let Some(announced) = &self.content_md5
            && decoded(announced).as_deref() != md5.as_ref().map(<[u8; 16]>::as_slice)
        {
            return Err(S3Error::new(S3ErrorCode::BadDigest));
        }
        let mut names = trailers.into_iter().flat_map(HeaderMap::keys);
        let is_one = |name: &str| trailers.is_some_and(|it| it.get_all(name).iter().count() == 1);
        let odd =
            names.find(|name| !self.behind.contains(&name.as_str()) || !is_one(name.as_str()));
        if let Some(odd) = odd {
            let why = format!("{odd} came behind the body, and was not announced once");
            return Err(S3Error::with_message(S3ErrorCode::IncompleteBody, why));
        }
        let mut announced = self.announced;
        for kind in self.behind {
            let value = trailers.and_then(|trailers| trailers.get(kind)?.to_str().ok());
            let missing = || {
                let why = format!("{kind} was announced and did not come behind the body");
                S3Error::with_message(S3ErrorCode::IncompleteBody, why)
            };
            announced.push((kind, value.ok_or_else(missing)?.trim().to_owned()));
        }
        for (kind, value) in announced {
            if of_kind(&checksum, kind) != Some(&value) {
                let why = format!("{kind} of the body is not the one announced");
                return Err(S3Error::with_message(S3ErrorCode::BadDigest, why));
            }
        }
        let crc32c = crc32c(&checksum);
        let attributes = self.wanted.iter().filter(|kind| **kind != KINDS[1]);
        let attributes = attributes.filter_map(|kind| {
            let value = of_kind(&checksum, kind)?;
            Some(((*kind).to_owned(), value.clone()))
        });
        let attributes = attributes.collect();
        // These two may have been computed for ourselves.
        if !self.wanted.contains(&KINDS[1]) {
            checksum.checksum_crc32c = None;
        }
        if !self.wanted.contains(&KINDS[2]) {
            checksum.checksum_crc64nvme = None;
        }
        Ok(Checked {
            etag,
            crc32c,
            checksum,
            attributes,
        })
    }
}

/// The value of an attribute.
pub(super) fn kept_as<'a>(attributes: &'a Pairs, wanted: &str) -> Option<&'a str> {
    let mut all = attributes.iter();
    all.find(|(name, _)| name == wanted)
        .map(|(_, value)| value.as_str())
}

/// True: the checksum of the object is one of the checksums of its parts.
pub(super) fn is_composite(attributes: &Pairs) -> bool {
    kept_as(attributes, TYPE) == Some(ChecksumType::COMPOSITE)
}

/// A hasher of one kind.
pub(super) fn hasher(kind: &str) -> ChecksumHasher {
    let is = |at: usize| kind == KINDS[at];
    ChecksumHasher {
        crc32: is(0).then(Crc32::new),
        crc32c: is(1).then(Crc32c::new),
        crc64nvme: is(2).then(Crc64Nvme::new),
        sha1: is(3).then(Sha1::new),
        sha256: is(4).then(Sha256::new),
    }
}

/// The checksums that are kept with an object, and their type, if there is one.
pub(super) fn kept(crc32c: Option<u32>, attributes: &Pairs) -> Checksum {
    let find = |kind: &str| kept_as(attributes, kind).map(str::to_owned);
    let composite = is_composite(attributes);
    // Clients are told one type, and that of all bytes is kept besides.
    let crc32c = crc32c.filter(|_| !composite);
    let mut kept = Checksum {
        checksum_crc32: find(KINDS[0]),
        checksum_crc32c: find(KINDS[1]).or_else(|| Some(encoded(&crc32c?.to_be_bytes()))),
        checksum_crc64nvme: find(KINDS[2]),
        checksum_sha1: find(KINDS[3]),
        checksum_sha256: find(KINDS[4]),
        checksum_type: None,
    };
    let name = match composite {
        true => ChecksumType::COMPOSITE,
        false => ChecksumType::FULL_OBJECT,
    };
    let any = KINDS.into_iter().any(|kind| of_kind(&kept, kind).is_some());
    kept.checksum_type = any.then(|| ChecksumType::from_static(name));
    kept
}

/// The checksums of an object that clients are told: as in S3, the CRC32C that every object has
/// only if it was given no other.
pub(super) fn told(crc32c: Option<u32>, attributes: &Pairs) -> Checksum {
    let mut others = KINDS.into_iter().filter(|kind| *kind != KINDS[1]);
    let none = others.all(|kind| kept_as(attributes, kind).is_none());
    kept(crc32c.filter(|_| none), attributes)
}

/// The checksum of a kind.
pub(super) fn of_kind<'a>(checksum: &'a Checksum, kind: &str) -> Option<&'a String> {
    match KINDS.into_iter().position(|known| known == kind)? {
        0 => checksum.checksum_crc32.as_ref(),
        1 => checksum.checksum_crc32c.as_ref(),
        2 => checksum.checksum_crc64nvme.as_ref(),
        3 => checksum.checksum_sha1.as_ref(),
        _ => checksum.checksum_sha256.as_ref(),
    }
}

/// The `ETag` of what has no MD5: CRC64/NVME, CRC32C and the low half of the length, big-endian.
/// It is that of an upload of one part, so nobody takes it for an MD5.
fn of_crcs(checksum: &Checksum, len: u64) -> ETag {
    let crc64 = checksum.checksum_crc64nvme.as_deref().and_then(decoded);
    let crc32c = crc32c(checksum).unwrap_or_default();
    let mut digest = crc64.unwrap_or_default();
    digest.extend_from_slice(&crc32c.to_be_bytes());
    digest.extend_from_slice(&len.to_be_bytes()[4..]);
    ETag {
        md5: digest.try_into().unwrap_or_default(),
        parts: 1,
    }
}

/// The CRC32C among checksums.
pub(super) fn crc32c(checksum: &Checksum) -> Option<u32> {
    checksum.checksum_crc32c.as_deref().and_then(crc32c_of)
}

pub(super) fn crc32c_of(text: &str) -> Option<u32> {
    Some(u32::from_be_bytes(decoded(text)?.try_into().ok()?))
}

pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    base64_simd::STANDARD.decode_to_vec(text).ok()
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        headers: &[(&'static str, &str)],
        behind: &[(&'static str, &str)],
    ) -> S3Result<Checked> {
        check_with(S3Etag::Md5, headers, behind)
    }

    fn check_with(
        etag: S3Etag,
        headers: &[(&'static str, &str)],
        behind: &[(&'static str, &str)],
    ) -> S3Result<Checked> {
        let map = |pairs: &[(&'static str, &str)]| {
            let mut map = HeaderMap::new();
            for (name, value) in pairs {
                map.insert(*name, value.parse().unwrap());
            }
            map
        };
        let mut checks = Checks::of(&map(headers), etag)?;
        checks.update(b"1234");
        checks.update(b"56789");
        checks.finish(Some(&map(behind)))
    }

    #[test]
    fn what_is_announced_is_compared() {
        // The check values of the catalogue of CRCs.
        let crc32 = encoded(&0xcbf4_3926_u32.to_be_bytes());
        let crc32c = encoded(&0xe306_9283_u32.to_be_bytes());
        let md5 = "JfnnlDI7RTiF9RgfG2JNCw==";
        let good = check(
            &[
                (KINDS[0], &crc32),
                ("content-md5", md5),
                (TRAILER, KINDS[1]),
            ],
            &[(KINDS[1], &crc32c)],
        );
        let good = good.unwrap();
        assert_eq!(good.crc32c, Some(0xe306_9283));
        assert_eq!(good.attributes, vec![(KINDS[0].to_owned(), crc32.clone())]);
        assert_eq!(good.checksum.checksum_crc32c.as_deref(), Some(&*crc32c));
        let kept = kept(good.crc32c, &good.attributes);
        assert_eq!(kept.checksum_crc32, Some(crc32.clone()));
        assert_eq!(kept.checksum_crc32c, Some(crc32c.clone()));
        let code = |result: S3Result<Checked>| result.err().map(|error| error.code().clone());
        let bad = Some(S3ErrorCode::BadDigest);
        assert_eq!(code(check(&[(KINDS[0], &crc32c)], &[])), bad);
        let found = code(check(&[("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")], &[]));
        assert_eq!(found, bad);
        let invalid = Some(S3ErrorCode::InvalidDigest);
        assert_eq!(code(check(&[("content-md5", "x")], &[])), invalid);
        let missing = Some(S3ErrorCode::IncompleteBody);
        assert_eq!(code(check(&[(TRAILER, KINDS[3])], &[])), missing);
    }

    #[test]
    fn an_etag_without_md5_is_made_of_crcs() {
        let of = |setting, headers: &[_], behind: &[_]| {
            let checked = check_with(setting, headers, behind).unwrap();
            assert_eq!(checked.checksum.checksum_crc64nvme, None);
            checked.etag.to_string()
        };
        // The check values of CRC-64/NVME and CRC32C, and the length.
        let crcs = "ae8b14860a799888e306928300000009-1";
        let crc32c = ("x-amz-checksum-crc32c", "4waSgw==");
        assert_eq!(of(S3Etag::Auto, &[crc32c], &[]), crcs);
        let announced = ("x-amz-trailer", crc32c.0);
        assert_eq!(of(S3Etag::Auto, &[announced], &[crc32c]), crcs);
        // A client that sends none can check its body by the MD5 alone.
        let digest = "25f9e794323b453885f5181f1b624d0b";
        let md5 = ("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==");
        assert_eq!(of(S3Etag::Auto, &[], &[]), digest);
        assert_eq!(of(S3Etag::Auto, &[md5, crc32c], &[]), digest);
        assert_eq!(of(S3Etag::Md5, &[crc32c], &[]), digest);
    }
}
