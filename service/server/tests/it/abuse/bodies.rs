//! Bodies that do not come, come wrong, or are not read.

use bytes::Bytes;
use lumpscope_units::Size;
use tonic::Code;

use super::harness::{Abused, PATIENCE, random};
use super::wire::{self, GET, PUT};
use crate::common::{self, body, put};

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_without_a_body_are_given_up() {
    let mut abused = Abused::start().await;
    let client = wire::connect(abused.address(), 1 << 20).await;
    let mut open = Vec::new();
    for number in 0..100 {
        let (reply, mut stream) = wire::begin(&client, PUT).await.unwrap();
        if number % 2 == 0 {
            wire::send(&mut stream, wire::put_header(1 << 100 | number, MIB), false).await;
        }
        open.push((reply, stream));
    }
    abused.works().await;
    for (reply, _stream) in open {
        let ended = wire::end_of(reply).await;
        assert!(ended.is_code(Code::DeadlineExceeded), "{ended:?}");
    }
    drop(client);
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lengths_that_are_wrong() {
    let abused = Abused::start().await;
    let mut random = random();
    let client = wire::connect(abused.address(), 1 << 20).await;
    for number in 0..100 {
        let id = 1 << 100 | number;
        let lump = body(id, random.usize(1..200_000));
        let announced = loop {
            let announced = random.u64(0..300_000);
            if announced != lump.len() as u64 {
                break announced;
            }
        };
        let chunk = wire::message(&common::chunk(lump));
        let stream = [wire::put_header(id, announced), chunk].concat();
        let ended = wire::call(&client, PUT, stream.into()).await;
        assert!(ended.is_code(Code::InvalidArgument), "{ended:?}");
    }
    for length in [u64::MAX, 1 << 62, 1 << 40] {
        let ended = wire::call(&client, PUT, wire::put_header(7, length)).await;
        assert!(ended.is_code(Code::OutOfRange), "{length}: {ended:?}");
    }
    drop(client);
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_4_gib_and_compressed_ones() {
    let abused = Abused::start().await;
    let client = wire::connect(abused.address(), 1 << 20).await;
    for path in [
        PUT,
        GET,
        "/lumpscope.v1.LumpStore/PutMany",
        "/lumpscope.v1.LumpStore/List",
    ] {
        for flag in [0, 1] {
            // All of it is announced, nothing comes.
            let huge = Bytes::copy_from_slice(&[flag, 0xff, 0xff, 0xff, 0xff, 0x12]);
            let ended = wire::call(&client, path, huge).await;
            assert!(ended.refused(), "{path}, flag {flag}: {ended:?}");
        }
        let compressed = wire::prefixed(1, &[0x0a, 0]);
        let ended = wire::call(&client, path, compressed).await;
        assert!(ended.refused(), "{path}, compressed: {ended:?}");
    }
    // A header that is sent, and then a chunk of 4 GiB.
    let chunk = [
        &wire::put_header(9, MIB)[..],
        &[0, 0xff, 0xff, 0xff, 0xff, 0x12],
    ]
    .concat();
    let ended = wire::call(&client, PUT, chunk.into()).await;
    assert!(ended.refused(), "{ended:?}");
    drop(client);
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trailers_in_place_of_the_rest() {
    let abused = Abused::start().await;
    let client = wire::connect(abused.address(), 1 << 20).await;
    for number in 0..50 {
        let (reply, mut stream) = wire::begin(&client, PUT).await.unwrap();
        let whole = wire::put_stream(1 << 100 | number, &body(number, 50_000), 9000);
        let sent = usize::try_from(number).unwrap() * (whole.len() - 1) / 50;
        wire::send(&mut stream, whole.slice(..sent), false).await;
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        // The service may have refused already.
        let _ = stream.send_trailers(trailers);
        let ended = wire::end_of(reply).await;
        assert!(ended.refused(), "{sent} bytes and trailers: {ended:?}");
    }
    drop(client);
    abused.survived().await;
}
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gets_that_are_not_read() {
    let mut abused = Abused::with(|config| config.get_memory = Some(Size(16 * MIB))).await;
    let lump = body(5, 4 << 20);
    put(&mut abused.service.client, "s", 1 << 90, &lump)
        .await
        .unwrap();
    abused.acknowledge(1 << 90);
    let request = lumpscope_proto::v1::GetRequest {
        store: "s".to_owned(),
        id: common::raw_id(1 << 90),
        ..Default::default()
    };
    let request = wire::prefixed(0, &prost::Message::encode_to_vec(&request));
    // The default window of HTTP/2, which is never opened again.
    let client = wire::connect(abused.address(), 65_535).await;
    let mut open = Vec::new();
    for _ in 0..32 {
        let (reply, mut stream) = wire::begin(&client, GET).await.unwrap();
        wire::send(&mut stream, request.clone(), true).await;
        open.push(reply);
    }
    let begin = std::time::Instant::now();
    // A login may hold 12 MiB, and a get of this lump begins with 4: no other one fits. Whether its
    // pieces then take 10 or 12 depends on the order in which the disk answers.
    while abused.metric("lumpscope_body_memory_bytes").await <= 8.0 * 1048576.0 {
        assert!(begin.elapsed() < PATIENCE, "the gets do not begin");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    // Others wait for the memory at most until those that do not read are given up.
    let read = common::get(&mut abused.service.client, "s", 1 << 90);
    let read = tokio::time::timeout(PATIENCE, read).await;
    assert_eq!(read.expect("memory comes back").unwrap(), lump);
    abused.at_rest().await;
    drop((open, client));
    abused.survived().await;
}
