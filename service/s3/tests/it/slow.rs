//! Clients that announce much and send little do not keep others from the memory for bodies.

use std::time::Duration;

use lumpscope_units::Size;

use crate::common::{Ask, HttpClient, OTHER, Running};

const MIB: u64 = 1 << 20;
/// Longer than any test.
const AGES: Duration = Duration::from_secs(3600);

/// A service that has so many MiB for bodies.
fn running(memory: u64, body_timeout: Duration) -> Running {
    let running = Running::start_with(|config| {
        config.put_memory = Some(Size(memory * MIB));
        config.body_timeout = body_timeout;
        config.min_rate = Size(1);
    });
    running.client().good(Ask::new("PUT", "/bbb"));
    running
}

/// A put of one signed chunk, of which only the beginning comes.
fn one_chunk(bytes: u64) -> Ask {
    let begin = format!("{bytes:x};chunk-signature={}\r\nx", "0".repeat(64));
    Ask::new("PUT", "/bbb/chunk")
        .header("x-amz-content-sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD")
        .header("x-amz-decoded-content-length", &bytes.to_string())
        .announced(bytes + begin.len() as u64)
        .body(begin)
}

#[test]
fn a_chunk_that_is_announced_and_does_not_come_leaves_memory_to_others() {
    let running = running(32, AGES);
    let mut holder = running.client();
    holder.send(one_chunk(24 * MIB));
    let body = vec![7; 8 << 20];
    let mut client = running.client();
    for _ in 0..3 {
        client.good(Ask::new("PUT", "/bbb/k").body(&*body));
    }
    assert!(client.object("/bbb/k").unwrap() == body);
}

/// Bodies of one access key of which only a byte comes hold their key's share of the memory.
#[test]
fn forty_slow_bodies_leave_memory_to_another_key() {
    let running = running(32, AGES);
    let slow = |number: u64| {
        let mut holder = running.client();
        let asked = Ask::new("PUT", &format!("/bbb/slow{number}"));
        let asked = asked.header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
        holder.send(asked.announced(64 * MIB).body("x"));
        holder
    };
    let holders: Vec<HttpClient> = (0..40).map(slow).collect();
    let body = vec![7; 4 << 20];
    let mut client = running.client();
    for _ in 0..3 {
        client.good(Ask::new("PUT", "/bbb/k").by(OTHER).body(&*body));
    }
    let got = client.good(Ask::new("GET", "/bbb/k").by(OTHER));
    assert!(got.body == body);
    drop(holders);
}

/// One piece of the holder and one of the other are all the memory there is, so neither could be
/// finished.
#[test]
fn a_body_that_drips_is_given_up_while_others_wait_for_its_memory() {
    let running = running(8, Duration::from_millis(500));
    let mut holder = running.client();
    let drips = Ask::new("PUT", "/bbb/drips").header("x-amz-content-sha256", "UNSIGNED-PAYLOAD");
    holder.send(drips.announced(64 * MIB).body("x"));
    // Much faster than the least rate while nobody waits.
    let drips = std::thread::spawn(move || {
        while holder.push(b"x") {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let mut client = running.client();
    let large = vec![7; 16 << 20];
    let status =
        |client: &mut HttpClient| client.ask(Ask::new("PUT", "/bbb/k").body(&*large)).status;
    while status(&mut client) == 503 {}
    drips.join().unwrap();
    assert!(client.object("/bbb/k").unwrap() == large);
    assert!(client.object("/bbb/drips").is_none());
}
