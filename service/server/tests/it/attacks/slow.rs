//! Must not achieve: to hold the memory for puts or gets against all others, with bodies that come
//! slowly or are not taken.

use std::time::Duration;

use lumpscope_proto::v1;
use lumpscope_units::Size;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::abuse::harness::Abused;
use crate::abuse::wire;
use crate::common::{body, chunk, connect, first, get, header, put, raw_id};
use crate::door::harness::LONG;

const MIB: u64 = 1 << 20;
/// Longer than any test.
const AGES: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn puts_beside_one_that_announces_all_memory_and_sends_nothing() {
    let mut abused = Abused::with(|config| {
        config.put_memory = Some(Size(4 * MIB));
        config.body_timeout = AGES;
    })
    .await;
    let (holder, messages) = mpsc::channel(4);
    let done = holder.send(first(header("s", 1 << 90, 4 * MIB))).await;
    done.unwrap();
    let mut slow = connect(&abused.service.grpc).await;
    let slow = tokio::spawn(async move { slow.put(ReceiverStream::new(messages)).await });
    while abused.metric("lumpscope_body_memory_bytes").await < 2.0 * 1048576.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for number in 0..20 {
        let id = 1 << 80 | number;
        let lump = body(id, if number % 2 == 0 { 20_000 } else { 1 << 20 });
        let stored = put(&mut abused.service.client, "s", id, &lump);
        timeout(LONG, stored).await.expect("it is stored").unwrap();
        abused.acknowledge(id);
    }
    slow.abort();
    drop(holder);
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_drips_while_others_wait_for_its_memory() {
    let mut abused = Abused::with(|config| {
        config.put_memory = Some(Size(8 * MIB));
        config.min_rate = Size(1);
    })
    .await;
    let (holder, messages) = mpsc::channel(4);
    let done = holder.send(first(header("s", 1 << 90, 8 * MIB))).await;
    done.unwrap();
    let mut slow = connect(&abused.service.grpc).await;
    let slow = tokio::spawn(async move { slow.put(ReceiverStream::new(messages)).await });
    let drips = tokio::spawn(async move {
        // It ends when the service has given the body up.
        while holder.send(chunk("x")).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    while abused.metric("lumpscope_body_memory_bytes").await < 2.0 * 1048576.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Both could not be finished within the memory.
    let large = body(7, 8 << 20);
    let stored = put(&mut abused.service.client, "s", 1 << 80, &large);
    timeout(LONG, stored).await.expect("it is stored").unwrap();
    abused.acknowledge(1 << 80);
    let status = slow.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    drips.await.unwrap();
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gets_beside_a_client_that_takes_nothing_of_what_it_asked_for() {
    let mut abused = Abused::with(|config| {
        config.get_memory = Some(Size(16 * MIB));
        config.body_timeout = AGES;
    })
    .await;
    let lumps = [(1, 64 << 10), (2, 1 << 20), (3, 4 << 20)].map(|(id, len)| (id, body(id, len)));
    for (id, lump) in &lumps {
        put(&mut abused.service.client, "s", *id, lump)
            .await
            .unwrap();
        abused.acknowledge(*id);
    }
    let holder = wire::connect(abused.address(), 0).await;
    let asked = v1::GetRequest {
        store: "s".to_owned(),
        id: raw_id(3),
        ..Default::default()
    };
    let asked = wire::prefixed(0, &asked.encode_to_vec());
    let mut replies = Vec::new();
    for _ in 0..200 {
        let (reply, mut stream) = wire::begin(&holder, wire::GET).await.unwrap();
        stream.send_data(asked.clone(), true).unwrap();
        replies.push(reply);
    }
    // Its share, less than another piece.
    while abused.metric("lumpscope_store_buffer_used_bytes").await < 9.0 * 1048576.0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..10 {
        for (id, lump) in &lumps {
            let got = get(&mut abused.service.client, "s", *id);
            let got = timeout(LONG, got).await.expect("it is answered").unwrap();
            assert_eq!(got, *lump);
        }
    }
    drop((replies, holder));
    abused.survived().await;
}
