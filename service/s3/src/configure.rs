//! Documents of S3 that set something for a bucket: put, told and removed as they are.

use std::sync::Arc;

use http::StatusCode;
use lumpscope_objects::{BucketSetting, ObjectError};
use s3s::dto::{
    BucketLifecycleConfiguration, CORSConfiguration, GetBucketCorsOutput,
    GetBucketLifecycleConfigurationOutput,
};
use s3s::xml::{Deserialize, Serialize};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::call::Call;
use super::endpoint::Endpoint;
use super::reply::{self, Answer};
use super::settings::read;
use super::unset::none;
use super::{cors, lifecycle, xml};

/// A document as it is kept.
///
/// # Errors
/// `InternalError`.
fn text_of<T: Serialize>(document: &T) -> S3Result<String> {
    let text = String::from_utf8(reply::document(document, false)?);
    text.map_err(|_| S3Error::new(S3ErrorCode::InternalError))
}

/// Refuses a document that has more than this service has read: a rule of which a filter is not
/// known would delete more than it says.
///
/// # Errors
/// `MalformedXML`.
fn check_known(read: &str, given: &[u8]) -> S3Result<()> {
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

impl Endpoint {
    /// A setting as it was put.
    fn setting<T: for<'text> Deserialize<'text>>(
        &self,
        call: &Call,
        (setting, missing): (BucketSetting, S3ErrorCode),
    ) -> S3Result<T> {
        let inside = self.enter(call, &call.bucket)?;
        let found = inside.objects.setting(&call.bucket, setting);
        let found = found.map_err(|failure| inside.failed(failure))?;
        let text = found.ok_or_else(|| none(missing))?;
        read(&text).ok_or_else(|| S3Error::new(S3ErrorCode::InternalError))
    }

    async fn set(
        &self,
        call: &Call,
        (setting, text): (BucketSetting, Option<String>),
    ) -> S3Result<()> {
        let inside = self.enter(call, &call.bucket)?;
        let (ctx, text) = (call.scope.context(), text.map(Arc::from));
        let set = inside.objects.set(ctx, &call.bucket, (setting, text)).await;
        set.map_err(|failure| match failure {
            ObjectError::TooLarge { got, max, .. } => {
                let why = format!("the document has {got} bytes when it is kept, of at most {max}");
                S3Error::with_message(S3ErrorCode::EntityTooLarge, why)
            }
            failure => inside.failed(failure),
        })
    }

    pub(super) fn get_cors(&self, call: &Call) -> S3Result<Answer> {
        let missing = S3ErrorCode::NoSuchCORSConfiguration;
        let told: CORSConfiguration = self.setting(call, (BucketSetting::Cors, missing))?;
        reply::xml(&GetBucketCorsOutput {
            cors_rules: Some(told.cors_rules),
        })
    }

    pub(super) async fn put_cors(&self, call: &Call) -> S3Result<Answer> {
        let configuration: CORSConfiguration = call.need()?;
        let text = text_of(&configuration)?;
        check_known(&text, &call.document)?;
        cors::check(&configuration)?;
        self.set(call, (BucketSetting::Cors, Some(text))).await?;
        Ok(reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_cors(&self, call: &Call) -> S3Result<Answer> {
        self.set(call, (BucketSetting::Cors, None)).await?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }

    pub(super) fn get_lifecycle(&self, call: &Call) -> S3Result<Answer> {
        let missing = S3ErrorCode::NoSuchLifecycleConfiguration;
        let told: BucketLifecycleConfiguration =
            self.setting(call, (BucketSetting::Lifecycle, missing))?;
        reply::xml(&GetBucketLifecycleConfigurationOutput {
            rules: Some(told.rules),
            ..GetBucketLifecycleConfigurationOutput::default()
        })
    }

    pub(super) async fn put_lifecycle(&self, call: &Call) -> S3Result<Answer> {
        let mut configuration: BucketLifecycleConfiguration = call.need()?;
        check_known(&text_of(&configuration)?, &call.document)?;
        lifecycle::rules(&configuration)?;
        lifecycle::name(&mut configuration.rules);
        let text = text_of(&configuration)?;
        self.set(call, (BucketSetting::Lifecycle, Some(text)))
            .await?;
        // Somebody may be waiting to see what it does.
        self.look.notify_one();
        Ok(reply::empty(StatusCode::OK))
    }

    pub(super) async fn delete_lifecycle(&self, call: &Call) -> S3Result<Answer> {
        self.set(call, (BucketSetting::Lifecycle, None)).await?;
        Ok(reply::empty(StatusCode::NO_CONTENT))
    }
}
