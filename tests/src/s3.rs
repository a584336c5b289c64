//! A small client of S3 that signs with rusty-s3, and the file of access keys that the tests use.

use std::path::{Path, PathBuf};
use std::time::Duration;

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
    let mut text =
        format!("[[key]]\nname = \"{access}\"\naccess = \"{access}\"\nsecret = \"{secret}\"\n");
    for (bucket, prefix, rights) in rules {
        text += &format!(
            "[[key.allow]]\nbucket = \"{bucket}\"\nprefix = \"{prefix}\"\nrights = {rights}\n"
        );
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
pub struct Client {
    bucket: Bucket,
    credentials: Credentials,
    agent: Agent,
}

/// Status and body of an answer; `None`: there was none.
pub type Answer = Option<(u16, Vec<u8>)>;

impl Client {
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

    /// The first page of what begins so.
    pub fn list(&self, prefix: &str) -> Answer {
        let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_prefix(prefix.to_owned());
        read(self.agent.get(action.sign(PATIENCE).as_str()).call())
    }
}

fn read(answer: Result<Response<ureq::Body>, ureq::Error>) -> Answer {
    let mut answer = answer.ok()?;
    let status = answer.status().as_u16();
    let body = answer.body_mut().with_config().limit(1 << 30).read_to_vec();
    Some((status, body.ok()?))
}
