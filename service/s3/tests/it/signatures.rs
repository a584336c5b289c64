//! What has to be signed.

use crate::common::{Ask, Running, Sign};

/// Every way of signing that is taken.
const GOOD: [Sign; 2] = [Sign::Header, Sign::Url(600)];

#[test]
fn a_header_that_was_not_signed_is_not_obeyed() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/secret").body("secret"));
    client.good(Ask::new("PUT", "/bbb/k").body("old"));
    for sign in GOOD {
        let put = Ask::new("PUT", "/bbb/k").body("new").sign(sign);
        for (name, value) in [
            ("x-amz-copy-source", "bbb/secret"),
            ("x-amz-meta-who", "me"),
            ("x-amz-acl", "private"),
            ("x-amz-anything", "x"),
        ] {
            let said = client.refused(put.clone().unsigned(name, value), 403, "AccessDenied");
            assert!(said.contains(name), "{said}");
            assert_eq!(client.object("/bbb/k").unwrap(), b"old");
        }
        // What is signed is obeyed.
        let copy = Ask::new("PUT", "/bbb/copy").header("x-amz-copy-source", "bbb/secret");
        client.good(copy.sign(sign));
        assert_eq!(client.object("/bbb/copy").unwrap(), b"secret");
        client.good(Ask::new("DELETE", "/bbb/copy"));
        // Headers of others need no signature.
        let get = Ask::new("GET", "/bbb/k")
            .sign(sign)
            .unsigned("range", "bytes=0-0");
        assert_eq!(client.good(get).body, b"o");
    }
}

#[test]
fn the_host_and_the_time_are_signed() {
    let (_running, mut client) = Running::with_bucket();
    for sign in GOOD {
        let said = Ask::new("GET", "/bbb").sign(sign).without("host");
        let said = client.refused(said, 403, "AccessDenied");
        assert!(said.contains("host"), "{said}");
    }
    // Which header tells the time does not matter.
    let dated = Ask::new("GET", "/bbb").sign(Sign::Dated);
    client.good(dated.clone());
    let said = client.ask(dated.without("date"));
    assert_eq!(said.status, 400, "{}", said.text());
    for name in ["x-amz-date", "x-amz-content-sha256"] {
        let said = client.refused(Ask::new("GET", "/bbb").without(name), 403, "AccessDenied");
        assert!(said.contains(name), "{said}");
    }
}

#[test]
fn another_algorithm_never_gets_in() {
    let (_running, mut client) = Running::with_bucket();
    let ask = Ask::new("GET", "/bbb").sign(Sign::Misnamed);
    client.refused(ask, 400, "AuthorizationHeaderMalformed");
}

#[test]
fn version_2_never_gets_in() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("old"));
    for sign in [Sign::OldHeader, Sign::OldUrl] {
        for ask in [
            Ask::new("GET", "/bbb/k"),
            // Asked again without what is empty.
            Ask::new("GET", "/bbb/k").query("max-keys", ""),
            Ask::new("GET", "/bbb").query("max-keys", ""),
            Ask::new("PUT", "/bbb/k").body("new"),
            Ask::new("DELETE", "/bbb/k"),
        ] {
            let said = client.refused(ask.sign(sign), 403, "AccessDenied");
            assert!(said.contains("signature_version=s3v4"), "{said}");
        }
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"old");
}

#[test]
fn a_url_is_good_for_seven_days() {
    let (_running, mut client) = Running::with_bucket();
    let get = |seconds| Ask::new("GET", "/bbb").sign(Sign::Url(seconds));
    client.good(get(604_800));
    let code = "AuthorizationQueryParametersError";
    let said = client.refused(get(604_801), 400, code);
    assert!(said.contains("604800"), "{said}");
}

#[test]
fn one_signature_is_enough_and_a_form_has_none() {
    let (_running, mut client) = Running::with_bucket();
    let both = Ask::new("GET", "/bbb").sign(Sign::Url(60));
    let both = both.unsigned("authorization", "AWS4-HMAC-SHA256 x");
    client.refused(both, 400, "InvalidArgument");
    let form = Ask::new("POST", "/bbb").header("content-type", "multipart/form-data; boundary=x");
    let ask = form.clone().sign(Sign::Nothing);
    client.refused(ask, 400, "MalformedPOSTRequest");
    client.refused(form, 400, "InvalidArgument");
    let other = Ask::new("POST", "/bbb").header("content-type", "multipart/mixed; boundary=x");
    client.refused(other, 501, "NotImplemented");
    let ask = Ask::new("GET", "/bbb").sign(Sign::Nothing);
    client.refused(ask, 403, "AccessDenied");
}

#[test]
fn parameters_of_a_url_are_headers_too() {
    let (_running, mut client) = Running::with_bucket();
    let put = Ask::new("PUT", "/bbb/k").body("x").sign(Sign::Url(60));
    client.good(put.clone().query("x-amz-meta-who", "me"));
    let head = client.good(Ask::new("HEAD", "/bbb/k"));
    assert_eq!(head.header("x-amz-meta-who"), Some("me"));
    let ask = put.clone().query("X-Amz-Server-Side-Encryption", "AES256");
    client.refused(ask, 501, "NotImplemented");
    let ask = put.query("x-amz-checksum-crc32", "AAAAAA==");
    client.refused(ask, 400, "BadDigest");
}

#[test]
fn a_region_that_cannot_be_is_answered_with_the_one_there_is() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("GET", "/bbb").region("eu-central-1"));
    for region in ["US", "EU", "RegionOne", ""] {
        for sign in GOOD {
            let reply = client.ask(Ask::new("GET", "/bbb").region(region).sign(sign));
            let code = reply.element("Code").unwrap();
            let expected = (400, "AuthorizationHeaderMalformed");
            assert_eq!((reply.status, &*code), expected);
            assert_eq!(reply.element("Region").unwrap(), "us-east-1");
            let head = client.ask(Ask::new("HEAD", "/bbb").region(region).sign(sign));
            assert_eq!(head.header("x-amz-bucket-region"), Some("us-east-1"));
        }
    }
}
