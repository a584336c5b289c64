//! A service that runs out of open files.

use std::time::Instant;

use rustix::process::Signal;
use tokio::net::TcpStream;

use crate::door::{LONG, SHORT, hello, place};
use crate::process::Process;

#[tokio::test]
async fn it_survives_that_no_file_can_be_opened() {
    let (folder, config) = place();
    let stores = [("s", &*config.stores[0].path)];
    let mut service = Process::start(folder.path(), &stores, &[]);
    service.limit_files(Some(service.files()));
    let address = service.grpc.strip_prefix("http://").unwrap().to_owned();
    // The kernel takes them; the service cannot take all.
    let mut asked = Vec::new();
    let mut connections = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let waits = TcpStream::connect(&address).await.unwrap();
        let (status, connection) = hello(waits).await;
        asked.push(status);
        connections.spawn(connection);
    }
    let begun = Instant::now();
    while !service.log().contains("cannot accept connections") {
        assert!(begun.elapsed() < LONG, "{}", service.log());
        tokio::time::sleep(SHORT / 10).await;
    }
    assert!(!asked.iter().all(tokio::task::JoinHandle::is_finished));
    service.limit_files(None);
    for status in asked {
        let status = tokio::time::timeout(LONG, status).await.unwrap();
        assert_eq!(status.unwrap(), 200);
    }
    drop(connections);
    let (_, text) = crate::common::http_get(service.metrics, "/metrics").await;
    let words = "lumpscope_accept_errors_total{entrance=\"tcp\"}";
    assert!(text.contains(words), "{text}");
    service.signal(Signal::TERM);
    assert!(service.ended(LONG).success(), "{}", service.log());
}
