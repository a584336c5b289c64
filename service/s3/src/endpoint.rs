//! State shared by all operations: stores, and the memory for bodies.

use std::sync::Arc;
use std::time::Duration;

use http::header::HOST;
use http::{HeaderMap, HeaderName};
use lumpscope_objects::{Bucket, ETag, MAX_PIECE_BYTES, ObjectError, ObjectInfo};
use percent_encoding::utf8_percent_encode;
use s3s::dto::ETag as ETagDto;
use s3s::path::check_bucket_name;
use s3s::{S3Error, S3ErrorCode, S3Result};
use tokio::sync::Notify;

use super::body::MAX_HELD;
use super::call::Call;
use super::inside::{Inside, unavailable};
use super::memory::{begin, cover};
use super::settings::Settings;
use super::xml::PLAIN;
use super::{error, hosts, lifecycle};
use lumpscope_server::config::S3Etag;
use lumpscope_server::request::{Budget, Reserved};
use lumpscope_server::stores::Stores;

/// When an object expires.
pub(super) const EXPIRATION: HeaderName = HeaderName::from_static("x-amz-expiration");

/// Pieces of an object that a writer keeps in memory: one is filled, one is on its way.
const PIECES: u64 = 2;

/// A signed chunk that comes has memory for so many bytes more at a time.
const CHUNK_STEP: u64 = 2 << 20;

/// What is kept of a body beside its pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Nothing,
    /// A chunk until its signature is known.
    Chunk,
    /// Each piece twice, for its length is known at its end.
    Twice,
}

/// Serves the operations of S3 from the objects of the stores.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// Of its address: `http`, or `https`.
    pub(super) scheme: &'static str,
    pub(super) stores: Stores,
    /// The only store that S3 serves; `None`: each store of the service.
    pub(super) only: Option<String>,
    /// Names that the endpoint is reached by, alone or behind a bucket.
    pub(super) domains: Arc<[String]>,
    /// Held by whoever makes a bucket.
    pub(super) creating: Arc<tokio::sync::Mutex<()>>,
    pub(super) put_memory: Budget,
    /// Most bytes of the body of one put or part.
    pub(super) max_body: u64,
    /// Source of an `ETag`.
    pub(super) etag: S3Etag,
    /// Longest wait for memory.
    pub(super) memory_wait: Duration,
    /// The settings of buckets, read.
    pub(super) settings: Arc<Settings>,
    /// There may be something that has expired.
    pub(super) look: Arc<Notify>,
}

impl Endpoint {
    /// The open stores that S3 serves.
    pub(super) fn served(&self) -> Vec<Inside> {
        let all = self.stores.all();
        let served = all.iter().filter_map(|named| {
            Some(Inside {
                named: Arc::clone(named),
                objects: named.objects()?.clone(),
            })
        });
        served.collect()
    }

    /// Name of a store that S3 would serve and that did not open.
    fn out(&self) -> Option<String> {
        let failed = self.stores.failed();
        let only = self.only.as_ref();
        let mut served = failed
            .iter()
            .filter(|it| only.is_none_or(|only| it.name == *only));
        served.next().map(|it| it.name.clone())
    }

    /// The store that has a bucket; where there is only one, that.
    ///
    /// # Errors
    /// `NoSuchBucket`; `ServiceUnavailable`: a store that did not open may have it, or two have it.
    pub(super) fn place(&self, bucket: &str) -> S3Result<Inside> {
        // First: a store that just opens is in one of the two.
        let out = self.out();
        let mut served = self.served();
        if served.len() == 1 && out.is_none() {
            return Ok(served.remove(0));
        }
        let mut having = served.into_iter().filter(|inside| inside.has(bucket));
        match (having.next(), having.next(), out) {
            (Some(inside), None, _) => Ok(inside),
            (Some(one), Some(other), _) => {
                let (one, other) = (&one.named.name, &other.named.name);
                Err(unavailable(format!(
                    "the stores {one} and {other} both have this bucket: one of them must be taken out"
                )))
            }
            (None, _, Some(out)) => Err(unavailable(format!(
                "no open store has this bucket; the store {out} did not open and may have it"
            ))),
            (None, _, None) => {
                let bucket = bucket.to_owned();
                Err(error::object("", ObjectError::NoSuchBucket { bucket }))
            }
        }
    }

    /// Enters the store of a bucket, where the request counts as under way until its end.
    ///
    /// # Errors
    /// As [`Self::place`]; `ServiceUnavailable`: the store takes no requests.
    pub(super) fn enter(&self, call: &Call, bucket: &str) -> S3Result<Inside> {
        call.inside(self.place(bucket)?)
    }

    /// Enters the store for a bucket that is to be made: the one that has it already, the one that
    /// `wanted` names, or the one with most room.
    ///
    /// # Errors
    /// As [`Self::enter`], but for `NoSuchBucket`.
    pub(super) fn enter_new(
        &self,
        call: &Call,
        bucket: &str,
        wanted: Option<&str>,
    ) -> S3Result<Inside> {
        match self.place(bucket) {
            Err(error) if *error.code() == S3ErrorCode::NoSuchBucket => {}
            placed => return call.inside(placed?),
        }
        let served = self.served();
        let named = served.iter().find(|it| wanted == Some(&*it.named.name));
        // Of equal ones the first.
        let roomy = || {
            let taking = served.iter().rev().filter(|inside| inside.takes());
            taking.max_by_key(|inside| inside.free())
        };
        let chosen = named.or_else(roomy).cloned();
        let none = || unavailable("no store takes a new bucket now".to_owned());
        call.inside(chosen.ok_or_else(none)?)
    }

    /// The buckets of all stores, by name.
    ///
    /// # Errors
    /// `ServiceUnavailable`: no store takes requests.
    pub(super) fn all_buckets(&self, call: &Call) -> S3Result<Vec<Bucket>> {
        let (mut buckets, mut refused) = (Vec::new(), None);
        let mut none = true;
        for inside in self.served() {
            match call.inside(inside) {
                Ok(inside) => {
                    none = false;
                    buckets.extend(inside.objects.buckets());
                }
                Err(error) => refused = Some(error),
            }
        }
        if none {
            let why = || unavailable("no store of S3 is open".to_owned());
            return Err(refused.unwrap_or_else(why));
        }
        buckets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        buckets.dedup_by(|one, other| one.name == other.name);
        Ok(buckets)
    }
}

impl Endpoint {
    /// The header that tells the end of an object.
    pub(super) fn ends(
        &self,
        inside: &Inside,
        place: (&str, &str),
        info: &ObjectInfo,
    ) -> Option<String> {
        let (bucket, key) = place;
        let rules = self.settings.lifecycle(&inside.objects, bucket)?;
        lifecycle::told(&rules, key, info)
    }

    /// The bucket in the host name of a request; `None`: the path has it.
    ///
    /// # Errors
    /// As [`hosts::bucket`]; `ServiceUnavailable`: a store that did not open may have a bucket of the
    /// host's name.
    pub(super) fn bucket_of_host(&self, headers: &HeaderMap) -> S3Result<Option<String>> {
        let is_bucket = |name: &str| {
            // In this order: a store that just opens, or is just taken out, is in one of the three.
            let out = self.out();
            let known = self.served().iter().any(|inside| inside.has(name));
            let known = known || self.stores.took_out(name);
            match out.filter(|_| !known && check_bucket_name(name)) {
                None => Ok(known),
                Some(out) => Err(unavailable(format!(
                    "the store {out} did not open and may have the bucket {name} of this host: use \
                     the endpoint's address, or set s3-domain"
                ))),
            }
        };
        hosts::bucket(&self.domains, headers, is_bucket)
    }

    /// The address of an object, as the client knows this service.
    pub(super) fn address(&self, headers: &HeaderMap, (bucket, key): (&str, &str)) -> String {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok());
        let begin = host.map(|host| format!("{}://{host}", self.scheme));
        let key = utf8_percent_encode(key, PLAIN);
        let begin = begin.unwrap_or_default();
        match self.bucket_of_host(headers) {
            Ok(Some(_)) => format!("{begin}/{key}"),
            _ => format!("{begin}/{bucket}/{key}"),
        }
    }

    /// Waits for memory for the first bytes of a body of at most `len` bytes.
    ///
    /// # Errors
    /// `EntityTooLarge`, `SlowDown`.
    pub(super) async fn room(
        &self,
        inside: &Inside,
        call: &Call,
        len: u64,
        holds: Holds,
    ) -> S3Result<PieceMemory> {
        if len > self.max_body {
            let why = format!("a body may have {} bytes", self.max_body);
            return Err(S3Error::with_message(S3ErrorCode::EntityTooLarge, why));
        }
        let piece = len.min(u64::from(MAX_PIECE_BYTES)).max(1);
        let memory = inside.named.store.lump_memory(piece);
        let mut piece_memory = memory.map_err(|error| inside.failed(error.into()))?;
        if holds == Holds::Twice {
            piece_memory = piece_memory.saturating_mul(2);
        }
        let pieces = len.div_ceil(piece).clamp(1, PIECES);
        let held = match holds {
            Holds::Chunk => len.min(MAX_HELD),
            Holds::Nothing | Holds::Twice => 0,
        };
        let wanted = piece_memory.saturating_mul(pieces).saturating_add(held);
        let wait = self.memory_wait;
        let memory = begin(&self.put_memory, call.scope.payer(), wanted, wait).await?;
        let chunk = match memory.is_whole() {
            true => held,
            false => held.min(CHUNK_STEP),
        };
        let mut room = PieceMemory {
            memory,
            piece,
            piece_memory,
            pieces: 1,
            chunk,
            most: held,
            wait,
        };
        room.cover(0).await?;
        Ok(room)
    }

    /// As [`Self::room`], for a body that this service reads itself: all of it at once.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn whole_room(
        &self,
        inside: &Inside,
        call: &Call,
        len: u64,
    ) -> S3Result<PieceMemory> {
        let mut room = self.room(inside, call, len, Holds::Nothing).await?;
        room.cover(len).await?;
        Ok(room)
    }
}

/// Memory for the pieces of a body and for the chunk that comes.
pub(super) struct PieceMemory {
    memory: Reserved,
    /// Bytes of a piece, and the memory that it takes.
    piece: u64,
    piece_memory: u64,
    /// Pieces that there is memory for.
    pieces: u64,
    /// Bytes of a chunk that there is memory for, and the most that it can have.
    chunk: u64,
    most: u64,
    wait: Duration,
}

impl PieceMemory {
    /// Waits for memory for the pieces of the first `got` bytes.
    ///
    /// # Errors
    /// `SlowDown`.
    pub(super) async fn cover(&mut self, got: u64) -> S3Result<()> {
        self.pieces = (got.div_ceil(self.piece)).clamp(self.pieces, PIECES);
        let bytes = self.bytes();
        cover(&mut self.memory, bytes, self.wait).await
    }

    /// Waits for memory for a longer chunk, one that has not all that it can have.
    ///
    /// # Errors
    /// `SlowDown`.
    pub(super) async fn grow(&mut self) -> S3Result<()> {
        self.chunk = self.chunk.saturating_add(CHUNK_STEP).min(self.most);
        let bytes = self.bytes();
        cover(&mut self.memory, bytes, self.wait).await
    }

    /// Bytes of a chunk that may wait for being taken; `None`: there is memory for all of it.
    pub(super) fn chunk(&self) -> Option<u64> {
        Some(self.chunk).filter(|chunk| *chunk < self.most)
    }

    /// Bytes of memory that it has, or waits for.
    pub(super) const fn bytes(&self) -> u64 {
        let pieces = self.piece_memory.saturating_mul(self.pieces);
        pieces.saturating_add(self.chunk)
    }
}

/// An `ETag` as S3 has it.
pub(super) fn etag(etag: ETag) -> ETagDto {
    ETagDto::Strong(etag.to_string())
}

/// An `ETag` as a header has it.
pub(super) fn quoted(etag: ETag) -> String {
    format!("\"{etag}\"")
}

/// A count or size as S3 has it.
pub(super) fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Refuses a version other than the only one there is.
///
/// # Errors
/// `NoSuchVersion`.
pub(super) fn no_version(version: Option<&str>) -> S3Result<()> {
    match version {
        None | Some("" | "null") => Ok(()),
        Some(_) => Err(S3Error::with_message(
            S3ErrorCode::NoSuchVersion,
            "there are no versions: leave versionId out",
        )),
    }
}
