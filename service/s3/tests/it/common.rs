//! A service in this process, and a client that says byte for byte what a test wants said.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, SystemTime};

use lumpscope_client::v1;
use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_server::config::{ServeConfig, StoreSpec};
use lumpscope_server::serve::Service;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::crypto::{Checksum as _, Sha1, Sha256};
use s3s::dto::{Timestamp, TimestampFormat};
use tokio::runtime::Runtime;

/// The access keys of the tests, which are their names, too, have one secret and the same rights.
pub(crate) const ACCESS: &str = "AKTEST";
pub(crate) const OTHER: &str = "AKOTHER";
pub(crate) const SECRET: &str = "the-secret-of-the-tests";
/// Nothing takes longer.
const LONG: Duration = Duration::from_secs(60);
/// Bytes that a URL has as they are.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');
const PATH: &AsciiSet = &PLAIN.remove(b'/');

/// A service on a store in a file.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    service: Option<Service>,
    runtime: Runtime,
    folder: tempfile::TempDir,
}

impl Running {
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// With other settings.
    pub(crate) fn start_with(change: impl FnOnce(&mut ServeConfig)) -> Self {
        use std::os::unix::fs::OpenOptionsExt as _;
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = folder.path().join("s.lusf");
        let options = CreateOptions {
            capacity: Some(256 << 20),
            prealloc: Prealloc::Fallocate,
            ..CreateOptions::default()
        };
        format(&path, &options).unwrap();
        let keys = folder.path().join("keys.toml");
        let mut file = std::fs::OpenOptions::new();
        file.write(true).create(true).mode(0o600);
        let mut file = file.open(&keys).unwrap();
        let rule = "[[key.allow]]\nbucket = \"*\"\nprefix = \"\"\nrights = [\"read\", \"write\"]";
        for key in [ACCESS, OTHER] {
            let who = format!("name = \"{key}\"\naccess = \"{key}\"\nsecret = \"{SECRET}\"");
            let entry = format!("[[key]]\n{who}\n{rule}\n");
            file.write_all(entry.as_bytes()).unwrap();
        }
        let any = "127.0.0.1:0".parse().unwrap();
        let (name, uuid) = ("s".to_owned(), None);
        let mut config = ServeConfig {
            stores: vec![StoreSpec { name, path, uuid }],
            listen: any,
            metrics_listen: any,
            s3_listen: Some(any),
            s3_credentials: Some(keys),
            no_probes: true,
            ..ServeConfig::default()
        };
        change(&mut config);
        let runtime = Runtime::new().unwrap();
        let config = config.checked().unwrap();
        let started = Service::start_with(config, Some(lumpscope_s3::serve), |_, _| Ok(()));
        let service = runtime.block_on(started).unwrap();
        Self {
            address: service.s3.unwrap(),
            service: Some(service),
            runtime,
            folder,
        }
    }

    /// The file with the store.
    pub(crate) fn store(&self) -> std::path::PathBuf {
        self.folder.path().join("s.lusf")
    }

    /// A service, a client of it, and the bucket `bbb`.
    pub(crate) fn with_bucket() -> (Self, HttpClient) {
        let running = Self::start();
        let mut client = running.client();
        client.good(Ask::new("PUT", "/bbb"));
        (running, client)
    }

    /// Has all stores refuse changes, or takes that back.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.runtime.block_on(async {
            let client = self.grpc().await;
            if frozen {
                let changes_only = true;
                let drain = v1::DrainRequest {
                    changes_only,
                    ..Default::default()
                };
                assert_eq!(client.drain(drain).await.unwrap().under_way, 0);
            } else {
                client.resume(v1::ResumeRequest::default()).await.unwrap();
            }
        });
    }

    /// Takes a store out.
    pub(crate) fn remove(&self, store: &str) {
        let ask = v1::RemoveStoreRequest {
            store: store.to_owned(),
            ..Default::default()
        };
        let removed = async { self.grpc().await.remove_store(ask).await };
        self.runtime.block_on(removed).unwrap();
    }

    /// Adds a store; false: it does not open.
    pub(crate) fn add(&self, name: &str, path: &Path) -> bool {
        let ask = v1::AddStoreRequest {
            name: name.to_owned(),
            path: path.to_str().unwrap().to_owned(),
            salvage: false,
        };
        let added = async { self.grpc().await.add_store(ask).await };
        self.runtime.block_on(added).is_ok()
    }

    async fn grpc(&self) -> lumpscope_client::Client {
        let service = self.service.as_ref().unwrap();
        let options = lumpscope_client::Options::new(format!("http://{}", service.grpc));
        lumpscope_client::Client::connect(options).await.unwrap()
    }

    pub(crate) fn client(&self) -> HttpClient {
        HttpClient {
            address: self.address,
            stream: None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let service = self.service.take().unwrap();
        let ended = service.run_until(std::future::ready(()));
        self.runtime.block_on(ended).unwrap();
    }
}

/// How a request is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    Nothing,
    Header,
    /// With `Date` instead of `x-amz-date`.
    Dated,
    /// Under the name of another algorithm.
    Misnamed,
    /// For so many seconds.
    Url(u64),
    /// Version 2.
    OldHeader,
    OldUrl,
}

pub(crate) type Pairs = Vec<(String, String)>;

#[derive(Clone, Debug)]
pub(crate) struct Ask {
    method: String,
    path: String,
    query: Pairs,
    headers: Pairs,
    unsigned: Pairs,
    body: Vec<u8>,
    /// Bytes of the body that are announced; `None`: those that it has.
    announced: Option<u64>,
    sign: Sign,
    /// Names of headers that are not signed, though they are usually.
    without: Vec<&'static str>,
    region: String,
    key: &'static str,
}

impl Ask {
    pub(crate) fn new(method: &str, path: &str) -> Self {
        Self {
            method: method.to_owned(),
            path: path.to_owned(),
            query: Pairs::new(),
            headers: Pairs::new(),
            unsigned: Pairs::new(),
            body: Vec::new(),
            announced: None,
            sign: Sign::Header,
            without: Vec::new(),
            region: "us-east-1".to_owned(),
            key: ACCESS,
        }
    }

    /// Signed with another access key.
    pub(crate) const fn by(mut self, key: &'static str) -> Self {
        self.key = key;
        self
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a header, which is signed.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With a header that was added when all was signed.
    pub(crate) fn unsigned(mut self, name: &str, value: &str) -> Self {
        self.unsigned.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Does not sign this header.
    pub(crate) fn without(mut self, name: &'static str) -> Self {
        self.without.push(name);
        self
    }

    pub(crate) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// Announces another length than that of the body.
    pub(crate) const fn announced(mut self, bytes: u64) -> Self {
        self.announced = Some(bytes);
        self
    }

    pub(crate) fn sign(mut self, sign: Sign) -> Self {
        self.sign = sign;
        self
    }

    pub(crate) fn region(mut self, region: &str) -> Self {
        region.clone_into(&mut self.region);
        self
    }

    /// The bytes of the request.
    pub(crate) fn bytes(mut self, address: SocketAddr) -> Vec<u8> {
        if self.headers.iter().all(|(name, _)| name != "host") {
            self.push("host", address.to_string());
        }
        match self.sign {
            Sign::Nothing => {}
            Sign::Header | Sign::Dated | Sign::Misnamed => self.sign_header(),
            Sign::Url(seconds) => self.sign_url(seconds),
            Sign::OldHeader => self.sign_old_header(),
            Sign::OldUrl => self.sign_old_url(),
        }
        let mut head = format!("{} {}", self.method, utf8_percent_encode(&self.path, PATH));
        if !self.query.is_empty() {
            head += &format!("?{}", query_text(&self.query));
        }
        head += " HTTP/1.1\r\n";
        let length = self.announced.unwrap_or(self.body.len() as u64);
        let length = ("content-length".to_owned(), length.to_string());
        for (name, value) in self.headers.iter().chain(&self.unsigned).chain([&length]) {
            head += &format!("{name}: {value}\r\n");
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }

    fn push(&mut self, name: &str, value: impl Into<String>) {
        self.headers.push((name.to_owned(), value.into()));
    }

    /// The headers that are signed: lines, and their names.
    fn signed(&self) -> (String, String) {
        let mut headers = self.headers.clone();
        headers.retain(|(name, _)| !self.without.contains(&name.as_str()));
        headers.sort();
        let lines = headers.iter();
        let lines = lines.map(|(name, value)| format!("{name}:{value}\n"));
        let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
        (lines.collect(), names.join(";"))
    }

    fn signature(
        &self,
        date: &str,
        scope: &str,
        (lines, names): (&str, &str),
        payload: &str,
    ) -> String {
        let mut query = self.query.clone();
        query.sort();
        let path = utf8_percent_encode(&self.path, PATH);
        let (method, query) = (&self.method, query_text(&query));
        let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
        let digest = hex(&sha256(canonical.as_bytes()));
        let to_sign = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{digest}");
        let mut key = format!("AWS4{SECRET}").into_bytes();
        for part in scope.split('/') {
            key = hmac(sha256, &key, part.as_bytes());
        }
        hex(&hmac(sha256, &key, to_sign.as_bytes()))
    }

    fn sign_header(&mut self) {
        let date = date();
        match self.sign {
            Sign::Dated => self.push("date", http_date(&date)),
            _ => self.push("x-amz-date", date.clone()),
        }
        let mut headers = self.headers.iter();
        let payload = match headers.find(|(name, _)| name == "x-amz-content-sha256") {
            Some((_, payload)) => payload.clone(),
            None => {
                let payload = hex(&sha256(&self.body));
                self.push("x-amz-content-sha256", payload.clone());
                payload
            }
        };
        let scope = format!("{}/{}/s3/aws4_request", &date[..8], self.region);
        let (lines, names) = self.signed();
        let signature = self.signature(&date, &scope, (&lines, &names), &payload);
        let algorithm = match self.sign {
            Sign::Misnamed => "AWS2-HMAC-SHA1",
            _ => "AWS4-HMAC-SHA256",
        };
        let key = self.key;
        let signed = format!("SignedHeaders={names}, Signature={signature}");
        let authorization = format!("{algorithm} Credential={key}/{scope}, {signed}");
        self.push("authorization", authorization);
    }

    fn sign_url(&mut self, seconds: u64) {
        let date = date();
        let scope = format!("{}/{}/s3/aws4_request", &date[..8], self.region);
        let (lines, names) = self.signed();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256".to_owned()),
            ("X-Amz-Credential", format!("{ACCESS}/{scope}")),
            ("X-Amz-Date", date.clone()),
            ("X-Amz-Expires", seconds.to_string()),
            ("X-Amz-SignedHeaders", names.clone()),
        ] {
            self.query.push((name.to_owned(), value));
        }
        let signature = self.signature(&date, &scope, (&lines, &names), "UNSIGNED-PAYLOAD");
        self.query.push(("X-Amz-Signature".to_owned(), signature));
    }

    fn old(&self, date: &str) -> String {
        let to_sign = format!("{}\n\n\n{date}\n{}", self.method, self.path);
        let signature = hmac(sha1, SECRET.as_bytes(), to_sign.as_bytes());
        base64_simd::STANDARD.encode_to_string(signature)
    }

    fn sign_old_header(&mut self) {
        let date = "Fri, 24 Jan 2030 12:00:00 +0000";
        self.push("date", date);
        self.push("authorization", format!("AWS {ACCESS}:{}", self.old(date)));
    }

    fn sign_old_url(&mut self) {
        let until = now().as_secs() + 60;
        for (name, value) in [
            ("AWSAccessKeyId", ACCESS.to_owned()),
            ("Expires", until.to_string()),
            ("Signature", self.old(&until.to_string())),
        ] {
            self.query.push((name.to_owned(), value));
        }
    }
}

/// The time of a signature as HTTP has it.
fn http_date(date: &str) -> String {
    let [year, month, day] = [&date[..4], &date[4..6], &date[6..8]];
    let [hour, minute, second] = [&date[9..11], &date[11..13], &date[13..15]];
    let time = format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z");
    let time = Timestamp::parse(TimestampFormat::DateTime, &time).unwrap();
    let mut text = Vec::new();
    time.format(TimestampFormat::HttpDate, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

fn now() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap()
}

/// This second, as signatures have it.
pub(crate) fn date() -> String {
    let now = time::OffsetDateTime::now_utc();
    let (date, time) = (now.date(), now.time());
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        date.year(),
        u8::from(date.month()),
        date.day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

fn query_text(query: &Pairs) -> String {
    let one = |(name, value): &(String, String)| {
        let [name, value] = [name, value].map(|text| utf8_percent_encode(text, PLAIN));
        format!("{name}={value}")
    };
    query.iter().map(one).collect::<Vec<_>>().join("&")
}

pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    Sha256::checksum(bytes).to_vec()
}

fn sha1(bytes: &[u8]) -> Vec<u8> {
    Sha1::checksum(bytes).to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn hmac(hash: fn(&[u8]) -> Vec<u8>, key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let with = |pad: u8, rest: &[u8]| [&block.map(|byte| byte ^ pad)[..], rest].concat();
    let inner = hash(&with(0x36, message));
    hash(&with(0x5c, &inner))
}

#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Pairs,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The content of the first element of this name.
    pub(crate) fn element(&self, name: &str) -> Option<String> {
        let text = self.text();
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.to_owned())
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// One client, on one connection at a time.
pub(crate) struct HttpClient {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

impl HttpClient {
    /// One request and its reply. A connection that the service has closed is opened again.
    pub(crate) fn ask(&mut self, ask: Ask) -> Reply {
        let is_head = ask.method == "HEAD";
        let bytes = ask.bytes(self.address);
        for _ in 0..3 {
            if let Some(reply) = self.try_ask(&bytes, is_head) {
                return reply;
            }
            self.stream = None;
        }
        panic!("no answer to {}", String::from_utf8_lossy(&bytes));
    }

    /// A request that succeeds.
    #[track_caller]
    pub(crate) fn good(&mut self, ask: Ask) -> Reply {
        let reply = self.ask(ask.clone());
        assert!(reply.status < 300, "{ask:?}: {reply:?}");
        reply
    }

    /// A request that is refused with this status and code; its message.
    #[track_caller]
    pub(crate) fn refused(&mut self, ask: Ask, status: u16, code: &str) -> String {
        let reply = self.ask(ask.clone());
        let got = (reply.status, reply.element("Code").unwrap_or_default());
        assert_eq!(got, (status, code.to_owned()), "{ask:?}: {}", reply.text());
        reply.element("Message").unwrap_or_default()
    }

    /// The bytes of an object; `None`: it is not there.
    pub(crate) fn object(&mut self, path: &str) -> Option<Vec<u8>> {
        let reply = self.ask(Ask::new("GET", path));
        assert!(matches!(reply.status, 200 | 404), "{}", reply.text());
        (reply.status == 200).then_some(reply.body)
    }

    /// Sends a request whose body does not end, or is not to be answered.
    pub(crate) fn send(&mut self, ask: Ask) {
        let bytes = ask.bytes(self.address);
        self.stream().get_mut().write_all(&bytes).unwrap();
    }

    /// Sends more bytes; false: nobody takes them.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        self.stream().get_mut().write_all(bytes).is_ok()
    }

    /// A request, and the beginning of its reply; the body is read later, by [`HttpClient::end`]. `None`:
    /// the connection has ended before it.
    pub(crate) fn begin(&mut self, ask: Ask) -> Option<Reply> {
        self.send(ask);
        self.head()
    }

    /// The reply with its body, and false if the connection ends before all of it.
    pub(crate) fn end(&mut self, mut reply: Reply) -> (Reply, bool) {
        let length = reply.header("content-length").unwrap().parse().unwrap();
        let stream = self.stream().take(length);
        // A reset is an end as well.
        let _ = { stream }.read_to_end(&mut reply.body);
        let whole = reply.body.len() as u64 == length;
        (reply, whole)
    }

    fn stream(&mut self) -> &mut BufReader<TcpStream> {
        self.stream.get_or_insert_with(|| {
            let stream = TcpStream::connect(self.address).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.set_nodelay(true).unwrap();
            BufReader::new(stream)
        })
    }

    fn try_ask(&mut self, bytes: &[u8], is_head: bool) -> Option<Reply> {
        self.stream().get_mut().write_all(bytes).ok()?;
        let mut reply = self.head()?;
        if !is_head && !matches!(reply.status, 204 | 304) {
            reply.body = read_body(self.stream(), &reply)?;
        }
        if reply.header("connection") == Some("close") {
            self.stream = None;
        }
        Some(reply)
    }

    /// Status and headers of a reply.
    fn head(&mut self) -> Option<Reply> {
        let stream = self.stream();
        let mut line = || {
            let mut line = String::new();
            stream.read_line(&mut line).ok()?;
            Some(line.trim_end().to_owned())
        };
        let status = line()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Pairs::new();
        loop {
            let line = line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        Some(Reply {
            status,
            headers,
            body: Vec::new(),
        })
    }
}

fn read_body(stream: &mut BufReader<TcpStream>, reply: &Reply) -> Option<Vec<u8>> {
    let mut take = |bytes: usize| {
        let mut taken = vec![0; bytes];
        stream.read_exact(&mut taken).ok()?;
        Some(taken)
    };
    if let Some(length) = reply.header("content-length") {
        return take(length.parse().ok()?);
    }
    let mut body = Vec::new();
    loop {
        let mut size = Vec::new();
        while !size.ends_with(b"\r\n") {
            size.extend(take(1)?);
        }
        let size = usize::from_str_radix(std::str::from_utf8(&size).ok()?.trim(), 16).ok()?;
        let chunk = take(size + 2)?;
        body.extend(&chunk[..size]);
        if size == 0 {
            return Some(body);
        }
    }
}
