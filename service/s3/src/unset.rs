//! Settings that clients ask for before they begin, and that nobody can make: each is answered as
//! S3 answers where nobody has made any; other operations on them are 501.

use http::StatusCode;
use s3s::dto::{GetBucketAclOutput, Grant, Grantee, Permission, Type};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::call::Call;
use super::endpoint::{Endpoint, no_version};
use super::list::owner;
use super::reply::{self, Answer};

/// By operation the error of S3, or the element of the document that says nothing.
const UNSET: [(&str, Result<&str, S3ErrorCode>); 8] = [
    (
        "GetBucketEncryption",
        Err(S3ErrorCode::ServerSideEncryptionConfigurationNotFoundError),
    ),
    ("GetBucketLogging", Ok("BucketLoggingStatus")),
    ("GetBucketPolicy", Err(S3ErrorCode::NoSuchBucketPolicy)),
    (
        "GetBucketReplication",
        Err(S3ErrorCode::ReplicationConfigurationNotFoundError),
    ),
    ("GetBucketTagging", Err(S3ErrorCode::NoSuchTagSet)),
    ("GetBucketVersioning", Ok("VersioningConfiguration")),
    (
        "GetBucketWebsite",
        Err(S3ErrorCode::NoSuchWebsiteConfiguration),
    ),
    (
        "GetObjectLockConfiguration",
        Err(S3ErrorCode::ObjectLockConfigurationNotFoundError),
    ),
];

/// The bucket has no such setting.
pub(super) fn none(code: S3ErrorCode) -> S3Error {
    let mut error = S3Error::with_message(code, "the bucket has none");
    error.set_status_code(StatusCode::NOT_FOUND);
    error
}

impl Endpoint {
    /// A setting that no bucket has.
    pub(super) fn unset(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        inside.known(&call.bucket)?;
        let mut all = UNSET.into_iter();
        match all.find(|(operation, _)| *operation == call.operation.protocol) {
            None => Err(S3Error::new(S3ErrorCode::InternalError)),
            Some((_, Err(code))) => Err(none(code)),
            Some((_, Ok(root))) => {
                let document = format!(
                    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
                     <{root} xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"></{root}>"
                );
                Ok(reply::of_xml(document.into_bytes()))
            }
        }
    }

    /// Whoever may see a bucket, or an object, may do everything, as far as a list of rights can
    /// tell.
    pub(super) async fn acl(&self, call: &Call) -> S3Result<Answer> {
        no_version(call.parameter("versionId"))?;
        let inside = self.enter(call, &call.bucket)?;
        inside.known(&call.bucket)?;
        if !call.key.is_empty() {
            let found = inside
                .objects
                .head(call.scope.context(), &call.bucket, &call.key);
            found.await.map_err(|failure| inside.failed(failure))?;
        }
        let owner = owner(call);
        let grant = Grant {
            grantee: Some(Grantee {
                display_name: owner.display_name.clone(),
                email_address: None,
                id: owner.id.clone(),
                type_: Type::from_static(Type::CANONICAL_USER),
                uri: None,
            }),
            permission: Some(Permission::from_static(Permission::FULL_CONTROL)),
        };
        reply::xml(&GetBucketAclOutput {
            grants: Some(vec![grant]),
            owner: Some(owner),
        })
    }
}
