//! A store of S3, and the request in it.

use std::sync::Arc;

use lumpscope_objects::{ObjectError, Objects};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::call::Call;
use super::error;
use super::reply::{self, Answer};
use lumpscope_server::stores::{Mode, NamedStore};

/// Header that names the store of a bucket.
const STORE: &str = "x-lumpscope-store";

/// A store that S3 serves; after [`Call::inside`] the request is in it.
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

    /// Names the store in an answer.
    pub(super) fn tell(&self, answer: &mut Answer) {
        let header = http::HeaderName::from_static(STORE);
        reply::set(answer, header, Some(&self.named.name));
    }

    /// True: the bucket is in it.
    pub(super) fn has(&self, bucket: &str) -> bool {
        self.objects.bucket(bucket).is_ok()
    }

    /// Bytes that new objects can have.
    pub(super) fn free(&self) -> u64 {
        let stats = self.named.store.stats();
        stats
            .data_capacity_bytes
            .saturating_sub(stats.data_used_bytes)
    }

    /// True: it may get a new bucket.
    pub(super) fn takes(&self) -> bool {
        let takes = self.named.mode() == Mode::Serving && self.named.failed().is_empty();
        takes && !self.named.store.is_frozen()
    }
}

impl Call {
    /// Enters the store, where the request counts as under way until its end.
    ///
    /// # Errors
    /// `ServiceUnavailable`: it takes no requests.
    pub(super) fn inside(&self, inside: Inside) -> S3Result<Inside> {
        let entered = self.scope.enter(&inside.named);
        entered.map_err(|refusal| error::refused(&refusal))?;
        Ok(inside)
    }
}

/// `ServiceUnavailable`.
pub(super) fn unavailable(why: String) -> S3Error {
    S3Error::with_message(S3ErrorCode::ServiceUnavailable, why)
}
