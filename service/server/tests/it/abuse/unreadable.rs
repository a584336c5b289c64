//! Calls whose one message cannot be read. Must not achieve: an INTERNAL, which says that the service
//! is at fault, or an answer without a reason.

use bytes::Bytes;
use h2::client::SendRequest;
use prost::Message as _;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

use super::harness::Abused;
use super::wire::{connect, prefixed, request};

/// Every method of which the client sends one message, and health.
fn methods() -> Vec<String> {
    let all = [
        lumpscope_proto::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
    ];
    let mut found = Vec::new();
    for set in all.map(|bytes| prost_types::FileDescriptorSet::decode(bytes).unwrap()) {
        for file in &set.file {
            for service in &file.service {
                let one = service.method.iter().filter(|m| !m.client_streaming());
                let path = |name: &str| format!("/{}.{}/{name}", file.package(), service.name());
                found.extend(one.map(|method| path(method.name())));
            }
        }
    }
    found
}

/// The status of a call with this body, which is sent as `encoding`.
async fn status_of(
    client: &SendRequest<Bytes>,
    path: &str,
    body: &Bytes,
    encoding: &'static str,
) -> Status {
    let mut asked = request(path);
    let value = http::HeaderValue::from_static(encoding);
    asked.headers_mut().insert("grpc-encoding", value);
    let mut ready = client.clone().ready().await.unwrap();
    let (reply, mut stream) = ready.send_request(asked, false).unwrap();
    stream.send_data(body.clone(), true).unwrap();
    let reply = reply.await.unwrap();
    if let Some(status) = Status::from_header_map(reply.headers()) {
        return status;
    }
    let mut body = reply.into_body();
    while let Some(data) = body.data().await {
        drop(data.unwrap());
    }
    let trailers = body
        .trailers()
        .await
        .unwrap()
        .expect("a reply has trailers");
    Status::from_header_map(&trailers).expect("a reply has a status")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_nobody_can_read() {
    let abused = Abused::start().await;
    let client = connect(abused.address(), 64 << 10).await;
    let whole = prefixed(0, &[0xff; 11]);
    let cases = [
        (
            "no protobuf",
            whole.clone(),
            Code::InvalidArgument,
            "MALFORMED",
        ),
        ("nothing", Bytes::new(), Code::InvalidArgument, "MALFORMED"),
        (
            "half a prefix",
            whole.slice(..3),
            Code::InvalidArgument,
            "MALFORMED",
        ),
        (
            "half a message",
            whole.slice(..9),
            Code::InvalidArgument,
            "MALFORMED",
        ),
        (
            "an unknown flag",
            prefixed(7, b""),
            Code::InvalidArgument,
            "MALFORMED",
        ),
        (
            "compressed",
            prefixed(1, b"x"),
            Code::Unimplemented,
            "COMPRESSED",
        ),
    ];
    let methods = methods();
    assert!(methods.len() > 25, "{methods:?}");
    for path in &methods {
        for (what, body, code, reason) in &cases {
            for encoding in ["identity", "gzip"] {
                let status = status_of(&client, path, body, encoding).await;
                let info = status.get_details_error_info();
                let found = info.map(|info| info.reason).unwrap_or_default();
                let found = (status.code(), found.as_str());
                let expected = (*code, *reason);
                assert_eq!(found, expected, "{path}, {what}, {encoding}: {status:?}");
            }
        }
    }
    drop(client);
    abused.survived().await;
}
