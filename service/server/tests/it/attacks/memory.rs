//! Must not achieve: to make the service hold more memory than it grants, with bodies whose last
//! bytes never come.

use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use lumpscope_proto::v1::lump_store_client::LumpStoreClient;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::victim::{Locks, TOKEN, Victim};
use crate::common::{body, channel, get, put};
use crate::door::harness::{LONG, raw_tls};

/// Calls on each connection.
const CALLS: usize = 250;
/// Length of the message that each announces, and of which all but the last byte is sent.
const MESSAGE: usize = 4 << 20;
/// The attack is over when none of its bytes has been taken for so long.
const STILL: Duration = Duration::from_secs(2);

/// A call that is not finished.
#[derive(Clone)]
pub(super) struct Withheld {
    pub(super) path: &'static str,
    pub(super) token: Option<&'static str>,
    /// Bytes of a header that means nothing.
    pub(super) filling: usize,
    pub(super) bytes: Bytes,
}

/// A call of which the last byte is withheld: ends when the service ends it, or takes no more.
async fn withhold(mut client: SendRequest<Bytes>, call: Withheld) {
    let mut request = http::Request::post(format!("https://localhost{}", call.path))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(token) = call.token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request
        .header("x-filling", "x".repeat(call.filling))
        .body(())
        .unwrap();
    let Ok((reply, mut stream)) = client.send_request(request, false) else {
        return;
    };
    let sends = async {
        let mut rest = call.bytes;
        while !rest.is_empty() {
            stream.reserve_capacity(rest.len());
            let room = std::future::poll_fn(|context| stream.poll_capacity(context));
            let Some(Ok(room)) = room.await else { return };
            let part = rest.split_to(room.min(rest.len()));
            if stream.send_data(part, false).is_err() {
                return;
            }
        }
        std::future::pending().await
    };
    tokio::select! {
        // Refused: the end of this call.
        _ = reply => {}
        () = sends => {}
    }
}

/// Attacks on one connection, with as many calls as the service lets it have.
pub(super) async fn attack<S>(stream: S, call: Withheld)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    let mut calls = JoinSet::new();
    calls.spawn(async move {
        // It ends as the service wants.
        let _ = connection.await;
    });
    for _ in 0..CALLS {
        let Ok(ready) = client.clone().ready().await else {
            break;
        };
        calls.spawn(withhold(ready, call.clone()));
    }
    while calls.join_next().await.is_some() {}
}

/// A message that is announced, without its last byte.
pub(super) fn withheld(len: usize) -> Bytes {
    let mut message = vec![0; 5 + len - 1];
    message[1..5].copy_from_slice(&u32::try_from(len).unwrap().to_be_bytes());
    message.into()
}

/// Lets the attack run until the memory of the service grows no more, or too much.
pub(super) async fn watch(victim: &Victim, limit: u64) {
    let begun = Instant::now();
    let mut grown = (victim.peak(), Instant::now());
    while grown.1.elapsed() < STILL && begun.elapsed() < LONG {
        let peak = victim.peak();
        assert!(peak < limit, "the service holds {} MiB", peak >> 20);
        if peak > grown.0 {
            grown = (peak, Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eprintln!("most memory: {} MiB", victim.peak() >> 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_who_withhold_the_end_of_their_messages() {
    let victim = Victim::start(Locks::TlsAndTokens);
    let message = withheld(MESSAGE);
    let mut strangers = JoinSet::new();
    for _ in 0..64 {
        let stream = raw_tls(victim.grpc, &victim.authority, b"h2")
            .await
            .unwrap();
        let call = Withheld {
            path: "/grpc.health.v1.Health/Check",
            token: None,
            filling: 0,
            bytes: message.clone(),
        };
        strangers.spawn(attack(stream, call));
    }
    watch(&victim, 256 << 20).await;
    let client = victim.client(TOKEN).await;
    let stores = timeout(LONG, client.stores()).await.unwrap();
    assert_eq!(stores.unwrap().len(), 1);
    strangers.abort_all();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_who_withhold_the_end_of_small_puts() {
    let victim = Victim::start(Locks::None);
    let message = withheld(1 << 20);
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let stream = TcpStream::connect(victim.grpc).await.unwrap();
        let call = Withheld {
            path: "/lumpscope.v1.LumpStore/PutSmall",
            token: None,
            filling: 0,
            bytes: message.clone(),
        };
        clients.spawn(attack(stream, call));
    }
    // 64 MiB of messages, twice while they are gathered, 4 MiB of window for each connection, and
    // the service itself.
    watch(&victim, 320 << 20).await;
    let mut client = LumpStoreClient::new(channel(&format!("http://{}", victim.grpc)).await);
    let lump = body(1, 100_000);
    put(&mut client, "s", 1, &lump).await.unwrap();
    assert_eq!(get(&mut client, "s", 1).await.unwrap(), lump);
    clients.abort_all();
}
