use std::net::TcpListener;
use std::thread::JoinHandle;

use super::*;

/// A server: what it answers, on each connection to each request.
fn server(connections: Vec<Vec<Vec<u8>>>) -> (Download, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let served = std::thread::spawn(move || {
        for answers in connections {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    asked.extend(byte);
                }
                assert!(asked.starts_with(b"GET /lump?signed HTTP/1.1\r\nhost: 127.0.0.1:"));
                // In two parts, the first of which ends within the head.
                let (first, rest) = answer.split_at(9.min(answer.len()));
                stream.write_all(first).unwrap();
                std::thread::sleep(Duration::from_millis(2));
                stream.write_all(rest).unwrap();
            }
        }
    });
    (Download::new(address, Duration::from_secs(20)), served)
}

fn answer(headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\n{headers}\r\n").into_bytes();
    bytes.extend(body);
    bytes
}

fn whole(body: &[u8]) -> Vec<u8> {
    answer(&format!("Content-Length: {}\r\n", body.len()), body)
}

#[test]
fn bodies_come_whole_and_memory_is_used_again_without_its_old_bytes() {
    let (long, short) = (vec![7; 3 << 20], vec![1; 100]);
    let answers = vec![whole(&long), whole(&short), whole(b""), whole(&long)];
    let (mut download, served) = server(vec![answers]);
    let body = download.get("/lump?signed").unwrap();
    assert_eq!(body, long);
    let place = body.as_ptr();
    drop(body);
    let body = download.get("/lump?signed").unwrap();
    assert_eq!((&body[..], body.as_ptr()), (&short[..], place));
    drop(body);
    assert_eq!(download.get("/lump?signed").unwrap(), b""[..]);
    assert_eq!(download.get("/lump?signed").unwrap(), long);
    served.join().unwrap();
}

#[test]
fn what_ends_early_is_no_body() {
    let short = answer("Content-Length: 10\r\n", b"123456789");
    let (mut download, served) = server(vec![vec![whole(b"0123456789")], vec![short], vec![]]);
    assert_eq!(download.get("/lump?signed").unwrap(), b"0123456789"[..]);
    // The first connection has ended, which no answer is lost by; the second ends in a body.
    let error = download.get("/lump?signed").unwrap_err();
    assert!(matches!(error, Error::Io(_)), "{error}");
    let error = download.get("/lump?signed").unwrap_err();
    assert!(matches!(error, Error::Ended | Error::Io(_)), "{error}");
    served.join().unwrap();
}

#[test]
fn a_connection_that_the_server_closes_is_not_used_again() {
    let last = answer("Content-Length: 1\r\nConnection: close\r\n", b"a");
    let (mut download, served) = server(vec![vec![last], vec![whole(b"b")]]);
    assert_eq!(download.get("/lump?signed").unwrap(), b"a"[..]);
    assert_eq!(download.get("/lump?signed").unwrap(), b"b"[..]);
    served.join().unwrap();
}

#[test]
fn only_what_was_asked_for_is_taken() {
    let refused = |answer: Vec<u8>| {
        let (mut download, served) = server(vec![vec![answer]]);
        let error = download.get("/lump?signed").unwrap_err();
        // The server may find the connection closed before it has written all.
        drop(download);
        let _ = served.join();
        error
    };
    let status = refused(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec());
    assert!(matches!(status, Error::Status { status: 404, .. }));
    let chunked = refused(answer("Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"));
    assert!(matches!(chunked, Error::Length));
    for length in [
        "",
        "Content-Length: -1\r\n",
        "Content-Length: 268435457\r\n",
    ] {
        assert!(matches!(refused(answer(length, b"")), Error::Length));
    }
    let twice = "Content-Length: 1\r\nContent-Length: 2\r\n";
    assert!(matches!(refused(answer(twice, b"a")), Error::Length));
    let surplus = refused(answer("Content-Length: 1\r\n", b"abc"));
    assert!(matches!(surplus, Error::Surplus), "{surplus}");
    assert!(matches!(refused(vec![b'?'; 10]), Error::Malformed(_)));
    let long = answer(&format!("x: {}\r\n", "y".repeat(MAX_HEAD)), b"");
    assert!(matches!(refused(long), Error::LongHead));
}
