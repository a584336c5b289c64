//! Forms of browsers: a file, and fields that a policy allows, which is signed. A form becomes a
//! put of its file; the fields are read first, a few, and the file as it comes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri};
use http_body::{Body as _, Frame};
use percent_encoding::{percent_decode_str, utf8_percent_encode};
use s3s::auth::{Credentials, S3Auth as _};
use s3s::crypto::{Checksum as _, Sha256};
use s3s::dto::{PostResponse, Tagging};
use s3s::post_policy::{PostPolicy, PostPolicyCondition};
use s3s::xml::{Deserialize as _, Deserializer};
use s3s::{Body, S3Error, S3ErrorCode, S3Request, S3Result, StdError};

use super::call::Within;
use super::checks::CHECKSUM;
use super::error::printable;
use super::list::readable;
use super::reply::{self, Answer};
use super::route::Router;
use super::xml::PLAIN;

/// Most bytes of a form before its file.
pub(super) const MAX_FIELDS: usize = 32 << 10;
const FORM: &str = "multipart/form-data";
const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// Fields that a policy need not name.
const FREE: [&str; 4] = ["file", "policy", "submit", "x-amz-signature"];
/// Fields that are headers of the put.
const HEADERS: [&str; 7] = [
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-storage-class",
];
/// How the names of other such fields begin; some of them only to be refused.
const BEGIN: [&str; 8] = [
    "x-amz-checksum-",
    "x-amz-grant-",
    "x-amz-meta-",
    "x-amz-object-lock-",
    "x-amz-sdk-checksum-",
    "x-amz-server-side-encryption",
    "x-amz-website-",
    "x-amz-write-offset-",
];

fn refused(code: S3ErrorCode, why: impl Into<String>) -> S3Error {
    S3Error::with_message(code, why.into())
}

fn malformed(why: &str) -> S3Error {
    refused(S3ErrorCode::MalformedPOSTRequest, why)
}

fn denied(why: impl Into<String>) -> S3Error {
    refused(S3ErrorCode::AccessDenied, why)
}

/// What a policy does not allow, in the words of S3, which clients look for.
fn against(policy: &str) -> S3Error {
    let told = format!("Invalid according to Policy: {policy}");
    denied(printable(&told))
}

/// True: the request is a form. Forms have no other signature.
pub(super) fn is_form(method: &Method, headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let begin = kind.and_then(|kind| kind.get(..FORM.len()));
    *method == Method::POST && begin.is_some_and(|kind| kind.eq_ignore_ascii_case(FORM.as_bytes()))
}

/// The line between two parts of a form.
fn boundary(headers: &HeaderMap) -> Option<String> {
    let kind = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    let mut parameters = kind.split(';').skip(1).map(str::trim);
    let boundary = parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.eq_ignore_ascii_case("boundary")
            .then(|| value.trim_matches('"').to_owned())
    })?;
    (1..=70).contains(&boundary.len()).then_some(boundary)
}

/// The fields of a form before its file, by names in small letters.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Fields {
    pub(super) fields: Vec<(String, String)>,
    /// The name that the file had, and its bytes' place behind all of this.
    pub(super) file: String,
    pub(super) begins: usize,
}

impl Fields {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map(|(_, value)| value.as_str())
    }

    fn need(&self, name: &str) -> S3Result<&str> {
        self.get(name)
            .ok_or_else(|| denied(format!("the form has no field {name}")))
    }
}

fn place(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|some| some == wanted)
}

/// A parameter of `Content-Disposition`.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    let mut parameters = header.split(';').skip(1).map(str::trim);
    parameters.find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let value = value.trim_matches('"');
        name.eq_ignore_ascii_case(wanted).then(|| value.to_owned())
    })
}

/// The fields of a form; `None`: its file has not begun.
///
/// # Errors
/// `MalformedPOSTRequest`.
pub(super) fn fields(bytes: &[u8], boundary: &str) -> S3Result<Option<Fields>> {
    let begin = format!("--{boundary}\r\n");
    let end = format!("\r\n--{boundary}");
    let mut found = Fields::default();
    let Some(mut at) = place(bytes, begin.as_bytes()) else {
        return Ok(None);
    };
    loop {
        at += begin.len();
        let Some(head) = place(&bytes[at..], b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes[at..at + head]);
        let text = text.map_err(|_| malformed("a part of the form has a head that is no text"))?;
        let mut lines = text.split("\r\n").filter_map(|line| line.split_once(':'));
        let disposition = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-disposition"));
        let name = disposition.and_then(|(_, value)| parameter(value, "name"));
        let name = name.ok_or_else(|| malformed("a part of the form has no name"))?;
        let name = name.to_ascii_lowercase();
        at += head + 4;
        if name == "file" {
            let file = disposition.and_then(|(_, value)| parameter(value, "filename"));
            // Some browsers tell folders.
            let file = file.unwrap_or_default();
            found.file = file
                .rsplit(['/', '\\'])
                .next()
                .unwrap_or_default()
                .to_owned();
            found.begins = at;
            return Ok(Some(found));
        }
        let Some(len) = place(&bytes[at..], end.as_bytes()) else {
            return Ok(None);
        };
        let value = std::str::from_utf8(&bytes[at..at + len]);
        let value = value.map_err(|_| malformed("a field of the form is no text"))?;
        if found.get(&name).is_some() {
            return Err(malformed("a field of the form is given twice"));
        }
        found.fields.push((name, value.to_owned()));
        // The end of this part is the beginning of the next one.
        at += len + 2;
        if !bytes[at..].starts_with(begin.as_bytes()) {
            return match bytes.len() < at + begin.len() {
                true => Ok(None),
                false => Err(malformed(
                    "the form has no file, or its file has not this name",
                )),
            };
        }
    }
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut padded = [0; 64];
    match key.len() > padded.len() {
        true => padded[..32].copy_from_slice(&Sha256::checksum(key)),
        false => padded[..key.len()].copy_from_slice(key),
    }
    let with = |mask: u8| padded.map(|byte| byte ^ mask);
    let inner = Sha256::checksum(&[&with(0x36)[..], message].concat());
    Sha256::checksum(&[&with(0x5c)[..], &inner].concat())
}

/// True: the signature is that of the policy. Takes as long whatever differs.
fn is_signed(secret: &str, scope: &str, (policy, signature): (&str, &str)) -> bool {
    let begin = format!("AWS4{secret}").into_bytes();
    let key = scope
        .split('/')
        .fold(begin, |key, part| hmac(&key, part.as_bytes()).to_vec());
    let wanted = hmac(&key, policy.as_bytes());
    let wanted: String = wanted.iter().map(|byte| format!("{byte:02x}")).collect();
    let differ = wanted
        .bytes()
        .zip(signature.bytes())
        .fold(0, |bits, (a, b)| bits | (a ^ b));
    wanted.len() == signature.len() && differ == 0
}

/// Checks a form against the conditions of its policy.
fn check_conditions(policy: &PostPolicy, fields: &Fields, bucket: &str) -> S3Result<()> {
    let named = |name: &str| {
        policy.conditions.iter().any(|condition| match condition {
            PostPolicyCondition::Eq { field, .. }
            | PostPolicyCondition::StartsWith { field, .. } => field == name,
            PostPolicyCondition::ContentLengthRange { .. } => false,
        })
    };
    let free = |name: &str| FREE.contains(&name) || name.starts_with("x-ignore-");
    let mut given = fields.fields.iter().map(|(name, _)| name);
    if let Some(name) = given.find(|name| !free(name) && !named(name)) {
        return Err(against(&format!("Extra input fields: {name}")));
    }
    for condition in &policy.conditions {
        let value = |name: &str| match name {
            "bucket" => bucket.to_owned(),
            name => fields.get(name).unwrap_or_default().to_owned(),
        };
        let (holds, kind, field, wanted) = match condition {
            PostPolicyCondition::Eq {
                field,
                value: wanted,
            } => (value(field) == *wanted, "eq", field, wanted),
            PostPolicyCondition::StartsWith { field, prefix } => (
                value(field).starts_with(prefix.as_str()),
                "starts-with",
                field,
                prefix,
            ),
            PostPolicyCondition::ContentLengthRange { .. } => continue,
        };
        if !holds {
            let failed = format!("Policy Condition failed: [{kind}, ${field}, {wanted}]");
            return Err(against(&failed));
        }
    }
    Ok(())
}

/// Least and most bytes of the file.
fn range(policy: &PostPolicy) -> (u64, u64) {
    let all = (0, u64::MAX);
    policy
        .conditions
        .iter()
        .fold(all, |(least, most), condition| match condition {
            PostPolicyCondition::ContentLengthRange { min, max } => {
                (least.max(*min), most.min(*max))
            }
            _ => (least, most),
        })
}

/// The tags of a form, which are a document, as a header.
fn tagging(document: &str) -> S3Result<String> {
    let read = Tagging::deserialize(&mut Deserializer::new(document.as_bytes()));
    let read = read.map_err(|_| refused(S3ErrorCode::MalformedXML, "tagging is no document"))?;
    let encoded =
        |text: Option<String>| utf8_percent_encode(&text.unwrap_or_default(), PLAIN).to_string();
    let tags = read.tag_set.into_iter();
    let tags = tags.map(|tag| format!("{}={}", encoded(tag.key), encoded(tag.value)));
    Ok(tags.collect::<Vec<_>>().join("&"))
}

/// The headers of the put that a form means.
fn headers(fields: &Fields) -> S3Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in &fields.fields {
        let (header, value) = match name.as_str() {
            "acl" => ("x-amz-acl", value.clone()),
            "tagging" => ("x-amz-tagging", tagging(value)?),
            name if HEADERS.contains(&name) => (name, value.clone()),
            name if BEGIN.iter().any(|begin| name.starts_with(begin)) => (name, value.clone()),
            _ => continue,
        };
        let header = header.parse::<HeaderName>().ok();
        let header = header.zip(HeaderValue::from_str(&value).ok());
        let (header, value) = header.ok_or_else(|| {
            refused(
                S3ErrorCode::InvalidArgument,
                format!("the field {name} is no header"),
            )
        })?;
        headers.insert(header, value);
    }
    Ok(headers)
}

impl Router {
    /// The put that a form means, signed by its policy, and how to answer it.
    ///
    /// # Errors
    /// `AccessDenied`, `MalformedPOSTRequest`, `InvalidPolicyDocument`, `SignatureDoesNotMatch`.
    async fn put_of_form(&self, request: Request<Body>) -> S3Result<(S3Request<Body>, FormReply)> {
        let (parts, mut body) = request.into_parts();
        if parts.headers.contains_key(AUTHORIZATION) {
            let why = "a form is signed by its policy, not by a header";
            return Err(refused(S3ErrorCode::InvalidArgument, why));
        }
        let (bucket, in_host) = self.bucket_of_form(&parts)?;
        let boundary = boundary(&parts.headers);
        let boundary = boundary.ok_or_else(|| malformed("Content-Type has no boundary"))?;
        let (mut fields, rest) = read(&mut body, &boundary).await?;
        let key = fields
            .get("key")
            .map(|key| key.replace("${filename}", &fields.file));
        let key = key.filter(|key| !key.is_empty());
        let key =
            key.ok_or_else(|| refused(S3ErrorCode::InvalidArgument, "the form has no key"))?;
        for (name, value) in &mut fields.fields {
            if name == "key" {
                value.clone_from(&key);
            }
        }
        let (credentials, within) = self.allowed(&fields, &bucket).await?;
        let mut headers = headers(&fields)?;
        let announced = parts.headers.get(CONTENT_LENGTH).cloned();
        let missing = || S3Error::new(S3ErrorCode::MissingContentLength);
        headers.insert(CONTENT_LENGTH, announced.ok_or_else(missing)?);
        let own = |name: &HeaderName| *name == HOST || name.as_str().starts_with("if-");
        let own = parts.headers.iter().filter(|(name, _)| own(name));
        headers.extend(own.map(|(name, value)| (name.clone(), value.clone())));
        let place = self.endpoint.address(&parts.headers, (&bucket, &key));
        let done = FormReply::of(&fields, (&bucket, &key), place);
        let file = FormFile {
            body,
            held: rest,
            end: format!("\r\n--{boundary}").into_bytes(),
            over: false,
        };
        let encoded = utf8_percent_encode(&key, PLAIN);
        let uri: Result<Uri, _> = match in_host {
            true => format!("/{encoded}").parse(),
            false => format!("/{bucket}/{encoded}").parse(),
        };
        let mut extensions = parts.extensions;
        extensions.insert(within);
        let put = S3Request {
            input: Body::http_body_unsync(file),
            method: Method::PUT,
            uri: uri.map_err(|_| S3Error::new(S3ErrorCode::InvalidURI))?,
            headers,
            extensions,
            credentials: Some(credentials),
            region: None,
            service: None,
            trailing_headers: None,
        };
        Ok((put, done))
    }

    /// The bucket that a form is posted to, and whether the host names it.
    fn bucket_of_form(&self, parts: &Parts) -> S3Result<(String, bool)> {
        let path = percent_decode_str(parts.uri.path()).decode_utf8();
        let path = path.map_err(|_| S3Error::new(S3ErrorCode::InvalidURI))?;
        let path = path.trim_matches('/');
        let host = self.endpoint.bucket_of_host(&parts.headers)?;
        let in_host = host.is_some();
        let bucket = match host {
            Some(bucket) if path.is_empty() => bucket,
            Some(_) => String::new(),
            None => path.to_owned(),
        };
        if bucket.is_empty() || bucket.contains('/') || parts.uri.query().is_some() {
            let why = "a form is posted to a bucket";
            return Err(refused(S3ErrorCode::MethodNotAllowed, why));
        }
        Ok((bucket, in_host))
    }

    /// The access key that has signed the policy, which allows the form.
    async fn allowed(&self, fields: &Fields, bucket: &str) -> S3Result<(Credentials, Within)> {
        if fields.get("awsaccesskeyid").is_some() || fields.get("signature").is_some() {
            let why = "signatures of version 2 are not accepted: sign the policy with version 4; in \
                       boto3 Config(signature_version='s3v4')";
            return Err(denied(why));
        }
        let policy = fields.need("policy")?;
        let read = PostPolicy::from_base64(policy)
            .map_err(|error| refused(S3ErrorCode::InvalidPolicyDocument, error.to_string()))?;
        let credential = fields.need("x-amz-credential")?;
        let (access_key, scope) = credential.split_once('/').unwrap_or((credential, ""));
        let (date, signature) = (fields.need("x-amz-date")?, fields.need("x-amz-signature")?);
        let begins = |day: &str| day.len() == 8 && date.starts_with(day);
        let is_scope = matches!(
            scope.split('/').collect::<Vec<_>>()[..],
            [day, _, "s3", "aws4_request"] if begins(day)
        );
        if fields.need("x-amz-algorithm")? != ALGORITHM || !is_scope {
            let why = "x-amz-algorithm is AWS4-HMAC-SHA256, and x-amz-credential is \
                       KEY/DAY/REGION/s3/aws4_request with the day of x-amz-date";
            return Err(denied(why));
        }
        let secret = self.keys.get_secret_key(access_key).await?;
        if !is_signed(secret.expose(), scope, (policy, signature)) {
            return Err(S3Error::new(S3ErrorCode::SignatureDoesNotMatch));
        }
        if time::OffsetDateTime::from(read.expiration.clone()) <= time::OffsetDateTime::now_utc() {
            return Err(against("Policy expired."));
        }
        check_conditions(&read, fields, bucket)?;
        let (least, most) = range(&read);
        let credentials = Credentials {
            access_key: access_key.to_owned(),
            secret_key: secret,
        };
        Ok((credentials, Within(least, most)))
    }

    /// Carries out a form.
    ///
    /// # Errors
    /// As [`Self::put_of_form`].
    pub(super) async fn form(&self, form: Request<Body>) -> S3Result<Answer> {
        let (put, done) = self.put_of_form(form).await?;
        let answer = self.answer(put).await;
        Ok(match answer.status().is_success() {
            true => done.response(&answer),
            false => answer,
        })
    }
}

/// Reads a form until its file begins; the bytes of that which have come.
async fn read(body: &mut Body, boundary: &str) -> S3Result<(Fields, BytesMut)> {
    let (mut bytes, mut enough) = (BytesMut::new(), 0);
    loop {
        let frame = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        let frame = frame.transpose();
        let frame = frame.map_err(|failure| super::error::broken(&failure))?;
        let is_over = frame.is_none();
        bytes.extend_from_slice(&frame.and_then(|it| it.into_data().ok()).unwrap_or_default());
        // It is looked at again when it has twice the bytes: pieces of one byte cost nothing.
        if bytes.len() < enough.min(MAX_FIELDS + 1) && !is_over {
            continue;
        }
        enough = 2 * bytes.len();
        if let Some(found) = fields(&bytes, boundary)?
            && found.begins <= MAX_FIELDS
        {
            bytes.advance(found.begins);
            return Ok((found, bytes));
        }
        if bytes.len() > MAX_FIELDS {
            let why = format!("a form has at most {MAX_FIELDS} bytes before its file");
            return Err(refused(S3ErrorCode::MaxPostPreDataLengthExceededError, why));
        }
        if is_over {
            return Err(malformed("the form ends before its file"));
        }
    }
}

/// The file of a form: its bytes until what ends it; fields behind it mean nothing.
struct FormFile {
    body: Body,
    held: BytesMut,
    end: Vec<u8>,
    over: bool,
}

impl FormFile {
    /// Bytes that belong to the file whatever follows.
    fn next(&mut self) -> Option<Bytes> {
        if let Some(end) = place(&self.held, &self.end) {
            self.over = true;
            let last = self.held.split_to(end).freeze();
            self.held.clear();
            return (!last.is_empty()).then_some(last);
        }
        let sure = self.held.len().saturating_sub(self.end.len() - 1);
        (sure > 0).then(|| self.held.split_to(sure).freeze())
    }
}

impl http_body::Body for FormFile {
    type Data = Bytes;
    type Error = StdError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StdError>>> {
        loop {
            if !self.over
                && let Some(bytes) = self.next()
            {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
            // All is taken, so that the connection can be used again.
            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                None if self.over => return Poll::Ready(None),
                None => return Poll::Ready(Some(Err("the form ends within its file".into()))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) if !self.over => {
                    self.held
                        .extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

/// How a form that was carried out is answered.
pub(super) struct FormReply {
    status: StatusCode,
    redirect: Option<Uri>,
    bucket: String,
    key: String,
    /// The address of the object.
    place: String,
}

impl FormReply {
    fn of(fields: &Fields, (bucket, key): (&str, &str), place: String) -> Self {
        let redirect = fields
            .get("success_action_redirect")
            .or(fields.get("redirect"));
        let redirect = redirect.and_then(|text| text.parse::<Uri>().ok());
        let is_web = |uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https"));
        Self {
            status: match fields.get("success_action_status") {
                Some("200") => StatusCode::OK,
                Some("201") => StatusCode::CREATED,
                _ => StatusCode::NO_CONTENT,
            },
            redirect: redirect.filter(is_web),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            place,
        }
    }

    fn response(&self, put: &Answer) -> Answer {
        use http::header::{ETAG, LOCATION};
        let tag = put.headers().get(ETAG).cloned();
        let etag = tag
            .as_ref()
            .and_then(|tag| tag.to_str().ok())
            .unwrap_or_default();
        let encoded = |text: &str| utf8_percent_encode(text, PLAIN).to_string();
        let (mut status, mut location) = (self.status, self.place.clone());
        if let Some(redirect) = &self.redirect {
            let more = if redirect.query().is_some() { '&' } else { '?' };
            let (bucket, key) = (&self.bucket, encoded(&self.key).replace('/', "%2F"));
            let etag = encoded(etag);
            status = StatusCode::SEE_OTHER;
            location = format!("{redirect}{more}bucket={bucket}&key={key}&etag={etag}");
        }
        let document = PostResponse {
            location: &self.place,
            bucket: &self.bucket,
            key: &readable(self.key.clone()),
            etag,
        };
        let mut response = match reply::xml(&document) {
            Ok(response) if status == StatusCode::CREATED => response,
            _ => reply::empty(status),
        };
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.extend(tag.map(|tag| (ETAG, tag)));
        let sums = put.headers().iter();
        let sums = sums.filter(|(name, _)| name.as_str().starts_with(CHECKSUM));
        headers.extend(sums.map(|(name, value)| (name.clone(), value.clone())));
        let location = HeaderValue::from_str(&location).ok();
        headers.extend(location.map(|location| (LOCATION, location)));
        response
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::StreamBody;

    use super::*;

    #[tokio::test]
    async fn a_form_in_pieces_of_one_byte_is_read() {
        let part = |name: &str| {
            format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nx\r\n")
        };
        let text: String = (0..560).map(|n| part(&n.to_string())).collect();
        assert!(text.len() < MAX_FIELDS);
        for (end, good) in [(part("file"), true), (String::new(), false)] {
            let pieces = (text.clone() + &end).into_bytes().into_iter();
            let pieces = pieces.map(|byte| Ok::<_, StdError>(Frame::data(Bytes::from(vec![byte]))));
            let pieces = StreamBody::new(tokio_stream::iter(pieces));
            let mut body = Body::http_body_unsync(pieces);
            let read = read(&mut body, "b").await;
            match read {
                Ok((fields, rest)) => {
                    assert!(good && fields.fields.len() == 560 && rest.starts_with(b"x"))
                }
                Err(error) => assert!(!good && *error.code() == S3ErrorCode::MalformedPOSTRequest),
            }
        }
    }
}
