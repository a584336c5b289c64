//! The part of S3 in the worst mix: clients of one access key that hold what they can, and another
//! key that is served meanwhile.

use std::net::SocketAddr;
use std::time::Duration;

use rusty_s3::actions::ObjectIdentifier;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::victim::Victim;
use crate::common::body;
use crate::door::harness::{LONG, raw_tls};

/// Kinds of attack.
pub(super) const KINDS: usize = 5;
/// The file of access keys. The first has the name of the attacking login, so both pay together.
pub(super) const KEYS: &str = "[[key]]\nname = \"known\"\naccess = \"AKKNOWN\"\n\
    secret = \"a-secret-of-the-attacks\"\n\
    [[key.allow]]\nbucket = \"*\"\nrights = [\"read\", \"write\"]\nprefix = \"\"\n\
    [[key]]\nname = \"other\"\naccess = \"AKOTHER\"\nsecret = \"a-secret-of-the-attacks\"\n\
    [[key.allow]]\nbucket = \"*\"\nrights = [\"read\", \"write\"]\nprefix = \"\"\n";
const SECRET: &str = "a-secret-of-the-attacks";
/// How long a signature is good for.
const HOURS: Duration = Duration::from_secs(24 * 3600);
/// An object whose pieces nobody takes, and its bytes.
const LARGE: &str = "large";
const LARGE_BYTES: usize = 4 << 20;
/// Objects with names so long that a list of them is long, too.
const LISTED: usize = 30;
/// Requests on a connection whose replies nobody takes.
const UNREAD: usize = 50;

/// Sends what the service takes of these bytes, and takes nothing.
pub(super) async fn hold(mut stream: TlsStream<TcpStream>, bytes: Vec<u8>) {
    // It is taken as far as the service wants it.
    let _ = stream.write_all(&bytes).await;
    std::future::pending().await
}

/// A bucket at a service, as one access key.
pub(super) struct S3<'a> {
    victim: &'a Victim,
    address: SocketAddr,
    bucket: Bucket,
    key: Credentials,
}

impl<'a> S3<'a> {
    pub(super) fn new(victim: &'a Victim, access: &str) -> Self {
        let address = victim.s3.unwrap();
        let url = format!("https://localhost:{}", address.port());
        let bucket = Bucket::new(url.parse().unwrap(), UrlStyle::Path, "mix", "us-east-1");
        Self {
            victim,
            address,
            bucket: bucket.unwrap(),
            key: Credentials::new(access, SECRET),
        }
    }

    /// A request up to its body, of `length` bytes.
    fn head<'b>(&self, action: &impl S3Action<'b>, method: &str, length: usize) -> Vec<u8> {
        let url = action.sign(HOURS);
        let (path, query) = (url.path(), url.query().unwrap());
        let port = self.address.port();
        format!(
            "{method} {path}?{query} HTTP/1.1\r\nhost: localhost:{port}\r\n\
             content-length: {length}\r\n\r\n"
        )
        .into_bytes()
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Vec<u8> {
        let action = self.bucket.put_object(Some(&self.key), name);
        [&self.head(&action, "PUT", bytes.len()), bytes].concat()
    }

    fn get(&self, name: &str) -> Vec<u8> {
        let action = self.bucket.get_object(Some(&self.key), name);
        self.head(&action, "GET", 0)
    }

    pub(super) async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = raw_tls(self.address, &self.victim.authority, b"http/1.1").await;
        stream.unwrap()
    }

    /// Asks on a connection of its own until there are `bytes` of body; they are answered.
    async fn ask(&self, request: &[u8], bytes: usize) -> Vec<u8> {
        let mut stream = self.connect().await;
        let asked = async {
            stream.write_all(request).await.unwrap();
            stream.flush().await.unwrap();
            let mut got = Vec::new();
            loop {
                let end = got.windows(4).position(|four| four == b"\r\n\r\n");
                if let Some(end) = end.filter(|end| got.len() >= end + 4 + bytes) {
                    let said = String::from_utf8_lossy(&got);
                    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
                    return got.split_off(end + 4);
                }
                assert!(stream.read_buf(&mut got).await.unwrap() > 0, "{got:?}");
            }
        };
        timeout(LONG, asked).await.expect("S3 answers")
    }

    /// What the attackers ask for.
    pub(super) async fn fill(&self) {
        let made = self.bucket.create_bucket(&self.key);
        self.ask(&self.head(&made, "PUT", 0), 0).await;
        self.ask(&self.put(LARGE, &body(1, LARGE_BYTES)), 0).await;
        for number in 0..LISTED {
            let name = format!("{number:0>900}");
            self.ask(&self.put(&name, b"x"), 0).await;
        }
    }

    /// Everything that an attack of this kind sends.
    pub(super) fn attack(&self, kind: usize) -> Vec<u8> {
        match kind {
            // A put whose last byte does not come.
            0 => {
                let mut whole = self.put("unfinished", &body(2, LARGE_BYTES));
                whole.truncate(whole.len() - 1);
                whole
            }
            // Replies that nobody takes.
            1 => self.get(LARGE).repeat(UNREAD),
            2 => {
                let action = self.bucket.list_objects_v2(Some(&self.key));
                self.head(&action, "GET", 0).repeat(UNREAD)
            }
            // A document whose last byte does not come: it is read before its signature is verified.
            3 => {
                let none = std::iter::empty::<&ObjectIdentifier>();
                let action = self.bucket.delete_objects(Some(&self.key), none);
                let head = self.head(&action, "POST", LARGE_BYTES);
                [head, vec![b' '; LARGE_BYTES - 1]].concat()
            }
            // A head without an end.
            _ => [&b"GET / HTTP/1.1\r\nx-filling: "[..], &[b'x'; 60 << 10]].concat(),
        }
    }

    /// Puts, gets and lists as somebody else.
    pub(super) async fn serves(&self) {
        let bytes = body(3, 1 << 20);
        self.ask(&self.put("mine", &bytes), 0).await;
        assert!(self.ask(&self.get("mine"), bytes.len()).await == bytes);
        let listed = self.bucket.list_objects_v2(Some(&self.key));
        let listed = self.ask(&self.head(&listed, "GET", 0), 1000).await;
        assert!(String::from_utf8_lossy(&listed).contains("ListBucketResult"));
    }
}
