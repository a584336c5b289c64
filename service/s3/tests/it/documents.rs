//! Bodies of XML, and keys that XML cannot hold.

use crate::common::{Ask, Client, Running};

fn delete(client: &mut Client, document: &str) -> u16 {
    let ask = Ask::new("POST", "/bbb").query("delete", "").body(document);
    client.ask(ask).status
}

fn delete_key(client: &mut Client, key: &str) -> u16 {
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
    let wrong = ask
        .clone()
        .header("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==");
    client.refused(wrong, 400, "BadDigest");
    let wrong = ask.clone().header("x-amz-checksum-crc32", "AAAAAA==");
    client.refused(wrong, 400, "BadDigest");
    assert!(client.object("/bbb/k").is_some());
    let sum = base64_simd::STANDARD.encode_to_string(crate::common::sha256(document.as_bytes()));
    client.good(ask.header("x-amz-checksum-sha256", &sum));
    assert_eq!(client.object("/bbb/k"), None);
}

#[test]
fn a_document_of_what_is_not_offered_is_not_read() {
    let (_running, mut client) = Running::with_bucket();
    let policy = Ask::new("PUT", "/bbb")
        .query("policy", "")
        .body("{\"a\": \"<\"}");
    let said = client.refused(policy, 501, "NotImplemented");
    assert!(said.contains("policy"), "{said}");
}

#[test]
fn a_list_can_be_read_whatever_the_keys_are() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/plain key").body("x"));
    let key = |reply: &crate::common::Reply| reply.element("Key").unwrap();
    for list in ["1", "2"] {
        let ask = Ask::new("GET", "/bbb");
        let ask = if list == "2" {
            ask.query("list-type", "2")
        } else {
            ask
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
            assert_eq!(
                listed.element("EncodingType").as_deref(),
                Some("url"),
                "{path:?}"
            );
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
        let names: Vec<String> = names
            .map(|rest| rest.split('<').next().unwrap().to_owned())
            .collect();
        assert!(names.len() <= 2, "{text}");
        all.extend(names);
        match page.element("ContinuationToken") {
            None => break,
            Some(next) => token = next,
        }
    }
    assert_eq!(all, ["aaa", "bbb", "ccc", "ddd"]);
    client.refused(
        Ask::new("GET", "/").query("max-buckets", "0"),
        400,
        "InvalidArgument",
    );
}
