//! Which operation is served by what.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput,
    CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput,
    DeleteBucketCorsInput, DeleteBucketCorsOutput, DeleteBucketInput, DeleteBucketLifecycleInput,
    DeleteBucketLifecycleOutput, DeleteBucketOutput, DeleteObjectInput, DeleteObjectOutput,
    DeleteObjectTaggingInput, DeleteObjectTaggingOutput, DeleteObjectsInput, DeleteObjectsOutput,
    GetBucketAclInput, GetBucketAclOutput, GetBucketCorsInput, GetBucketCorsOutput,
    GetBucketEncryptionInput, GetBucketEncryptionOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, GetBucketLocationInput, GetBucketLocationOutput,
    GetBucketLoggingInput, GetBucketLoggingOutput, GetBucketPolicyInput, GetBucketPolicyOutput,
    GetBucketReplicationInput, GetBucketReplicationOutput, GetBucketTaggingInput,
    GetBucketTaggingOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
    GetBucketWebsiteInput, GetBucketWebsiteOutput, GetObjectAclInput, GetObjectAclOutput,
    GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput,
    GetObjectLockConfigurationInput, GetObjectLockConfigurationOutput, GetObjectOutput,
    GetObjectTaggingInput, GetObjectTaggingOutput, HeadBucketInput, HeadBucketOutput,
    HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
    ListMultipartUploadsInput, ListMultipartUploadsOutput, ListObjectVersionsInput,
    ListObjectVersionsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, ListPartsInput, ListPartsOutput, PutBucketCorsInput, PutBucketCorsOutput,
    PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput, PutObjectInput,
    PutObjectOutput, PutObjectTaggingInput, PutObjectTaggingOutput, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::endpoint::Endpoint;

/// An operation's result, whose error tells the id of its request.
macro_rules! told {
    ($request:ident, $result:expr) => {{
        let id = Asked::of(&$request)?.scope.id();
        $result.map_err(|mut error| {
            error.set_request_id(id.to_string());
            error
        })
    }};
}

macro_rules! operations {
    ($($name:ident($input:ty) -> $output:ty = $serve:ident $(.$wait:ident)?;)*) => {
        #[async_trait::async_trait]
        impl S3 for Endpoint {
            $(async fn $name(
                &self,
                request: S3Request<$input>,
            ) -> S3Result<S3Response<$output>> {
                told!(request, self.$serve(request)$(.$wait)?)
            })*
        }
    };
}

operations! {
    list_buckets(ListBucketsInput) -> ListBucketsOutput = list_buckets;
    create_bucket(CreateBucketInput) -> CreateBucketOutput = create.await;
    delete_bucket(DeleteBucketInput) -> DeleteBucketOutput = remove.await;
    head_bucket(HeadBucketInput) -> HeadBucketOutput = bucket;
    get_bucket_location(GetBucketLocationInput) -> GetBucketLocationOutput = location;
    list_objects(ListObjectsInput) -> ListObjectsOutput = list_v1.await;
    list_objects_v2(ListObjectsV2Input) -> ListObjectsV2Output = list_v2.await;
    put_object(PutObjectInput) -> PutObjectOutput = put.await;
    get_object(GetObjectInput) -> GetObjectOutput = get.await;
    head_object(HeadObjectInput) -> HeadObjectOutput = head.await;
    delete_object(DeleteObjectInput) -> DeleteObjectOutput = delete.await;
    copy_object(CopyObjectInput) -> CopyObjectOutput = copy.await;
    create_multipart_upload(CreateMultipartUploadInput) -> CreateMultipartUploadOutput =
        create_upload.await;
    upload_part(UploadPartInput) -> UploadPartOutput = part.await;
    upload_part_copy(UploadPartCopyInput) -> UploadPartCopyOutput = copy_part.await;
    complete_multipart_upload(CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput =
        complete.await;
    abort_multipart_upload(AbortMultipartUploadInput) -> AbortMultipartUploadOutput = abort.await;
    list_parts(ListPartsInput) -> ListPartsOutput = parts;
    list_multipart_uploads(ListMultipartUploadsInput) -> ListMultipartUploadsOutput = uploads;
    delete_objects(DeleteObjectsInput) -> DeleteObjectsOutput = delete_many.await;
    get_object_attributes(GetObjectAttributesInput) -> GetObjectAttributesOutput =
        object_attributes.await;
    list_object_versions(ListObjectVersionsInput) -> ListObjectVersionsOutput = versions.await;
    get_bucket_acl(GetBucketAclInput) -> GetBucketAclOutput = bucket_acl;
    get_bucket_cors(GetBucketCorsInput) -> GetBucketCorsOutput = get_cors;
    put_bucket_cors(PutBucketCorsInput) -> PutBucketCorsOutput = put_cors.await;
    delete_bucket_cors(DeleteBucketCorsInput) -> DeleteBucketCorsOutput = delete_cors.await;
    get_bucket_encryption(GetBucketEncryptionInput) -> GetBucketEncryptionOutput = encryption;
    get_bucket_lifecycle_configuration(GetBucketLifecycleConfigurationInput) ->
        GetBucketLifecycleConfigurationOutput = get_lifecycle;
    put_bucket_lifecycle_configuration(PutBucketLifecycleConfigurationInput) ->
        PutBucketLifecycleConfigurationOutput = put_lifecycle.await;
    delete_bucket_lifecycle(DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput =
        delete_lifecycle.await;
    get_bucket_logging(GetBucketLoggingInput) -> GetBucketLoggingOutput = logging;
    get_bucket_policy(GetBucketPolicyInput) -> GetBucketPolicyOutput = policy;
    get_bucket_replication(GetBucketReplicationInput) -> GetBucketReplicationOutput = replication;
    get_bucket_tagging(GetBucketTaggingInput) -> GetBucketTaggingOutput = bucket_tags;
    get_bucket_versioning(GetBucketVersioningInput) -> GetBucketVersioningOutput = versioning;
    get_bucket_website(GetBucketWebsiteInput) -> GetBucketWebsiteOutput = website;
    get_object_acl(GetObjectAclInput) -> GetObjectAclOutput = acl.await;
    get_object_lock_configuration(GetObjectLockConfigurationInput) ->
        GetObjectLockConfigurationOutput = locks;
    get_object_tagging(GetObjectTaggingInput) -> GetObjectTaggingOutput = tags.await;
    put_object_tagging(PutObjectTaggingInput) -> PutObjectTaggingOutput = put_tags.await;
    delete_object_tagging(DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput =
        delete_tags.await;
}
