//! Plain values: metadata, conditions, lists.

use std::fmt;
use std::str::FromStr;

/// Most bytes of a key.
pub const MAX_KEY_BYTES: usize = 1024;
/// Most bytes of a bucket's name; at least 3.
pub const MAX_BUCKET_BYTES: usize = 63;
/// Most bytes of the names and values of user metadata, all together.
pub const MAX_METADATA_BYTES: usize = 2048;
/// Most bytes of the names and values of attributes and of the content type, all together.
pub const MAX_ATTRIBUTE_BYTES: usize = 8192;
/// Largest number of a part; the smallest is 1.
pub const MAX_PART_NUMBER: u16 = 10_000;
/// Most entries of a page of a list; more asked for gets these.
pub const MAX_LIST: usize = 10_000;
/// Most bytes of an object: 5 TiB.
pub const MAX_OBJECT_BYTES: u64 = 5 << 40;

/// Entity tag of an object: an MD5, and the number of parts it covers.
///
/// As text, without quotes: 32 lower-case hexadecimal digits, and behind `-` the number of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ETag {
    /// MD5 of the content, or of the MD5s of the parts.
    pub md5: [u8; 16],
    /// Parts of its multipart upload; 0: put in one.
    pub parts: u16,
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.md5))?;
        match self.parts {
            0 => Ok(()),
            parts => write!(f, "-{parts}"),
        }
    }
}

/// A text that is no [`ETag`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no ETag of this store: 32 hexadecimal digits, and perhaps -PARTS")]
pub struct ParseETagError {
    /// The text given.
    pub text: String,
}

impl FromStr for ETag {
    type Err = ParseETagError;

    /// With or without quotes.
    fn from_str(text: &str) -> Result<Self, ParseETagError> {
        let error = || ParseETagError {
            text: text.chars().take(100).collect(),
        };
        let bare = text
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'))
            .unwrap_or(text);
        let (digits, parts) = match bare.split_once('-') {
            Some((digits, parts)) => (digits, parts.parse().map_err(|_| error())?),
            None => (bare, 0),
        };
        if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(error());
        }
        let md5 = u128::from_str_radix(digits, 16).map_err(|_| error())?;
        Ok(Self {
            md5: md5.to_be_bytes(),
            parts,
        })
    }
}

/// Condition of a change, decided atomically for its key, at the commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Condition {
    /// Whatever is there; it is replaced.
    #[default]
    Always,
    /// Only if there is no object of this key.
    IfAbsent,
    /// Only if there is one; else there is no such key.
    IfPresent,
    /// Only if there is one with this ETag; if there is none at all, there is no such key.
    IfMatch(ETag),
    /// Only if there is none with this ETag.
    UnlessMatch(ETag),
    /// Only if there is none, or one that is as described.
    IfLike {
        /// Its bytes.
        size: Option<u64>,
        /// When it was committed, in whole seconds since 1970.
        modified_s: Option<u64>,
        /// Its ETag; with one, there must be an object.
        etag: Option<ETag>,
    },
}

/// A setting of a bucket: a text that means nothing here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BucketSetting {
    /// Which pages of the web may ask.
    Cors,
    /// When objects expire.
    Lifecycle,
}

impl BucketSetting {
    /// Every setting.
    pub const ALL: [Self; 2] = [Self::Cors, Self::Lifecycle];

    /// Its number in an id.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Cors => 1,
            Self::Lifecycle => 2,
        }
    }

    /// The setting with this number; `None`: unknown.
    #[must_use]
    pub fn of_code(code: u64) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|it| u64::from(it.code()) == code)
    }
}

/// How the names of attributes begin that are tags, which [`Objects::retag`](crate::Objects::retag)
/// replaces.
pub const TAG: &str = "tag:";

/// Names with values, in the order given.
pub type Pairs = Vec<(String, String)>;

/// Metadata of an object known before its bytes come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutInfo {
    /// The media type, if one was given.
    pub content_type: Option<String>,
    /// User metadata, at most [`MAX_METADATA_BYTES`].
    pub metadata: Pairs,
    /// Other attributes, kept with the object and returned unread (encodings,
    /// cache control, checksums of other kinds); with the content type at most
    /// [`MAX_ATTRIBUTE_BYTES`].
    pub attributes: Pairs,
    /// Exact number of bytes to come; `None`: not known (costs one more copy in memory).
    pub size: Option<u64>,
}

/// Metadata of an object known once its bytes have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CommitInfo {
    /// Entity tag of the content.
    pub etag: ETag,
    /// CRC32C of all bytes, if it was computed.
    pub crc32c: Option<u32>,
    /// Attributes beside those of [`PutInfo`].
    pub attributes: Pairs,
    /// Checked at the commit, not when the put begins.
    pub condition: Condition,
}

/// A committed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The object as it is now.
    pub info: ObjectInfo,
    /// True: there was one with this key before.
    pub replaced: bool,
}

/// Metadata of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectInfo {
    /// In bytes.
    pub size: u64,
    /// Entity tag of the content.
    pub etag: ETag,
    /// When it was committed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// CRC32C of all bytes, if it is known.
    pub crc32c: Option<u32>,
    /// The media type, if one was given.
    pub content_type: Option<String>,
    /// User metadata.
    pub metadata: Pairs,
    /// Other attributes that were kept.
    pub attributes: Pairs,
}

/// A bucket as a list of buckets shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// By which clients address it.
    pub name: String,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
}

/// Outcome of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// False: there was no such object.
    pub existed: bool,
}

/// Place where a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListAfter {
    /// Behind this key.
    Key(String),
    /// Behind all keys with this prefix.
    Prefix(String),
}

/// Options of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListQuery {
    /// Only keys with this prefix; empty: all.
    pub prefix: String,
    /// Keys that have this behind the prefix are grouped: their common part up to
    /// and including it is listed once. `None` and empty: no groups.
    pub delimiter: Option<String>,
    /// Place to go on; `None`: the beginning.
    pub after: Option<ListAfter>,
    /// Most keys and common prefixes together, up to [`MAX_LIST`].
    pub max: usize,
}

/// An object in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Whole, with the prefix of the query.
    pub key: String,
    /// In bytes.
    pub size: u64,
    /// Entity tag of the content; `None`: a JuiceFS block, where only a read would tell.
    pub etag: Option<ETag>,
    /// When it was committed, in milliseconds since 1970; for a JuiceFS block the beginning of that
    /// minute.
    pub modified_ms: u64,
}

/// A page of a list. Keys are in the order of their UTF-8 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListPage {
    /// Objects that are in no group.
    pub entries: Vec<ListEntry>,
    /// Common prefixes, ascending.
    pub prefixes: Vec<String>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<ListAfter>,
}

/// Metadata of a part known once its bytes have come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartCommit {
    /// MD5 of its bytes.
    pub md5: [u8; 16],
    /// CRC32C of its bytes, if it was computed.
    pub crc32c: Option<u32>,
    /// Other attributes, kept with it and returned, at most [`MAX_ATTRIBUTE_BYTES`].
    pub attributes: Pairs,
}

/// A part of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// Chosen by the client, 1 to 10,000.
    pub number: u16,
    /// In bytes.
    pub size: u64,
    /// Entity tag of the content.
    pub etag: ETag,
    /// CRC32C of its bytes, if it is known.
    pub crc32c: Option<u32>,
    /// When it was committed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// Other attributes that were kept.
    pub attributes: Pairs,
}

/// A page of the parts of an upload, in the order of their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartPage {
    /// In the order of their numbers.
    pub parts: Vec<PartInfo>,
    /// The number behind which the next page begins; `None`: this was the last.
    pub next: Option<u16>,
}

/// An upload that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadInfo {
    /// By which clients continue it.
    pub id: String,
    /// The key the object will have.
    pub key: String,
    /// When it was begun, in milliseconds since 1970.
    pub created_ms: u64,
    /// The media type the object will have.
    pub content_type: Option<String>,
    /// The user metadata the object will have.
    pub metadata: Pairs,
    /// The attributes the object will have.
    pub attributes: Pairs,
}

/// Where a list of uploads goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadAfter {
    /// Behind this key,
    pub key: String,
    /// or behind this upload for the key.
    pub id: Option<String>,
}

/// A page of a list of uploads, in the order of keys and ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadPage {
    /// In the order of keys and ids.
    pub uploads: Vec<UploadInfo>,
    /// Where the next page begins; `None`: this was the last.
    pub next: Option<UploadAfter>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_come_back() {
        for etag in [
            ETag::default(),
            ETag {
                md5: [0xab; 16],
                parts: 12,
            },
        ] {
            assert_eq!(etag.to_string().parse(), Ok(etag));
            assert_eq!(format!("\"{etag}\"").parse(), Ok(etag));
        }
        for text in [
            "",
            "\"",
            "abc",
            "-1",
            "00000000000000000000000000000000-x",
            "+0000000000000000000000000000000",
        ] {
            assert!(text.parse::<ETag>().is_err(), "{text}");
        }
    }
}
