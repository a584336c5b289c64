//! Documents of S3 that set something for a bucket: put, told and removed as they are.

use std::sync::Arc;

use lumpscope_objects::{ObjectError, Setting};
use s3s::dto::{
    BucketLifecycleConfiguration, CORSConfiguration, DeleteBucketCorsInput, DeleteBucketCorsOutput,
    DeleteBucketLifecycleInput, DeleteBucketLifecycleOutput, GetBucketCorsInput,
    GetBucketCorsOutput, GetBucketLifecycleConfigurationInput,
    GetBucketLifecycleConfigurationOutput, PutBucketCorsInput, PutBucketCorsOutput,
    PutBucketLifecycleConfigurationInput, PutBucketLifecycleConfigurationOutput,
};
use s3s::xml::{Deserialize, Serialize, Serializer};
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::{Asked, Document};
use super::endpoint::Endpoint;
use super::settings::read;
use super::{cors, lifecycle, xml};

/// A document as it is kept.
///
/// # Errors
/// `InternalError`.
fn text_of<T: Serialize>(document: &T) -> S3Result<String> {
    let mut bytes = Vec::new();
    let written = document.serialize(&mut Serializer::new(&mut bytes));
    let text = written.ok().and_then(|()| String::from_utf8(bytes).ok());
    text.ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
}

/// Refuses a document that has more than this service has read: a rule of which a filter is not
/// known would delete more than it says.
///
/// # Errors
/// `MalformedXML`.
fn check_known(read: &str, given: Option<&Document>) -> S3Result<()> {
    let Some(Document(given)) = given else {
        return Ok(());
    };
    let (given, read) = (xml::elements(given)?, xml::elements(read.as_bytes())?);
    let mut differ = given
        .iter()
        .filter(|(name, count)| read.get(*name) != Some(count));
    let Some((name, _)) = differ.next() else {
        return Ok(());
    };
    let why = format!("the element {name} is not known where it stands");
    Err(S3Error::with_message(S3ErrorCode::MalformedXML, why))
}

fn none(code: S3ErrorCode) -> S3Error {
    let mut error = S3Error::with_message(code, "the bucket has none");
    error.set_status_code(http::StatusCode::NOT_FOUND);
    error
}

impl Endpoint {
    /// A setting as it was put.
    fn told<I, T: for<'text> Deserialize<'text>>(
        &self,
        request: &S3Request<I>,
        (bucket, setting): (&str, Setting),
        missing: S3ErrorCode,
    ) -> S3Result<T> {
        let asked = Asked::of(request)?;
        let inside = self.enter(&asked, bucket)?;
        let found = inside.objects.setting(bucket, setting);
        let found = found.map_err(|failure| inside.failed(failure))?;
        let text = found.ok_or_else(|| none(missing))?;
        read(&text).ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
    }

    async fn set<I>(
        &self,
        request: &S3Request<I>,
        (bucket, setting): (&str, Setting),
        text: Option<Arc<str>>,
    ) -> S3Result<()> {
        let asked = Asked::of(request)?;
        let inside = self.enter(&asked, bucket)?;
        let ctx = asked.scope.context();
        let set = inside.objects.set(ctx, bucket, (setting, text)).await;
        set.map_err(|failure| match failure {
            ObjectError::TooLarge { got, max, .. } => {
                let why = format!("the document has {got} bytes when it is kept, of at most {max}");
                S3Error::with_message(S3ErrorCode::EntityTooLarge, why)
            }
            failure => inside.failed(failure),
        })
    }

    pub(super) fn get_cors(
        &self,
        request: S3Request<GetBucketCorsInput>,
    ) -> S3Result<S3Response<GetBucketCorsOutput>> {
        let place = (&*request.input.bucket, Setting::Cors);
        let missing = S3ErrorCode::NoSuchCORSConfiguration;
        let told: CORSConfiguration = self.told(&request, place, missing)?;
        Ok(S3Response::new(GetBucketCorsOutput {
            cors_rules: Some(told.cors_rules),
        }))
    }

    pub(super) async fn put_cors(
        &self,
        request: S3Request<PutBucketCorsInput>,
    ) -> S3Result<S3Response<PutBucketCorsOutput>> {
        let configuration = &request.input.cors_configuration;
        let text = text_of(configuration)?;
        check_known(&text, request.extensions.get())?;
        cors::check(configuration)?;
        let place = (&*request.input.bucket, Setting::Cors);
        self.set(&request, place, Some(text.into())).await?;
        Ok(S3Response::new(PutBucketCorsOutput::default()))
    }

    pub(super) async fn delete_cors(
        &self,
        request: S3Request<DeleteBucketCorsInput>,
    ) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
        let place = (&*request.input.bucket, Setting::Cors);
        self.set(&request, place, None).await?;
        Ok(S3Response::new(DeleteBucketCorsOutput::default()))
    }

    pub(super) fn get_lifecycle(
        &self,
        request: S3Request<GetBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<GetBucketLifecycleConfigurationOutput>> {
        let place = (&*request.input.bucket, Setting::Lifecycle);
        let missing = S3ErrorCode::NoSuchLifecycleConfiguration;
        let told: BucketLifecycleConfiguration = self.told(&request, place, missing)?;
        Ok(S3Response::new(GetBucketLifecycleConfigurationOutput {
            rules: Some(told.rules),
            ..GetBucketLifecycleConfigurationOutput::default()
        }))
    }

    pub(super) async fn put_lifecycle(
        &self,
        mut request: S3Request<PutBucketLifecycleConfigurationInput>,
    ) -> S3Result<S3Response<PutBucketLifecycleConfigurationOutput>> {
        let given = request.input.lifecycle_configuration.take();
        let missing = || S3Error::new(S3ErrorCode::MalformedXML);
        let mut configuration = given.ok_or_else(missing)?;
        check_known(&text_of(&configuration)?, request.extensions.get())?;
        lifecycle::rules(&configuration)?;
        lifecycle::name(&mut configuration.rules);
        let text = text_of(&configuration)?;
        let place = (&*request.input.bucket, Setting::Lifecycle);
        self.set(&request, place, Some(text.into())).await?;
        // Somebody may be waiting to see what it does.
        self.look.notify_one();
        let output = PutBucketLifecycleConfigurationOutput::default();
        Ok(S3Response::new(output))
    }

    pub(super) async fn delete_lifecycle(
        &self,
        request: S3Request<DeleteBucketLifecycleInput>,
    ) -> S3Result<S3Response<DeleteBucketLifecycleOutput>> {
        let place = (&*request.input.bucket, Setting::Lifecycle);
        self.set(&request, place, None).await?;
        Ok(S3Response::new(DeleteBucketLifecycleOutput::default()))
    }
}
