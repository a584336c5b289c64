//! Errors in the words of S3.

use std::io::Write;
use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, HeaderValue, StatusCode};
use lumpscope_engine::Error;
use lumpscope_objects::{Limited, ObjectError};
use s3s::xml::{SerResult, Serialize, Serializer};
use s3s::{S3Error, S3ErrorCode};
use tonic::Code;

use super::MAX_XML;
use super::body::BodyError;
use super::reply::{self, Answer, BUCKET_REGION, REGION};
use super::xml;
use lumpscope_server::log_rate::LogRate;
use lumpscope_server::refusal::Refusal;

/// Clients can ask again and again for what fails.
static FAILURES: LogRate = LogRate::new();
/// Of objects whose bytes or descriptions are damaged.
pub(super) static DAMAGE: LogRate = LogRate::new();

/// The document of an error.
struct Document<'a> {
    error: &'a S3Error,
    id: u64,
}

impl Serialize for Document<'_> {
    fn serialize<W: Write>(&self, writer: &mut Serializer<W>) -> SerResult {
        let Self { error, id } = self;
        writer.element("Error", |writer| {
            writer.content("Code", error.code().as_str())?;
            let why = error
                .message()
                .unwrap_or("the service refuses this request");
            writer.content("Message", printable(why).as_str())?;
            if has_region(error) {
                writer.content("Region", REGION)?;
            }
            writer.content("RequestId", id.to_string().as_str())
        })
    }
}

/// True: clients take the region from the answer and ask again.
fn has_region(error: &S3Error) -> bool {
    *error.code() == S3ErrorCode::AuthorizationHeaderMalformed
}

/// An error as an answer, with the id of its request.
pub(super) fn answer(error: &S3Error, id: u64) -> Answer {
    let status = error.status_code();
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let document = reply::xml(&Document { error, id }).ok();
    // An answer that nothing has changed has no body.
    let document = document.filter(|_| status != StatusCode::NOT_MODIFIED);
    let mut answer = document.unwrap_or_else(|| reply::empty(status));
    *answer.status_mut() = status;
    if has_region(error) {
        // A HEAD has no body to tell it in.
        reply::set(&mut answer, BUCKET_REGION, Some(REGION));
    }
    let headers = error.headers().cloned();
    answer.headers_mut().extend(headers.unwrap_or_default());
    answer
}

/// The error that an answer of s3s tells, which has no message for most.
pub(super) fn of_s3s(answer: &Answer) -> S3Error {
    let told = answer.body().bytes().unwrap_or_default();
    let told = String::from_utf8_lossy(&told);
    let element = |name: &str| {
        let (_, rest) = told.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.to_owned())
    };
    let code = element("Code").and_then(|code| code.parse().ok());
    let code = code.unwrap_or(S3ErrorCode::InternalError);
    let mut error = S3Error::new(code);
    if let Some(why) = element("Message") {
        let why = quick_xml::escape::unescape(&why).map(std::borrow::Cow::into_owned);
        error.set_message(why.unwrap_or_default());
    } else if *error.code() == S3ErrorCode::SignatureDoesNotMatch {
        error.set_message("the signature is not the one of this request and its access key");
    }
    error.set_status_code(answer.status());
    error
}

/// S3 error for a refusal of the service.
pub(super) fn refused(refusal: &Refusal) -> S3Error {
    if let Refusal::Engine { error, .. } = refusal
        // Too large: its journal or data region would not hold the lump if it were empty.
        && matches!(
            error,
            Error::StoreFull { .. } | Error::JournalFull { .. } | Error::LumpTooLarge { .. }
        )
    {
        let code = S3ErrorCode::Custom("InsufficientStorage".into());
        let mut error = S3Error::with_message(code, refusal.to_string());
        error.set_status_code(StatusCode::INSUFFICIENT_STORAGE);
        return error;
    }
    let message = refusal.to_string();
    match refusal.code() {
        Code::Unavailable | Code::ResourceExhausted => match refusal.retry_after() {
            Some(time) => slow_down(message, time),
            None => S3Error::with_message(S3ErrorCode::ServiceUnavailable, message),
        },
        Code::DeadlineExceeded => S3Error::with_message(S3ErrorCode::RequestTimeout, message),
        Code::NotFound => S3Error::with_message(S3ErrorCode::ServiceUnavailable, message),
        _ if matches!(
            refusal,
            Refusal::Engine {
                error: Error::ReadOnly { .. },
                ..
            }
        ) =>
        {
            S3Error::with_message(S3ErrorCode::ServiceUnavailable, message)
        }
        _ => {
            if let Some(not_logged) = FAILURES.allows() {
                tracing::warn!(error = message, not_logged, "a request of S3 failed");
            }
            // What the disk said is for who runs the service.
            let told = "the service could not do it; its log says why";
            S3Error::with_message(S3ErrorCode::InternalError, told)
        }
    }
}

/// Headers and address of a request have `got` bytes, of `most`.
pub(super) fn long_headers(got: usize, most: u32) -> S3Error {
    let why = format!("headers and address have {got} bytes, and may have {most}");
    let mut error = S3Error::with_message(
        S3ErrorCode::Custom("RequestHeaderSectionTooLarge".into()),
        why,
    );
    error.set_status_code(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    error
}

/// A body of XML is too long.
pub(super) fn long_xml() -> S3Error {
    let why = format!("a body of XML may have {MAX_XML} bytes");
    S3Error::with_message(S3ErrorCode::MaxMessageLengthExceeded, why)
}

/// Come back later.
pub(super) fn slow_down(message: String, time: Duration) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::SlowDown, message);
    let mut headers = HeaderMap::new();
    // Rounded up: who comes back too early is refused again.
    let seconds = u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
    headers.insert(RETRY_AFTER, HeaderValue::from(seconds.max(1)));
    error.set_headers(headers);
    error
}

/// S3 error for an error of the objects; `store`: its place.
pub(super) fn object(store: &str, error: ObjectError) -> S3Error {
    let code = match &error {
        ObjectError::NoSuchBucket { .. } => S3ErrorCode::NoSuchBucket,
        ObjectError::BucketExists { .. } => S3ErrorCode::BucketAlreadyOwnedByYou,
        ObjectError::BucketNotEmpty { .. } => S3ErrorCode::BucketNotEmpty,
        ObjectError::NoSuchKey { .. } => S3ErrorCode::NoSuchKey,
        ObjectError::NoSuchUpload { .. } => S3ErrorCode::NoSuchUpload,
        ObjectError::InvalidPart { .. } => S3ErrorCode::InvalidPart,
        ObjectError::InvalidPartOrder { .. } => S3ErrorCode::InvalidPartOrder,
        ObjectError::PartTooSmall { .. } => S3ErrorCode::EntityTooSmall,
        ObjectError::ConditionFailed { .. } => S3ErrorCode::PreconditionFailed,
        ObjectError::TooLarge { what, .. } => too_large(*what),
        ObjectError::Invalid { .. } => S3ErrorCode::InvalidArgument,
        ObjectError::LengthMismatch { .. } => S3ErrorCode::IncompleteBody,
        ObjectError::RangeOutside { .. } => S3ErrorCode::InvalidRange,
        ObjectError::Damaged { .. } => {
            if let Some(not_logged) = DAMAGE.allows() {
                tracing::warn!(store, %error, not_logged, "an object is damaged");
            }
            S3ErrorCode::InternalError
        }
        ObjectError::Engine(_) => {
            let ObjectError::Engine(error) = error else {
                return S3Error::new(S3ErrorCode::InternalError);
            };
            let store = store.to_owned();
            return refused(&Refusal::Engine { store, error });
        }
    };
    // It may tell a key.
    S3Error::with_message(code, printable(&error.to_string()))
}

/// A text as a message may have it: XML cannot have every character.
pub(super) fn printable(text: &str) -> String {
    let told = text
        .chars()
        .map(|char| match char.is_control() || !xml::is_char(char) {
            true => char.escape_default().to_string(),
            false => char.to_string(),
        });
    told.collect()
}

const fn too_large(what: Limited) -> S3ErrorCode {
    match what {
        Limited::Key => S3ErrorCode::KeyTooLongError,
        Limited::Metadata | Limited::Attributes => S3ErrorCode::MetadataTooLarge,
        Limited::Object | Limited::Record => S3ErrorCode::EntityTooLarge,
        Limited::Bucket => S3ErrorCode::TooManyBuckets,
    }
}

/// S3 error for a body that was abandoned.
pub(super) fn fault(fault: BodyError) -> S3Error {
    let code = match fault {
        BodyError::Silent(_) | BodyError::Slow(_) => S3ErrorCode::RequestTimeout,
        BodyError::TooLarge(_) | BodyError::Chunk => S3ErrorCode::EntityTooLarge,
        BodyError::Gone => S3ErrorCode::IncompleteBody,
    };
    S3Error::with_message(code, fault.to_string())
}

/// S3 error for a body that s3s could not decode. Its errors have no public type.
pub(super) fn broken(error: &s3s::StdError) -> S3Error {
    let text = error.to_string();
    let code = if text.contains("SignatureMismatch") {
        S3ErrorCode::SignatureDoesNotMatch
    } else if text.contains("Sha256Mismatch") {
        S3ErrorCode::Custom("XAmzContentSHA256Mismatch".into())
    } else {
        S3ErrorCode::IncompleteBody
    };
    let mut error = S3Error::with_message(code, format!("the body cannot be used: {text}"));
    if error.status_code().is_none() {
        error.set_status_code(StatusCode::BAD_REQUEST);
    }
    error
}

/// The code in metrics and logs for a status of HTTP.
pub(super) fn code(status: StatusCode) -> Code {
    match status.as_u16() {
        200..=399 => Code::Ok,
        401 | 403 => Code::PermissionDenied,
        404 => Code::NotFound,
        408 => Code::DeadlineExceeded,
        409 => Code::AlreadyExists,
        412 => Code::Aborted,
        416 => Code::OutOfRange,
        501 | 405 => Code::Unimplemented,
        503 => Code::Unavailable,
        507 => Code::ResourceExhausted,
        400..=499 => Code::InvalidArgument,
        _ => Code::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_engine_says_is_told_so_that_clients_come_back_or_do_not() {
        let told = |error: Error| object("s", ObjectError::Engine(error));
        let full = Error::StoreFull {
            needed: 2,
            free: 1,
            largest: 1,
        };
        let journal = Error::JournalFull {
            needed: 2,
            used: 1,
            capacity: 1,
        };
        for error in [full, journal] {
            let status = told(error).status_code();
            assert_eq!(status, Some(StatusCode::INSUFFICIENT_STORAGE));
        }
        let busy = told(Error::Busy {
            limit: 1,
            retry_after: Duration::from_millis(2500),
        });
        assert_eq!(*busy.code(), S3ErrorCode::SlowDown);
        assert_eq!(busy.headers().unwrap()[RETRY_AFTER], "3");
        let failed = told(Error::Failed {
            reason: "sector 7".into(),
        });
        assert_eq!(*failed.code(), S3ErrorCode::InternalError);
        assert!(!failed.message().unwrap().contains("sector"), "{failed}");
        assert_eq!(*told(Error::Closed).code(), S3ErrorCode::SlowDown);
    }
}
