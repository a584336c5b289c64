//! Puts that are refused before their body has come: the client sends it all the same, and hears
//! why.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::common::{Ask, HttpClient, Reply, Running};

const MIB: usize = 1 << 20;

/// Sends all of a request before it reads, as Node and the http.client of Python do.
fn whole(client: &mut HttpClient, ask: Ask) -> Option<Reply> {
    let reply = client.begin(ask)?;
    Some(client.end(reply).0)
}

#[test]
fn the_answer_to_a_refused_put_is_not_lost() {
    let (running, _) = Running::with_bucket();
    let plain =
        |path: &str| Ask::new("PUT", path).header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    for bytes in [1000, MIB, 8 * MIB] {
        for (ask, status, code) in [
            (plain("/none/k"), 404, "NoSuchBucket"),
            (
                plain("/bbb/k").header("x-amz-acl", "public-read"),
                501,
                "NotImplemented",
            ),
            (
                plain("/bbb/k").header("content-md5", "x"),
                400,
                "InvalidDigest",
            ),
            (plain("/bbb/k").without("host"), 403, "AccessDenied"),
            (plain("/bbb/k").by("AKNONE"), 403, "InvalidAccessKeyId"),
        ] {
            for _ in 0..4 {
                let mut client = running.client();
                let reply = whole(&mut client, ask.clone().body(vec![7; bytes]));
                let reply = reply.unwrap_or_else(|| panic!("{code} is lost, {bytes} bytes"));
                let expected = (status, code);
                assert_eq!((reply.status, &*reply.element("Code").unwrap()), expected);
                // What follows on this connection would not be read.
                assert_eq!(reply.header("connection"), Some("close"), "{code} {bytes}");
            }
        }
    }
}

/// A body that does not end is not read for ever.
#[test]
fn a_body_without_end_is_not_read_to_its_end() {
    let (running, _) = Running::with_bucket();
    let mut client = running.client();
    let ask = Ask::new("PUT", "/none/k").header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    let reply = client.begin(ask.announced(4 << 30).body("x")).unwrap();
    assert_eq!(reply.status, 404);
    let piece = vec![7; MIB];
    let taken = (0..1024).take_while(|_| client.push(&piece)).count();
    assert!(taken < 200, "{taken} MiB");
}

/// A client that asks first sends nothing once it is refused, and has its answer at once.
#[test]
fn a_client_that_waits_for_100_continue_is_answered_at_once() {
    let (running, _) = Running::with_bucket();
    let ask = Ask::new("PUT", "/none/k").header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    let ask = ask.unsigned("expect", "100-continue").announced(8 << 20);
    let mut stream = TcpStream::connect(running.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream.write_all(&ask.bytes(running.address)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 404 "), "{text}");
    let words = "connection: close";
    assert!(text.to_ascii_lowercase().contains(words), "{text}");
}
