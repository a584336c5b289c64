//! Limits of one client: connections, time, headers.

use std::time::{Duration, Instant};

use lumpscope_proto::v1;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_server::config::ServeConfig;
use lumpscope_units::Size;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Request;

use super::harness::{Authority, LONG, SHORT, Serving, hello, place, until_closed};
use crate::common::{body, chunk, first, get, header, put};

fn quick(config: &mut ServeConfig) {
    config.handshake_timeout = SHORT;
    config.idle_timeout = SHORT;
}

#[tokio::test]
async fn more_connections_wait_until_one_ends() {
    let (_folder, mut config) = place();
    config.max_connections = 2;
    let service = Serving::start(config).await;
    let one = service.plain().await;
    let two = service.plain().await;
    for channel in [&one, &two] {
        let mut client = LumpStoreClient::new(channel.clone());
        client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    }
    let waits = TcpStream::connect(service.grpc).await.unwrap();
    let (asked, connection) = hello(waits).await;
    let connection = tokio::spawn(connection);
    tokio::time::sleep(SHORT / 2).await;
    assert!(!asked.is_finished(), "a third connection was served");
    let mut client = LumpStoreClient::new(two);
    client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    drop(one);
    let status = tokio::time::timeout(LONG, asked).await.unwrap().unwrap();
    assert_eq!(status, 200);
    connection.abort();
    drop(client);
    service.stop().await;
}

#[tokio::test]
async fn a_connection_without_calls_is_told_to_leave() {
    let (_folder, mut config) = place();
    quick(&mut config);
    let service = Serving::start(config).await;
    let stream = TcpStream::connect(service.grpc).await.unwrap();
    let (asked, connection) = hello(stream).await;
    // GOAWAY without an error, not a cut.
    tokio::time::timeout(LONG, connection)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(asked.await.unwrap(), 200);
    // One that never answers, not even a ping, is cut all the same.
    let mut deaf = TcpStream::connect(service.grpc).await.unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    deaf.write_all(preface).await.unwrap();
    until_closed(&mut deaf).await;
    service.stop().await;
}

#[tokio::test]
async fn a_call_under_way_keeps_its_connection() {
    let (_folder, mut config) = place();
    quick(&mut config);
    let service = Serving::start(config).await;
    let mut client = LumpStoreClient::new(service.plain().await);
    let (sender, messages) = mpsc::channel(4);
    sender.send(first(header("s", 1, 4))).await.unwrap();
    let mut putting = client.clone();
    let reply = tokio::spawn(async move { putting.put(ReceiverStream::new(messages)).await });
    tokio::time::sleep(SHORT * 4).await;
    sender.send(chunk("abcd")).await.unwrap();
    drop(sender);
    reply.await.unwrap().unwrap();
    assert_eq!(get(&mut client, "s", 1).await.unwrap(), b"abcd");
    drop(client);
    service.stop().await;
}

#[tokio::test]
async fn slow_handshakes_end() {
    let (folder, mut config) = place();
    quick(&mut config);
    // What idles is none of this test's business.
    config.idle_timeout = Duration::ZERO;
    let plain = Serving::start(config.clone()).await;
    let again = Serving::start({
        let (other, mut config) = place();
        config.handshake_timeout = SHORT;
        crate::common::use_tls(&mut config, Authority::new().files(folder.path()));
        // The store's file outlives the folder that is forgotten here.
        let _ = other.keep();
        config
    })
    .await;
    let tls_hello = b"\x16\x03\x01\x02\x00\x01\x00";
    for (address, bytes) in [
        (plain.grpc, &b""[..]),
        (plain.grpc, b"PRI * HTTP/2.0\r\n"),
        (plain.metrics, b"GET /metrics HTTP/1.1\r\nHost: x\r\n"),
        (again.grpc, b""),
        (again.grpc, tls_hello),
        (again.metrics, tls_hello),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        let begun = Instant::now();
        until_closed(&mut stream).await;
        assert!(begun.elapsed() >= SHORT / 2, "{bytes:?} was not waited for");
    }
    // What can never become a preface is not waited for at all.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], tls_hello] {
        let mut stream = TcpStream::connect(plain.grpc).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        assert!(until_closed(&mut stream).await.is_empty());
    }
    let (_, text) = crate::common::http_get(plain.metrics, "/metrics").await;
    for line in [
        "lumpscope_connections_refused_total{entrance=\"tcp\",reason=\"timeout\"} 2",
        "lumpscope_connections_refused_total{entrance=\"tcp\",reason=\"preface\"} 2",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let mut client = LumpStoreClient::new(plain.plain().await);
    put(&mut client, "s", 1, &body(1, 10)).await.unwrap();
    drop(client);
    plain.stop().await;
    again.stop().await;
}

#[tokio::test]
async fn headers_have_a_size() {
    let (_folder, mut config) = place();
    config.max_header_bytes = Size(4096);
    let service = Serving::start(config).await;
    let mut client = LumpStoreClient::new(service.plain().await);
    for bytes in [100, 3000, 20_000, 200_000] {
        let mut request = Request::new(v1::ListStoresRequest {});
        let value = "x".repeat(bytes).parse().unwrap();
        request.metadata_mut().insert("x-large", value);
        let asked = client.list_stores(request).await;
        assert_eq!(asked.is_ok(), bytes < 4096, "{bytes}: {asked:?}");
    }
    // Who sent too much may go on with less.
    client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    let long = "x".repeat(20_000);
    let stream = TcpStream::connect(service.metrics).await.unwrap();
    let (status, _) = super::harness::http_get(stream, "/healthz", &format!("X: {long}\r\n")).await;
    assert_eq!(status, 431);
    drop(client);
    service.stop().await;
}
