//! What strangers send beside their requests: the time they give, the trace, the login.

use http::{HeaderMap, HeaderValue};
use lumpscope::fuzzing;

/// One header a line, in the order grpc-timeout, traceparent, authorization, each once or more.
pub(crate) fn call_headers(data: &[u8]) {
    let mut headers = HeaderMap::new();
    for (number, line) in data.split(|byte| *byte == b'\n').enumerate() {
        let name = ["grpc-timeout", "traceparent", "authorization"][number % 3];
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(name, value);
        }
    }
    fuzzing::call_headers(&headers);
}
