//! Must not achieve: to leave the service holding what the attack has needed.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::victim::{Locks, Victim};
use crate::abuse::wire;
use crate::door::harness::LONG;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_is_given_back_after_a_flood() {
    let victim = Victim::start(Locks::None);
    let before = victim.resident();
    let hidden = [(); 2].map(|()| tokio::spawn(flood(victim.grpc)));
    for hidden in hidden {
        timeout(LONG, hidden).await.unwrap().unwrap();
    }
    let grown = victim.peak() - before;
    assert!(grown > 64 << 20, "the flood took {} MiB", grown >> 20);
    let begun = Instant::now();
    while victim.resident() > before + grown / 3 {
        assert!(
            begun.elapsed() < LONG,
            "{} of {} MiB are kept",
            (victim.resident() - before) >> 20,
            grown >> 20
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Calls whose headers fill memory in small pieces, all at a time, and then none.
async fn flood(service: SocketAddr) {
    let mut clients = Vec::new();
    for _ in 0..16 {
        let send = wire::connect(service, 64 << 10).await;
        let mut calls = Vec::new();
        for _ in 0..240 {
            let mut request = wire::request(wire::PUT);
            for number in 0..50 {
                let name = format!("x-filling-{number}");
                let name = http::HeaderName::try_from(name).unwrap();
                let filling = "x".repeat(200).parse().unwrap();
                request.headers_mut().insert(name, filling);
            }
            let mut send = send.clone().ready().await.unwrap();
            calls.push(send.send_request(request, false).unwrap());
        }
        clients.push((send, calls));
    }
    // All of them have come.
    for (send, _) in &clients {
        let mut send = send.clone().ready().await.unwrap();
        let (reply, _) = send.send_request(wire::request("/none"), true).unwrap();
        timeout(LONG, reply).await.unwrap().unwrap();
    }
}
