//! The files of the page.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::Path;

use lumpscope_server::config::Rhythm;

use super::{ask, service};
use crate::common::folder;
use crate::common::web::{self, send};

/// Files that belong to the page, by path.
fn files() -> BTreeMap<String, Vec<u8>> {
    fn walk(folder: &Path, above: &str, found: &mut BTreeMap<String, Vec<u8>>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let ending = Path::new(&name).extension().and_then(|e| e.to_str());
            if name.starts_with('.') || matches!(ending, Some("md" | "ts")) {
                continue;
            }
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{above}{name}/"), found);
            } else {
                found.insert(
                    format!("{above}{name}"),
                    std::fs::read(entry.path()).unwrap(),
                );
            }
        }
    }
    let mut found = BTreeMap::new();
    walk(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("page"),
        "/page/",
        &mut found,
    );
    let index = found.remove("/page/index.html").unwrap();
    found.insert("/".to_owned(), index);
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_is_served_as_it_is_and_nothing_else() {
    let dir = folder();
    let service = service(dir.path(), &["s"], Rhythm::default()).await;
    let mut tags = BTreeSet::new();
    for (path, bytes) in files() {
        let plain = ask(&service, &path).await;
        assert_eq!((plain.status, &plain.body), (200, &bytes), "{path}");
        assert_eq!(plain.header("cache-control"), "no-cache");
        assert_eq!(plain.header("x-content-type-options"), "nosniff");
        assert_eq!(plain.header("referrer-policy"), "no-referrer");
        let policy = plain.header("content-security-policy");
        let words = "default-src 'none'; script-src 'self';";
        assert!(policy.starts_with(words), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let kind = plain.header("content-type");
        match Path::new(&path).extension().and_then(|e| e.to_str()) {
            Some("js") => assert!(kind.starts_with("text/javascript"), "{path} {kind}"),
            Some("css") => assert!(kind.starts_with("text/css"), "{path} {kind}"),
            Some("svg") => assert_eq!(kind, "image/svg+xml", "{path}"),
            _ if path == "/" => assert!(kind.starts_with("text/html"), "{path} {kind}"),
            _ => assert!(!kind.is_empty(), "{path}"),
        }
        // The same packed, for who takes it.
        let asks = "Accept-Encoding: br, gzip\r\n";
        let packed = web::get(service.metrics, &path, asks).await;
        let mut read = packed.body.clone();
        if packed.header("content-encoding") == "gzip" {
            assert!(packed.body.len() < bytes.len());
            read.clear();
            let mut decoder = flate2::read::GzDecoder::new(&*packed.body);
            decoder.read_to_end(&mut read).unwrap();
            assert_ne!(packed.header("etag"), plain.header("etag"), "{path}");
        }
        assert!(read == bytes, "{path}");
        // Who has it already is sent nothing.
        for (reply, asks) in [(plain, ""), (packed, asks)] {
            let tag = reply.header("etag").to_owned();
            assert!(tag.starts_with('"') && tag.ends_with('"'), "strong: {tag}");
            let asks = format!("{asks}If-None-Match: \"other\", {tag}\r\n");
            let again = web::get(service.metrics, &path, &asks).await;
            assert_eq!((again.status, again.body.len()), (304, 0), "{path}");
            assert_eq!(again.header("etag"), tag);
            tags.insert((path.clone(), tag));
        }
    }
    assert!(
        tags.len() > files().len(),
        "some files are packed: {tags:?}"
    );
    for path in [
        "/page",
        "/page/",
        "/page/nothing.js",
        "/page/README.md",
        "/page/../Cargo.toml",
        "/page/%2e%2e/Cargo.toml",
        "/page//etc/passwd",
        "/index.html",
    ] {
        assert_eq!(ask(&service, path).await.status, 404, "{path}");
    }
    let post = "POST / HTTP/1.0\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(send(service.metrics, post).await.status, 405);
    service.stop().await;
}
