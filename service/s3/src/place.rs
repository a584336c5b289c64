//! Which store has a bucket, and which one gets a new one.

use std::sync::Arc;

use http::HeaderMap;
use lumpscope_objects::{Bucket, ObjectError, Objects};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::access::Asked;
use super::endpoint::Endpoint;
use super::error;
use lumpscope_server::stores::{Mode, NamedStore};

/// Header that names the store of a bucket.
const STORE: &str = "x-lumpscope-store";

/// A store that S3 serves; after [`Endpoint::enter`] the request is in it.
#[derive(Clone)]
pub(super) struct Inside {
    pub(super) named: Arc<NamedStore>,
    pub(super) objects: Objects,
}

impl Inside {
    /// S3 error for an error of the objects.
    pub(super) fn failed(&self, failure: ObjectError) -> S3Error {
        error::object(&self.named.name, failure)
    }

    /// Refuses a bucket that is not there.
    ///
    /// # Errors
    /// `NoSuchBucket`.
    pub(super) fn known(&self, bucket: &str) -> S3Result<()> {
        let found = self.objects.bucket(bucket);
        found.map(|_| ()).map_err(|failure| self.failed(failure))
    }

    /// The header that names the store.
    pub(super) fn told(&self) -> HeaderMap {
        let name = self.named.name.parse().ok();
        let header = name.map(|name| (http::HeaderName::from_static(STORE), name));
        header.into_iter().collect()
    }

    fn has(&self, bucket: &str) -> bool {
        self.objects.bucket(bucket).is_ok()
    }

    /// Bytes that new objects can have.
    fn free(&self) -> u64 {
        let stats = self.named.store.stats();
        stats
            .data_capacity_bytes
            .saturating_sub(stats.data_used_bytes)
    }

    /// True: it may get a new bucket.
    fn takes(&self) -> bool {
        self.named.mode() == Mode::Serving && self.named.failed().is_empty()
    }
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

    /// The store that has a bucket; where there is only one, that.
    ///
    /// # Errors
    /// `NoSuchBucket`; `ServiceUnavailable`: a store that did not open may have it, or two have it.
    pub(super) fn place(&self, bucket: &str) -> S3Result<Inside> {
        let mut served = self.served();
        let out = self.stores.failed();
        let only = self.only.as_ref();
        let out = out
            .iter()
            .find(|it| only.is_none_or(|only| it.name == *only));
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
                "no open store has this bucket; the store {} did not open and may have it",
                out.name
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
    pub(super) fn enter(&self, asked: &Asked, bucket: &str) -> S3Result<Inside> {
        asked.inside(self.place(bucket)?)
    }

    /// Enters the store for a bucket that is to be made: the one that has it already, the one that
    /// `wanted` names, or the one with most room.
    ///
    /// # Errors
    /// As [`Self::enter`], but for `NoSuchBucket`.
    pub(super) fn enter_new(
        &self,
        asked: &Asked,
        bucket: &str,
        wanted: Option<&str>,
    ) -> S3Result<Inside> {
        match self.place(bucket) {
            Err(error) if *error.code() == S3ErrorCode::NoSuchBucket => {}
            placed => return asked.inside(placed?),
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
        asked.inside(chosen.ok_or_else(none)?)
    }

    /// The buckets of all stores, by name.
    ///
    /// # Errors
    /// `ServiceUnavailable`: no store takes requests.
    pub(super) fn all_buckets(&self, asked: &Asked) -> S3Result<Vec<Bucket>> {
        let (mut buckets, mut refused) = (Vec::new(), None);
        let mut none = true;
        for inside in self.served() {
            match asked.inside(inside) {
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

impl Asked {
    fn inside(&self, inside: Inside) -> S3Result<Inside> {
        let entered = self.scope.enter(&inside.named);
        entered.map_err(|refusal| error::refused(&refusal))?;
        Ok(inside)
    }
}

fn unavailable(why: String) -> S3Error {
    S3Error::with_message(S3ErrorCode::ServiceUnavailable, why)
}
