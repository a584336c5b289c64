//! Must not achieve: to make the service hold much memory, or to keep others out, without a login.

use std::time::Duration;

use lumpscope_client::{Body, LumpId, PutOptions};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;

use super::buffers::{frame, hide, paths};
use super::memory::{Withheld, attack, watch, withheld};
use super::victim::{Locks, TOKEN, Victim};
use crate::abuse::wire::{DATA, END_HEADERS, HEADERS, PING, PREFACE, SETTINGS, literal_headers};
use crate::common::body;
use crate::door::harness::{LONG, raw_tls};

/// Connections of strangers.
const CONNECTIONS: usize = 64;
/// Most memory of the service, in bytes.
const MOST: u64 = 256 << 20;
/// Largest frame that the service takes of those who are known, in bytes.
const FRAME: usize = 1 << 20;
/// Open to all.
const CHECK: &str = "/grpc.health.v1.Health/Check";
const WATCH: &str = "/grpc.health.v1.Health/Watch";
/// Headers that the table of a connection holds, and calls without a login.
const TABLE: u32 = 120;
const VISITS: u32 = 16;
/// Bytes of a header; all of a call together are less than `max-header-bytes`.
const FILLING: usize = 14 << 10;

type Stream = TlsStream<TcpStream>;

/// Lets strangers attack by TLS, each on a connection of its own. An attack that has ended leaves
/// its connection open. Then somebody who is known puts and gets a lump of 1 MiB.
async fn strangers<Attack>(attack: impl Fn(Stream) -> Attack)
where
    Attack: Future<Output = ()> + Send + 'static,
{
    let victim = Victim::start(Locks::TlsAndTokens);
    let before = victim.resident();
    let mut attacks = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let stream = raw_tls(victim.grpc, &victim.authority, b"h2").await;
        attacks.spawn(attack(stream.unwrap()));
    }
    watch(&victim, MOST).await;
    let lump = body(1, 1 << 20);
    let works = async {
        let client = victim.client(TOKEN).await;
        let sent = Body::from(lump.clone());
        let options = PutOptions::default();
        client.put("s", LumpId(1), sent, &options).await.unwrap();
        client.get("s", LumpId(1), None).await.unwrap()
    };
    let got = timeout(LONG, works).await.expect("it is served");
    assert!(got.bytes == lump);
    let peak = victim.peak();
    eprintln!("{} MiB became {} MiB", before >> 20, peak >> 20);
    assert!(peak < MOST, "the service holds {} MiB", peak >> 20);
    attacks.abort_all();
}

/// Keeps a connection open whose end nobody waits for.
async fn keep<T>(stream: T) {
    let _open = stream;
    std::future::pending().await
}

fn unfinished(path: &'static str) -> Withheld {
    Withheld {
        path,
        token: None,
        filling: FILLING,
        bytes: withheld(4 << 10),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_with_large_headers_that_are_not_finished() {
    strangers(|stream| attack(stream, unfinished(CHECK))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_for_the_table_behind_large_frames() {
    strangers(|stream| async { keep(hide(stream, paths(TABLE)).await).await }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_frames_without_their_last_byte() {
    strangers(|mut stream| async {
        let large = frame(DATA, 0, 1, &vec![0; FRAME]);
        let sends = async {
            stream.write_all(PREFACE).await?;
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
            stream.write_all(&large[..large.len() - 1]).await?;
            stream.flush().await
        };
        // An error: the service has ended the connection.
        let _ = sends.await;
        keep(stream).await;
    })
    .await;
}

/// The table, calls with large headers, and a frame that has not ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_these_on_each_connection() {
    strangers(|stream| async {
        let calls = (0..VISITS).map(|number| {
            let filling = "x".repeat(FILLING);
            let headers = literal_headers(WATCH, &[("x-filling", &filling)]);
            frame(HEADERS, END_HEADERS, 2 * (TABLE + number) + 1, &headers)
        });
        let mut stream = hide(stream, paths(TABLE).chain(calls)).await;
        let half = frame(DATA, 0, 1, &vec![0; 16 << 10]);
        // An error: the service has ended the connection.
        let _ = stream.write_all(&half[..half.len() - 1]).await;
        let _ = stream.flush().await;
        keep(stream).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_nobody_reads() {
    strangers(|mut stream| async {
        let sends = async {
            stream.write_all(PREFACE).await?;
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
            for number in 0.. {
                let path = if number % 2 == 0 { WATCH } else { "/refused" };
                let headers = literal_headers(path, &[]);
                let call = frame(HEADERS, END_HEADERS, 2 * number + 1, &headers);
                stream.write_all(&call).await?;
                stream.write_all(&frame(PING, 0, 0, &[0; 8])).await?;
                stream.flush().await?;
            }
            std::io::Result::Ok(())
        };
        // Ends when the service reads no more, or ends the connection.
        let _ = timeout(Duration::from_secs(20), sends).await;
        keep(stream).await;
    })
    .await;
}
