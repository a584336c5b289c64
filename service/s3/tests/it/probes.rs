//! What clients ask before they begin.

use crate::common::{ACCESS, Ask, Running};

#[test]
fn settings_that_nobody_made_are_told_as_s3_tells_them() {
    let (_running, mut client) = Running::with_bucket();
    client.good(Ask::new("PUT", "/bbb/k").body("x"));
    for (name, code) in [
        ("cors", "NoSuchCORSConfiguration"),
        (
            "encryption",
            "ServerSideEncryptionConfigurationNotFoundError",
        ),
        ("lifecycle", "NoSuchLifecycleConfiguration"),
        ("object-lock", "ObjectLockConfigurationNotFoundError"),
        ("policy", "NoSuchBucketPolicy"),
        ("replication", "ReplicationConfigurationNotFoundError"),
        ("tagging", "NoSuchTagSet"),
        ("website", "NoSuchWebsiteConfiguration"),
    ] {
        client.refused(Ask::new("GET", "/bbb").query(name, ""), 404, code);
        let none = Ask::new("GET", "/none").query(name, "");
        client.refused(none, 404, "NoSuchBucket");
    }
    for (name, told) in [
        ("versioning", "<VersioningConfiguration"),
        ("logging", "<BucketLoggingStatus"),
        ("acl", "<Permission>FULL_CONTROL</Permission>"),
        ("location", "<LocationConstraint"),
    ] {
        let reply = client.good(Ask::new("GET", "/bbb").query(name, ""));
        assert!(reply.text().contains(told), "{}", reply.text());
    }
    let acl = client.good(Ask::new("GET", "/bbb/k").query("acl", ""));
    assert_eq!(acl.element("ID").unwrap(), ACCESS);
    let tags = client.good(Ask::new("GET", "/bbb/k").query("tagging", ""));
    assert!(!tags.text().contains("<Tag>"), "{}", tags.text());
    let none = Ask::new("GET", "/bbb/none").query("tagging", "");
    client.refused(none, 404, "NoSuchKey");
    // None of them can be made, or taken away.
    for name in ["policy", "versioning", "acl", "encryption"] {
        for (method, path) in [
            ("PUT", "/bbb"),
            ("DELETE", "/bbb"),
            ("PUT", "/bbb/k"),
            ("DELETE", "/bbb/k"),
        ] {
            let ask = Ask::new(method, path).query(name, "").body("<X/>");
            client.refused(ask, 501, "NotImplemented");
        }
    }
    assert_eq!(client.object("/bbb/k").unwrap(), b"x");
}

#[test]
fn each_key_has_one_version() {
    let (_running, mut client) = Running::with_bucket();
    for key in ["a", "b/1", "b/2", "c"] {
        client.good(Ask::new("PUT", &format!("/bbb/{key}")).body("x"));
    }
    let ask = Ask::new("GET", "/bbb").query("versions", "");
    let all = client.good(ask.clone());
    assert_eq!(all.text().matches("<VersionId>null</VersionId>").count(), 4);
    assert_eq!(all.text().matches("<IsLatest>true</IsLatest>").count(), 4);
    let page = client.good(ask.clone().query("max-keys", "2"));
    assert_eq!(page.element("NextKeyMarker").unwrap(), "b/1");
    assert_eq!(page.element("NextVersionIdMarker").unwrap(), "null");
    let rest = ask
        .clone()
        .query("key-marker", "b/1")
        .query("version-id-marker", "null");
    let rest = client.good(rest);
    assert_eq!(rest.element("Key").unwrap(), "b/2");
    assert_eq!(rest.text().matches("<Version>").count(), 2);
    let grouped = client.good(ask.query("delimiter", "/"));
    assert_eq!(grouped.text().matches("<Version>").count(), 2);
    assert!(
        grouped
            .text()
            .contains("<CommonPrefixes><Prefix>b/</Prefix></CommonPrefixes>")
    );
}
