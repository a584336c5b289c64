//! Must not achieve: to keep others out with connections on which nothing is asked.

use std::net::SocketAddr;
use std::time::Duration;

use lumpscope_proto::v1;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use lumpscope_server::config::ServeConfig;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::door::harness::{LONG, SHORT, Serving, hello, http_get, place, until_closed};

/// Longer than any test: only room that is made lets anybody in.
const AGES: Duration = Duration::from_secs(3600);

fn patient(config: &mut ServeConfig) {
    config.handshake_timeout = AGES;
    config.idle_timeout = AGES;
}

async fn from(host: u8, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, host], 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn silent_connections_keep_nobody_from_the_liveness_check() {
    let (_folder, mut config) = place();
    patient(&mut config);
    let service = Serving::start(config).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        for host in 1..=3 {
            silent.push(from(host, service.metrics).await);
        }
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        let stream = from(1, service.metrics).await;
        let asked = timeout(LONG, http_get(stream, path, "")).await;
        assert_eq!(asked.expect("it is answered").0, 200, "{path}");
    }
    drop(silent);
    service.stop().await;
}

#[tokio::test]
async fn silent_connections_keep_nobody_from_the_health_of_grpc() {
    let (_folder, mut config) = place();
    patient(&mut config);
    config.max_connections = 16;
    let service = Serving::start(config).await;
    let mut silent = Vec::new();
    for number in 0..40 {
        silent.push(from(1 + number % 2, service.grpc).await);
    }
    let (asked, connection) = hello(from(1, service.grpc).await).await;
    let connection = tokio::spawn(connection);
    let status = timeout(LONG, asked).await.expect("it is answered");
    assert_eq!(status.unwrap(), 200);
    connection.abort();
    drop(silent);
    service.stop().await;
}

#[tokio::test]
async fn one_address_never_has_all_connections() {
    let (_folder, mut config) = place();
    patient(&mut config);
    config.max_connections = 8;
    let service = Serving::start(config).await;
    let mut busy = Vec::new();
    for _ in 0..6 {
        let channel = service.plain().await;
        let mut client = LumpStoreClient::new(channel);
        client.list_stores(v1::ListStoresRequest {}).await.unwrap();
        busy.push(client);
    }
    // Those have called, so they are not closed for others of their kind.
    let mut one_more = from(1, service.grpc).await;
    assert!(until_closed(&mut one_more).await.is_empty());
    let (asked, connection) = hello(from(2, service.grpc).await).await;
    let connection = tokio::spawn(connection);
    let status = timeout(LONG, asked).await.expect("others get in");
    assert_eq!(status.unwrap(), 200);
    for client in &mut busy {
        client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    }
    connection.abort();
    drop(busy);
    service.stop().await;
}

#[tokio::test]
async fn who_does_not_log_in_is_soon_told_to_leave() {
    let (folder, mut config) = place();
    patient(&mut config);
    config.handshake_timeout = SHORT;
    config.tokens = Some(crate::door::harness::tokens(folder.path(), &[]));
    let service = Serving::start(config).await;
    let (asked, connection) = hello(from(1, service.grpc).await).await;
    let ended = timeout(LONG, connection).await;
    ended.expect("it is told to leave").unwrap();
    assert_eq!(asked.await.unwrap(), 200);
    service.stop().await;
}
