//! A request does what it names, and nothing else: parameters and headers that this service does
//! not know, against a small model of what may happen.

use std::collections::BTreeMap;

use s3s::crypto::Checksum as _;

use crate::common::{ACCESS, Ask, HttpClient, Running, Sign};
use crate::forms::Form;

#[test]
fn an_unknown_subresource_never_runs_the_plain_operation() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("old"));
    client.good(Ask::new("PUT", "/empty"));
    for (method, path, name) in [
        ("PUT", "/bbb/k", "encryption"),
        ("PUT", "/bbb/k", "renameObject"),
        ("PUT", "/bbb/k", "annotation"),
        ("PUT", "/bbb/k", "partNumber"),
        ("DELETE", "/bbb/k", "annotation"),
        ("DELETE", "/bbb/k", "uploads"),
        ("DELETE", "/bbb/k", "max-keys"),
        ("DELETE", "/bbb/k", "partNumber"),
        ("DELETE", "/empty", "metadataConfiguration"),
        ("DELETE", "/empty", "anything"),
        ("PUT", "/other", "anything"),
        ("PUT", "/other", "policy"),
        ("POST", "/bbb/k", "restore"),
        ("GET", "/bbb/k", "anything"),
        ("GET", "/bbb", "anything"),
    ] {
        let ask = Ask::new(method, path).query(name, "").body("new");
        let said = client.refused(ask, 501, "NotImplemented");
        let tells = !said.is_empty() && said != "Unknown operation";
        assert!(tells, "{method} {path} {name}: {said}");
    }
    let refused = Ask::new("PUT", "/bbb/k").query("renameObject", "");
    let said = client.refused(refused, 501, "NotImplemented");
    assert!(said.contains("PutObject"), "{said}");
    assert!(said.contains("renameObject"), "{said}");
    // The operation that a client means is the one that runs.
    let meant = Ask::new("PUT", "/bbb/k").query("x-id", "PutObject");
    client.good(meant.body("new"));
    let other = Ask::new("PUT", "/bbb/k").query("x-id", "RenameObject");
    client.refused(other, 501, "NotImplemented");
    let once = Ask::new("GET", "/bbb").query("prefix", "a");
    client.refused(once.query("prefix", "bbb"), 400, "InvalidArgument");
    assert_eq!(client.object("/bbb/k").unwrap(), b"new");
    client.good(Ask::new("HEAD", "/empty"));
    assert_eq!(client.ask(Ask::new("HEAD", "/other")).status, 404);
}

/// One that S3 does not have is a slip, and S3 says so.
#[test]
fn a_storage_class_is_one_of_s3() {
    let (_running, mut client) = Running::with_bucket();
    let class = |ask: Ask, class| ask.header("x-amz-storage-class", class);
    client.good(class(Ask::new("PUT", "/bbb/k").body("old"), "GLACIER"));
    let copy = Ask::new("PUT", "/bbb/k").header("x-amz-copy-source", "bbb/k");
    for ask in [
        Ask::new("PUT", "/bbb/k").body("new"),
        copy.header("x-amz-metadata-directive", "REPLACE"),
        Ask::new("POST", "/bbb/k").query("uploads", ""),
    ] {
        let said = client.refused(class(ask, "COLD"), 400, "InvalidStorageClass");
        assert!(said.contains("STANDARD_IA"), "{said}");
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"old");
}

#[test]
fn a_bucket_of_somebody_else_is_not_touched() {
    let (_running, mut client) = Running::with_bucket();
    for (name, source) in [
        ("x-amz-expected-bucket-owner", false),
        ("x-amz-source-expected-bucket-owner", true),
    ] {
        client.good(Ask::new("PUT", "/bbb/from").body("1"));
        let mut ask = Ask::new("PUT", "/bbb/k").body("1");
        if source {
            ask = ask.body("").header("x-amz-copy-source", "bbb/from");
        }
        let refused = ask.clone().header(name, "111122223333");
        let said = client.refused(refused, 403, "AccessDenied");
        assert!(said.contains(name), "{said}");
        assert_eq!(client.object("/bbb/k"), None);
        client.good(ask.header(name, ACCESS));
        client.good(Ask::new("DELETE", "/bbb/k"));
    }
}

#[test]
fn nothing_is_stored_plain_that_was_to_be_encrypted() {
    let (_running, mut client) = Running::with_bucket();
    for name in [
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-customer-key",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-context",
        "x-amz-server-side-encryption-bucket-key-enabled",
    ] {
        let put = Ask::new("PUT", "/bbb/k").body("x");
        let begun = Ask::new("POST", "/bbb/k").query("uploads", "");
        for ask in [
            put.clone().header(name, "x"),
            put.clone().query(name, "x"),
            put.query(name, "x").sign(Sign::Url(60)),
            begun.header(name, "x"),
        ] {
            client.refused(ask, 501, "NotImplemented");
        }
    }
    assert_eq!(client.object("/bbb/k"), None);
}

/// What is in a bucket.
#[derive(Clone, Debug, Default, PartialEq)]
struct Bucket {
    /// Of each key the entity tag, and its tags.
    keys: BTreeMap<&'static str, (String, Vec<String>)>,
    /// Of each setting that was made the words that tell it from others.
    settings: BTreeMap<&'static str, &'static str>,
}

type Model = BTreeMap<&'static str, Bucket>;

/// Documents that are a setting, or tags: the parameter, two words, and what stands around them.
const DOCUMENTS: [(&str, [&str; 2], &str, &str); 3] = [
    (
        "tagging",
        ["one", "two"],
        "<Tagging><TagSet><Tag><Key>",
        "</Key><Value/></Tag></TagSet></Tagging>",
    ),
    (
        "cors",
        ["https://one", "https://two"],
        "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>",
        "</AllowedOrigin></CORSRule></CORSConfiguration>",
    ),
    (
        "lifecycle",
        ["2098-01-01T00:00:00", "2099-01-01T00:00:00"],
        "<LifecycleConfiguration><Rule><Prefix/><Status>Enabled</Status><Expiration><Date>",
        "Z</Date></Expiration></Rule></LifecycleConfiguration>",
    ),
];

fn tag(body: &str) -> String {
    let md5 = s3s::crypto::Md5::checksum(body.as_bytes());
    md5.iter().map(|byte| format!("{byte:02x}")).collect()
}

const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"];
/// A POST of a form.
const FORM: &str = "form";
const BUCKETS: [&str; 2] = ["bbb", "bucket"];
const KEYS: [&str; 4] = ["", "k", "k/", "x"];
/// Subresources and parameters that this service has, that others have, and that nobody has.
const NAMES: &str = "accelerate acl analytics annotation append attributes cors delete encryption \
    intelligent-tiering inventory legal-hold lifecycle list-type location logging max-keys \
    metadataConfiguration metadataTable metrics notification object-lock ownershipControls \
    partNumber policy policyStatus position prefix publicAccessBlock renameObject replication \
    requestPayment restore retention select select-type session tagging torrent update uploadId \
    uploads versionId versioning versions website x-id xyz x-amz-copy-source \
    x-amz-rename-source delimiter events events2 Acl ACL a%63l";
const HEADERS: &str = "x-amz-copy-source x-amz-rename-source x-amz-tagging x-amz-acl \
    x-amz-write-offset-bytes x-amz-metadata-directive x-amz-request-route x-amz-request-token \
    x-amz-object-lock-mode x-amz-mfa x-amz-bypass-governance-retention range if-match content-type \
    x-amz-expected-bucket-owner x-amz-if-match-size x-amz-delete-marker x-amz-website \
    x-amz-storage-class x-http-method-override x-method-override x-amz-checksum-crc32 content-encoding";
/// Content of the object that copies are made of.
const SOURCE: &str = "source";
const VALUES: [&str; 9] = ["", "", "", "", "1", "2", "null", "bbb/x", "PutObject"];

/// Fields of forms beside those of the policy.
const FIELDS: &str = "acl x-amz-acl x-amz-copy-source x-amz-rename-source x-amz-meta-a x-amz-tagging versionId \
    delete uploads partNumber uploadId content-encoding success_action_status redirect bucket \
    x-amz-website-redirect-location x-amz-write-offset-bytes x-amz-object-lock-mode x-amz-checksum-crc32 \
    x-amz-expected-bucket-owner x-amz-metadata-directive x-amz-storage-class x-ignore-me if-match method _method";

/// A form of a browser, whose policy may not allow it.
fn form(rng: &mut fastrand::Rng) -> (Ask, Named) {
    let (bucket, key) = (rng.choice(BUCKETS).unwrap(), rng.choice(KEYS).unwrap());
    let (_, words, begin, end) = DOCUMENTS[0];
    let word = rng.choice(words).unwrap();
    let body = rng.choice(["", "form", SOURCE]).unwrap();
    let fields: Vec<&str> = FIELDS.split_whitespace().collect();
    let mut form = Form::within(bucket, key, body.as_bytes());
    let (mut query, mut headers) = (Vec::new(), Vec::new());
    if rng.bool() {
        form = form.field("tagging", &format!("{begin}{word}{end}"));
        headers.push(("x-amz-tagging", word));
    }
    for _ in 0..rng.usize(..4).saturating_sub(1) {
        let (name, value) = (*rng.choice(&fields).unwrap(), rng.choice(VALUES).unwrap());
        form = match rng.u8(..4) {
            0 => form.free(name, value),
            _ => form.field(name, value),
        };
    }
    match rng.u8(..12) {
        0 => form.until = "2020-01-01T00:00:00Z",
        1 => form.secret = "another",
        _ => {}
    }
    let mut ask = match rng.u8(..12) {
        0 => form.unsigned(),
        _ => form.ask(),
    };
    if rng.u8(..8) == 0 {
        let names = NAMES.split_whitespace().collect::<Vec<_>>();
        let name = *rng.choice(&names).unwrap();
        ask = ask.query(name, "");
        query.push((name, ""));
    }
    let named = Named {
        method: FORM,
        bucket,
        key,
        body: body.to_owned(),
        word,
        query,
        headers,
    };
    (ask, named)
}

fn ask(rng: &mut fastrand::Rng) -> (Ask, Named) {
    if rng.u8(..6) == 0 {
        return form(rng);
    }
    let names: Vec<&str> = NAMES.split_whitespace().collect();
    let headers: Vec<&str> = HEADERS.split_whitespace().collect();
    let (method, bucket) = (rng.choice(METHODS).unwrap(), rng.choice(BUCKETS).unwrap());
    let key = rng.choice(KEYS).unwrap();
    let mut path = format!("/{bucket}");
    if !key.is_empty() {
        path = format!("{path}/{key}");
    }
    let (setting, words, begin, end) = rng.choice(DOCUMENTS).unwrap();
    let word = rng.choice(words).unwrap();
    let bodies = ["", "new", "<Delete/>", "<Tagging/>"];
    let mut body = rng.choice(bodies).unwrap().to_owned();
    let (mut query, mut given) = (Vec::new(), Vec::new());
    let is_set = rng.u8(..4) == 0;
    if is_set {
        body = format!("{begin}{word}{end}");
        query.push((setting, ""));
    }
    let mut ask = Ask::new(method, &path).body(&*body);
    if is_set {
        ask = ask.query(setting, "");
    }
    for _ in 0..rng.usize(..3) {
        let (name, value) = (*rng.choice(&names).unwrap(), rng.choice(VALUES).unwrap());
        ask = ask.query(name, value);
        query.push((name, value));
    }
    for _ in 0..rng.usize(..3).saturating_sub(1) {
        let (name, value) = (*rng.choice(&headers).unwrap(), rng.choice(VALUES).unwrap());
        if given.iter().all(|(other, _)| *other != name) {
            ask = ask.header(name, value);
            given.push((name, value));
        }
    }
    let signs = [Sign::Header, Sign::Header, Sign::Url(60)];
    let named = Named {
        method,
        bucket,
        key,
        body,
        word,
        query,
        headers: given,
    };
    (ask.sign(rng.choice(signs).unwrap()), named)
}

#[derive(Debug)]
struct Named {
    method: &'static str,
    bucket: &'static str,
    key: &'static str,
    body: String,
    /// The mark of its document among others.
    word: &'static str,
    query: Vec<(&'static str, &'static str)>,
    headers: Vec<(&'static str, &'static str)>,
}

impl Named {
    /// True: nothing is said that would not be the plain operation, or the one on `setting`.
    fn is_only(&self, setting: Option<&str>) -> bool {
        let own = match (self.method, self.key, setting) {
            ("PUT", key, None) if !key.is_empty() => "PutObject",
            _ => "",
        };
        let mut query = self.query.iter();
        query.all(|(name, value)| match *name {
            "x-id" => !own.is_empty() && *value == own,
            "versionId" => {
                !self.key.is_empty() && (self.method == "DELETE" || setting == Some("tagging"))
            }
            "x-amz-copy-source" | "x-amz-rename-source" => true,
            name => setting == Some(name),
        })
    }

    fn has(&self, wanted: &str) -> bool {
        self.query.iter().any(|(name, _)| *name == wanted)
    }

    fn copies(&self) -> bool {
        let source = "x-amz-copy-source";
        let mut headers = self.headers.iter();
        headers.any(|(name, _)| *name == source) || self.has(source)
    }

    /// The tags that a header gives a new object.
    fn tags(&self) -> Vec<String> {
        let mut headers = self.headers.iter();
        let given = headers.find(|(name, _)| *name == "x-amz-tagging");
        let tags = given.filter(|(_, value)| !value.is_empty()).into_iter();
        tags.map(|(_, value)| (*value).to_owned()).collect()
    }

    /// What a request that succeeded may have changed, as its method, path and words say.
    fn apply(&self, model: &mut Model) {
        let setting = ["tagging", "cors", "lifecycle"].into_iter();
        let setting = setting.filter(|name| self.has(name)).collect::<Vec<_>>();
        match setting[..] {
            [] if self.is_only(None) => self.apply_plain(model),
            ["tagging"] if self.is_only(Some("tagging")) && !self.key.is_empty() => {
                let there = model.get_mut(self.bucket);
                let there = there.and_then(|bucket| bucket.keys.get_mut(self.key));
                match (self.method, there) {
                    ("PUT", Some((_, tags))) => *tags = vec![self.word.to_owned()],
                    ("DELETE", Some((_, tags))) => tags.clear(),
                    _ => {}
                }
            }
            [name] if self.is_only(Some(name)) && self.key.is_empty() => {
                let bucket = model.get_mut(self.bucket);
                match (self.method, bucket) {
                    ("PUT", Some(bucket)) => drop(bucket.settings.insert(name, self.word)),
                    ("DELETE", Some(bucket)) => drop(bucket.settings.remove(name)),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn apply_plain(&self, model: &mut Model) {
        let source = model["bbb"].keys["x"].clone();
        match (self.method, self.key) {
            ("PUT", "") => {
                model.entry(self.bucket).or_default();
            }
            ("DELETE", "") => {
                model.remove(self.bucket);
            }
            (FORM, "") => {}
            (FORM, key) => {
                let new = (tag(&self.body), self.tags());
                model.entry(self.bucket).or_default().keys.insert(key, new);
            }
            ("PUT", key) => {
                let new = match self.copies() {
                    true => source,
                    false => (tag(&self.body), self.tags()),
                };
                model.entry(self.bucket).or_default().keys.insert(key, new);
            }
            ("DELETE", key) => {
                model.entry(self.bucket).or_default().keys.remove(key);
            }
            _ => {}
        }
    }
}

/// The texts between two words, each time.
fn between<'text>(
    text: &'text str,
    begin: &'text str,
    end: &'text str,
) -> impl Iterator<Item = &'text str> {
    let parts = text.split(begin).skip(1);
    parts.map(move |part| part.split(end).next().unwrap())
}

/// The buckets and all that is told of them.
fn seen(client: &mut HttpClient) -> Model {
    let mut model = Model::new();
    for bucket in BUCKETS {
        let path = format!("/{bucket}");
        let list = client.ask(Ask::new("GET", &path));
        if list.status == 404 {
            continue;
        }
        let mut found = Bucket::default();
        let list = list.text();
        for entry in between(&list, "<Contents>", "</Contents>") {
            let of = |begin, end| between(entry, begin, end).next().unwrap();
            let key = of("<Key>", "<");
            let key = KEYS.into_iter().find(|it| *it == key).unwrap();
            let tags = Ask::new("GET", &format!("{path}/{key}")).query("tagging", "");
            let tags = client.good(tags).text();
            let tags = between(&tags, "<Key>", "<").map(str::to_owned).collect();
            let etag = of("<ETag>", "<").replace("&quot;", "");
            let etag = etag.trim_matches('"').to_owned();
            found.keys.insert(key, (etag, tags));
        }
        for (name, words, ..) in &DOCUMENTS[1..] {
            let told = client.ask(Ask::new("GET", &path).query(name, ""));
            let told = told.text();
            let word = words.iter().find(|word| told.contains(**word));
            found.settings.extend(word.map(|word| (*name, *word)));
        }
        model.insert(bucket, found);
    }
    model
}

/// `LUMPSCOPE_S3_REQUESTS` of them, for a soak.
#[test]
fn a_request_never_damages_what_it_does_not_name() {
    let (_running, mut client) = Running::with_bucket();
    let requests = std::env::var("LUMPSCOPE_S3_REQUESTS").ok();
    let requests = requests.map_or(2000, |text| text.parse::<u32>().unwrap());
    let seed = fastrand::u64(..);
    eprintln!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    client.good(Ask::new("PUT", "/bucket"));
    let mut model = seen(&mut client);
    let (mut changes, mut forms) = (0, 0);
    for _ in 0..requests {
        // What a copy may take is always there.
        let source = (tag(SOURCE), Vec::new());
        let keys = &mut model.get_mut("bbb").unwrap().keys;
        if keys.get("x").is_none_or(|(etag, _)| *etag != source.0) {
            client.good(Ask::new("PUT", "/bbb/x").body(SOURCE));
            keys.insert("x", source);
        }
        let (ask, named) = ask(&mut rng);
        let reply = client.ask(ask);
        if reply.status >= 300 || matches!(named.method, "GET" | "HEAD") {
            assert_eq!(seen(&mut client), model, "{named:?}: {reply:?}");
            continue;
        }
        let mut after = model.clone();
        named.apply(&mut after);
        model = seen(&mut client);
        assert_eq!(model, after, "{named:?}: {reply:?}");
        changes += 1;
        forms += u32::from(named.method == FORM);
    }
    let told = format!("{changes} of {requests} changed anything, {forms} were forms");
    assert!(changes * 50 > requests && forms * 200 > requests, "{told}");
}
