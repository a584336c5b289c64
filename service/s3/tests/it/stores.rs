//! Several stores behind one endpoint: a bucket is in one of them.

use std::path::Path;

use lumpscope_engine::create::{CreateOptions, Prealloc, format};
use lumpscope_server::config::StoreSpec;

use crate::common::{Ask, HttpClient, Running};

const STORE: &str = "x-lumpscope-store";

/// A service with the stores of these names, which are made if they are not there.
fn serve(folder: &Path, stores: &[(&str, u64)]) -> Running {
    let specs = stores.iter().map(|(name, mib)| {
        let path = folder.join(name);
        let options = CreateOptions {
            capacity: Some(mib << 20),
            prealloc: Prealloc::Fallocate,
            ..CreateOptions::default()
        };
        if !path.exists() {
            format(&path, &options).unwrap();
        }
        StoreSpec {
            name: (*name).to_owned(),
            path,
            uuid: None,
        }
    });
    Running::start_with(|config| config.stores = specs.collect())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// Makes a bucket; the store that it is in.
fn make(client: &mut HttpClient, bucket: &str, wanted: &str) -> String {
    let mut ask = Ask::new("PUT", &format!("/{bucket}"));
    if !wanted.is_empty() {
        ask = ask.body(format!(
            "<CreateBucketConfiguration><LocationConstraint>{wanted}</LocationConstraint>\
             </CreateBucketConfiguration>"
        ));
    }
    client.good(ask).header(STORE).unwrap().to_owned()
}

/// The store of a bucket.
fn store_of(client: &mut HttpClient, bucket: &str) -> String {
    let reply = client.good(Ask::new("HEAD", &format!("/{bucket}")));
    reply.header(STORE).unwrap().to_owned()
}

/// The buckets of a page, and what continues it.
fn listed(client: &mut HttpClient, ask: Ask) -> (Vec<String>, Option<String>) {
    let reply = client.good(ask);
    let text = reply.text();
    let names = text.split("<Name>").skip(1);
    let names = names.map(|name| name.split('<').next().unwrap().to_owned());
    (names.collect(), reply.element("ContinuationToken"))
}

#[test]
fn a_bucket_is_in_the_store_that_was_named_or_has_most_room() {
    let folder = folder();
    let running = serve(folder.path(), &[("small", 64), ("large", 256)]);
    let mut client = running.client();
    assert_eq!(make(&mut client, "b-one", ""), "large");
    assert_eq!(make(&mut client, "a-two", "small"), "small");
    // A region is not a store.
    assert_eq!(make(&mut client, "c-three", "eu-west-1"), "large");
    assert_eq!(store_of(&mut client, "a-two"), "small");
    let located = client.good(Ask::new("GET", "/b-one").query("location", ""));
    assert_eq!(located.header(STORE), Some("large"));
    // Made again it stays where it is.
    assert_eq!(make(&mut client, "a-two", ""), "small");
    let told = client.ask(Ask::new("PUT", "/b-one").body(
        "<CreateBucketConfiguration><LocationConstraint>small</LocationConstraint>\
         </CreateBucketConfiguration>",
    ));
    assert_eq!(told.status, 409, "{}", told.text());
    let all = listed(&mut client, Ask::new("GET", "/"));
    let expected = (
        ["a-two", "b-one", "c-three"].map(String::from).to_vec(),
        None,
    );
    assert_eq!(all, expected);
    let (first, more) = listed(&mut client, Ask::new("GET", "/").query("max-buckets", "2"));
    assert_eq!(first, ["a-two", "b-one"]);
    let rest = Ask::new("GET", "/").query("continuation-token", &more.unwrap());
    assert_eq!(listed(&mut client, rest).0, ["c-three"]);
    client.refused(Ask::new("GET", "/nowhere"), 404, "NoSuchBucket");
    client.refused(Ask::new("PUT", "/nowhere/k").body("x"), 404, "NoSuchBucket");
    client.good(Ask::new("DELETE", "/a-two"));
    client.refused(Ask::new("DELETE", "/a-two"), 404, "NoSuchBucket");
    assert_eq!(make(&mut client, "a-two", ""), "large");
}

#[test]
fn objects_are_copied_from_store_to_store() {
    let folder = folder();
    let running = serve(folder.path(), &[("a", 128), ("b", 128)]);
    let mut client = running.client();
    make(&mut client, "from", "a");
    make(&mut client, "into", "b");
    let body: Vec<u8> = (0..6 << 20)
        .map(|at: u32| (at >> 8).to_le_bytes()[0])
        .collect();
    let put = Ask::new("PUT", "/from/k").header("x-amz-meta-colour", "blue");
    client.good(put.body(body.clone()));
    let source = |ask: Ask| ask.header("x-amz-copy-source", "from/k");
    client.good(source(Ask::new("PUT", "/into/k")));
    let copied = client.good(Ask::new("GET", "/into/k"));
    assert_eq!(copied.header("x-amz-meta-colour"), Some("blue"));
    assert!(copied.body == body);
    // A part of an upload, too.
    let begun = client.good(Ask::new("POST", "/into/u").query("uploads", ""));
    let id = begun.element("UploadId").unwrap();
    let part = Ask::new("PUT", "/into/u").query("partNumber", "1");
    let part = source(part.query("uploadId", &id));
    let part = client.good(part.header("x-amz-copy-source-range", "bytes=1-1000"));
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        part.element("ETag").unwrap()
    );
    let complete = Ask::new("POST", "/into/u").query("uploadId", &id);
    client.good(complete.body(document));
    assert_eq!(client.object("/into/u").unwrap(), body[1..=1000]);
    client.good(Ask::new("DELETE", "/from/k"));
    assert_eq!(client.object("/from/k"), None);
    assert!(client.object("/into/k").is_some_and(|found| found == body));
    // What is not there is not there, on either side.
    let missing = Ask::new("PUT", "/into/n").header("x-amz-copy-source", "from/none");
    client.refused(missing, 404, "NoSuchKey");
    let missing = Ask::new("PUT", "/none/n").header("x-amz-copy-source", "into/k");
    client.refused(missing, 404, "NoSuchBucket");
}

#[test]
fn clients_that_make_the_same_bucket_make_one() {
    let folder = folder();
    let running = serve(folder.path(), &[("a", 64), ("b", 64), ("c", 64)]);
    for round in 0..8 {
        let bucket = format!("same-{round}");
        std::thread::scope(|scope| {
            for wanted in ["a", "b", "c"] {
                let (mut client, bucket) = (running.client(), &bucket);
                // The first one makes it; to others it is there.
                scope.spawn(move || {
                    let body = format!(
                        "<CreateBucketConfiguration><LocationConstraint>{wanted}\
                         </LocationConstraint></CreateBucketConfiguration>"
                    );
                    let made = client.ask(Ask::new("PUT", &format!("/{bucket}")).body(body));
                    assert!([200, 409].contains(&made.status), "{}", made.text());
                });
            }
        });
        // Two that have it would be refused.
        store_of(&mut running.client(), &bucket);
    }
}

#[test]
fn a_store_that_does_not_open_takes_only_its_buckets_out() {
    let folder = folder();
    let both = [("a", 64), ("b", 64)];
    let running = serve(folder.path(), &both);
    let mut client = running.client();
    make(&mut client, "in-a", "a");
    make(&mut client, "in-b", "b");
    client.good(Ask::new("PUT", "/in-a/k").body("A"));
    client.good(Ask::new("PUT", "/in-b/k").body("B"));
    drop((client, running));
    let (store, away) = (folder.path().join("b"), folder.path().join("away"));
    std::fs::rename(&store, &away).unwrap();
    std::fs::write(&store, b"not a store").unwrap();
    let running = serve(folder.path(), &both);
    let mut client = running.client();
    assert_eq!(client.object("/in-a/k").unwrap(), b"A");
    client.good(Ask::new("PUT", "/in-a/l").body("A"));
    assert_eq!(listed(&mut client, Ask::new("GET", "/")).0, ["in-a"]);
    // Not "there is none": a client would take what is there for lost.
    for ask in [
        Ask::new("GET", "/in-b/k"),
        Ask::new("PUT", "/in-b/k").body("C"),
        Ask::new("PUT", "/in-b"),
        Ask::new("GET", "/unknown"),
    ] {
        let why = client.refused(ask, 503, "ServiceUnavailable");
        assert!(why.contains("the store b did not open"), "{why}");
    }
    // A host that may be that of a bucket in it is not taken for the endpoint's name.
    for host in ["in-b.s3.example.test", "objects.example.test"] {
        let ask = Ask::new("PUT", "/in-a/k").header("host", host).body("C");
        let why = client.refused(ask, 503, "ServiceUnavailable");
        assert!(why.contains("set s3-domain"), "{why}");
    }
    // No bucket has so short a name.
    client.good(
        Ask::new("PUT", "/in-a/l")
            .header("host", "s3.lan")
            .body("A"),
    );
    assert_eq!(client.object("/in-a/k").unwrap(), b"A");
    drop((client, running));
    std::fs::rename(&away, &store).unwrap();
    let running = serve(folder.path(), &both);
    assert_eq!(running.client().object("/in-b/k").unwrap(), b"B");
}

/// Neither while it is out, nor when it does not open again, does a request to the host of one of its
/// buckets reach another.
#[test]
fn a_store_that_was_taken_out_leaves_the_hosts_of_its_buckets_known() {
    let folder = folder();
    let running = serve(folder.path(), &[("a", 64), ("b", 64)]);
    let mut client = running.client();
    make(&mut client, "in-a", "a");
    make(&mut client, "in-b", "b");
    client.good(Ask::new("PUT", "/in-a/k").body("A"));
    client.good(Ask::new("PUT", "/in-b/k").body("B"));
    let (store, away) = (folder.path().join("b"), folder.path().join("away"));
    let on = |host: &str| Ask::new("PUT", "/in-a/k").header("host", host).body("A");
    let refused = |client: &mut HttpClient| {
        let ask = on("in-b.s3.example.test").body("C");
        let why = client.refused(ask, 400, "InvalidRequest");
        assert!(why.contains("set s3-domain"), "{why}");
        assert_eq!(client.object("/in-a/k").unwrap(), b"A");
    };
    running.remove("b");
    refused(&mut client);
    // The endpoint's name is what it was, and so is path style.
    client.good(on("s3.example.test"));
    client.good(on("localhost"));
    client.refused(Ask::new("GET", "/in-b/k"), 404, "NoSuchBucket");
    std::fs::rename(&store, &away).unwrap();
    std::fs::write(&store, b"not a store").unwrap();
    assert!(!running.add("b", &store));
    refused(&mut client);
    std::fs::rename(&away, &store).unwrap();
    assert!(running.add("b", &store));
    refused(&mut client);
    assert_eq!(client.object("/in-b/k").unwrap(), b"B");
}

#[test]
fn a_bucket_that_is_in_two_stores_is_served_from_neither() {
    let folder = folder();
    for (store, body) in [("a", "A"), ("b", "B")] {
        let running = serve(folder.path(), &[(store, 64)]);
        let mut client = running.client();
        make(&mut client, "twice", "");
        client.good(Ask::new("PUT", "/twice/k").body(body));
    }
    let running = serve(folder.path(), &[("a", 64), ("b", 64)]);
    let mut client = running.client();
    assert_eq!(listed(&mut client, Ask::new("GET", "/")).0, ["twice"]);
    let why = client.refused(Ask::new("GET", "/twice/k"), 503, "ServiceUnavailable");
    let words = "the stores a and b both have this bucket";
    assert!(why.contains(words), "{why}");
    make(&mut client, "other", "b");
}

#[test]
fn a_store_that_refuses_changes_says_so_and_is_read() {
    let (running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("before"));
    running.freeze(true);
    for ask in [
        Ask::new("PUT", "/bbb/k").body("after"),
        Ask::new("PUT", "/bbb/new").body(vec![7; 2 << 20]),
        Ask::new("DELETE", "/bbb/k"),
        Ask::new("PUT", "/ccc"),
    ] {
        client.refused(ask, 503, "ServiceUnavailable");
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"before");
    assert!(client.object("/bbb/new").is_none());
    running.freeze(false);
    client.good(Ask::new("PUT", "/bbb/k").body("after"));
    client.good(Ask::new("DELETE", "/bbb/k"));
    client.good(Ask::new("PUT", "/ccc"));
}
