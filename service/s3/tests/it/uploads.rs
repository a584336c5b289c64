//! Uploads in parts: their checksums, and an answer that was lost.

use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1};

use crate::common::{Ask, HttpClient, Pairs, Reply, Running};

const PART: usize = 5 << 20;

fn text(bytes: impl AsRef<[u8]>) -> String {
    base64_simd::STANDARD.encode_to_string(bytes)
}

/// The checksum of a kind.
fn sum(kind: &str, bytes: &[u8]) -> String {
    match kind {
        "CRC32" => text(Crc32::checksum(bytes)),
        "CRC32C" => text(Crc32c::checksum(bytes)),
        "CRC64NVME" => text(Crc64Nvme::checksum(bytes)),
        "SHA1" => text(Sha1::checksum(bytes)),
        _ => text(crate::common::sha256(bytes)),
    }
}

struct Upload {
    id: String,
    tags: Vec<String>,
}

/// Begins an upload of `/bbb/k` and sends its parts, with checksums of a kind; of which type: as it
/// is where nobody says.
fn begin(client: &mut HttpClient, kind: &str, parts: &[&[u8]]) -> Upload {
    let created = create(client, kind, "");
    send(client, kind, &created.element("UploadId").unwrap(), parts)
}

/// Begins an upload with checksums of a kind and a type.
fn create(client: &mut HttpClient, kind: &str, of: &str) -> Reply {
    let ask = Ask::new("POST", "/bbb/k").query("uploads", "");
    let ask = ask.header("x-amz-checksum-algorithm", kind);
    client.good(ask.header("x-amz-checksum-type", of))
}

fn send(client: &mut HttpClient, kind: &str, id: &str, parts: &[&[u8]]) -> Upload {
    let id = id.to_owned();
    let mut tags = Vec::new();
    for (part, bytes) in (1..).zip(parts) {
        let ask = Ask::new("PUT", "/bbb/k").query("uploadId", &id);
        let ask = ask.query("partNumber", &part.to_string()).body(*bytes);
        let name = format!("x-amz-checksum-{}", kind.to_ascii_lowercase());
        let reply = client.good(ask.header(&name, &sum(kind, bytes)));
        tags.push(reply.header("etag").unwrap().to_owned());
    }
    Upload { id, tags }
}

/// Completes it; `sums`: what is said of each part.
fn complete(upload: &Upload, kind: &str, sums: &[String], headers: &Pairs) -> Ask {
    let mut document = "<CompleteMultipartUpload>".to_owned();
    for (number, tag) in (1..).zip(&upload.tags) {
        let sum = sums.get(number - 1);
        let sum = sum.map(|sum| format!("<Checksum{kind}>{sum}</Checksum{kind}>"));
        document += &format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag>{}</Part>",
            sum.unwrap_or_default()
        );
    }
    let ask = Ask::new("POST", "/bbb/k").query("uploadId", &upload.id);
    let ask = ask.body(document + "</CompleteMultipartUpload>");
    let with = |ask: Ask, (name, value): &(String, String)| ask.header(name, value);
    headers.iter().fold(ask, with)
}

#[test]
fn checksums_of_parts_and_of_the_whole_are_compared() {
    let (_running, mut client) = Running::with_bucket();
    let (one, two) = (vec![1; PART], b"two".to_vec());
    let whole = [&one[..], &two].concat();
    for kind in ["CRC32", "CRC32C", "CRC64NVME", "SHA1", "SHA256"] {
        let name = format!("x-amz-checksum-{}", kind.to_ascii_lowercase());
        let upload = begin(&mut client, kind, &[&one, &two]);
        let sums = [sum(kind, &one), sum(kind, &two)];
        let wrong = [sums[0].clone(), sum(kind, b"other")];
        let ask = complete(&upload, kind, &wrong, &Pairs::new());
        let said = client.refused(ask, 400, "InvalidPart");
        assert!(said.contains("part 2"), "{said}");
        let digests: Vec<u8> = sums
            .iter()
            .flat_map(|sum| base64_simd::STANDARD.decode_to_vec(sum).unwrap())
            .collect();
        let composite = format!("{}-2", sum(kind, &digests));
        let full = (!kind.starts_with("SHA")).then(|| sum(kind, &whole));
        for bad in [
            sum(kind, b"other"),
            format!("{}-2", sum(kind, b"other")),
            composite.replace("-2", "-3"),
        ] {
            let ask = complete(&upload, kind, &sums, &vec![(name.clone(), bad)]);
            client.refused(ask, 400, "BadDigest");
        }
        assert_eq!(client.object("/bbb/k"), None);
        // Some clients leave out how many they are.
        let good = match kind {
            "CRC32C" => composite.replace("-2", ""),
            _ => full.unwrap_or(composite),
        };
        client.good(complete(&upload, kind, &sums, &vec![(name.clone(), good)]));
        assert!(client.object("/bbb/k").unwrap() == whole);
        client.good(Ask::new("DELETE", "/bbb/k"));
    }
}

/// The checksum of the checksums of parts.
fn composite(kind: &str, parts: &[&[u8]]) -> String {
    let sums = parts.iter().map(|part| sum(kind, part));
    let sums = sums.flat_map(|sum| base64_simd::STANDARD.decode_to_vec(sum).unwrap());
    let sums: Vec<u8> = sums.collect();
    format!("{}-{}", sum(kind, &sums), parts.len())
}

/// Reads the object: all of it, which has the first checksum, and its parts, which have the others.
fn read_with(client: &mut HttpClient, (kind, of): (&str, &str), sums: &[&str]) {
    let name = format!("x-amz-checksum-{}", kind.to_ascii_lowercase());
    for method in ["HEAD", "GET"] {
        let read = Ask::new(method, "/bbb/k").header("x-amz-checksum-mode", "ENABLED");
        for (number, wanted) in sums.iter().enumerate() {
            let ask = match number {
                0 => read.clone(),
                _ => read.clone().query("partNumber", &number.to_string()),
            };
            let reply = client.good(ask);
            assert_eq!(reply.header(&name), Some(*wanted), "{kind} {of} {number}");
            assert_eq!(reply.header("x-amz-checksum-type"), Some(of));
            let other = reply.header("x-amz-checksum-crc32c");
            assert!(of == "FULL_OBJECT" || kind == "CRC32C" || other.is_none());
        }
        let range = client.good(read.header("range", "bytes=0-1"));
        assert_eq!(range.header(&name), None);
    }
    let attributes = Ask::new("GET", "/bbb/k").query("attributes", "");
    let attributes = attributes.header("x-amz-object-attributes", "Checksum,ObjectParts");
    let attributes = client.good(attributes);
    assert_eq!(attributes.element("ChecksumType").as_deref(), Some(of));
    let text = attributes.text();
    let told = |sum: &&str| text.contains(&format!("<Checksum{kind}>{sum}</Checksum{kind}>"));
    assert!(sums.iter().all(told), "{text}");
}

#[test]
fn the_checksum_that_an_upload_was_begun_with_is_told_wherever_it_is_asked_for() {
    let (_running, mut client) = Running::with_bucket();
    let (one, two) = (vec![1; PART], b"two".to_vec());
    let (of_parts, of_all) = ("COMPOSITE", "FULL_OBJECT");
    for (kind, given, of, other) in [
        ("CRC32", "", of_parts, of_all),
        ("CRC32", of_all, of_all, of_parts),
        ("CRC32C", "", of_parts, of_all),
        ("CRC32C", of_all, of_all, of_parts),
        ("CRC64NVME", "", of_all, of_parts),
        ("SHA1", of_parts, of_parts, of_all),
        ("SHA256", "", of_parts, of_all),
    ] {
        let created = create(&mut client, kind, given);
        assert_eq!(created.header("x-amz-checksum-algorithm"), Some(kind));
        assert_eq!(created.header("x-amz-checksum-type"), Some(of));
        let id = created.element("UploadId").unwrap();
        let mut upload = send(&mut client, kind, &id, &[&one]);
        // One that comes without a checksum has one, too.
        let ask = Ask::new("PUT", "/bbb/k").query("uploadId", &id);
        let sent = client.good(ask.query("partNumber", "2").body(&*two));
        upload.tags.push(sent.header("etag").unwrap().to_owned());
        for list in [
            Ask::new("GET", "/bbb/k").query("uploadId", &id),
            Ask::new("GET", "/bbb").query("uploads", ""),
        ] {
            let list = client.good(list);
            assert_eq!(list.element("ChecksumAlgorithm").as_deref(), Some(kind));
            assert_eq!(list.element("ChecksumType").as_deref(), Some(of));
        }
        let named = |of: &str| vec![("x-amz-checksum-type".to_owned(), of.to_owned())];
        let refused = complete(&upload, kind, &[], &named(other));
        client.refused(refused, 400, "InvalidRequest");
        let done = client.good(complete(&upload, kind, &[], &named(of)));
        let wanted = match of == of_all {
            true => sum(kind, &[&one[..], &two].concat()),
            false => composite(kind, &[&one, &two]),
        };
        let told = done.element(&format!("Checksum{kind}"));
        assert_eq!(told.as_ref(), Some(&wanted), "{kind} {of}");
        assert_eq!(done.element("ChecksumType").as_deref(), Some(of));
        let sums = [&*wanted, &sum(kind, &one), &sum(kind, &two)];
        read_with(&mut client, (kind, of), &sums);
        client.good(Ask::new("DELETE", "/bbb/k"));
    }
}

#[test]
fn a_checksum_that_there_is_not_is_not_promised() {
    let (_running, mut client) = Running::with_bucket();
    for (kind, of) in [
        ("CRC64NVME", "COMPOSITE"),
        ("SHA256", "FULL_OBJECT"),
        ("", "FULL_OBJECT"),
        ("SHA1", "X"),
    ] {
        let ask = Ask::new("POST", "/bbb/k").query("uploads", "");
        let ask = ask.header("x-amz-checksum-algorithm", kind);
        client.refused(ask.header("x-amz-checksum-type", of), 400, "InvalidRequest");
    }
}

#[test]
fn copies_have_the_checksum_that_is_asked_for() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/from").body("from"));
    let copy = Ask::new("PUT", "/bbb/k").header("x-amz-copy-source", "bbb/from");
    let copied = client.good(copy.header("x-amz-checksum-algorithm", "SHA256"));
    let wanted = sum("SHA256", b"from");
    assert_eq!(copied.element("ChecksumSHA256").as_ref(), Some(&wanted));
    let head = Ask::new("HEAD", "/bbb/k").header("x-amz-checksum-mode", "ENABLED");
    let head = client.good(head);
    assert_eq!(head.header("x-amz-checksum-sha256"), Some(&*wanted));
    assert_eq!(head.header("x-amz-checksum-type"), Some("FULL_OBJECT"));
    let id = create(&mut client, "SHA1", "").element("UploadId").unwrap();
    let part = Ask::new("PUT", "/bbb/k").query("uploadId", &id);
    let part = part.query("partNumber", "1");
    let part = client.good(part.header("x-amz-copy-source", "bbb/from"));
    assert_eq!(part.element("ChecksumSHA1"), Some(sum("SHA1", b"from")));
    let tags = vec![part.element("ETag").unwrap().replace("&quot;", "\"")];
    let upload = Upload { id, tags };
    let done = client.good(complete(&upload, "SHA1", &[], &Pairs::new()));
    let expected = Some(composite("SHA1", &[b"from"]));
    assert_eq!(done.element("ChecksumSHA1"), expected);
}

#[test]
fn a_checksum_that_cannot_be_compared_is_refused() {
    let (_running, mut client) = Running::with_bucket();
    let upload = begin(&mut client, "SHA256", &[b"x"]);
    let given = vec![("x-amz-checksum-sha1".to_owned(), sum("SHA1", b"x"))];
    let ask = complete(&upload, "SHA256", &[], &given);
    client.refused(ask, 501, "NotImplemented");
    let other = complete(&upload, "SHA1", &[sum("SHA1", b"x")], &Pairs::new());
    client.refused(other, 400, "InvalidPart");
    for name in ["sha512", "md5", "xxhash64"] {
        let put = Ask::new("PUT", "/bbb/k").header(&format!("x-amz-checksum-{name}"), "x");
        client.refused(put, 501, "NotImplemented");
    }
    assert_eq!(client.object("/bbb/k"), None);
}

#[test]
fn an_upload_that_is_completed_again_is_answered_as_before() {
    let (_running, mut client) = Running::with_bucket();
    let upload = begin(&mut client, "CRC32", &[b"x"]);
    let ask = complete(&upload, "CRC32", &[], &Pairs::new());
    let first = client.good(ask.clone());
    let second = client.good(ask.clone());
    assert_eq!(first.body, second.body);
    let once = vec![("if-none-match".to_owned(), "*".to_owned())];
    client.good(complete(&upload, "CRC32", &[], &once));
    // Other parts, or another object by now.
    let mut other = Upload {
        id: upload.id.clone(),
        tags: vec![format!("\"{}\"", "0".repeat(32))],
    };
    let none = complete(&other, "CRC32", &[], &Pairs::new());
    client.refused(none, 404, "NoSuchUpload");
    other.tags = vec!["1234".to_owned()];
    let odd = complete(&other, "CRC32", &[], &Pairs::new());
    client.refused(odd, 404, "NoSuchUpload");
    other.tags = upload.tags;
    other.id.replace_range(31.., "x");
    let none = complete(&other, "CRC32", &[], &Pairs::new());
    client.refused(none, 404, "NoSuchUpload");
    client.good(Ask::new("PUT", "/bbb/k").body("new"));
    client.refused(ask, 404, "NoSuchUpload");
    assert_eq!(client.object("/bbb/k").unwrap(), b"new");
}

#[test]
fn replies_can_be_read_whatever_the_key_is() {
    let (_running, mut client) = Running::with_bucket();
    let path = "/bbb/a\u{1}";
    let created = client.good(Ask::new("POST", path).query("uploads", ""));
    assert_eq!(created.element("Key").unwrap(), "a%01");
    let id = created.element("UploadId").unwrap();
    let part = Ask::new("PUT", path).query("uploadId", &id);
    let sent = client.good(part.query("partNumber", "1").body("x"));
    let listed = client.good(Ask::new("GET", path).query("uploadId", &id));
    assert_eq!(listed.element("Key").unwrap(), "a%01");
    let tag = sent.header("etag").unwrap();
    let part = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
    let document = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
    let done = Ask::new("POST", path).query("uploadId", &id).body(document);
    assert_eq!(client.good(done).element("Key").unwrap(), "a%01");
    assert_eq!(client.object(path).unwrap(), b"x");
}

#[test]
fn uploads_are_grouped_by_a_delimiter() {
    let (_running, mut client) = Running::with_bucket();
    for key in ["a", "b/1", "b/2", "b/2", "c", "d/1"] {
        client.good(Ask::new("POST", &format!("/bbb/{key}")).query("uploads", ""));
    }
    let ask = |max: &str| {
        let ask = Ask::new("GET", "/bbb").query("uploads", "");
        ask.query("delimiter", "/").query("max-uploads", max)
    };
    let all = |reply: &Reply, begin: &str, name: &str| -> Vec<String> {
        let text = reply.text();
        let found = text.split(begin).skip(1);
        let found = found.filter_map(|rest| rest.split_once(&format!("<{name}>")));
        found
            .map(|(_, rest)| rest.split('<').next().unwrap().to_owned())
            .collect()
    };
    for max in ["1", "2", "3", "1000"] {
        let (mut keys, mut groups) = (Vec::new(), Vec::new());
        let (mut marker, mut id) = (String::new(), String::new());
        loop {
            let page = ask(max)
                .query("key-marker", &marker)
                .query("upload-id-marker", &id);
            let page = client.good(page);
            keys.extend(all(&page, "<Upload>", "Key"));
            groups.extend(all(&page, "<CommonPrefixes>", "Prefix"));
            if page.element("IsTruncated").unwrap() == "false" {
                break;
            }
            marker = page.element("NextKeyMarker").unwrap();
            id = page.element("NextUploadIdMarker").unwrap_or_default();
        }
        assert_eq!(keys, ["a", "c"], "{max}");
        assert_eq!(groups, ["b/", "d/"], "{max}");
    }
    let within = client.good(ask("9").query("prefix", "b/"));
    assert_eq!(all(&within, "<Upload>", "Key"), ["b/1", "b/2", "b/2"]);
}
