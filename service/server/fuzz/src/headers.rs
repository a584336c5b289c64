//! Values that strangers send beside their requests: the deadline, the trace, the login.

use http::{HeaderMap, HeaderValue};
use lumpscope_server::door;
use lumpscope_server::request::{TraceParent, timeout_of};

/// A file of tokens with one entry, the SHA-256 of "test".
const TOKENS: &[u8] = b"[[token]]\nname = \"test\"\nscopes = [\"read\"]\nsha256 = \
    \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\nstores = [\"*\"]\n";

/// One header a line, in the order grpc-timeout, traceparent, authorization, each once or more.
pub(crate) fn call_headers(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for (number, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let name = ["grpc-timeout", "traceparent", "authorization"][number % 3];
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    if let Some(time) = timeout_of(&headers) {
        assert!(time.as_secs() <= 99_999_999 * 3600, "{time:?}");
    }
    if let Some(trace) = TraceParent::of(&headers) {
        let digits = trace.as_str().bytes();
        let hex = digits
            .clone()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        assert!(hex && digits.len() == 32, "{trace:?}");
        assert!(trace.trace_id() != 0 && trace.span_id() != 0, "{trace:?}");
    }
    let login = door::try_login(TOKENS, &headers).expect("the file is right");
    let sent: Vec<&[u8]> = headers
        .get_all("authorization")
        .iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let right = matches!(sent[..], [value] if value.len() > 7
        && value[..7].eq_ignore_ascii_case(b"bearer ")
        && value[7..].trim_ascii() == b"test");
    assert_eq!(login.is_ok(), right, "{sent:?}");
}
