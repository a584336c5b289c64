//! The way to a bucket of an S3 server on this machine.
//!
//! Objects are read by a client made for that, [`Download`]; everything else is ureq's.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use base64_simd::STANDARD;
use bytes::Bytes;
use lumpscope_engine::crc32c;
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;

use super::download::Download;
use super::files::blocking;
use super::{Answer, Failure, Placement, StoreClient};

/// How long a signature is good for, and a call may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// Which region is signed for makes no difference to a server of one's own.
pub(crate) const REGION: &str = "us-east-1";
/// Header with the CRC32C of a body: the SDKs send a checksum unless they are told not to.
const CHECKSUM: &str = "x-amz-checksum-crc32c";

/// A bucket, and who may use it.
#[derive(Clone)]
pub struct S3Bucket {
    bucket: Arc<Bucket>,
    credentials: Arc<Credentials>,
    agent: Agent,
    /// `HOST:PORT`, as it is signed.
    address: String,
}

impl std::fmt::Debug for S3Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "bucket {} (credentials not shown)", self.bucket.name())
    }
}

impl S3Bucket {
    /// The bucket `name` of the server at `endpoint`, `http://HOST:PORT`.
    ///
    /// # Errors
    /// The address or the name is malformed.
    pub fn new(endpoint: &str, name: &str, key: &str, secret: &str) -> Result<S3Bucket, String> {
        let url = endpoint
            .parse()
            .map_err(|error| format!("{endpoint} is no address: {error}"))?;
        let address = endpoint.trim_start_matches("http://").trim_end_matches('/');
        let bucket = Bucket::new(url, UrlStyle::Path, name.to_owned(), REGION)
            .map_err(|error| format!("{endpoint}: {error}"))?;
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .build()
            .new_agent();
        Ok(S3Bucket {
            bucket: Arc::new(bucket),
            credentials: Arc::new(Credentials::new(key, secret)),
            agent,
            address: address.to_owned(),
        })
    }

    /// Makes the bucket.
    ///
    /// # Errors
    /// Errors of the server, or of the connection to it.
    pub fn create(&self) -> Result<(), String> {
        let url = self.bucket.create_bucket(&self.credentials).sign(PATIENCE);
        let made = self.agent.put(url.as_str()).send_empty();
        made.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Removes the bucket, which must be empty.
    ///
    /// # Errors
    /// Errors of the server, or of the connection to it.
    pub fn remove(&self) -> Result<(), String> {
        let url = self.bucket.delete_bucket(&self.credentials).sign(PATIENCE);
        let removed = self.agent.delete(url.as_str()).call();
        removed.map(|_| ()).map_err(|error| error.to_string())
    }
}

/// 32 hexadecimal digits from the system's generator: a secret of one run.
pub(crate) fn random_word() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// One client of the bucket.
pub(super) struct S3Client {
    s3: S3Bucket,
    /// `None` while it is in use, and after a failure.
    download: Option<Download>,
}

fn name(id: u128) -> String {
    format!("{id:032x}")
}

impl S3Client {
    pub(super) fn new(s3: S3Bucket) -> S3Client {
        S3Client { s3, download: None }
    }

    /// Asks the server where waiting harms nobody.
    async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(S3Bucket) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let bucket = self.s3.clone();
        blocking(move || question(bucket)).await
    }
}

#[async_trait]
impl StoreClient for S3Client {
    /// The checksum and signing are part of a call: every client must do them.
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        _placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure> {
        self.ask(move |s3| {
            let begin = Instant::now();
            let name = name(id);
            let sum = STANDARD.encode_to_string(crc32c::of(&body).to_be_bytes());
            let mut action = s3.bucket.put_object(Some(&s3.credentials), &name);
            action.headers_mut().insert(CHECKSUM, &sum);
            let url = action.sign(PATIENCE);
            let request = s3.agent.put(url.as_str()).header(CHECKSUM, &sum);
            request.send(&body[..])?;
            Ok(Answer::since(begin, None))
        })
        .await
    }

    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
        let download = self.download.take();
        let (answer, download) = self
            .ask(move |s3| {
                let fresh = || Download::new(s3.address.clone(), PATIENCE);
                let mut download = download.unwrap_or_else(fresh);
                let begin = Instant::now();
                let name = name(id);
                let url = s3
                    .bucket
                    .get_object(Some(&s3.credentials), &name)
                    .sign(PATIENCE);
                let target = format!("{}?{}", url.path(), url.query().unwrap_or_default());
                let bytes = download.get(&target)?;
                let answer = Answer::since(begin, vec![bytes]);
                Ok((answer, download))
            })
            .await?;
        self.download = Some(download);
        Ok(answer)
    }

    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
        self.ask(move |s3| {
            let begin = Instant::now();
            let name = name(id);
            let url = s3
                .bucket
                .delete_object(Some(&s3.credentials), &name)
                .sign(PATIENCE);
            s3.agent.delete(url.as_str()).call()?;
            Ok(Answer::since(begin, None))
        })
        .await
    }

    async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        self.ask(move |s3| {
            let mut ids = Vec::new();
            let mut token: Option<String> = None;
            loop {
                let mut action = s3.bucket.list_objects_v2(Some(&s3.credentials));
                if let Some(token) = token.take() {
                    action.with_continuation_token(token);
                }
                let url = action.sign(PATIENCE);
                let text = s3
                    .agent
                    .get(url.as_str())
                    .call()?
                    .into_body()
                    .read_to_string()?;
                let page = ListObjectsV2::parse_response(&text).map_err(Failure::peer)?;
                let names = page.contents.iter().map(|object| object.key.as_str());
                ids.extend(names.filter_map(|name| u128::from_str_radix(name, 16).ok()));
                token = page.next_continuation_token;
                if token.is_none() {
                    return Ok(ids);
                }
            }
        })
        .await
    }
}
