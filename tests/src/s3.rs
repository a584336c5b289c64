//! A small client of S3 that signs with rusty-s3, and the file of access keys that the tests use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusty_s3::actions::{CreateMultipartUpload, ListObjectsV2, ListParts, ObjectIdentifier};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::Response;

/// The access key that may do everything.
pub const ACCESS: &str = "AKALL";
/// Its secret.
pub const SECRET: &str = "the-secret-of-the-tests";
/// How long a signature is good for, and a call may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// An entry of the file of access keys; `rules`: bucket, prefix, rights as the file has them.
#[must_use]
pub fn key(access: &str, secret: &str, rules: &[(&str, &str, &str)]) -> String {
    let who = format!("name = \"{access}\"\naccess = \"{access}\"\nsecret = \"{secret}\"");
    let mut text = format!("[[key]]\n{who}\n");
    for (bucket, prefix, rights) in rules {
        let what = format!("bucket = \"{bucket}\"\nprefix = \"{prefix}\"\nrights = {rights}");
        text += &format!("[[key.allow]]\n{what}\n");
    }
    text
}

/// Writes a file of access keys that only its owner can read: the one that may do everything, and
/// these.
///
/// # Panics
/// When it cannot be written.
pub fn keys(folder: &Path, more: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("keys.toml");
    let all = key(ACCESS, SECRET, &[("*", "", "[\"read\", \"write\"]")]);
    std::fs::write(&path, all + more).expect("a file can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    path
}

/// One bucket, asked as one access key. Answers are what came, whatever the status.
#[derive(Clone, Debug)]
pub struct BucketClient {
    bucket: Bucket,
    credentials: Credentials,
    agent: Agent,
}

/// Status and body of an answer; `None`: there was none.
pub type Answer = Option<(u16, Vec<u8>)>;

impl BucketClient {
    /// The bucket `name` of the service at `ADDRESS:PORT`.
    ///
    /// # Panics
    /// When the address is none.
    #[must_use]
    pub fn new(address: &str, name: &str, access: &str, secret: &str) -> Self {
        let url = format!("http://{address}").parse().expect("an address");
        let bucket = Bucket::new(url, UrlStyle::Path, name.to_owned(), "us-east-1");
        let agent = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            .max_idle_connections_per_host(64)
            .max_idle_connections(64)
            .build()
            .new_agent();
        Self {
            bucket: bucket.expect("a bucket"),
            credentials: Credentials::new(access, secret),
            agent,
        }
    }

    /// Makes the bucket.
    pub fn create(&self) -> Answer {
        let url = self.bucket.create_bucket(&self.credentials).sign(PATIENCE);
        read(self.agent.put(url.as_str()).send_empty())
    }

    /// Stores an object.
    pub fn put(&self, key: &str, body: &[u8]) -> Answer {
        let action = self.bucket.put_object(Some(&self.credentials), key);
        read(self.agent.put(action.sign(PATIENCE).as_str()).send(body))
    }

    /// Reads an object.
    pub fn get(&self, key: &str) -> Answer {
        let action = self.bucket.get_object(Some(&self.credentials), key);
        read(self.agent.get(action.sign(PATIENCE).as_str()).call())
    }

    /// Deletes an object.
    pub fn delete(&self, key: &str) -> Answer {
        let action = self.bucket.delete_object(Some(&self.credentials), key);
        read(self.agent.delete(action.sign(PATIENCE).as_str()).call())
    }

    /// Reads an object, or some of its bytes (as HTTP has ranges), and the id of the request.
    pub fn get_with_id(&self, key: &str) -> Option<(u64, Vec<u8>)> {
        let action = self.bucket.get_object(Some(&self.credentials), key);
        let answer = self.agent.get(action.sign(PATIENCE).as_str()).call();
        let id = request_id(answer.as_ref().ok()?)?;
        Some((id, read(answer)?.1))
    }

    /// Stores an object, and answers the id of the request.
    pub fn put_with_id(&self, key: &str, body: &[u8]) -> Option<u64> {
        let action = self.bucket.put_object(Some(&self.credentials), key);
        let answer = self.agent.put(action.sign(PATIENCE).as_str()).send(body);
        request_id(&answer.ok()?)
    }

    /// Metadata of an object, without its bytes.
    pub fn head(&self, key: &str) -> Answer {
        let action = self.bucket.head_object(Some(&self.credentials), key);
        read(self.agent.head(action.sign(PATIENCE).as_str()).call())
    }

    /// Where an object is put by whoever has this address.
    #[must_use]
    pub fn put_url(&self, key: &str) -> String {
        let action = self.bucket.put_object(Some(&self.credentials), key);
        action.sign(PATIENCE).to_string()
    }

    /// Copies an object of the bucket.
    pub fn copy(&self, from: &str, to: &str) -> Answer {
        const SOURCE: &str = "x-amz-copy-source";
        let source = format!("{}/{from}", self.bucket.name());
        let mut action = self.bucket.put_object(Some(&self.credentials), to);
        action.headers_mut().insert(SOURCE, source.clone());
        let asked = self.agent.put(action.sign(PATIENCE).as_str());
        read(asked.header(SOURCE, source).send_empty())
    }

    /// Deletes objects, all with one request.
    pub fn delete_many(&self, keys: &[String]) -> Answer {
        let objects = keys.iter().cloned().map(ObjectIdentifier::new);
        let objects: Vec<_> = objects.collect();
        let action = self
            .bucket
            .delete_objects(Some(&self.credentials), objects.iter());
        let url = action.sign(PATIENCE);
        let (body, md5) = action.body_with_md5();
        read(
            self.agent
                .post(url.as_str())
                .header("content-md5", md5)
                .send(body),
        )
    }

    /// Deletes the bucket.
    pub fn remove(&self) -> Answer {
        let url = self.bucket.delete_bucket(&self.credentials).sign(PATIENCE);
        read(self.agent.delete(url.as_str()).call())
    }

    /// Begins an upload; its id.
    pub fn create_upload(&self, key: &str) -> Option<String> {
        let action = self
            .bucket
            .create_multipart_upload(Some(&self.credentials), key);
        let text = good(read(
            self.agent.post(action.sign(PATIENCE).as_str()).send_empty(),
        ))?;
        let parsed = CreateMultipartUpload::parse_response(&text).ok()?;
        Some(parsed.upload_id().to_owned())
    }

    /// Stores a part; its `ETag`.
    pub fn upload_part(&self, key: &str, upload: &str, number: u16, body: &[u8]) -> Option<String> {
        let who = Some(&self.credentials);
        let action = self.bucket.upload_part(who, key, number, upload);
        let answer = self.agent.put(action.sign(PATIENCE).as_str()).send(body);
        let answer = answer.ok()?;
        let tag = answer.headers().get("etag")?.to_str().ok()?.to_owned();
        (answer.status() == 200).then_some(tag)
    }

    /// Makes an object of parts, which are numbered from 1.
    pub fn complete(&self, key: &str, upload: &str, tags: &[String]) -> Answer {
        let tags = tags.iter().map(String::as_str);
        let credentials = Some(&self.credentials);
        let bucket = &self.bucket;
        let action = bucket.complete_multipart_upload(credentials, key, upload, tags);
        let url = action.sign(PATIENCE);
        read(self.agent.post(url.as_str()).send(action.body()))
    }

    /// Gives an upload up.
    pub fn abort(&self, key: &str, upload: &str) -> Answer {
        let who = Some(&self.credentials);
        let action = self.bucket.abort_multipart_upload(who, key, upload);
        read(self.agent.delete(action.sign(PATIENCE).as_str()).call())
    }

    /// Sizes of the parts of an upload, with their numbers.
    pub fn parts(&self, key: &str, upload: &str) -> Option<Vec<(u16, u64)>> {
        let action = self.bucket.list_parts(Some(&self.credentials), key, upload);
        let text = good(read(self.agent.get(action.sign(PATIENCE).as_str()).call()))?;
        let parts = ListParts::parse_response(&text).ok()?.parts.into_iter();
        Some(parts.map(|part| (part.number, part.size)).collect())
    }

    /// Keys and ids of the uploads that were begun; at most a page.
    pub fn uploads(&self) -> Option<Vec<(String, String)>> {
        let mut action = self.bucket.get_object(Some(&self.credentials), "");
        action.query_mut().insert("uploads", "");
        let text = good(read(self.agent.get(action.sign(PATIENCE).as_str()).call()))?;
        let all = |name: &str| {
            let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
            let behind = text.split(&begin).skip(1);
            let values = behind.filter_map(|rest| rest.split(&end).next());
            values.map(str::to_owned).collect::<Vec<_>>()
        };
        Some(all("Key").into_iter().zip(all("UploadId")).collect())
    }

    /// All objects whose keys begin so, in the order of the pages, which have `size` entries; and
    /// how many pages there were.
    pub fn list_all(&self, prefix: &str, size: usize) -> Option<(Vec<ObjectEntry>, usize)> {
        let (mut all, mut token) = (Vec::new(), None::<String>);
        for pages in 1.. {
            let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
            action.with_prefix(prefix.to_owned());
            action.with_max_keys(size);
            if let Some(token) = token.take() {
                action.with_continuation_token(token);
            }
            let text = good(read(self.agent.get(action.sign(PATIENCE).as_str()).call()))?;
            let page = ListObjectsV2::parse_response(&text).ok()?;
            all.extend(page.contents.into_iter().map(|found| ObjectEntry {
                key: found.key,
                size: found.size.unwrap_or(u64::MAX),
                etag: found.etag.unwrap_or_default(),
            }));
            token = page.next_continuation_token;
            if token.is_none() {
                return Some((all, pages));
            }
        }
        None
    }

    /// The first page of what begins so.
    pub fn list(&self, prefix: &str) -> Answer {
        let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_prefix(prefix.to_owned());
        read(self.agent.get(action.sign(PATIENCE).as_str()).call())
    }
}

/// An object as a list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectEntry {
    /// Its key.
    pub key: String,
    /// Its bytes.
    pub size: u64,
    /// Entity tag.
    pub etag: String,
}

fn request_id(answer: &Response<ureq::Body>) -> Option<u64> {
    let id = answer.headers().get("x-amz-request-id")?;
    id.to_str().ok()?.parse().ok()
}

/// The text of an answer that is none of a failure.
fn good(answer: Answer) -> Option<String> {
    let (status, body) = answer?;
    String::from_utf8(body).ok().filter(|_| status == 200)
}

fn read(answer: Result<Response<ureq::Body>, ureq::Error>) -> Answer {
    let mut answer = answer.ok()?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(1 << 30).read_to_vec();
    Some((status, body.ok()?))
}
