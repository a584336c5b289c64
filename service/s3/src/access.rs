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
use super::empty::Signed;
use super::operations::{self, Needs};
use super::{MAX_XML, XML_GROWS, memory, unserved};
use lumpscope_server::door::{Access, Grants, Reloader};
use lumpscope_server::request::{Memory, Reservation, Scope};

/// Properties of a request beside its input: set by [`Keys`] and the connection.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) scope: Arc<Scope>,
    pub(super) grants: Arc<Grants>,
}

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

/// The access keys in force, and the memory for what is read before an operation begins.
#[derive(Clone)]
pub(super) struct Keys {
    pub(super) reloader: Arc<Reloader>,
    pub(super) memory: Memory,
    /// Longest wait for memory.
    pub(super) wait: Duration,
}

impl Keys {
    /// Waits for memory for a body of XML, which s3s reads whole.
    ///
    /// # Errors
    /// `MaxMessageLengthExceeded`, `SlowDown`.
    async fn room(&self, headers: &HeaderMap) -> S3Result<Reservation> {
        let announced = headers.get(CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        let most = MAX_XML as u64;
        if announced.is_some_and(|bytes| bytes > most) {
            let why = format!("a body of XML may have {most} bytes");
            let code = S3ErrorCode::MaxMessageLengthExceeded;
            return Err(S3Error::with_message(code, why));
        }
        let bytes = announced.unwrap_or(most).saturating_mul(XML_GROWS);
        memory::reserve(&self.memory, bytes, self.wait).await
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
            return Err(S3Error::new(S3ErrorCode::NotImplemented));
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
        if is_version_2(cx) {
            let why = "signatures of version 2 are not accepted: sign with version 4";
            return Err(S3Error::with_message(S3ErrorCode::AccessDenied, why));
        }
        // Withdrawn since the signature was checked.
        let grants = self.reloader.s3().grants(&access_key);
        let grants = grants.ok_or_else(|| S3Error::new(S3ErrorCode::InvalidAccessKeyId))?;
        if !allowed(operation.needs, &grants, cx.s3_path()) {
            return Err(denied());
        }
        unserved::check(cx.headers())?;
        if operation.xml {
            let room = self.room(cx.headers()).await?;
            cx.extensions_mut().insert(Arc::new(room));
        }
        if let Some(flow) = cx.extensions_mut().get::<Arc<Flow>>() {
            flow.received(scope.age());
        }
        cx.extensions_mut().insert(Asked { scope, grants });
        Ok(())
    }
}

/// True: signed with SHA-1, without the body.
fn is_version_2(cx: &S3AccessContext<'_>) -> bool {
    let header = cx.headers().get(http::header::AUTHORIZATION);
    let by_header = header.is_some_and(|value| value.as_bytes().starts_with(b"AWS "));
    let query = cx.uri().query().unwrap_or_default();
    by_header || query.contains("AWSAccessKeyId=")
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
