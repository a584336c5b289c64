//! Puts that their client takes back.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::io::AsyncWriteExt as _;
use tonic::Code;

use super::harness::{Abused, random};
use super::wire::{self, DATA, END_HEADERS, GOAWAY, HEADERS, PUT, frame, literal_headers};
use crate::common::body;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_puts_reset_anywhere() {
    let mut abused = Abused::start().await;
    let mut random = random();
    let mut client = wire::connect(abused.address(), 1 << 20).await;
    for number in 0..1000_u128 {
        let lump = body(number, random.usize(1..300_000));
        let whole = wire::put_stream(1 << 100 | number, &lump, 64 << 10);
        // Also all of it, without the end of the stream.
        let sent = match number % 8 {
            0 => whole.len(),
            1 => 0,
            _ => random.usize(0..whole.len()),
        };
        let (_reply, mut stream) = match wire::begin(&client, PUT).await {
            Ok(call) => call,
            Err(_) => {
                // The service ends a connection on which too much is taken back.
                client = wire::connect(abused.address(), 1 << 20).await;
                wire::begin(&client, PUT).await.unwrap()
            }
        };
        wire::send(&mut stream, whole.slice(..sent), false).await;
        if random.bool() {
            tokio::time::sleep(Duration::from_micros(random.u64(0..2000))).await;
        }
        stream.send_reset(if random.bool() {
            Reason::CANCEL
        } else {
            Reason::INTERNAL_ERROR
        });
        if number % 200 == 0 {
            abused.works().await;
        }
    }
    drop(client);
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_break_off() {
    let abused = Abused::start().await;
    let mut random = random();
    for number in 0..100_u128 {
        let mut socket = wire::raw(abused.address()).await;
        let whole = wire::put_stream(1 << 100 | number, &body(number, 60_000), 10_000);
        let sent = &whole[..random.usize(0..=whole.len())];
        let mut bytes = frame(HEADERS, END_HEADERS, 1, &literal_headers(PUT, &[]));
        for part in sent.chunks(16_000) {
            bytes.extend(frame(DATA, 0, 1, part));
        }
        if random.bool() {
            // The client goes away politely, with its put open.
            bytes.extend(frame(GOAWAY, 0, 0, &[0; 8]));
        }
        socket.write_all(&bytes).await.unwrap();
        if random.bool() {
            tokio::time::sleep(Duration::from_millis(random.u64(0..5))).await;
        }
    }
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_ends_twice() {
    let mut abused = Abused::start().await;
    let client = wire::connect(abused.address(), 1 << 20).await;
    for number in 0..50_u128 {
        let id = 1 << 100 | number;
        let (reply, mut stream) = wire::begin(&client, PUT).await.unwrap();
        wire::send(
            &mut stream,
            wire::put_stream(id, &body(id, 10_000), 4000),
            true,
        )
        .await;
        // Whether this comes in time or not: only an answer is an acknowledgement. A put that
        // was whole may be stored without one.
        stream.send_reset(Reason::CANCEL);
        let ended = wire::end_of(reply).await;
        // Frames of one connection keep their order: when this is answered, all that was sent
        // has come.
        let nothing = wire::call(&client, PUT, Bytes::new()).await;
        assert!(nothing.is_code(Code::InvalidArgument), "{nothing:?}");
        abused.at_rest().await;
        let stored = crate::common::head(&mut abused.service.client, "s", id).await;
        assert!(
            ended.refused() || stored.is_ok(),
            "acknowledged and not there"
        );
        if let Ok(stored) = stored {
            assert_eq!(stored.length, 10_000);
            abused.acknowledge(id);
        }
    }
    drop(client);
    abused.survived().await;
}
