//! Settings of buckets and tags of objects: made, told, obeyed.

use crate::common::{Ask, HttpClient, Reply, Running, Sign};

const TAGS: &str = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1</Value></Tag>\
    <Tag><Key>c</Key><Value></Value></Tag></TagSet></Tagging>";

fn tags_of(client: &mut HttpClient, path: &str) -> Vec<String> {
    let reply = client.good(Ask::new("GET", path).query("tagging", ""));
    let text = reply.text();
    let tags = text.split("<Tag>").skip(1);
    let tags = tags.map(|tag| {
        let of = |name: &str| {
            let (_, rest) = tag.split_once(&format!("<{name}>"))?;
            rest.split('<').next()
        };
        format!("{}={}", of("Key").unwrap(), of("Value").unwrap_or_default())
    });
    tags.collect()
}

#[test]
fn tags_are_those_that_were_given() {
    let (_running, mut client) = Running::with_bucket();
    let put = Ask::new("PUT", "/bbb/k").body("x");
    client.good(put.header("x-amz-tagging", "two=%C3%BC&one=1"));
    assert_eq!(tags_of(&mut client, "/bbb/k"), ["one=1", "two=\u{fc}"]);
    for method in ["HEAD", "GET"] {
        let reply = client.good(Ask::new(method, "/bbb/k"));
        assert_eq!(reply.header("x-amz-tagging-count"), Some("2"));
    }
    let before = client.good(Ask::new("HEAD", "/bbb/k"));
    client.good(Ask::new("PUT", "/bbb/k").query("tagging", "").body(TAGS));
    assert_eq!(tags_of(&mut client, "/bbb/k"), ["a b=1", "c="]);
    let after = client.good(Ask::new("HEAD", "/bbb/k"));
    for name in ["etag", "last-modified", "content-length"] {
        assert_eq!(after.header(name), before.header(name), "{name}");
    }
    // A copy has them too, unless it is told to have others.
    for (to, directive, tags) in [
        ("/bbb/c1", None, vec!["a b=1", "c="]),
        ("/bbb/c2", Some("COPY"), vec!["a b=1", "c="]),
        ("/bbb/c3", Some("REPLACE"), vec!["z=9"]),
    ] {
        let mut ask = Ask::new("PUT", to).header("x-amz-copy-source", "bbb/k");
        if let Some(directive) = directive {
            ask = ask.header("x-amz-tagging-directive", directive);
        }
        let replaced = ask.header("x-amz-metadata-directive", "REPLACE");
        client.good(replaced.header("x-amz-tagging", "z=9"));
        assert_eq!(tags_of(&mut client, to), tags, "{to}");
    }
    client.good(Ask::new("DELETE", "/bbb/k").query("tagging", ""));
    assert!(tags_of(&mut client, "/bbb/k").is_empty());
    let none = client.good(Ask::new("HEAD", "/bbb/k"));
    assert_eq!(none.header("x-amz-tagging-count"), None);
    // An upload has them when it is complete.
    let begun = Ask::new("POST", "/bbb/u").query("uploads", "");
    let begun = client.good(begun.header("x-amz-tagging", "u=1"));
    let id = begun.element("UploadId").unwrap();
    let part = Ask::new("PUT", "/bbb/u").query("partNumber", "1");
    let part = client.good(part.query("uploadId", &id).body("x"));
    let document = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>\
         </CompleteMultipartUpload>",
        part.header("etag").unwrap()
    );
    client.good(
        Ask::new("POST", "/bbb/u")
            .query("uploadId", &id)
            .body(document),
    );
    assert_eq!(tags_of(&mut client, "/bbb/u"), ["u=1"]);
}

#[test]
fn wrong_tags_change_nothing() {
    let (_running, mut client) = Running::with_bucket();
    client.good(
        Ask::new("PUT", "/bbb/k")
            .body("x")
            .header("x-amz-tagging", "a=1"),
    );
    let tag = |key: &str| format!("<Tag><Key>{key}</Key><Value>1</Value></Tag>");
    let set = |tags: &str| format!("<Tagging><TagSet>{tags}</TagSet></Tagging>");
    let many: String = (0..11).map(|at| tag(&at.to_string())).collect();
    for tags in [many, tag("a") + &tag("a"), tag(""), tag(&"k".repeat(129))] {
        let ask = Ask::new("PUT", "/bbb/k")
            .query("tagging", "")
            .body(set(&tags));
        client.refused(ask, 400, "InvalidTag");
    }
    for body in ["", "<Tagging/>", "x"] {
        let ask = Ask::new("PUT", "/bbb/k").query("tagging", "").body(body);
        assert_eq!(client.ask(ask).status, 400, "{body}");
    }
    let none = Ask::new("PUT", "/bbb/none").query("tagging", "");
    client.refused(none.body(set(&tag("a"))), 404, "NoSuchKey");
    let block = Ask::new("PUT", "/bbb/chunks/0/0/7_0_3").body("abc");
    client.good(block);
    let block = Ask::new("PUT", "/bbb/chunks/0/0/7_0_3").query("tagging", "");
    client.refused(block.body(set(&tag("a"))), 400, "InvalidArgument");
    assert_eq!(tags_of(&mut client, "/bbb/k"), ["a=1"]);
    assert_eq!(client.object("/bbb/k").unwrap(), b"x");
}

const CORS: &str = "<CORSConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
    <CORSRule><AllowedOrigin>https://*.example.org</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
    <AllowedMethod>PUT</AllowedMethod><AllowedHeader>x-amz-*</AllowedHeader>\
    <ExposeHeader>ETag</ExposeHeader><MaxAgeSeconds>60</MaxAgeSeconds></CORSRule>\
    <CORSRule><AllowedOrigin>*</AllowedOrigin><AllowedMethod>HEAD</AllowedMethod></CORSRule>\
    </CORSConfiguration>";

fn allowed(reply: &Reply) -> Option<&str> {
    reply.header("access-control-allow-origin")
}

#[test]
fn pages_may_do_what_the_rules_of_the_bucket_say() {
    let (_running, mut client) = Running::with_bucket();
    let preflight = |origin: &str, method: &str, headers: &str| {
        let ask = Ask::new("OPTIONS", "/bbb/k").sign(Sign::Nothing);
        let ask = ask.header("origin", origin);
        let ask = ask.header("access-control-request-method", method);
        match headers {
            "" => ask,
            _ => ask.header("access-control-request-headers", headers),
        }
    };
    let page = "https://a.example.org";
    let none = preflight(page, "GET", "");
    client.refused(none.clone(), 403, "AccessForbidden");
    client.good(Ask::new("PUT", "/bbb").query("cors", "").body(CORS));
    let told = client.good(Ask::new("GET", "/bbb").query("cors", ""));
    assert!(
        told.text()
            .contains("<AllowedOrigin>https://*.example.org</AllowedOrigin>")
    );
    let reply = client.good(preflight(page, "PUT", "X-Amz-Date, x-amz-content-sha256"));
    assert_eq!(allowed(&reply), Some(page));
    for (name, value) in [
        ("access-control-allow-methods", "GET, PUT"),
        (
            "access-control-allow-headers",
            "x-amz-date, x-amz-content-sha256",
        ),
        ("access-control-expose-headers", "ETag"),
        ("access-control-max-age", "60"),
        ("access-control-allow-credentials", "true"),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name}");
    }
    assert!(reply.header("vary").unwrap().contains("Origin"));
    for refused in [
        preflight("https://example.org", "GET", ""),
        preflight(page, "DELETE", ""),
        preflight(page, "PUT", "authorization"),
        preflight("https://evil", "GET", ""),
    ] {
        client.refused(refused, 403, "AccessForbidden");
    }
    let half = Ask::new("OPTIONS", "/bbb")
        .sign(Sign::Nothing)
        .header("origin", page);
    client.refused(half, 400, "BadRequest");
    // Answers tell it, those that refuse too; nothing is told where no rule allows it.
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    let get = Ask::new("GET", "/bbb/k");
    let reply = client.good(get.clone().header("origin", page));
    assert_eq!((allowed(&reply), &*reply.body), (Some(page), &b"x"[..]));
    let nobody = get.clone().sign(Sign::Nothing).header("origin", page);
    let reply = client.ask(nobody);
    assert_eq!((reply.status, allowed(&reply)), (403, Some(page)));
    assert_eq!(
        allowed(&client.good(get.clone().header("origin", "https://evil"))),
        None
    );
    assert_eq!(allowed(&client.good(get)), None);
    let any = client.good(Ask::new("HEAD", "/bbb/k").header("origin", "https://evil"));
    assert_eq!(allowed(&any), Some("*"));
    assert_eq!(any.header("access-control-allow-credentials"), None);
    client.good(Ask::new("DELETE", "/bbb").query("cors", ""));
    client.refused(none, 403, "AccessForbidden");
    let missing = Ask::new("GET", "/bbb").query("cors", "");
    client.refused(missing, 404, "NoSuchCORSConfiguration");
}

#[test]
fn rules_that_mean_less_than_they_say_are_refused() {
    let (_running, mut client) = Running::with_bucket();
    let rule = |inside: &str| {
        let status = "<Status>Enabled</Status><Expiration><Days>1</Days></Expiration>";
        format!("<LifecycleConfiguration><Rule>{status}{inside}</Rule></LifecycleConfiguration>")
    };
    let page = |inside: &str| format!("<CORSConfiguration>{inside}</CORSConfiguration>");
    let cors = "<CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*</AllowedOrigin>";
    let put = |name: &str, body: &str| Ask::new("PUT", "/bbb").query(name, "").body(body);
    for (name, body) in [
        // Without what is not known it would delete everything.
        ("lifecycle", rule("<Filter><Colour>red</Colour></Filter>")),
        (
            "lifecycle",
            rule("<Filter/><Tag><Key>a</Key><Value>b</Value></Tag>"),
        ),
        (
            "lifecycle",
            rule("<Filter><Prefix>a</Prefix><Tag><Key>a</Key><Value/></Tag></Filter>"),
        ),
        (
            "lifecycle",
            rule("<Filter><Prefix>a</Prefix></Filter><Prefix>b</Prefix>"),
        ),
        ("lifecycle", rule("")),
        ("lifecycle", "<LifecycleConfiguration/>".to_owned()),
        ("cors", page("")),
        ("cors", page(&format!("{cors}<AllowedColour/></CORSRule>"))),
    ] {
        client.refused(put(name, &body), 400, "MalformedXML");
    }
    let transition =
        "<Prefix/><Transition><Days>1</Days><StorageClass>G</StorageClass></Transition>";
    client.refused(put("lifecycle", &rule(transition)), 501, "NotImplemented");
    let two =
        "<CORSRule><AllowedMethod>GET</AllowedMethod><AllowedOrigin>*a*</AllowedOrigin></CORSRule>";
    client.refused(put("cors", &page(two)), 400, "InvalidRequest");
    let none = Ask::new("PUT", "/none").query("lifecycle", "");
    client.refused(none.body(rule("<Prefix/>")), 404, "NoSuchBucket");
    for (name, code) in [
        ("lifecycle", "NoSuchLifecycleConfiguration"),
        ("cors", "NoSuchCORSConfiguration"),
    ] {
        client.refused(Ask::new("GET", "/bbb").query(name, ""), 404, code);
    }
}

#[test]
fn objects_expire_by_the_rules_of_their_bucket() {
    let (_running, mut client) = Running::with_bucket();
    for key in ["old/1", "old/2", "new/1"] {
        client.good(Ask::new("PUT", &format!("/bbb/{key}")).body("x"));
    }
    let rule = |id: &str, prefix: &str, end: &str| {
        format!(
            "<Rule>{id}<Filter><Prefix>{prefix}</Prefix></Filter><Status>Enabled</Status>\
             <Expiration>{end}</Expiration></Rule>"
        )
    };
    let document = format!(
        "<LifecycleConfiguration>{}{}</LifecycleConfiguration>",
        rule("", "old/", "<Date>2015-01-01T00:00:00Z</Date>"),
        rule("<ID>later</ID>", "new/", "<Days>30</Days>"),
    );
    client.good(
        Ask::new("PUT", "/bbb")
            .query("lifecycle", "")
            .body(document),
    );
    let told = client.good(Ask::new("GET", "/bbb").query("lifecycle", ""));
    assert!(told.text().contains("<ID>rule-1</ID>"), "{}", told.text());
    // Looked at at once; how soon that is over depends on the machine.
    while client.object("/bbb/old/1").is_some() || client.object("/bbb/old/2").is_some() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let reply = client.good(Ask::new("HEAD", "/bbb/new/1"));
    let ends = reply.header("x-amz-expiration").unwrap();
    let words = "00:00:00 GMT\", rule-id=\"later\"";
    assert!(ends.ends_with(words), "{ends}");
    let put = client.good(Ask::new("PUT", "/bbb/new/2").body("x"));
    assert!(put.header("x-amz-expiration").is_some());
    client.good(Ask::new("DELETE", "/bbb").query("lifecycle", ""));
    let reply = client.good(Ask::new("HEAD", "/bbb/new/1"));
    assert_eq!(reply.header("x-amz-expiration"), None);
}
