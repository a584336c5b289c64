//! Forms of browsers: what a signed policy allows, and nothing else.

use lumpscope_units::Size;

use crate::common::{ACCESS, Ask, HttpClient, Running, SECRET, Sign, date, hex, hmac, sha256};

const BOUNDARY: &str = "----a boundary";

/// A form whose policy is signed.
#[derive(Clone)]
pub(crate) struct Form {
    path: String,
    fields: Vec<(String, String)>,
    conditions: Vec<String>,
    pub(crate) until: &'static str,
    pub(crate) secret: &'static str,
    file: Vec<u8>,
}

impl Form {
    /// Stores these bytes under a key.
    fn new(key: &str, file: &[u8]) -> Self {
        Self::within("bbb", key, file)
    }

    /// The same in another bucket.
    pub(crate) fn within(bucket: &str, key: &str, file: &[u8]) -> Self {
        let form = Self {
            path: format!("/{bucket}"),
            fields: Vec::new(),
            conditions: vec![format!("{{\"bucket\": \"{bucket}\"}}")],
            until: "2100-01-01T00:00:00Z",
            secret: SECRET,
            file: file.to_vec(),
        };
        form.field("key", key)
    }

    /// Posted to another path.
    pub(crate) fn at(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// With a field that the policy allows.
    pub(crate) fn field(mut self, name: &str, value: &str) -> Self {
        self.conditions
            .push(format!("[\"starts-with\", \"${name}\", \"\"]"));
        self.free(name, value)
    }

    pub(crate) fn free(mut self, name: &str, value: &str) -> Self {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }

    fn condition(mut self, condition: &str) -> Self {
        self.conditions.push(condition.to_owned());
        self
    }

    pub(crate) fn ask(mut self) -> Ask {
        let time = date();
        let scope = format!("{}/us-east-1/s3/aws4_request", &time[..8]);
        let credential = format!("{ACCESS}/{scope}");
        self = self.field("x-amz-algorithm", "AWS4-HMAC-SHA256");
        self = self.field("X-Amz-Credential", &credential);
        self = self.field("x-amz-date", &time);
        let (until, conditions) = (self.until, self.conditions.join(", "));
        let policy = format!("{{\"expiration\": \"{until}\", \"conditions\": [{conditions}]}}");
        let policy = base64_simd::STANDARD.encode_to_string(policy);
        let mut key = format!("AWS4{}", self.secret).into_bytes();
        for part in scope.split('/') {
            key = hmac(sha256, &key, part.as_bytes());
        }
        let signature = hex(&hmac(sha256, &key, policy.as_bytes()));
        let form = self.free("policy", &policy);
        form.free("x-amz-signature", &signature).unsigned()
    }

    pub(crate) fn unsigned(self) -> Ask {
        let mut body = Vec::new();
        for (name, value) in &self.fields {
            let head = format!("Content-Disposition: form-data; name=\"{name}\"");
            body.extend(format!("--{BOUNDARY}\r\n{head}\r\n\r\n{value}\r\n").into_bytes());
        }
        let head = "form-data; name=\"file\"; filename=\"C:\\dir\\a b.txt\"";
        let head = format!("Content-Disposition: {head}\r\nContent-Type: text/html");
        body.extend(format!("--{BOUNDARY}\r\n{head}\r\n\r\n").into_bytes());
        body.extend(&self.file);
        body.extend(format!("\r\n--{BOUNDARY}--\r\n").into_bytes());
        let kind = format!("multipart/form-data; boundary=\"{BOUNDARY}\"");
        let ask = Ask::new("POST", &self.path).header("content-type", &kind);
        ask.body(body).sign(Sign::Nothing)
    }
}

fn keys(client: &mut HttpClient) -> usize {
    let list = client.good(Ask::new("GET", "/bbb"));
    list.text().matches("<Key>").count()
}

#[test]
fn a_form_stores_its_file() {
    let (running, mut client) = Running::with_bucket();
    // It looks like its end, and is none.
    let near = format!("\r\n--{}\r\n-{BOUNDARY}\r\n", &BOUNDARY[..6]);
    let large = near.repeat(200_000).into_bytes();
    assert!(large.len() > 5 << 20);
    for file in [&b""[..], b"x", near.as_bytes(), &large] {
        let reply = client.ask(Form::new("in/k", file).ask());
        assert_eq!(reply.status, 204, "{}", reply.text());
        assert_eq!(client.object("/bbb/in/k").unwrap(), file);
        let head = client.good(Ask::new("HEAD", "/bbb/in/k"));
        assert_eq!(reply.header("etag"), head.header("etag"));
    }
    let tags = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1</Value></Tag></TagSet></Tagging>";
    let form = Form::new("in/${filename}", b"hello").field("Content-Type", "text/plain");
    let form = form.field("x-amz-meta-who", "me").field("tagging", tags);
    let form = form.field("success_action_status", "201");
    let reply = client.good(form.free("x-ignore-me", "1").ask());
    assert_eq!(reply.status, 201);
    assert_eq!(reply.element("Key").as_deref(), Some("in/a b.txt"));
    let address = format!("http://{}/bbb/in/a%20b.txt", running.address);
    assert_eq!(reply.element("Location"), Some(address.clone()));
    assert_eq!(reply.header("location"), Some(&*address));
    let got = client.good(Ask::new("GET", "/bbb/in/a b.txt"));
    assert_eq!(got.body, b"hello");
    for (name, value) in [
        ("content-type", "text/plain"),
        ("x-amz-meta-who", "me"),
        ("x-amz-tagging-count", "1"),
    ] {
        assert_eq!(got.header(name), Some(value));
    }
    let page = "https://a.example/?p=1";
    let form = Form::new("in/k", b"x").field("success_action_redirect", page);
    let reply = client.ask(form.ask());
    let location = reply.header("location").unwrap();
    assert_eq!(reply.status, 303);
    let begin = format!("{page}&bucket=bbb&key=in%2Fk&etag=%22");
    assert!(location.starts_with(&begin), "{location}");
    let form = Form::new("in/k", b"123456789").field("x-amz-checksum-crc32c", "4waSgw==");
    let reply = client.good(form.ask());
    assert_eq!(reply.header("x-amz-checksum-crc32c"), Some("4waSgw=="));
    // As many bytes as the policy allows.
    let range = "[\"content-length-range\", 3, 5]";
    for (file, status) in [("12", 400), ("123", 204), ("12345", 204), ("123456", 400)] {
        let form = Form::new("in/range", file.as_bytes()).condition(range);
        assert_eq!(client.ask(form.ask()).status, status, "{file}");
    }
    assert_eq!(client.object("/bbb/in/range").unwrap(), b"12345");
}

/// A file of unknown length needs memory for its pieces, not for as much as a signed chunk may have.
#[test]
fn a_form_that_is_larger_than_the_memory_for_puts_is_stored() {
    let running = Running::start_with(|config| config.put_memory = Some(Size(32 << 20)));
    let mut client = running.client();
    client.good(Ask::new("PUT", "/bbb"));
    let file = vec![7; 40 << 20];
    let reply = client.ask(Form::new("k", &file).ask());
    assert_eq!(reply.status, 204, "{}", reply.text());
    assert!(client.object("/bbb/k").unwrap() == file);
}

#[test]
fn what_no_policy_allows_leaves_nothing() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/secret").body("secret"));
    let form = || Form::new("k", b"x");
    let until = |until| Form { until, ..form() };
    let secret = |secret| Form { secret, ..form() };
    let (denied, document) = ((403, "AccessDenied"), (400, "InvalidPolicyDocument"));
    let long = "x".repeat(40_000);
    for (ask, (status, code)) in [
        (form().unsigned(), denied),
        (form().free("x-amz-meta-who", "me").ask(), denied),
        (form().condition("{\"bucket\": \"other\"}").ask(), denied),
        (
            form()
                .condition("[\"starts-with\", \"$key\", \"in/\"]")
                .ask(),
            denied,
        ),
        (form().condition("{\"acl\": \"private\"}").ask(), denied),
        (until("2020-01-01T00:00:00Z").ask(), denied),
        (secret("another").ask(), (403, "SignatureDoesNotMatch")),
        (form().free("AWSAccessKeyId", ACCESS).ask(), denied),
        (
            form().free("x-amz-date", "x").ask(),
            (400, "MalformedPOSTRequest"),
        ),
        (Form::new("", b"x").ask(), (400, "InvalidArgument")),
        (
            form().condition("[\"content-length-range\", 0]").ask(),
            document,
        ),
        (form().condition("{}").ask(), document),
        (
            form().field("x-amz-server-side-encryption", "AES256").ask(),
            (501, "NotImplemented"),
        ),
        (
            form().field("x-amz-object-lock-mode", "GOVERNANCE").ask(),
            (501, "NotImplemented"),
        ),
        (
            form().field("acl", "public-read").ask(),
            (501, "NotImplemented"),
        ),
        (
            form().field("x-amz-checksum-crc32", "AAAAAA==").ask(),
            (400, "BadDigest"),
        ),
        (
            form().field("x-amz-meta-x", &long).ask(),
            (400, "MaxPostPreDataLengthExceededError"),
        ),
    ] {
        client.refused(ask, status, code);
        assert_eq!(keys(&mut client), 1, "{code}");
    }
    // Only its file is stored, whatever a field is called.
    let copy = form().field("x-amz-copy-source", "bbb/secret");
    assert_eq!(client.ask(copy.ask()).status, 204);
    assert_eq!(client.object("/bbb/k").unwrap(), b"x");
}

/// The words of S3, which clients look for.
#[test]
fn a_policy_that_is_not_met_is_told_as_s3_tells_it() {
    let (_running, mut client) = Running::with_bucket();
    let form = || Form::new("k", b"x");
    let until = |until| Form { until, ..form() };
    let words = "Invalid according to Policy: ";
    for (ask, wanted) in [
        (
            form().condition("{\"acl\": \"a\\u0001b\"}").ask(),
            "Policy Condition failed: [eq, $acl, a\\u{1}b]",
        ),
        (
            form()
                .condition("[\"starts-with\", \"$key\", \"in/\"]")
                .ask(),
            "Policy Condition failed: [starts-with, $key, in/]",
        ),
        (
            form().free("x-amz-meta-who", "me").ask(),
            "Extra input fields: x-amz-meta-who",
        ),
        (until("2020-01-01T00:00:00Z").ask(), "Policy expired."),
    ] {
        let told = client.refused(ask, 403, "AccessDenied");
        assert_eq!(told, format!("{words}{wanted}"));
    }
    assert_eq!(keys(&mut client), 0);
}

#[test]
fn a_form_is_stored_under_its_condition() {
    let (_running, mut client) = Running::with_bucket();
    let post = |file: &[u8], name: &str, value: &str| {
        let ask = Form::new("k", file).ask();
        ask.header(name, value)
    };
    client.good(post(b"old", "if-none-match", "*"));
    for (name, value, status, code) in [
        ("if-none-match", "*", 412, "PreconditionFailed"),
        ("if-match", "\"x\"", 412, "PreconditionFailed"),
        ("if-match", "", 400, "InvalidArgument"),
        ("if-unmodified-since", "0", 501, "NotImplemented"),
    ] {
        client.refused(post(b"new", name, value), status, code);
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"old");
}
