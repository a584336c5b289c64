//! Buckets, and deleting what is in them.

use futures_util::stream::{self, StreamExt as _};
use lumpscope_objects::{ListAfter, ObjectError};
use s3s::dto::{
    Bucket, CreateBucketInput, CreateBucketOutput, DeleteBucketInput, DeleteBucketOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject,
    ETagCondition, Error, GetBucketLocationInput, GetBucketLocationOutput, HeadBucketInput,
    HeadBucketOutput, ListBucketsInput, ListBucketsOutput, ObjectIdentifier, Owner,
};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Asked;
use super::attributes::timestamp;
use super::endpoint::{Endpoint, given, no_version};
use super::inside::Inside;
use super::signed::REGION;
use super::{list, put};
use lumpscope_server::door::Access;

/// Keys that one request may delete, as in S3; and how many at a time: they share flushes.
pub(super) const DELETES: (usize, usize) = (1000, 32);

/// Buckets of a page, and how many there are when nothing is said.
pub(super) const MAX_BUCKETS: i32 = 10_000;

impl Endpoint {
    pub(super) fn list_buckets(
        &self,
        request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let asked = Asked::of(&request)?;
        let prefix = given(request.input.prefix);
        let begins = prefix.clone().unwrap_or_default();
        let most = request.input.max_buckets.unwrap_or(MAX_BUCKETS);
        let most = usize::try_from(most).ok().filter(|most| *most > 0);
        let most = most.ok_or_else(|| {
            let why = format!("max-buckets is 1 to {MAX_BUCKETS}");
            S3Error::with_message(S3ErrorCode::InvalidArgument, why)
        })?;
        let token = given(request.input.continuation_token);
        let after = match token.as_deref().map(list::of_token).transpose()? {
            Some(ListAfter::Key(name) | ListAfter::Prefix(name)) => name,
            None => String::new(),
        };
        let mut buckets = self.all_buckets(&asked)?;
        buckets.retain(|bucket| {
            let known = asked.grants.know(&bucket.name) && bucket.name.starts_with(&begins);
            known && bucket.name > after
        });
        let more = buckets.len() > most;
        buckets.truncate(most);
        let last = buckets.last().filter(|_| more);
        let next = last.map(|bucket| list::token(&ListAfter::Key(bucket.name.clone())));
        let buckets = buckets.into_iter().map(|bucket| Bucket {
            creation_date: Some(timestamp(bucket.created_ms)),
            name: Some(bucket.name),
            ..Bucket::default()
        });
        let owner = Owner {
            display_name: Some(asked.grants.name().to_owned()),
            id: Some(asked.grants.name().to_owned()),
        };
        Ok(S3Response::new(ListBucketsOutput {
            buckets: Some(buckets.collect()),
            continuation_token: next,
            owner: Some(owner),
            prefix,
        }))
    }

    pub(super) async fn create(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        let asked = Asked::of(&request)?;
        let (ctx, name) = (asked.scope.context(), request.input.bucket);
        let wanted = request.input.create_bucket_configuration;
        let region = wanted.and_then(|wanted| wanted.location_constraint);
        let region = region.filter(|it| !matches!(it.as_str(), "" | REGION));
        let elsewhere = region.is_some();
        // One at a time: two must not make the same bucket on two stores.
        let _alone = self.creating.lock().await;
        let inside = self.enter_new(&asked, &name, region.as_ref().map(|it| it.as_str()))?;
        let created = inside.objects.create_bucket(ctx, &name).await;
        match created {
            Ok(_) => {}
            // As in the region that S3 began with: one's own bucket stays as it is. In others, that
            // it is there is an error.
            Err(ObjectError::BucketExists { .. }) if !elsewhere => {}
            Err(ObjectError::Invalid { why, .. }) => {
                let code = S3ErrorCode::InvalidBucketName;
                return Err(S3Error::with_message(code, why));
            }
            Err(other) => return Err(inside.failed(other)),
        }
        let output = CreateBucketOutput {
            location: Some(format!("/{name}")),
        };
        Ok(S3Response::with_headers(output, inside.told()))
    }

    pub(super) async fn remove(
        &self,
        request: S3Request<DeleteBucketInput>,
    ) -> S3Result<S3Response<DeleteBucketOutput>> {
        let asked = Asked::of(&request)?;
        let inside = self.enter(&asked, &request.input.bucket)?;
        let ctx = asked.scope.context();
        let deleted = inside.objects.delete_bucket(ctx, &request.input.bucket);
        deleted.await.map_err(|failure| inside.failed(failure))?;
        Ok(S3Response::new(DeleteBucketOutput::default()))
    }

    pub(super) fn bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        let asked = Asked::of(&request)?;
        let inside = self.enter(&asked, &request.input.bucket)?;
        inside.known(&request.input.bucket)?;
        let output = HeadBucketOutput {
            bucket_region: Some(REGION.to_owned()),
            ..HeadBucketOutput::default()
        };
        Ok(S3Response::with_headers(output, inside.told()))
    }

    pub(super) fn location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        let asked = Asked::of(&request)?;
        let inside = self.enter(&asked, &request.input.bucket)?;
        inside.known(&request.input.bucket)?;
        // Nothing stands for the region that S3 began with.
        let output = GetBucketLocationOutput::default();
        Ok(S3Response::with_headers(output, inside.told()))
    }

    pub(super) async fn delete(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let inside = self.enter(&asked, &input.bucket)?;
        no_version(input.version_id)?;
        let like = (
            input.if_match_size,
            input.if_match_last_modified_time.as_ref(),
        );
        let condition = put::of_delete(input.if_match.as_ref(), like)?;
        let ctx = asked.scope.context();
        let deleted = inside
            .objects
            .delete(ctx, &input.bucket, &input.key, condition);
        deleted.await.map_err(|failure| inside.failed(failure))?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    pub(super) async fn delete_many(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let asked = Asked::of(&request)?;
        let input = request.input;
        let inside = self.enter(&asked, &input.bucket)?;
        let (most, at_once) = DELETES;
        if input.delete.objects.len() > most {
            let why = format!("one request deletes at most {most} keys");
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, why));
        }
        inside.known(&input.bucket)?;
        let quiet = input.delete.quiet.unwrap_or(false);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let objects = input.delete.objects.into_iter();
        let deletes: Vec<_> = objects
            .map(|object| async {
                let key = object.key.clone();
                let result = self.delete_one(&asked, &inside, &input.bucket, object);
                (key, result.await)
            })
            .collect();
        let mut deletes = stream::iter(deletes).buffered(at_once);
        while let Some((key, result)) = deletes.next().await {
            match result {
                Ok(()) => deleted.push(DeletedObject {
                    key: Some(key),
                    ..DeletedObject::default()
                }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().to_owned()),
                    key: Some(key),
                    message: error.message().map(str::to_owned),
                    ..Error::default()
                }),
            }
        }
        Ok(S3Response::new(DeleteObjectsOutput {
            deleted: (!quiet).then_some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        }))
    }

    async fn delete_one(
        &self,
        asked: &Asked,
        inside: &Inside,
        bucket: &str,
        object: ObjectIdentifier,
    ) -> S3Result<()> {
        asked.check(Access::Write, bucket, &object.key)?;
        no_version(object.version_id)?;
        let etag = object.e_tag.map(ETagCondition::ETag);
        let like = (object.size, object.last_modified_time.as_ref());
        let condition = put::of_delete(etag.as_ref(), like)?;
        let ctx = asked.scope.context();
        let deleted = inside.objects.delete(ctx, bucket, &object.key, condition);
        let deleted = deleted.await;
        deleted
            .map(|_| ())
            .map_err(|failure| inside.failed(failure))
    }
}
