//! gRPC-Web over HTTP/1.1: calls as over gRPC, and what is refused before it is a call.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use lumpscope_engine::crc32c;
use lumpscope_proto::v1;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;

use crate::common::{self, body, chunk, first, header, raw_id};
use crate::door::harness::{Serving, place, token, tokens};

type Parts = StreamBody<tokio_stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Gone>>>>;

/// A client that breaks off.
#[derive(Debug, thiserror::Error)]
#[error("gone")]
struct Gone;

/// An answer, taken apart.
#[derive(Debug)]
pub(crate) struct WebReply {
    pub(crate) http: u16,
    /// In the head, or in the trailers at the end of the body; `None`: it is no answer to a call.
    pub(crate) code: Option<i32>,
    why: String,
    id: Option<u64>,
    messages: Vec<Bytes>,
}

impl WebReply {
    #[track_caller]
    fn one<M: Message + Default>(&self) -> M {
        assert_eq!((self.http, self.code), (200, Some(0)), "{self:?}");
        assert_eq!(self.messages.len(), 1);
        M::decode(self.messages[0].clone()).unwrap()
    }
}

fn message(message: &impl Message) -> Bytes {
    let bytes = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(&bytes);
    framed.into()
}

fn post(path: &str) -> http::request::Builder {
    Request::post(path)
        .header("host", "localhost")
        .header("content-type", "application/grpc-web+proto")
}

fn lump_store(method: &str) -> http::request::Builder {
    post(&format!("/lumpscope.v1.LumpStore/{method}"))
}

fn parts(parts: Vec<Result<Bytes, Gone>>) -> Parts {
    let frames = parts.into_iter().map(|part| part.map(Frame::data));
    let frames: Vec<_> = frames.collect();
    StreamBody::new(tokio_stream::iter(frames))
}

async fn client<S>(stream: S) -> SendRequest<Parts>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    client
}

async fn send(
    client: &mut SendRequest<Parts>,
    request: http::request::Builder,
    messages: Vec<Bytes>,
) -> WebReply {
    client.ready().await.unwrap();
    let request = request.body(parts(messages.into_iter().map(Ok).collect()));
    let response = client.send_request(request.unwrap()).await.unwrap();
    let number = |name: &str| {
        let value = response.headers().get(name)?;
        value.to_str().ok()?.parse::<u64>().ok()
    };
    let text = |name: &str| {
        let value = response.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let mut reply = WebReply {
        http: response.status().as_u16(),
        code: number("grpc-status").map(|code| i32::try_from(code).unwrap()),
        why: text("grpc-message"),
        id: number("lumpscope-request-id"),
        messages: Vec::new(),
    };
    if text("content-type").starts_with("application/grpc-web") {
        let body = response.into_body().collect().await.unwrap().to_bytes();
        take_apart(&mut reply, body);
    }
    reply
}

fn take_apart(reply: &mut WebReply, mut body: Bytes) {
    while !body.is_empty() {
        let head = body.split_to(5);
        let len = u32::from_be_bytes(head[1..].try_into().unwrap());
        let frame = body.split_to(len as usize);
        match head[0] {
            0 => reply.messages.push(frame),
            0x80 => {
                assert!(body.is_empty(), "there is something behind the trailers");
                for line in std::str::from_utf8(&frame).unwrap().lines() {
                    match line.split_once(':').unwrap() {
                        ("grpc-status", code) => reply.code = Some(code.trim().parse().unwrap()),
                        ("grpc-message", why) => why.trim().clone_into(&mut reply.why),
                        _ => {}
                    }
                }
            }
            flag => panic!("a frame with the flag {flag}"),
        }
    }
}

/// Asks for the stores on a connection of its own.
pub(crate) async fn web_list<S>(stream: S) -> WebReply
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let list = vec![message(&v1::ListStoresRequest {})];
    send(&mut client(stream).await, lump_store("ListStores"), list).await
}

fn get(id: u128) -> Bytes {
    message(&v1::GetRequest {
        store: "s".into(),
        id: raw_id(id),
        ..Default::default()
    })
}

fn put_small(id: u128, body: &Bytes) -> Bytes {
    message(&v1::PutSmallRequest {
        header: Some(header("s", id, body.len() as u64)),
        body: body.clone(),
    })
}

/// The bytes of a Get.
fn bytes_of(reply: &WebReply) -> Vec<u8> {
    assert_eq!((reply.http, reply.code), (200, Some(0)), "{reply:?}");
    let mut bytes = Vec::new();
    for part in &reply.messages {
        match v1::GetResponse::decode(part.clone()).unwrap().part.unwrap() {
            v1::get_response::Part::Header(header) => assert!(header.verified),
            v1::get_response::Part::Chunk(chunk) => bytes.extend_from_slice(&chunk),
        }
    }
    bytes
}

async fn round_trip(client: &mut SendRequest<Parts>) {
    let small = body(1, 25_000);
    let stored = send(client, lump_store("PutSmall"), vec![put_small(1, &small)]).await;
    let id = stored.id.unwrap();
    let stored: v1::PutSmallResponse = stored.one();
    assert_eq!(stored.put.unwrap().request_id, id);
    let large = body(2, 5 << 20);
    let mut sent = vec![message(&first(header("s", 2, large.len() as u64)))];
    let parts = large.chunks(300_000);
    sent.extend(parts.map(|part| message(&chunk(part.to_vec()))));
    let stored: v1::PutResponse = send(client, lump_store("Put"), sent).await.one();
    assert_eq!(stored.crc32c, crc32c::of(&large));
    for (id, bytes) in [(1, &small), (2, &large)] {
        let got = send(client, lump_store("Get"), vec![get(id)]).await;
        assert!(bytes_of(&got) == bytes[..], "the bytes of {id} differ");
    }
    let missing = send(client, lump_store("Get"), vec![get(3)]).await;
    let (code, why) = (missing.code, missing.why);
    assert_eq!(code, Some(Code::NotFound as i32));
    assert!(why.contains("lump"), "{why}");
    let absent = send(client, lump_store("Nothing"), vec![get(3)]).await;
    assert_eq!(absent.code, Some(Code::Unimplemented as i32));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn puts_and_gets_on_both_sockets() {
    let (folder, mut config) = place();
    let socket = folder.path().join("s.sock");
    config.unix_socket = Some(socket.clone());
    let service = Serving::start(config).await;
    // Each takes all of its calls on one connection.
    round_trip(&mut client(TcpStream::connect(service.grpc).await.unwrap()).await).await;
    round_trip(&mut client(UnixStream::connect(&socket).await.unwrap()).await).await;
    let (_, text) = common::http_get(service.metrics, "/metrics").await;
    let line = "lumpscope_requests_total{store=\"s\",method=\"put_small\",code=\"OK\"} 2";
    assert!(text.contains(line), "{line} is not in\n{text}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_are_those_of_grpc() {
    let (folder, mut config) = place();
    let reader = token("reader", "r", "scopes = [\"read\"]");
    config.tokens = Some(tokens(folder.path(), &[reader]));
    let service = Serving::start(config).await;
    let mut client = client(TcpStream::connect(service.grpc).await.unwrap()).await;
    let small = vec![put_small(1, &body(1, 10))];
    let put = || lump_store("PutSmall");
    let put_as = |token: &str| put().header("authorization", format!("Bearer {token}"));
    // A page that has a token is as good as any other program with one.
    let of_page = put_as("r").header("origin", "https://a.example");
    for (request, code) in [
        (put(), Code::Unauthenticated),
        (put_as("x"), Code::Unauthenticated),
        (put_as("r"), Code::PermissionDenied),
        (of_page, Code::PermissionDenied),
    ] {
        let refused = send(&mut client, request, small.clone()).await;
        assert_eq!(refused.code, Some(code as i32), "{refused:?}");
        assert!(refused.id.is_some());
    }
    let list = lump_store("ListStores").header("authorization", "Bearer r");
    let list = send(&mut client, list, vec![message(&v1::ListStoresRequest {})]).await;
    list.one::<v1::ListStoresResponse>();
    let health = post("/grpc.health.v1.Health/Check");
    let health = send(&mut client, health, vec![Bytes::from_static(&[0; 5])]).await;
    assert_eq!(health.code, Some(0), "health is for everybody");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_and_deadlines_are_those_of_grpc() {
    let (_folder, config) = place();
    let service = Serving::start(config).await;
    let mut at = client(TcpStream::connect(service.grpc).await.unwrap()).await;
    let late = lump_store("PutSmall").header("grpc-timeout", "0n");
    let late = send(&mut at, late, vec![put_small(1, &body(1, 10))]).await;
    assert_eq!(late.code, Some(Code::DeadlineExceeded as i32));
    let malformed = lump_store("Get").header("grpc-timeout", "soon");
    let malformed = send(&mut at, malformed, vec![get(1)]).await;
    assert_eq!(malformed.code, Some(Code::InvalidArgument as i32));
    // More than is announced, and less.
    for len in [9, 11] {
        let head = message(&first(header("s", 1, 10)));
        let sent = vec![head, message(&chunk(vec![0; len]))];
        let differs = send(&mut at, lump_store("Put"), sent).await;
        let invalid = Some(Code::InvalidArgument as i32);
        assert_eq!(differs.code, invalid, "{differs:?}");
        at = client(TcpStream::connect(service.grpc).await.unwrap()).await;
    }
    let large = put_small(1, &body(1, (1 << 20) + 1));
    let mut grpc = v1::lump_store_client::LumpStoreClient::new(service.plain().await);
    let request = v1::PutSmallRequest::decode(large.slice(5..)).unwrap();
    let by_grpc = grpc.put_small(request).await.unwrap_err();
    let by_web = send(&mut at, lump_store("PutSmall"), vec![large]).await;
    let code = Some(by_grpc.code() as i32);
    assert_eq!(by_web.code, code, "{by_web:?} {by_grpc}");
    // A prefix that announces more than a message may have is not waited for.
    let mut at = client(TcpStream::connect(service.grpc).await.unwrap()).await;
    let endless = Bytes::from_static(&[0, 0xff, 0xff, 0xff, 0xff]);
    let endless = send(&mut at, lump_store("PutSmall"), vec![endless]).await;
    assert_ne!(endless.code, Some(0), "{endless:?}");
    drop(grpc);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_breaks_off_stores_nothing() {
    let (_folder, config) = place();
    let service = Serving::start(config).await;
    let connect = || async { client(TcpStream::connect(service.grpc).await.unwrap()).await };
    let whole = [
        message(&first(header("s", 7, 10))),
        message(&chunk(vec![1; 10])),
    ];
    // All bytes of the lump have come, but the end of the request has not.
    let broken = whole.iter().cloned().map(Ok).chain([Err(Gone)]);
    let mut at = connect().await;
    at.ready().await.unwrap();
    let request = lump_store("Put").body(parts(broken.collect())).unwrap();
    at.send_request(request).await.unwrap_err();
    let mut stream = TcpStream::connect(service.grpc).await.unwrap();
    let length = whole.concat().len() + 1;
    let head = format!(
        "POST /lumpscope.v1.LumpStore/Put HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/grpc-web\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&whole.concat()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer)).await;
    let mut at = connect().await;
    let missing = send(&mut at, lump_store("Get"), vec![get(7)]).await;
    assert_eq!(missing.code, Some(Code::NotFound as i32), "{missing:?}");
    let stored = send(&mut at, lump_store("Put"), whole.to_vec()).await;
    stored.one::<v1::PutResponse>();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_page_can_send_is_refused() {
    let (_folder, config) = place();
    let service = Serving::start(config).await;
    let list = || vec![message(&v1::ListStoresRequest {})];
    let call = |kind: &str| {
        Request::post("/lumpscope.v1.LumpStore/ListStores").header("content-type", kind)
    };
    let web = || call("application/grpc-web+proto").header("host", "localhost");
    let kind = |kind: &str| call(kind).header("host", "localhost");
    let page = || web().header("origin", "https://a.example");
    let (unsupported, forbidden) = (StatusCode::UNSUPPORTED_MEDIA_TYPE, StatusCode::FORBIDDEN);
    let no_method = StatusCode::METHOD_NOT_ALLOWED;
    let rebound = call("application/grpc-web").header("host", "rebound.example");
    let refused = [
        (kind("text/plain"), unsupported),
        (kind("application/grpc"), unsupported),
        (kind("application/grpc-web-text"), unsupported),
        (web().header("content-type", "text/plain"), unsupported),
        (web().method(Method::GET), no_method),
        (web().method(Method::OPTIONS), no_method),
        (page(), forbidden),
        // Nobody compares the token, so any page could send one.
        (page().header("authorization", "Bearer x"), forbidden),
        (web().header("sec-fetch-site", "cross-site"), forbidden),
        (rebound, forbidden),
    ];
    for (request, status) in refused {
        // Behind a call that is one: the first bytes of a connection decide only what it speaks.
        let mut at = client(TcpStream::connect(service.grpc).await.unwrap()).await;
        let fine = send(&mut at, web(), list()).await;
        fine.one::<v1::ListStoresResponse>();
        let asked = format!("{request:?}");
        let reply = send(&mut at, request, list()).await;
        assert_eq!((reply.http, reply.code), (status.as_u16(), None), "{asked}");
        assert!(reply.messages.is_empty());
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_have_the_limits_of_the_service() {
    let (_folder, mut config) = place();
    config.handshake_timeout = Duration::from_secs(1);
    let service = Serving::start(config).await;
    // One that does not end, and one that is too long.
    for more in ["", &"x".repeat(1 << 20)] {
        let mut stream = TcpStream::connect(service.grpc).await.unwrap();
        let head = format!("POST /lumpscope.v1.LumpStore/ListStores HTTP/1.1\r\nHost: {more}");
        let _ = stream.write_all(head.as_bytes()).await;
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut answer));
        let _ = ended.await.expect("the connection was not closed");
        assert!(!answer.starts_with(b"HTTP/1.1 200"));
    }
    let reply = web_list(TcpStream::connect(service.grpc).await.unwrap()).await;
    reply.one::<v1::ListStoresResponse>();
    service.stop().await;
}
