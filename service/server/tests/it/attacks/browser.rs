//! Must not achieve: to call the service from a page of another site in a browser of its user.

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode};

use crate::abuse::harness::Abused;
use crate::abuse::wire;

async fn status(abused: &Abused, request: Request<()>) -> StatusCode {
    let client = wire::connect(abused.address(), 1 << 20).await;
    let mut ready = client.ready().await.unwrap();
    let (reply, mut stream) = ready.send_request(request, false).unwrap();
    // It may be refused before its message.
    let _ = stream.send_data(Bytes::from_static(&[0; 5]), true);
    reply.await.unwrap().status()
}

fn request() -> Request<()> {
    wire::request("/lumpscope.v1.LumpStore/ListStores")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_that_a_page_can_make() {
    let abused = Abused::start().await;
    assert_eq!(status(&abused, request()).await, StatusCode::OK);
    for kind in ["text/plain", "application/grpc-web", "application/json", ""] {
        let mut request = request();
        let value = HeaderValue::from_static(kind);
        request.headers_mut().insert("content-type", value);
        let got = status(&abused, request).await;
        assert_eq!(got, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{kind}");
    }
    for kind in [
        "application/grpc",
        "application/grpc+proto",
        "application/grpc;x=y",
    ] {
        let mut request = request();
        let value = HeaderValue::from_static(kind);
        request.headers_mut().insert("content-type", value);
        assert_eq!(status(&abused, request).await, StatusCode::OK, "{kind}");
    }
    for method in [http::Method::GET, http::Method::PUT, http::Method::OPTIONS] {
        let mut request = request();
        *request.method_mut() = method;
        let got = status(&abused, request).await;
        assert_eq!(got, StatusCode::METHOD_NOT_ALLOWED);
    }
    let mut foreign = request();
    let origin = HeaderValue::from_static("https://example.com");
    foreign.headers_mut().insert("origin", origin);
    assert_eq!(status(&abused, foreign).await, StatusCode::FORBIDDEN);
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_read_by_a_name_that_another_site_owns() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let abused = Abused::start().await;
    for (path, host, want) in [
        ("/metrics", "rebound.example", "403"),
        ("/readyz", "rebound.example", "403"),
        ("/healthz", "rebound.example", "403"),
        ("/livez", "rebound.example", "200"),
        ("/metrics", "127.0.0.1", "200"),
        ("/healthz", "localhost:9464", "200"),
    ] {
        let at = abused.service.metrics;
        let mut stream = tokio::net::TcpStream::connect(at).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        assert_eq!(&text[9..12], want, "{path} of {host}: {text}");
    }
    abused.survived().await;
}
