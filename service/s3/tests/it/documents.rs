//! Bodies of XML, and keys that XML cannot hold.

use quick_xml::events::Event;

use crate::common::{Ask, HttpClient, Reply, Running};

fn delete(client: &mut HttpClient, document: &str) -> u16 {
    let ask = Ask::new("POST", "/bbb").query("delete", "").body(document);
    client.ask(ask).status
}

fn delete_key(client: &mut HttpClient, key: &str) -> u16 {
    let document = format!("<Delete><Object><Key>{key}</Key></Object></Delete>");
    delete(client, &document)
}

#[test]
fn a_key_is_what_a_parser_of_xml_reads() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/ac").body("x"));
    for (key, written) in [
        ("abc", "a<![CDATA[b]]>c"),
        ("<&>", "<![CDATA[<&>]]>"),
        ("😀", "&#128512;"),
        ("😀x", "&#x1F600;x"),
        ("a\nb", "a&#10;b"),
        ("a&b", "a&amp;b"),
    ] {
        let path = format!("/bbb/{key}");
        client.good(Ask::new("PUT", &path).body("x"));
        assert_eq!(delete_key(&mut client, written), 200, "{written}");
        assert_eq!(client.object(&path), None, "{written}");
    }
    assert!(client.object("/bbb/ac").is_some());
    for wrong in ["&#0;", "&#1;", "\u{1}", "&nothing;", "&#xD800;"] {
        assert_eq!(delete_key(&mut client, wrong), 400, "{wrong}");
    }
    let kind = "<!DOCTYPE d [<!ENTITY a \"ac\">]>";
    let document = format!("{kind}<Delete><Object><Key>&a;</Key></Object></Delete>");
    assert_eq!(delete(&mut client, &document), 400);
    assert!(client.object("/bbb/ac").is_some());
}

#[test]
fn a_document_has_the_checksums_that_are_announced() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    let document = "<Delete><Object><Key>k</Key></Object></Delete>";
    let ask = Ask::new("POST", "/bbb").query("delete", "").body(document);
    for (name, sum) in [
        ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        ("x-amz-checksum-crc32", "AAAAAA=="),
    ] {
        client.refused(ask.clone().header(name, sum), 400, "BadDigest");
    }
    assert!(client.object("/bbb/k").is_some());
    let sum = base64_simd::STANDARD.encode_to_string(crate::common::sha256(document.as_bytes()));
    client.good(ask.header("x-amz-checksum-sha256", &sum));
    assert_eq!(client.object("/bbb/k"), None);
}

#[test]
fn a_document_of_what_is_not_offered_is_not_read() {
    let (_running, mut client) = Running::with_bucket();
    let policy = Ask::new("PUT", "/bbb").query("policy", "");
    let policy = policy.body("{\"a\": \"<\"}");
    let said = client.refused(policy, 501, "NotImplemented");
    assert!(said.contains("policy"), "{said}");
}

#[test]
fn a_list_can_be_read_whatever_the_keys_are() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/plain key").body("x"));
    let key = |reply: &Reply| reply.element("Key").unwrap();
    for list in ["1", "2"] {
        let ask = match list {
            "2" => Ask::new("GET", "/bbb").query("list-type", "2"),
            _ => Ask::new("GET", "/bbb"),
        };
        let plain = client.good(ask.clone());
        assert_eq!(key(&plain), "plain key");
        assert_eq!(plain.element("EncodingType"), None);
        for (path, encoded) in [
            ("/bbb/\u{1}", "%01"),
            ("/bbb/a\rb", "a%0Db"),
            ("/bbb/\u{ffff}", "%EF%BF%BF"),
        ] {
            client.good(Ask::new("PUT", path).body("x"));
            let listed = client.good(ask.clone());
            let encoding = listed.element("EncodingType");
            assert_eq!(encoding.as_deref(), Some("url"), "{path:?}");
            let found = format!("<Key>{encoded}</Key>");
            assert!(listed.text().contains(&found), "{}", listed.text());
            assert!(listed.text().contains("<Key>plain%20key</Key>"));
            client.good(Ask::new("DELETE", path));
        }
        let echoed = client.good(ask.query("prefix", "\u{1}"));
        assert_eq!(echoed.element("Prefix").as_deref(), Some("%01"));
    }
    client.good(Ask::new("POST", "/bbb/\u{1}").query("uploads", ""));
    let uploads = client.good(Ask::new("GET", "/bbb").query("uploads", ""));
    assert_eq!(key(&uploads), "%01");
    let missing = client.ask(Ask::new("GET", "/bbb/\u{2}"));
    assert!(!missing.body.contains(&2), "{missing:?}");
}

#[test]
fn a_name_that_no_bucket_can_have_is_explained() {
    let (_running, mut client) = Running::with_bucket();
    for name in ["/a..b", "/A", "/ab-"] {
        let said = client.refused(Ask::new("PUT", name), 400, "InvalidBucketName");
        assert!(said.contains("3 to 63"), "{said}");
    }
}

/// As in S3, whose first region knows no such error.
#[test]
fn a_bucket_that_is_there_is_made_again_in_one_region_only() {
    let (_running, mut client) = Running::with_bucket();
    let ask = |region: &str| {
        let within = format!("<LocationConstraint>{region}</LocationConstraint>");
        let document = format!("<CreateBucketConfiguration>{within}</CreateBucketConfiguration>");
        Ask::new("PUT", "/bbb").body(document)
    };
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    client.good(Ask::new("PUT", "/bbb"));
    client.good(ask("us-east-1"));
    client.refused(ask("eu-central-1"), 409, "BucketAlreadyOwnedByYou");
    assert_eq!(client.object("/bbb/k").unwrap(), b"x");
}

#[test]
fn buckets_are_listed_by_the_page() {
    let (_running, mut client) = Running::with_bucket();
    for bucket in ["aaa", "ccc", "ddd"] {
        client.good(Ask::new("PUT", &format!("/{bucket}")));
    }
    let (mut all, mut token) = (Vec::new(), String::new());
    for _ in 0..3 {
        let ask = Ask::new("GET", "/").query("max-buckets", "2");
        let ask = match token.as_str() {
            "" => ask,
            token => ask.query("continuation-token", token),
        };
        let page = client.good(ask);
        let text = page.text();
        let names = text.split("<Name>").skip(1);
        let names = names.map(|rest| rest.split('<').next().unwrap().to_owned());
        let names: Vec<String> = names.collect();
        assert!(names.len() <= 2, "{text}");
        all.extend(names);
        match page.element("ContinuationToken") {
            None => break,
            Some(next) => token = next,
        }
    }
    assert_eq!(all, ["aaa", "bbb", "ccc", "ddd"]);
    let ask = Ask::new("GET", "/").query("max-buckets", "0");
    client.refused(ask, 400, "InvalidArgument");
}

/// The texts of a document, as a parser reads them: element and content.
fn texts(reply: &Reply) -> Vec<(String, String)> {
    let text = reply.text();
    let is_char = |char: char| char >= ' ' || matches!(char, '\t' | '\n');
    assert!(text.chars().all(is_char), "{text:?}");
    let none = ['\u{fffe}', '\u{ffff}', '\u{fffd}'];
    assert!(!text.contains(none), "{text:?}");
    let (mut reader, mut all) = (quick_xml::Reader::from_str(&text), Vec::new());
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => return all,
            Event::Start(tag) => {
                let name = String::from_utf8_lossy(tag.local_name().into_inner()).into_owned();
                all.push((name, String::new()));
            }
            Event::Text(text) => all.last_mut().unwrap().1 += std::str::from_utf8(&text).unwrap(),
            Event::GeneralRef(name) => {
                let char = name.resolve_char_ref().unwrap().map(String::from);
                let name = std::str::from_utf8(&name).unwrap();
                let known = quick_xml::escape::resolve_xml_entity(name).map(str::to_owned);
                all.last_mut().unwrap().1 += &char.or(known).unwrap();
            }
            _ => {}
        }
    }
}

/// The contents of all elements with this name, decoded where the document says that they are
/// encoded, or where they have to be.
fn named(reply: &Reply, name: &str) -> Vec<String> {
    let texts = texts(reply);
    let found = texts.iter().filter(|(element, _)| element == name);
    let is_encoded = |text: &str| {
        let says = texts.iter().any(|(element, _)| element == "EncodingType");
        says || text.contains('%')
    };
    let decoded = found.map(|(_, text)| match is_encoded(text) {
        true => {
            let decoded = percent_encoding::percent_decode_str(text);
            decoded.decode_utf8().unwrap().into_owned()
        }
        false => text.clone(),
    });
    decoded.collect()
}

#[test]
fn any_key_survives_a_parser_in_every_answer() {
    let (_running, mut client) = Running::with_bucket();
    for key in [
        "\u{1}",
        "a\rb",
        "a\r\nb\tc",
        "\u{ffff}x",
        "<&>\"'",
        "]]>",
        "\u{7f}\u{9f}",
        "\u{fffe}/b",
    ] {
        let path = format!("/bbb/{key}");
        client.good(Ask::new("PUT", &path).body("x"));
        let begun = client.good(Ask::new("POST", &path).query("uploads", ""));
        assert_eq!(named(&begun, "Key"), [key], "{key:?}");
        let id = begun.element("UploadId").unwrap();
        let bucket = |name, value| Ask::new("GET", "/bbb").query(name, value);
        let second = |name| bucket("list-type", "2").query(name, key);
        let versions = |name| bucket("versions", "").query(name, key);
        let uploads = |name| bucket("uploads", "").query(name, key);
        for (ask, element) in [
            (Ask::new("GET", "/bbb"), "Key"),
            (bucket("prefix", key), "Prefix"),
            (bucket("prefix", key), "Key"),
            (bucket("marker", key), "Marker"),
            (bucket("delimiter", key), "Delimiter"),
            (bucket("delimiter", key), "Prefix"),
            (second("prefix"), "Key"),
            (second("start-after"), "StartAfter"),
            (second("delimiter"), "Prefix"),
            (bucket("versions", ""), "Key"),
            (versions("key-marker"), "KeyMarker"),
            (versions("version-id-marker"), "VersionIdMarker"),
            (bucket("uploads", ""), "Key"),
            (uploads("prefix"), "Prefix"),
            (uploads("key-marker"), "KeyMarker"),
            (uploads("delimiter"), "Prefix"),
            (Ask::new("GET", "/").query("prefix", key), "Prefix"),
            (Ask::new("GET", &path).query("uploadId", &id), "Key"),
        ] {
            let reply = client.good(ask.clone());
            let found = named(&reply, element);
            assert!(found.iter().any(|found| found == key), "{ask:?}: {reply:?}");
        }
        let of_upload = |method| Ask::new(method, &path).query("uploadId", &id);
        let part = of_upload("PUT").query("partNumber", "1").body("x");
        let part = client.good(part);
        let tag = part.header("etag").unwrap();
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part>");
        let document = format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>");
        let complete = of_upload("POST").body(document);
        assert_eq!(named(&client.good(complete), "Key"), [key]);
        let copied = Ask::new("PUT", "/bbb/copy").header("x-amz-copy-source", &encoded(&path));
        texts(&client.good(copied));
        client.good(Ask::new("DELETE", "/bbb/copy"));
        client.good(Ask::new("DELETE", &path));
        for ask in refused(&path, key) {
            assert!(client.ask(ask.clone()).status >= 400, "{ask:?}");
            texts(&client.ask(ask));
        }
    }
}

/// Requests that quote a key and are refused.
fn refused(path: &str, key: &str) -> [Ask; 6] {
    let list = Ask::new("GET", "/bbb");
    let second = list.clone().query("list-type", "2");
    [
        Ask::new("GET", path),
        list.clone().query(key, key),
        list.clone().query("max-keys", key),
        list.query("encoding-type", key),
        second.query("continuation-token", key),
        Ask::new("GET", path).query("uploadId", key),
    ]
}

fn encoded(path: &str) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    let path = path.strip_prefix('/').unwrap();
    let (bucket, key) = path.split_once('/').unwrap();
    format!("{bucket}/{}", utf8_percent_encode(key, NON_ALPHANUMERIC))
}

/// What a document of a client has in it comes back as it was.
#[test]
fn an_end_of_a_line_in_a_tag_or_a_setting_stays() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    let tags = "<Tagging><TagSet><Tag><Key>k</Key><Value>a&#13;b</Value></Tag></TagSet></Tagging>";
    client.good(Ask::new("PUT", "/bbb/k").query("tagging", "").body(tags));
    let told = client.good(Ask::new("GET", "/bbb/k").query("tagging", ""));
    assert_eq!(named(&told, "Value"), ["a\rb"]);
    let key = "<Delete><Object><Key>a&#13;b</Key></Object></Delete>";
    let told = client.good(Ask::new("POST", "/bbb").query("delete", "").body(key));
    assert_eq!(named(&told, "Key"), ["a\rb"]);
    let rule = "<LifecycleConfiguration><Rule><ID>a&#13;b</ID><Prefix/><Status>Enabled</Status>\
        <Expiration><Days>9</Days></Expiration></Rule></LifecycleConfiguration>";
    client.good(Ask::new("PUT", "/bbb").query("lifecycle", "").body(rule));
    let told = client.good(Ask::new("GET", "/bbb").query("lifecycle", ""));
    assert_eq!(named(&told, "ID"), ["a\rb"]);
}
