//! Must not achieve: to fill the log with bytes sent before a login, or to forge a line of it.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::victim::{Locks, Victim};
use crate::abuse::wire;
use crate::door::harness::LONG;

/// Bytes of log that a service may write for a flood of any size.
const LOG: u64 = 16 << 10;

/// Sends bytes until the service has taken all or ends the connection; reads what it answers.
async fn flood(victim: &Victim, bytes: &[u8]) {
    let stream = TcpStream::connect(victim.grpc).await.unwrap();
    let (mut reads, mut writes) = stream.into_split();
    let reads = tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while reads.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    });
    // The service may have closed.
    let _ = writes.write_all(bytes).await;
    let _ = writes.shutdown().await;
    tokio::time::timeout(LONG, reads).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_before_login_are_no_flood_of_the_log() {
    let victim = Victim::start(Locks::None);
    let begin = [wire::PREFACE, &wire::frame(wire::SETTINGS, 0, 0, &[])].concat();
    let before = victim.log().len() as u64;
    for frame in [
        // Answers to pings that were never sent.
        wire::frame(wire::PING, 1, 0, b"\nERROR x"),
        // Settings that nobody knows, windows of streams that are not there.
        wire::frame(wire::SETTINGS, 0, 0, &[0xff, 0xff, 0, 0, 0, 0]),
        wire::frame(wire::RST_STREAM, 0, 1, &[0, 0, 0, 8]),
    ] {
        let bytes = [begin.clone(), frame.repeat(20_000)].concat();
        flood(&victim, &bytes).await;
    }
    for _ in 0..200 {
        flood(&victim, b"\nERROR lumpscope: forged\n").await;
    }
    let log = victim.log();
    let grown = log.len() as u64 - before;
    assert!(grown < LOG, "{grown} bytes of log");
    assert!(!log.lines().any(|line| line.starts_with("ERROR")), "{log}");
}
