//! The records of the catalogue: bytes and values. Pure; the layout is the table in
//! `docs/objects.md`.
//!
//! Each is the content of one embedded lump: the checksum of the journal's record covers it.

use std::sync::Arc;

pub use crate::bytes::RecordError;
use crate::bytes::{Input, put_difference, put_number, put_pairs, put_text};
use crate::juicefs::Layout;
use crate::types::{ETag, ObjectInfo, Pairs};

/// First byte of every record. Other values are of later versions.
pub const VERSION: u8 = 1;

const HAS_CRC32C: u8 = 1;
const HAS_CONTENT_TYPE: u8 = 2;

type Result<T> = std::result::Result<T, RecordError>;

/// A run of bytes of an object that was written as one: the object, or a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The number of its data.
    pub number: u64,
    /// Its bytes, at least 1.
    pub size: u64,
    /// All its pieces have so many bytes, the last one at most.
    pub piece: u32,
}

/// The record of an object without bucket and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// The number of the object; grows with each version of a key.
    pub number: u64,
    /// Metadata returned to clients.
    pub info: ObjectInfo,
    /// Places of its bytes, in order.
    pub segments: Vec<Segment>,
}

/// What one lump of the catalogue says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of a bucket; its number is in the id.
    Bucket(BucketRecord),
    /// Of an object; its bucket is in the record.
    Object(ObjectRecord),
    /// Of an upload; its number is in the id.
    Upload(UploadRecord),
    /// Of a part; the numbers of upload and part are in the id.
    Part(PartRecord),
    /// Of a JuiceFS volume; its number is in the id.
    Volume(VolumeRecord),
    /// Of a setting; the numbers of bucket and setting are in the id.
    Setting(SettingRecord),
}

/// The record of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketRecord {
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// Unique in its store.
    pub name: String,
}

/// The record of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectRecord {
    /// Number of the bucket.
    pub bucket: u32,
    /// Unique in its bucket, UTF-8.
    pub key: String,
    /// The rest, encoded: as it is kept in memory.
    pub body: Arc<[u8]>,
}

/// The record of an upload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UploadRecord {
    /// Number of the bucket.
    pub bucket: u32,
    /// The key the object will have.
    pub key: String,
    /// When it was begun, in milliseconds since 1970.
    pub created_ms: u64,
    /// Random, so that the upload's id cannot be guessed.
    pub token: u64,
    /// The media type the object will have.
    pub content_type: Option<String>,
    /// The user metadata the object will have.
    pub metadata: Pairs,
    /// The attributes the object will have.
    pub attributes: Pairs,
}

/// The record of a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartRecord {
    /// When it was committed, in milliseconds since 1970.
    pub modified_ms: u64,
    /// MD5 of its bytes.
    pub md5: [u8; 16],
    /// CRC32C of its bytes, if it was computed.
    pub crc32c: Option<u32>,
    /// Its bytes; a size of 0 is an empty part.
    pub segment: Segment,
    /// Other attributes to keep with it.
    pub attributes: Pairs,
}

/// The record of a JuiceFS volume in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeRecord {
    /// Number of the bucket.
    pub bucket: u32,
    /// The part of the keys before `chunks/`, with its `/`.
    pub prefix: String,
    /// The order of its folders.
    pub layout: Layout,
}

/// The record of a setting of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingRecord {
    /// When its bucket was created: a later bucket of the same number is another one.
    pub created_ms: u64,
    /// The setting as it was put.
    pub text: String,
}

fn flags(crc32c: Option<u32>, content_type: Option<&String>) -> u8 {
    let crc32c = if crc32c.is_some() { HAS_CRC32C } else { 0 };
    let content_type = if content_type.is_some() {
        HAS_CONTENT_TYPE
    } else {
        0
    };
    crc32c | content_type
}

fn check_flags(flags: u8) -> Result<u8> {
    if flags & !(HAS_CRC32C | HAS_CONTENT_TYPE) == 0 {
        Ok(flags)
    } else {
        Err(RecordError("an unknown flag is set"))
    }
}

/// Writes the metadata returned to clients.
pub(crate) fn put_info(out: &mut Vec<u8>, info: &ObjectInfo) {
    let ObjectInfo {
        size,
        etag,
        modified_ms,
        crc32c,
        content_type,
        metadata,
        attributes,
    } = info;
    put_number(out, *size);
    put_number(out, *modified_ms);
    out.extend_from_slice(&etag.md5);
    put_number(out, etag.parts.into());
    out.push(flags(*crc32c, content_type.as_ref()));
    if let Some(crc32c) = crc32c {
        out.extend_from_slice(&crc32c.to_be_bytes());
    }
    if let Some(content_type) = content_type {
        put_text(out, content_type);
    }
    put_pairs(out, metadata);
    put_pairs(out, attributes);
}

/// Reads the fields before the pairs: enough for a list.
fn take_head(input: &mut Input<'_>) -> Result<ObjectInfo> {
    let (size, modified_ms) = (input.number()?, input.number()?);
    let etag = ETag {
        md5: input.array()?,
        parts: input.small()?,
    };
    let flags = check_flags(input.byte()?)?;
    let crc32c = match flags & HAS_CRC32C {
        0 => None,
        _ => Some(u32::from_be_bytes(input.array()?)),
    };
    let content_type = match flags & HAS_CONTENT_TYPE {
        0 => None,
        _ => Some(input.text()?.to_owned()),
    };
    Ok(ObjectInfo {
        size,
        etag,
        modified_ms,
        crc32c,
        content_type,
        ..ObjectInfo::default()
    })
}

/// Reads the bytes of [`put_info`].
pub(crate) fn take_info(input: &mut Input<'_>) -> Result<ObjectInfo> {
    let mut info = take_head(input)?;
    info.metadata = input.pairs()?;
    info.attributes = input.pairs()?;
    Ok(info)
}

impl Body {
    /// The bytes of it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let size = self.info.size;
        let mut out = Vec::with_capacity(64);
        put_number(&mut out, self.number);
        put_info(&mut out, &self.info);
        put_number(&mut out, self.segments.len() as u64);
        let mut before = Segment {
            number: self.number,
            size,
            piece: 0,
        };
        for segment in &self.segments {
            put_difference(&mut out, before.number, segment.number);
            put_difference(&mut out, before.size, segment.size);
            put_difference(&mut out, before.piece.into(), segment.piece.into());
            before = *segment;
        }
        out
    }

    /// The body with these bytes.
    ///
    /// # Errors
    /// The bytes are no body, or its segments do not add up to its size.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        let (number, info) = (input.number()?, take_info(&mut input)?);
        let count: usize = input.small()?;
        if count > input.0.len() / 3 {
            return Err(RecordError("it ends too early"));
        }
        let mut segments = Vec::with_capacity(count);
        let mut before = (number, info.size, 0);
        let mut sum = 0_u64;
        for _ in 0..count {
            before = (
                input.difference(before.0)?,
                input.difference(before.1)?,
                input.difference(before.2)?,
            );
            let segment = Segment {
                number: before.0,
                size: before.1,
                piece: u32::try_from(before.2).map_err(|_| RecordError("pieces are too large"))?,
            };
            if segment.size == 0 || segment.piece == 0 {
                return Err(RecordError("a segment is empty"));
            }
            sum = sum
                .checked_add(segment.size)
                .ok_or(RecordError("a size is too large"))?;
            segments.push(segment);
        }
        input.end()?;
        if sum != info.size {
            return Err(RecordError("the segments do not make up the size"));
        }
        Ok(Self {
            number,
            info,
            segments,
        })
    }

    /// Number, size, ETag and time, without decoding the rest.
    ///
    /// # Errors
    /// The bytes are no body.
    pub fn decode_head(bytes: &[u8]) -> Result<(u64, ObjectInfo)> {
        let mut input = Input(bytes);
        Ok((input.number()?, take_head(&mut input)?))
    }
}

impl Record {
    /// The bytes of it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![VERSION];
        match self {
            Self::Bucket(it) => {
                put_number(&mut out, it.created_ms);
                put_text(&mut out, &it.name);
            }
            Self::Object(it) => {
                put_number(&mut out, it.bucket.into());
                put_text(&mut out, &it.key);
                out.extend_from_slice(&it.body);
            }
            Self::Upload(it) => {
                put_number(&mut out, it.bucket.into());
                put_text(&mut out, &it.key);
                put_number(&mut out, it.created_ms);
                out.extend_from_slice(&it.token.to_be_bytes());
                out.push(flags(None, it.content_type.as_ref()));
                if let Some(content_type) = &it.content_type {
                    put_text(&mut out, content_type);
                }
                put_pairs(&mut out, &it.metadata);
                put_pairs(&mut out, &it.attributes);
            }
            Self::Part(it) => {
                put_number(&mut out, it.modified_ms);
                out.extend_from_slice(&it.md5);
                out.push(flags(it.crc32c, None));
                if let Some(crc32c) = it.crc32c {
                    out.extend_from_slice(&crc32c.to_be_bytes());
                }
                put_number(&mut out, it.segment.number);
                put_number(&mut out, it.segment.size);
                put_number(&mut out, it.segment.piece.into());
                put_pairs(&mut out, &it.attributes);
            }
            Self::Volume(it) => {
                put_number(&mut out, it.bucket.into());
                put_text(&mut out, &it.prefix);
                out.push(it.layout.code());
            }
            Self::Setting(it) => {
                put_number(&mut out, it.created_ms);
                put_text(&mut out, &it.text);
            }
        }
        out
    }
}

fn version(input: &mut Input<'_>) -> Result<()> {
    match input.byte()? {
        VERSION => Ok(()),
        _ => Err(RecordError("it is of another version")),
    }
}

impl BucketRecord {
    /// The record with these bytes.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        version(&mut input)?;
        let record = Self {
            created_ms: input.number()?,
            name: input.text()?.to_owned(),
        };
        input.end()?;
        Ok(record)
    }
}

impl ObjectRecord {
    /// The record with these bytes, its body checked.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        version(&mut input)?;
        let bucket = input.small()?;
        let key = input.text()?.to_owned();
        Body::decode(input.0)?;
        Ok(Self {
            bucket,
            key,
            body: Arc::from(input.0),
        })
    }
}

impl UploadRecord {
    /// The record with these bytes.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        version(&mut input)?;
        let (bucket, key) = (input.small()?, input.text()?.to_owned());
        let (created_ms, token) = (input.number()?, u64::from_be_bytes(input.array()?));
        let content_type = match check_flags(input.byte()?)? & HAS_CONTENT_TYPE {
            0 => None,
            _ => Some(input.text()?.to_owned()),
        };
        let (metadata, attributes) = (input.pairs()?, input.pairs()?);
        input.end()?;
        Ok(Self {
            bucket,
            key,
            created_ms,
            token,
            content_type,
            metadata,
            attributes,
        })
    }
}

impl PartRecord {
    /// The record with these bytes.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        version(&mut input)?;
        let (modified_ms, md5) = (input.number()?, input.array()?);
        let crc32c = match check_flags(input.byte()?)? & HAS_CRC32C {
            0 => None,
            _ => Some(u32::from_be_bytes(input.array()?)),
        };
        let segment = Segment {
            number: input.number()?,
            size: input.number()?,
            piece: input.small()?,
        };
        if segment.piece == 0 {
            return Err(RecordError("pieces are empty"));
        }
        let attributes = input.pairs()?;
        input.end()?;
        Ok(Self {
            modified_ms,
            md5,
            crc32c,
            segment,
            attributes,
        })
    }
}

impl VolumeRecord {
    /// The record with these bytes.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        version(&mut input)?;
        let (bucket, prefix) = (input.small()?, input.text()?.to_owned());
        let layout = Layout::of_code(input.byte()?);
        let layout = layout.ok_or(RecordError("its layout is unknown"))?;
        input.end()?;
        Ok(Self {
            bucket,
            prefix,
            layout,
        })
    }
}

impl SettingRecord {
    /// The record with these bytes.
    ///
    /// # Errors
    /// The bytes are no such record.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut input = Input(bytes);
        version(&mut input)?;
        let record = Self {
            created_ms: input.number()?,
            text: input.text()?.to_owned(),
        };
        input.end()?;
        Ok(record)
    }
}
