//! Reading objects: by the number of a part, as clients ask who are not exact, and while they rot or
//! are replaced.

use crate::common::{Ask, HttpClient, Running};

const PART: usize = 5 << 20;

/// Makes `/bbb/parts` of three parts.
fn parts(client: &mut HttpClient) -> Vec<u8> {
    let bodies = [vec![1; PART], vec![2; PART], b"end".to_vec()];
    let created = client.good(Ask::new("POST", "/bbb/parts").query("uploads", ""));
    let id = created.element("UploadId").unwrap();
    let mut document = "<CompleteMultipartUpload>".to_owned();
    for (number, body) in (1..).zip(&bodies) {
        let ask = Ask::new("PUT", "/bbb/parts").query("uploadId", &id);
        let ask = ask.query("partNumber", &format!("{number}"));
        let sent = client.good(ask.body(body.clone()));
        let tag = sent.header("etag").unwrap();
        document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>");
    }
    let ask = Ask::new("POST", "/bbb/parts").query("uploadId", &id);
    client.good(ask.body(document + "</CompleteMultipartUpload>"));
    bodies.concat()
}

#[test]
fn an_object_is_read_by_the_numbers_of_its_parts() {
    let (_running, mut client) = Running::with_bucket();
    let whole = parts(&mut client);
    for (number, range) in [
        (1, 0..PART),
        (2, PART..2 * PART),
        (3, 2 * PART..2 * PART + 3),
    ] {
        let content = format!("bytes {}-{}/{}", range.start, range.end - 1, whole.len());
        for method in ["GET", "HEAD"] {
            let ask = Ask::new(method, "/bbb/parts").query("partNumber", &format!("{number}"));
            let reply = client.good(ask);
            assert_eq!(reply.status, 206);
            assert_eq!(reply.header("content-range"), Some(&*content));
            assert_eq!(reply.header("x-amz-mp-parts-count"), Some("3"));
            if method == "GET" {
                assert!(reply.body == whole[range.clone()]);
            }
        }
    }
    for number in ["0", "4", "-1", "10001"] {
        let ask = Ask::new("GET", "/bbb/parts").query("partNumber", number);
        client.refused(ask, 400, "InvalidPart");
    }
    let both = Ask::new("GET", "/bbb/parts").query("partNumber", "1");
    client.refused(both.header("range", "bytes=0-1"), 400, "InvalidRequest");
    // What was put whole is its only part.
    for body in ["one", ""] {
        client.good(Ask::new("PUT", "/bbb/k").body(body));
        let reply = client.good(Ask::new("GET", "/bbb/k").query("partNumber", "1"));
        assert_eq!(reply.body, body.as_bytes());
        assert_eq!(reply.header("x-amz-mp-parts-count"), None);
        let ask = Ask::new("GET", "/bbb/k").query("partNumber", "2");
        client.refused(ask, 400, "InvalidPart");
    }
}

#[test]
fn attributes_of_an_object_are_told() {
    let (_running, mut client) = Running::with_bucket();
    let whole = parts(&mut client);
    let ask = Ask::new("GET", "/bbb/parts").query("attributes", "");
    let all = "ETag,Checksum,ObjectParts,StorageClass,ObjectSize";
    let told = client.good(ask.clone().header("x-amz-object-attributes", all));
    assert_eq!(told.element("ObjectSize").unwrap(), whole.len().to_string());
    assert_eq!(told.element("PartsCount").unwrap(), "3");
    // The only tag without quotes.
    let tag = told.element("ETag").unwrap();
    assert!(tag.ends_with("-3") && !tag.contains(['"', '&']), "{tag}");
    let crc = base64_simd::STANDARD.encode_to_string({
        use s3s::crypto::Checksum as _;
        s3s::crypto::Crc32c::checksum(&whole)
    });
    assert_eq!(told.element("ChecksumCRC32C").unwrap(), crc);
    let page = ask.clone().header("x-amz-object-attributes", "ObjectParts");
    let page = page
        .header("x-amz-max-parts", "1")
        .header("x-amz-part-number-marker", "1");
    let page = client.good(page);
    assert_eq!(page.element("PartNumber").unwrap(), "2");
    assert_eq!(page.element("IsTruncated").unwrap(), "true");
    assert_eq!(page.element("ObjectSize"), None);
    let none = Ask::new("GET", "/bbb/none").query("attributes", "");
    let none = none.header("x-amz-object-attributes", "ETag");
    client.refused(none, 404, "NoSuchKey");
}

#[test]
fn what_is_not_exact_is_read_as_s3_reads_it() {
    let (_running, mut client) = Running::with_bucket();
    let put = client.good(Ask::new("PUT", "/bbb/k").body("0123456789"));
    let tag = put.header("etag").unwrap().trim_matches('"').to_owned();
    let get = Ask::new("GET", "/bbb/k");
    for range in [
        "bytes=x",
        "bytes=5-2",
        "lines=0-1",
        "bytes=0-1,3-4",
        "bytes",
        "bytes=-",
        "bytes=20000000000000000000-10000000000000000000",
        "0-1",
    ] {
        let reply = client.good(get.clone().header("range", range));
        assert_eq!((reply.status, reply.body.len()), (200, 10), "{range}");
    }
    let refused = get.clone().header("range", "bytes=10-");
    client.refused(refused, 416, "InvalidRange");
    let date = "Wed, 21 Oct 2015 07:28:00 GMT";
    for (of, status) in [
        (&*tag, 206),
        (&*format!("\"{tag}\""), 206),
        ("\"other\"", 200),
        (date, 200),
    ] {
        let part = get
            .clone()
            .header("range", "bytes=2-3")
            .header("if-range", of);
        let reply = client.good(part);
        assert_eq!(reply.status, status, "{of}");
    }
    assert_eq!(
        client.ask(get.clone().header("if-none-match", &tag)).status,
        304
    );
    client.good(get.clone().header("if-match", &tag));
    let ask = get.clone().header("if-match", "other");
    client.refused(ask, 412, "PreconditionFailed");
    for odd in ["0", "yesterday"] {
        client.good(get.clone().header("if-modified-since", odd));
        client.good(get.clone().header("if-unmodified-since", odd));
    }
    for before in [
        date,
        "Wednesday, 21-Oct-15 07:28:00 GMT",
        "Wed Oct 21 07:28:00 2015",
    ] {
        let ask = get.clone().header("if-unmodified-since", before);
        client.refused(ask, 412, "PreconditionFailed");
    }
    let delete = Ask::new("DELETE", "/bbb/k");
    for wrong in ["other", "0123456789abcdef0123456789abcdef"] {
        let ask = delete.clone().header("if-match", wrong);
        client.refused(ask, 412, "PreconditionFailed");
    }
    client.good(delete.header("if-match", &tag));
    client.good(Ask::new("PUT", "/bbb/k").body("0123456789"));
    let plain = client.good(get);
    assert_eq!(plain.header("content-type"), Some("binary/octet-stream"));
    let head = Ask::new("HEAD", "/bbb/k").query("response-content-type", "a/b");
    assert_eq!(client.good(head).header("content-type"), Some("a/b"));
    let head = client.good(Ask::new("HEAD", "/bbb/k").header("range", "bytes=2-3"));
    assert_eq!(head.status, 206);
    assert_eq!(head.header("content-length"), Some("2"));
}

/// As RFC 9110 wants it (14.1.1, 15.4.5, 15.5.17).
#[test]
fn an_answer_without_the_object_tells_its_version() {
    let (_running, mut client) = Running::with_bucket();
    let put = Ask::new("PUT", "/bbb/k").header("cache-control", "max-age=9");
    client.good(put.header("expires", "0").body("0123456789"));
    let head = client.good(Ask::new("HEAD", "/bbb/k"));
    for method in ["GET", "HEAD"] {
        let ask = |name, value| client_ask(method, name, value);
        for (ask, status) in [
            (ask("if-none-match", head.header("etag").unwrap()), 304),
            (
                ask("if-modified-since", head.header("last-modified").unwrap()),
                304,
            ),
            (ask("if-match", "\"other\""), 412),
            (
                ask("if-unmodified-since", "Wed, 21 Oct 2015 07:28:00 GMT"),
                412,
            ),
            (ask("range", "bytes=10-"), 416),
            (ask("range", "bytes=99999999999999999999999-"), 416),
        ] {
            let reply = client.ask(ask);
            assert_eq!(reply.status, status, "{}", reply.text());
            for name in ["etag", "last-modified"] {
                assert_eq!(reply.header(name), head.header(name), "{status} {name}");
            }
            for name in ["cache-control", "expires"] {
                let kept = head.header(name).filter(|_| status == 304);
                assert_eq!(reply.header(name), kept, "{status} {name}");
            }
            let all = Some("bytes */10").filter(|_| status == 416);
            assert_eq!(reply.header("content-range"), all, "{status}");
        }
        for (range, told) in [
            ("bytes=2-99999999999999999999999", "bytes 2-9/10"),
            ("bytes=-99999999999999999999999", "bytes 0-9/10"),
            ("Bytes=0-1", "bytes 0-1/10"),
        ] {
            let reply = client.good(ask("range", range));
            assert_eq!(reply.status, 206);
            assert_eq!(reply.header("content-range"), Some(told));
        }
    }
}

fn client_ask(method: &str, name: &str, value: &str) -> Ask {
    Ask::new(method, "/bbb/k").header(name, value)
}

/// The end of an object without bytes is no range, and there is an answer all the same.
#[test]
fn ranges_of_nothing_are_answered() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/empty"));
    for method in ["GET", "HEAD"] {
        for (range, status) in [("bytes=-5", 200), ("bytes=0-", 416), ("bytes=-0", 416)] {
            let ask = Ask::new(method, "/bbb/empty").header("range", range);
            let reply = client.ask(ask);
            assert_eq!(reply.status, status, "{method} {range}");
        }
    }
}

#[test]
fn a_delete_may_name_the_size_and_the_time_of_what_it_means() {
    let (_running, mut client) = Running::with_bucket();
    let (size, time) = ("x-amz-if-match-size", "x-amz-if-match-last-modified-time");
    // One with a record, and a block of JuiceFS.
    for (path, body) in [
        ("/bbb/k", "0123456789"),
        ("/bbb/chunks/0/0/7_0_10", "0123456789"),
    ] {
        let tag = client.good(Ask::new("PUT", path).body(body));
        let tag = tag.header("etag").unwrap().to_owned();
        let head = client.good(Ask::new("HEAD", path));
        let date = head.header("last-modified").unwrap();
        let old = "Wed, 21 Oct 2015 07:28:00 GMT";
        let delete = || Ask::new("DELETE", path);
        for wrong in [
            delete().header(size, "9"),
            delete().header(time, old),
            delete().header(size, "10").header(time, old),
            delete().header(size, "9").header("if-match", &tag),
            delete().header(size, "10").header("if-match", "\"other\""),
        ] {
            client.refused(wrong, 412, "PreconditionFailed");
        }
        let all = delete().header(size, "10").header(time, date);
        client.refused(all.clone().header("if-match", "*"), 501, "NotImplemented");
        client.refused(delete().header(size, "-1"), 400, "InvalidArgument");
        assert_eq!(client.object(path).unwrap(), body.as_bytes());
        client.good(all.clone().header("if-match", &tag));
        assert_eq!(client.object(path), None);
        // What is not there need not be deleted, unless it was to have an ETag.
        client.good(all.clone());
        client.refused(all.header("if-match", &tag), 404, "NoSuchKey");
    }
    // The same of many.
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    let many = |what: &str| {
        let object = format!("<Object><Key>k</Key>{what}</Object>");
        let ask = Ask::new("POST", "/bbb").query("delete", "");
        ask.body(format!("<Delete>{object}</Delete>"))
    };
    let old = "<LastModifiedTime>Wed, 21 Oct 2015 07:28:00 GMT</LastModifiedTime>";
    for wrong in ["<Size>2</Size>", old] {
        let reply = client.good(many(wrong));
        assert_eq!(reply.element("Code").unwrap(), "PreconditionFailed");
    }
    assert_eq!(client.good(many("<Size>1</Size>")).element("Code"), None);
    assert_eq!(client.object("/bbb/k"), None);
    // Other operations do not know them.
    let put = Ask::new("PUT", "/bbb/k").body("x").header(size, "1");
    client.refused(put, 501, "NotImplemented");
}

#[test]
fn a_copy_names_its_source_and_its_directive() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    let copy = |source: &str| Ask::new("PUT", "/bbb/copy").header("x-amz-copy-source", source);
    client.good(copy("bbb/k?versionId=null"));
    client.refused(copy("bbb/k?versionId=abc"), 404, "NoSuchVersion");
    let odd = copy("bbb/k").header("x-amz-metadata-directive", "COPIED");
    client.refused(odd, 400, "InvalidArgument");
    client.good(copy("bbb/k").header("x-amz-metadata-directive", "COPY"));
}

/// Reproducible bytes.
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed | 1;
    let step = |_| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        x.to_be_bytes()[2]
    };
    (0..len).map(step).collect()
}

#[test]
fn rot_in_any_chunk_ends_the_connection_before_it() {
    use std::os::unix::fs::FileExt as _;
    const CHUNK: usize = 64 << 10;
    // Bytes of the object's first lump, which is read at once; the second is read while it is sent.
    const LUMP: usize = 4 << 20;
    let (running, mut client) = Running::with_bucket();
    let object = bytes(1, 6_000_000);
    client.good(Ask::new("PUT", "/bbb/rots").body(object.clone()));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(running.store())
        .unwrap();
    let all = std::fs::read(running.store()).unwrap();
    let place = |lump: &[u8]| all.windows(64).position(|window| *window == lump[..64]);
    let places = [&object[..LUMP], &object[LUMP..]].map(|lump| place(lump).unwrap());
    for chunk in (0..object.len().div_ceil(CHUNK)).step_by(3) {
        let good = chunk * CHUNK;
        let at = places[good / LUMP] + good % LUMP + 9;
        let flip = |bit: u8| {
            file.write_all_at(&[all[at] ^ bit], at as u64).unwrap();
        };
        flip(1);
        let mut reader = running.client();
        let begun = reader.begin(Ask::new("GET", "/bbb/rots"));
        // What was not on its way when the damage was found may never come.
        if let Some((reply, whole)) = begun.map(|begun| reader.end(begun)) {
            if reply.status == 200 {
                // Its length was announced, and the connection ended before.
                assert!(!whole && reply.header("content-length") == Some("6000000"));
                assert!(reply.body.len() <= good && reply.body == object[..reply.body.len()]);
            } else {
                assert_eq!((reply.status, good < LUMP), (500, true), "{}", reply.text());
            }
        }
        flip(0);
    }
    assert!(client.object("/bbb/rots").unwrap() == object);
}

#[test]
fn an_object_that_is_replaced_is_read_to_its_end() {
    let (running, mut client) = Running::with_bucket();
    let object = bytes(1, 30 << 20);
    client.good(Ask::new("PUT", "/bbb/old").body(object.clone()));
    let mut slow = running.client();
    let begun = slow.begin(Ask::new("GET", "/bbb/old"));
    client.good(Ask::new("PUT", "/bbb/old").body(bytes(2, 30 << 20)));
    client.good(Ask::new("DELETE", "/bbb/old"));
    for seed in 3..5 {
        client.good(Ask::new("PUT", "/bbb/other").body(bytes(seed, 20 << 20)));
    }
    let (reply, whole) = slow.end(begun.unwrap());
    assert!(reply.status == 200 && whole && reply.body == object);
}

#[test]
fn what_is_not_exact_is_written_as_s3_writes_it() {
    let (_running, mut client) = Running::with_bucket();
    let put = Ask::new("PUT", "/bbb/k").body("abc");
    for expires in ["0", "-1", "Thu, 01 Dec 1994 16:00:00 GMT", "soon"] {
        client.good(put.clone().header("expires", expires));
        for method in ["GET", "HEAD"] {
            let reply = client.good(Ask::new(method, "/bbb/k"));
            assert_eq!(reply.header("expires"), Some(expires), "{method}");
        }
    }
    let later = "Fri, 01 Jan 2100 00:00:00 GMT";
    for method in ["GET", "HEAD"] {
        let ask = Ask::new(method, "/bbb/k").query("response-expires", later);
        assert_eq!(client.good(ask).header("expires"), Some(later));
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"abc");
    // The body of such a request is checked as any other, its trailer too.
    let framed = |sum: &str| {
        let body = format!("3\r\nabc\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n");
        let kind = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        let ask = Ask::new("PUT", "/bbb/t").body(body).header("expires", "0");
        let ask = ask.header("x-amz-content-sha256", kind);
        let ask = ask.header("x-amz-decoded-content-length", "3");
        ask.header("x-amz-trailer", "x-amz-checksum-crc32")
    };
    client.refused(framed("AAAAAA=="), 400, "BadDigest");
    assert_eq!(client.object("/bbb/t"), None);
    client.good(framed("NSRBwg=="));
    assert_eq!(client.object("/bbb/t").unwrap(), b"abc");
    // Entity tags without quotes.
    let tag = "900150983cd24fb0d6963f7d28e17f72";
    client.good(put.clone().body("new").header("if-match", tag));
    let ask = put.clone().header("if-match", tag);
    client.refused(ask, 412, "PreconditionFailed");
    let unless = put.body("other");
    let same = client.good(Ask::new("HEAD", "/bbb/k"));
    let same = same.header("etag").unwrap();
    let refused = unless.clone().header("if-none-match", same);
    client.refused(refused, 412, "PreconditionFailed");
    assert_eq!(client.object("/bbb/k").unwrap(), b"new");
    client.good(unless.header("if-none-match", tag));
    assert_eq!(client.object("/bbb/k").unwrap(), b"other");
    let missing = Ask::new("PUT", "/bbb/none").header("if-match", "\"none\"");
    client.refused(missing, 404, "NoSuchKey");
    let copy = Ask::new("PUT", "/bbb/c").header("x-amz-copy-source", "bbb/t");
    let named = "x-amz-copy-source-if-match";
    let ask = copy.clone().header(named, &"0".repeat(32));
    client.refused(ask, 412, "PreconditionFailed");
    let copy = copy
        .header("x-amz-metadata-directive", "REPLACE")
        .header("expires", "0");
    client.good(copy.header(named, tag));
    let copied = client.good(Ask::new("GET", "/bbb/c"));
    assert_eq!(copied.header("expires"), Some("0"));
    assert_eq!(&*copied.body, &b"abc"[..]);
}

/// A list of ETags is not one of them: a change that took it for one would replace what it was to
/// keep. Neither is an empty condition none, nor one that the operation does not decide.
#[test]
fn a_change_decides_its_condition_or_is_refused() {
    let (_running, mut client) = Running::with_bucket();
    let put = Ask::new("PUT", "/bbb/k").body("old");
    let tag = client.good(put.clone()).header("etag").unwrap().to_owned();
    client.good(Ask::new("PUT", "/bbb/source").body("source"));
    let copy = Ask::new("PUT", "/bbb/k").header("x-amz-copy-source", "bbb/source");
    let begun = client.good(Ask::new("POST", "/bbb/k").query("uploads", ""));
    let upload = begun.element("UploadId").unwrap();
    let part = Ask::new("PUT", "/bbb/k").query("partNumber", "1");
    let part = client.good(part.query("uploadId", &upload).body("part"));
    let part = part.header("etag").unwrap();
    let parts = format!("<Part><PartNumber>1</PartNumber><ETag>{part}</ETag></Part>");
    let complete = Ask::new("POST", "/bbb/k").query("uploadId", &upload);
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let complete = complete.body(document);
    let delete = Ask::new("DELETE", "/bbb/k");
    let (list, weak) = (format!("\"x\", {tag}"), format!("W/{tag}"));
    let date = "Wed, 21 Oct 2015 07:28:00 GMT";
    let (size, time) = ("x-amz-if-match-size", "x-amz-if-match-last-modified-time");
    for (change, deletes) in [
        (put, false),
        (copy.clone(), false),
        (complete, false),
        (delete.clone(), true),
    ] {
        for (name, value, status) in [
            ("if-match", &*list, 501),
            ("if-match", &*weak, 412),
            ("if-match", "", 400),
            ("if-match", "\"x\" \"y\"", 400),
            ("if-none-match", &*list, 501),
            ("if-none-match", &*weak, if deletes { 501 } else { 412 }),
            ("if-none-match", "*", if deletes { 501 } else { 412 }),
            ("if-none-match", "", if deletes { 501 } else { 400 }),
            ("if-modified-since", date, 501),
            ("if-unmodified-since", date, 501),
            (size, "", if deletes { 400 } else { 501 }),
            (time, "", if deletes { 400 } else { 501 }),
        ] {
            let code = match status {
                400 => "InvalidArgument",
                412 => "PreconditionFailed",
                _ => "NotImplemented",
            };
            client.refused(change.clone().header(name, value), status, code);
            assert_eq!(client.object("/bbb/k").unwrap(), b"old", "{name}: {value}");
        }
    }
    for kind in ["match", "none-match", "modified-since", "unmodified-since"] {
        let name = format!("x-amz-copy-source-if-{kind}");
        let empty = copy.clone().header(&name, "");
        client.refused(empty, 400, "InvalidArgument");
        client.refused(delete.clone().header(&name, &tag), 501, "NotImplemented");
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"old");
}

/// As RFC 9110 wants it (8.8.3.2, 13.1.1, 13.1.2).
#[test]
fn a_read_compares_every_tag_of_a_list() {
    let (_running, mut client) = Running::with_bucket();
    let put = client.good(Ask::new("PUT", "/bbb/k").body("x"));
    let tag = put.header("etag").unwrap();
    let bare = tag.trim_matches('"');
    let (list, weak) = (format!("\"x\", {tag}"), format!("W/{tag}"));
    let weaks = format!("\"x\",{weak} , \"y\"");
    let bares = format!("x, {bare}");
    for method in ["GET", "HEAD"] {
        for (value, matches, none_match) in [
            ("*", 200, 304),
            (tag, 200, 304),
            (&*list, 200, 304),
            (&*bares, 200, 304),
            (&*weak, 412, 304),
            (&*weaks, 412, 304),
            ("\"x\", \"y\"", 412, 200),
            ("", 400, 400),
            ("\"x", 400, 400),
        ] {
            for (name, status) in [("if-match", matches), ("if-none-match", none_match)] {
                let reply = client.ask(client_ask(method, name, value));
                assert_eq!(reply.status, status, "{method} {name}: {value}");
            }
        }
    }
    let copy = Ask::new("PUT", "/bbb/copy").header("x-amz-copy-source", "bbb/k");
    let (matches, none_match) = (
        "x-amz-copy-source-if-match",
        "x-amz-copy-source-if-none-match",
    );
    client.good(copy.clone().header(matches, &list));
    for (name, value) in [(matches, &weak), (none_match, &weak), (none_match, &list)] {
        let refused = copy.clone().header(name, value);
        client.refused(refused, 412, "PreconditionFailed");
    }
}

/// Behind the body comes what was announced, once: a second trailer is not passed over.
#[test]
fn nothing_follows_the_trailer_of_a_body() {
    let (_running, mut client) = Running::with_bucket();
    let sum = "x-amz-checksum-crc32:NSRBwg==\r\n\r\n";
    let put = |behind: &str, announced: &str| {
        let ask = Ask::new("PUT", "/bbb/k").body(format!("3\r\nabc\r\n0\r\n{behind}"));
        let kind = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
        let ask = ask.header("x-amz-content-sha256", kind);
        let ask = ask.header("x-amz-decoded-content-length", "3");
        match announced {
            "" => ask,
            _ => ask.header("x-amz-trailer", announced),
        }
    };
    let crc32 = "x-amz-checksum-crc32";
    for (behind, announced) in [
        (format!("{sum}{sum}"), crc32),
        (format!("{sum}x-amz-checksum-crc32:AAAAAA==\r\n\r\n"), crc32),
        (format!("{sum}x-amz-checksum-sha1:x\r\n\r\n"), crc32),
        (format!("{sum}x:y\r\n\r\n"), crc32),
        (format!("{sum}garbage"), crc32),
    ] {
        client.refused(put(&behind, announced), 400, "IncompleteBody");
        assert_eq!(client.object("/bbb/k"), None, "{behind:?}");
    }
    client.refused(put(sum, ""), 400, "InvalidRequest");
    client.good(put(sum, crc32));
    assert_eq!(client.object("/bbb/k").unwrap(), b"abc");
}
