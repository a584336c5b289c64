//! Callers and their rights: s3s checks signatures, this module rights.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::{MAX_XML, XML_GROWS, error, memory};
use lumpscope_engine::Payer;
use lumpscope_server::door::{Access, Grants, Reloader};
use lumpscope_server::request::{Budget, Reserved};

/// Headers that name the owner of a bucket, of the source of a copy too.
const OWNERS: [&str; 2] = [
    "x-amz-expected-bucket-owner",
    "x-amz-source-expected-bucket-owner",
];

pub(super) fn denied() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::AccessDenied,
        "the rules of this access key do not allow it",
    )
}

/// Right that an operation needs of its key, as far as the path tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A login.
    Login,
    /// Any right in the bucket; the operation looks closer.
    Bucket,
    /// To write every key of the bucket.
    WholeBucket,
    /// To read this key.
    Read,
    /// To write this key.
    Write,
}

/// The access keys in force, and the memory for documents of XML.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) reloader: Arc<Reloader>,
    pub(super) memory: Budget,
    /// Longest wait for memory.
    pub(super) wait: Duration,
}

impl Keys {
    /// Waits for memory for a body of XML, which is read whole; `known`: its bytes, if no header
    /// says so.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, `SlowDown`.
    pub(super) async fn room(
        &self,
        headers: &HeaderMap,
        (payer, known): (Payer, Option<u64>),
    ) -> S3Result<Reserved> {
        let announced = headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let (announced, most) = (announced.or(known), MAX_XML as u64);
        if announced.is_some_and(|bytes| bytes > most) {
            return Err(error::long_xml());
        }
        let bytes = announced.unwrap_or(most).saturating_mul(XML_GROWS);
        let room = self.memory.within(self.wait, payer, bytes).await;
        room.ok_or_else(|| memory::none(self.wait))
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let credentials = self.reloader.s3();
        let secret = credentials.secret(access_key).map(SecretKey::from);
        let why = "the service has no such access key";
        secret.ok_or_else(|| S3Error::with_message(S3ErrorCode::InvalidAccessKeyId, why))
    }
}

/// Refuses whoever takes a bucket for that of somebody else: it is of who may see it, as lists say.
///
/// # Errors
/// `AccessDenied`.
pub(super) fn check_owner(headers: &HeaderMap, grants: &Grants) -> S3Result<()> {
    for name in OWNERS {
        let mut given = headers.get_all(name).iter();
        if given.any(|owner| owner.as_bytes() != grants.name().as_bytes()) {
            let why = format!("{name} is not the owner of the bucket: {}", grants.name());
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
        }
    }
    Ok(())
}

/// Refuses a caller without the right that the operation needs of its path.
///
/// # Errors
/// `AccessDenied`.
pub(super) fn check_rights(
    needs: Needs,
    grants: &Grants,
    (bucket, key): (&str, &str),
) -> S3Result<()> {
    let allowed = match needs {
        Needs::Login => true,
        Needs::Bucket => grants.know(bucket),
        Needs::WholeBucket => grants.allow(Access::Write, bucket, ""),
        Needs::Read => grants.allow(Access::Read, bucket, key),
        Needs::Write => grants.allow(Access::Write, bucket, key),
    };
    allowed.then_some(()).ok_or_else(denied)
}
