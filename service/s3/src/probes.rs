//! Settings that clients ask for before they begin. None of these can be made, and each is answered as S3
//! answers where nobody has made any; other operations on them are 501.

use lumpscope_objects::ListQuery;
use s3s::dto::{
    GetBucketAclInput, GetBucketAclOutput, GetBucketEncryptionInput, GetBucketEncryptionOutput,
    GetBucketLoggingInput, GetBucketLoggingOutput, GetBucketPolicyInput, GetBucketPolicyOutput,
    GetBucketReplicationInput, GetBucketReplicationOutput, GetBucketTaggingInput,
    GetBucketTaggingOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetBucketWebsiteInput, GetBucketWebsiteOutput, GetObjectAclInput, GetObjectAclOutput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, Grant, Grantee,
    ListObjectVersionsInput, ListObjectVersionsOutput, ObjectVersion, ObjectVersionStorageClass,
    Owner, Permission, Type,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::endpoint::{Endpoint, given, no_version};
use super::list::{Encoding, Listed, MAX_KEYS, marker_text, of_marker, owner, page_size, texts};

/// The version of what has none.
const NULL: &str = "null";

/// Operations whose answer is an error: there is no such setting.
macro_rules! not_there {
    ($($name:ident($input:ty) -> $output:ty = $code:ident;)*) => {
        impl Endpoint {
            $(pub(super) fn $name(
                &self,
                request: S3Request<$input>,
            ) -> S3Result<S3Response<$output>> {
                self.asks_for(&request, &request.input.bucket)?;
                let why = "the bucket has none, and this service none to give";
                let mut error = S3Error::with_message(S3ErrorCode::$code, why);
                error.set_status_code(http::StatusCode::NOT_FOUND);
                Err(error)
            })*
        }
    };
}

not_there! {
    encryption(GetBucketEncryptionInput) -> GetBucketEncryptionOutput =
        ServerSideEncryptionConfigurationNotFoundError;
    locks(GetObjectLockConfigurationInput) -> GetObjectLockConfigurationOutput =
        ObjectLockConfigurationNotFoundError;
    policy(GetBucketPolicyInput) -> GetBucketPolicyOutput = NoSuchBucketPolicy;
    replication(GetBucketReplicationInput) -> GetBucketReplicationOutput =
        ReplicationConfigurationNotFoundError;
    bucket_tags(GetBucketTaggingInput) -> GetBucketTaggingOutput = NoSuchTagSet;
    website(GetBucketWebsiteInput) -> GetBucketWebsiteOutput = NoSuchWebsiteConfiguration;
}

/// Whoever may see it may do everything, as far as a list of rights can tell.
fn all(owner: &Owner) -> Vec<Grant> {
    vec![Grant {
        grantee: Some(Grantee {
            display_name: owner.display_name.clone(),
            email_address: None,
            id: owner.id.clone(),
            type_: Type::from_static(Type::CANONICAL_USER),
            uri: None,
        }),
        permission: Some(Permission::from_static(Permission::FULL_CONTROL)),
    }]
}

impl Endpoint {
    /// Refuses a bucket that is not there.
    fn asks_for<T>(&self, request: &S3Request<T>, bucket: &str) -> S3Result<Owner> {
        let asked = Asked::of(request)?;
        let inside = self.enter(&asked, bucket)?;
        inside.known(bucket)?;
        Ok(owner(&asked))
    }

    /// Refuses an object that is not there.
    async fn asks_for_object<T>(
        &self,
        request: &S3Request<T>,
        (bucket, key, version): (&str, &str, Option<String>),
    ) -> S3Result<Owner> {
        let asked = Asked::of(request)?;
        no_version(version)?;
        let inside = self.enter(&asked, bucket)?;
        let found = inside
            .objects
            .head(asked.scope.context(), bucket, key)
            .await;
        found.map_err(|failure| inside.failed(failure))?;
        Ok(owner(&asked))
    }

    pub(super) fn versioning(
        &self,
        request: S3Request<GetBucketVersioningInput>,
    ) -> S3Result<S3Response<GetBucketVersioningOutput>> {
        self.asks_for(&request, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketVersioningOutput::default()))
    }

    pub(super) fn logging(
        &self,
        request: S3Request<GetBucketLoggingInput>,
    ) -> S3Result<S3Response<GetBucketLoggingOutput>> {
        self.asks_for(&request, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketLoggingOutput::default()))
    }

    pub(super) fn bucket_acl(
        &self,
        request: S3Request<GetBucketAclInput>,
    ) -> S3Result<S3Response<GetBucketAclOutput>> {
        let owner = self.asks_for(&request, &request.input.bucket)?;
        Ok(S3Response::new(GetBucketAclOutput {
            grants: Some(all(&owner)),
            owner: Some(owner),
        }))
    }

    pub(super) async fn acl(
        &self,
        request: S3Request<GetObjectAclInput>,
    ) -> S3Result<S3Response<GetObjectAclOutput>> {
        let input = &request.input;
        let place = (&*input.bucket, &*input.key, input.version_id.clone());
        let owner = self.asks_for_object(&request, place).await?;
        Ok(S3Response::new(GetObjectAclOutput {
            grants: Some(all(&owner)),
            owner: Some(owner),
            request_charged: None,
        }))
    }

    /// Each key has one version, which is the latest.
    pub(super) async fn versions(
        &self,
        request: S3Request<ListObjectVersionsInput>,
    ) -> S3Result<S3Response<ListObjectVersionsOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let encoding = Encoding::of(input.encoding_type.as_ref())?;
        let max = page_size(input.max_keys)?;
        let (marker, delimiter) = (given(input.key_marker), given(input.delimiter));
        let after = marker.clone();
        let query = ListQuery {
            prefix: input.prefix.clone().unwrap_or_default(),
            after: after.map(|marker| of_marker(marker, delimiter.as_deref())),
            delimiter,
            max,
        };
        let page = self.page(&asked, &input.bucket, &query).await?;
        let encoding = encoding.fit(texts(&page, &query).chain(marker.as_deref()));
        let next = page.next.clone().map(marker_text);
        let next = next.map(|text| encoding.text(text));
        let listed = Listed::of(page, encoding, Some(&owner(&asked)));
        let standard = ObjectVersionStorageClass::from_static(ObjectVersionStorageClass::STANDARD);
        let versions = listed.contents.into_iter().map(|object| ObjectVersion {
            e_tag: object.e_tag,
            is_latest: Some(true),
            key: object.key,
            last_modified: object.last_modified,
            owner: object.owner,
            size: object.size,
            storage_class: Some(standard.clone()),
            version_id: Some(NULL.to_owned()),
            ..ObjectVersion::default()
        });
        Ok(S3Response::new(ListObjectVersionsOutput {
            name: Some(input.bucket),
            prefix: Some(encoding.text(query.prefix)),
            delimiter: query.delimiter.map(|text| encoding.text(text)),
            encoding_type: encoding.name(),
            key_marker: Some(encoding.text(marker.unwrap_or_default())),
            version_id_marker: Some(input.version_id_marker.unwrap_or_default()),
            max_keys: Some(input.max_keys.unwrap_or(MAX_KEYS).min(MAX_KEYS)),
            is_truncated: Some(next.is_some()),
            next_version_id_marker: next.is_some().then(|| NULL.to_owned()),
            next_key_marker: next,
            versions: Some(versions.collect()),
            common_prefixes: Some(listed.prefixes),
            ..ListObjectVersionsOutput::default()
        }))
    }
}
