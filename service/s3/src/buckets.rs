//! Buckets, and deleting what is in them.

use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use http::header::LOCATION;
use lumpscope_objects::{ListAfter, ObjectError};
use s3s::dto::{
    Bucket, CreateBucketConfiguration, Delete, DeleteObjectsOutput, DeletedObject, Error,
    GetBucketLocationOutput, ListBucketsOutput, ObjectIdentifier,
};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::attributes::timestamp;
use super::call::{Call, Tags, wrong};
use super::endpoint::{Endpoint, no_version};
use super::inside::Inside;
use super::reply::{self, Answer, BUCKET_REGION, REGION};
use super::{list, put};
use lumpscope_server::door::Access;

/// Keys that one request may delete, as in S3; and how many at a time: they share flushes.
pub(super) const DELETES: (usize, usize) = (1000, 32);

/// Buckets of a page, and how many there are when nothing is said.
pub(super) const MAX_BUCKETS: i32 = 10_000;

impl Endpoint {
    pub(super) fn list_buckets(&self, call: &Call) -> S3Result<Answer> {
        let prefix = call.given("prefix");
        let begins = prefix.as_deref().unwrap_or_default();
        let most = call.number("max-buckets")?.unwrap_or(MAX_BUCKETS);
        let most = usize::try_from(most).ok().filter(|most| *most > 0);
        let most = most.ok_or_else(|| wrong(format!("max-buckets is 1 to {MAX_BUCKETS}")))?;
        let token = call.given("continuation-token");
        let after = match token.as_deref().map(list::of_token).transpose()? {
            Some(ListAfter::Key(name) | ListAfter::Prefix(name)) => name,
            None => String::new(),
        };
        let mut buckets = self.all_buckets(call)?;
        buckets.retain(|bucket| {
            let known = call.grants.know(&bucket.name) && bucket.name.starts_with(begins);
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
        reply::xml(&ListBucketsOutput {
            buckets: Some(buckets.collect()),
            continuation_token: next,
            owner: Some(list::owner(call)),
            prefix: prefix.map(list::readable),
        })
    }

    pub(super) async fn create(&self, call: &Call) -> S3Result<Answer> {
        let (ctx, name) = (call.scope.context(), &*call.bucket);
        let wanted: Option<CreateBucketConfiguration> = call.read()?;
        let region = wanted.and_then(|wanted| wanted.location_constraint);
        let region = region.filter(|it| !matches!(it.as_str(), "" | REGION));
        let elsewhere = region.is_some();
        // One at a time: two must not make the same bucket on two stores.
        let _alone = self.creating.lock().await;
        let inside = self.enter_new(call, name, region.as_ref().map(|it| it.as_str()))?;
        let created = inside.objects.create_bucket(ctx, name).await;
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
        let mut answer = reply::empty(StatusCode::OK);
        reply::set(&mut answer, LOCATION, Some(format!("/{name}")));
        inside.tell(&mut answer);
        Ok(answer)
    }

    pub(super) async fn remove(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        let ctx = call.scope.context();
        let deleted = inside.objects.delete_bucket(ctx, &call.bucket);
        deleted.await.map_err(|failure| inside.failed(failure))?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) fn bucket(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        inside.known(&call.bucket)?;
        let mut answer = reply::empty(StatusCode::OK);
        reply::set(&mut answer, BUCKET_REGION, Some(REGION));
        inside.tell(&mut answer);
        Ok(answer)
    }

    pub(super) fn location(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        inside.known(&call.bucket)?;
        // Nothing stands for the region that S3 began with.
        let mut answer = reply::xml(&GetBucketLocationOutput::default())?;
        inside.tell(&mut answer);
        Ok(answer)
    }

    pub(super) async fn delete(&self, call: &Call) -> S3Result<Answer> {
        let inside = self.enter(call, &call.bucket)?;
        no_version(call.parameter("versionId"))?;
        let time = call.date("x-amz-if-match-last-modified-time")?;
        let like = (call.parsed("x-amz-if-match-size")?, time.as_ref());
        let condition = put::of_delete(call.tags("if-match")?.as_ref(), like)?;
        let ctx = call.scope.context();
        let deleted = inside
            .objects
            .delete(ctx, &call.bucket, &call.key, condition);
        deleted.await.map_err(|failure| inside.failed(failure))?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) async fn delete_many(&self, call: &Call) -> S3Result<Answer> {
        let wanted: Delete = call.need()?;
        let inside = self.enter(call, &call.bucket)?;
        let (most, at_once) = DELETES;
        if wanted.objects.len() > most {
            let why = format!("one request deletes at most {most} keys");
            return Err(S3Error::with_message(S3ErrorCode::MalformedXML, why));
        }
        inside.known(&call.bucket)?;
        let quiet = wanted.quiet.unwrap_or(false);
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        let objects = wanted.objects.into_iter();
        let deletes: Vec<_> = objects
            .map(|object| async {
                let key = object.key.clone();
                (key, Self::delete_one(call, &inside, object).await)
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
        reply::xml(&DeleteObjectsOutput {
            deleted: (!quiet).then_some(deleted),
            errors: Some(errors),
            ..DeleteObjectsOutput::default()
        })
    }

    async fn delete_one(call: &Call, inside: &Inside, object: ObjectIdentifier) -> S3Result<()> {
        let bucket = &*call.bucket;
        call.check(Access::Write, bucket, &object.key)?;
        no_version(object.version_id.as_deref())?;
        let etag = object.e_tag.map(|etag| Tags::These(vec![etag]));
        let like = (object.size, object.last_modified_time.as_ref());
        let condition = put::of_delete(etag.as_ref(), like)?;
        let ctx = call.scope.context();
        let deleted = inside.objects.delete(ctx, bucket, &object.key, condition);
        let deleted = deleted.await;
        deleted
            .map(|_| ())
            .map_err(|failure| inside.failed(failure))
    }
}
