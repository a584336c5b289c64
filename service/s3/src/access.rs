//! Callers and their rights: s3s checks signatures, this module rights.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use s3s::access::{S3Access, S3AccessContext};
use s3s::auth::{S3Auth, SecretKey};
use s3s::path::S3Path;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Result};

use super::body::Flow;
use super::operations::{self, Needs};
use super::{MAX_XML, XML_GROWS, error, memory, parameters, unserved};
use lumpscope_engine::Payer;
use lumpscope_server::door::{Access, Grants, Reloader};
use lumpscope_server::request::{Bodies, Body, Scope};

/// Headers that name the owner of a bucket, of the source of a copy too.
const OWNERS: [&str; 2] = [
    "x-amz-expected-bucket-owner",
    "x-amz-source-expected-bucket-owner",
];

/// Properties of a request beside its input: set by [`Keys`] and the connection.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) scope: Arc<Scope>,
    pub(super) grants: Arc<Grants>,
}

/// The access key whose signature was checked already.
#[derive(Clone)]
pub(super) struct Signed(pub(super) String);

/// Why a body is no XML. Only an operation whose body is XML minds.
#[derive(Clone)]
pub(super) struct Malformed(pub(super) String);

/// The body of a request that makes a setting, to compare with what was read of it.
#[derive(Clone)]
pub(super) struct Document(pub(super) Arc<[u8]>);

impl Asked {
    /// Of a request that has passed [`Keys`].
    ///
    /// # Errors
    /// It has not: a fault of this program.
    pub(super) fn of<T>(request: &S3Request<T>) -> S3Result<Self> {
        let found = request.extensions.get::<Self>().cloned();
        found.ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
    }

    /// Refuses who may not do this.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(super) fn check(&self, access: Access, bucket: &str, key: &str) -> S3Result<()> {
        if self.grants.allow(access, bucket, key) {
            return Ok(());
        }
        Err(denied())
    }
}

fn denied() -> S3Error {
    S3Error::with_message(
        S3ErrorCode::AccessDenied,
        "the rules of this access key do not allow it",
    )
}

/// The access keys in force, and the memory for documents of XML, which are read before their
/// signatures are verified.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) reloader: Arc<Reloader>,
    pub(super) memory: Bodies,
    /// Longest wait for memory.
    pub(super) wait: Duration,
}

impl Keys {
    /// Waits for memory for a body of XML, which is read whole; `known`: its bytes, if no header
    /// tells.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, `SlowDown`.
    pub(super) async fn room(&self, headers: &HeaderMap, known: Option<u64>) -> S3Result<Body> {
        let announced = headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let (announced, most) = (announced.or(known), MAX_XML as u64);
        if announced.is_some_and(|bytes| bytes > most) {
            return Err(error::long_xml());
        }
        let bytes = announced.unwrap_or(most).saturating_mul(XML_GROWS);
        // No signature has been verified.
        let nobody = Payer::default();
        let mut room = memory::begin(&self.memory, nobody, bytes, self.wait).await?;
        memory::cover(&mut room, bytes, self.wait).await?;
        Ok(room)
    }
}

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        let credentials = self.reloader.s3();
        let secret = credentials.secret(access_key).map(SecretKey::from);
        secret.ok_or_else(|| S3Error::new(S3ErrorCode::InvalidAccessKeyId))
    }
}

#[async_trait::async_trait]
impl S3Access for Keys {
    async fn check(&self, cx: &mut S3AccessContext<'_>) -> S3Result<()> {
        let Some(operation) = operations::find(cx.s3_op().name()) else {
            let why = format!("{} is not offered by this service", cx.s3_op().name());
            return Err(S3Error::with_message(S3ErrorCode::NotImplemented, why));
        };
        let scope = cx.extensions_mut().get::<Arc<Scope>>().cloned();
        let scope = scope.ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))?;
        scope.set_method(operation.name);
        let access_key = match cx.credentials() {
            Some(credentials) => Some(credentials.access_key.clone()),
            // Checked before it was asked again.
            None => cx.extensions_mut().get().map(|Signed(key)| key.clone()),
        };
        let Some(access_key) = access_key else {
            let why = "this service asks for a signature";
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
        };
        // Withdrawn since the signature was checked.
        let grants = self.reloader.s3().grants(&access_key);
        let grants = grants.ok_or_else(|| S3Error::new(S3ErrorCode::InvalidAccessKeyId))?;
        if !allowed(operation.needs, &grants, cx.s3_path()) {
            return Err(denied());
        }
        parameters::check(operation, cx.uri().query().unwrap_or_default())?;
        unserved::check(operation, cx.headers())?;
        owned(cx.headers(), &grants)?;
        if let Some(Malformed(why)) = cx.extensions_mut().get().filter(|_| operation.xml) {
            let code = S3ErrorCode::MalformedXML;
            return Err(S3Error::with_message(code, why.clone()));
        }
        if let Some(flow) = cx.extensions_mut().get::<Arc<Flow>>() {
            flow.received(scope.age());
        }
        scope.set_payer(grants.name(), None);
        cx.extensions_mut().insert(Asked { scope, grants });
        Ok(())
    }
}

/// Refuses whoever takes a bucket for that of somebody else: it is of who may see it, as lists say.
fn owned(headers: &HeaderMap, grants: &Grants) -> S3Result<()> {
    for name in OWNERS {
        let mut given = headers.get_all(name).iter();
        if given.any(|owner| owner.as_bytes() != grants.name().as_bytes()) {
            let why = format!("{name} is not the owner of the bucket: {}", grants.name());
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
        }
    }
    Ok(())
}

fn allowed(needs: Needs, grants: &Grants, path: &S3Path) -> bool {
    let (bucket, key) = match path {
        S3Path::Root => ("", ""),
        S3Path::Bucket { bucket } => (&**bucket, ""),
        S3Path::Object { bucket, key } => (&**bucket, &**key),
    };
    match needs {
        Needs::Login => true,
        Needs::Bucket => grants.know(bucket),
        Needs::WholeBucket => grants.allow(Access::Write, bucket, ""),
        Needs::Read => grants.allow(Access::Read, bucket, key),
        Needs::Write => grants.allow(Access::Write, bucket, key),
    }
}
