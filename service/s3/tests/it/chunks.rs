//! Bodies of signed chunks, byte for byte.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::common::{Ask, Running, SECRET, hex, hmac, sha256};

/// The text between two others.
fn between<'text>(text: &'text str, begin: &str, end: &str) -> &'text str {
    let (_, rest) = text.split_once(begin).unwrap();
    rest.split_once(end).unwrap().0
}

/// The chunks of a request that has this head.
fn chunks(head: &str, chunks: &[&[u8]]) -> String {
    let (date, scope) = (
        between(head, "x-amz-date: ", "\r\n"),
        between(head, "Credential=AKTEST/", ","),
    );
    let mut key = format!("AWS4{SECRET}").into_bytes();
    for part in scope.split('/') {
        key = hmac(sha256, &key, part.as_bytes());
    }
    let mut before = between(head, "Signature=", "\r\n").to_owned();
    let (mut body, nothing) = (String::new(), hex(&sha256(b"")));
    for chunk in chunks {
        let hash = hex(&sha256(chunk));
        let text =
            format!("AWS4-HMAC-SHA256-PAYLOAD\n{date}\n{scope}\n{before}\n{nothing}\n{hash}");
        before = hex(&hmac(sha256, &key, text.as_bytes()));
        let chunk = std::str::from_utf8(chunk).unwrap();
        body += &format!("{:x};chunk-signature={before}\r\n{chunk}\r\n", chunk.len());
    }
    body
}

/// Puts `/bbb/k` in chunks; `cut`: bytes that the end of the body lacks. The first line of the
/// answer.
fn put(running: &Running, parts: &[&[u8]], cut: usize) -> String {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let raw: usize = parts
        .iter()
        .map(|part| format!("{:x}", part.len()).len() + 85 + part.len())
        .sum();
    let ask = Ask::new("PUT", "/bbb/k")
        .header("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        .header("x-amz-decoded-content-length", &len.to_string())
        .unsigned("connection", "close")
        .announced((raw - cut) as u64);
    let head = String::from_utf8(ask.bytes(running.address)).unwrap();
    let body = chunks(&head, parts);
    assert_eq!(body.len(), raw);
    let mut stream = TcpStream::connect(running.address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&body.as_bytes()[..raw - cut]).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// All bytes of the object may have come, and still the client has not said that these are all.
#[test]
fn a_body_of_signed_chunks_needs_the_last_one() {
    let (running, mut client) = Running::with_bucket();
    let object: &[u8] = b"0123456789";
    // Looks like the end, inside a chunk.
    let near = format!("x\r\n0;chunk-signature={}\r\n", "0".repeat(64));
    for parts in [
        &[object, b""][..],
        &[b"01234", b"56789", b""],
        &[b""],
        &[near.as_bytes(), b"y", b""],
    ] {
        let whole = parts.concat();
        let said = put(&running, parts, 0);
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        assert!(client.object("/bbb/k").unwrap() == whole);
        // Some clients leave out the last end of a line.
        let said = put(&running, parts, 2);
        assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
        client.good(Ask::new("PUT", "/bbb/k").body("old"));
        for cut in [3, 40, 86] {
            let said = put(&running, parts, cut);
            assert!(said.starts_with("HTTP/1.1 4"), "{said}");
        }
        if parts.len() > 1 {
            let said = put(&running, &parts[..parts.len() - 1], 0);
            assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
            assert!(said.contains("<Code>IncompleteBody</Code>"), "{said}");
        }
        assert_eq!(client.object("/bbb/k").unwrap(), b"old");
    }
}
