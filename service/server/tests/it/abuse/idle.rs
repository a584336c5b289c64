//! Connections that do nothing.

use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpStream;

use super::harness::Abused;
use super::wire;

const CONNECTIONS: usize = 1000;

/// Both ends of every connection are in this process.
fn allow_many_files() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).expect("up to the hard limit is always allowed");
    let enough = limit
        .maximum
        .is_none_or(|files| files > 2 * CONNECTIONS as u64 + 200);
    assert!(enough, "this test needs 2,200 open files: {limit:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_idle_connections() {
    allow_many_files();
    let mut abused = Abused::start().await;
    let mut open = Vec::new();
    for number in 0..CONNECTIONS {
        // A part of them says nothing at all, the others that they speak HTTP/2.
        open.push(if number % 3 == 0 {
            TcpStream::connect(abused.address()).await.unwrap()
        } else {
            wire::raw(abused.address()).await
        });
    }
    for _ in 0..20 {
        abused.works().await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    drop(open);
    abused.survived().await;
}
