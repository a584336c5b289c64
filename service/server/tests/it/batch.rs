//! Small lumps, many lumps through one call, conditional puts and checksums.

use std::collections::BTreeMap;

use crate::common::*;
use bytes::Bytes;
use lumpscope_proto::v1;
use tonic::{Code, Status};
use tonic_types::StatusExt as _;

const MIB: u64 = 1 << 20;

/// CRC-32C, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let low = crc & 1;
            crc = (crc >> 1) ^ (0x82f6_3b78 * low);
        }
    }
    !crc
}

fn small(id: u128, body: &Bytes) -> v1::PutSmallRequest {
    v1::PutSmallRequest {
        header: Some(header("s", id, 0)),
        body: body.clone(),
    }
}

fn get_small(id: u128, range: Option<v1::ByteRange>) -> v1::GetSmallRequest {
    v1::GetSmallRequest {
        get: Some(v1::GetRequest {
            store: "s".into(),
            id: raw_id(id),
            range,
            ..Default::default()
        }),
    }
}

fn range(offset: u64, length: Option<u64>) -> Option<v1::ByteRange> {
    Some(v1::ByteRange { offset, length })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_lumps_go_in_one_message() {
    let mut service = Running::alone("s", 32 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    for (id, len) in [(1, 0), (2, 1), (3, 100_000), (4, 1 << 20)] {
        let bytes = body(id, len);
        let put = client.put_small(small(id, &bytes)).await.unwrap();
        let put = put.into_inner().put.unwrap();
        assert!(put.created && put.request_id > 0);
        assert_eq!(put.crc32c, crc32c(&bytes));
        let got = client.get_small(get_small(id, None)).await.unwrap();
        let got = got.into_inner();
        assert!(got.body == bytes, "{len} bytes differ");
        let head = got.header.unwrap();
        assert_eq!((head.length, head.lump_length), (len as u64, len as u64));
        assert_eq!(head.crc32c, Some(crc32c(&bytes)));
    }
    let mut wrong = small(5, &body(5, 10));
    wrong.header.as_mut().unwrap().length = 9;
    let result = client.put_small(wrong).await;
    refused(result, Code::InvalidArgument, &["9 bytes", "10"]);
    let none = v1::PutSmallRequest::default();
    let result = client.put_small(none).await;
    refused(result, Code::InvalidArgument, &["header"]);
    let large = body(6, (1 << 20) + 1);
    let result = client.put_small(small(6, &large)).await;
    refused(result, Code::OutOfRange, &["1048577", "Put"]);
    put(client, "s", 6, &large).await.unwrap();
    let result = client.get_small(get_small(6, None)).await;
    refused(result, Code::OutOfRange, &["1048577", "Get"]);
    let got = client.get_small(get_small(6, range(1, None))).await;
    let got = got.unwrap().into_inner();
    assert!(got.body == large[1..]);
    assert_eq!(got.header.unwrap().crc32c, None);
    let end = get_small(6, range(MIB + 1, Some(5)));
    let end = client.get_small(end).await;
    assert!(end.unwrap().into_inner().body.is_empty());
    let result = client.get_small(get_small(6, range(MIB + 2, None))).await;
    refused(result, Code::OutOfRange, &["1048578"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_are_not_those_announced_are_not_stored() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let bytes = body(1, 300_000);
    let mut wanted = header("s", 1, 300_000);
    wanted.crc32c = Some(crc32c(&bytes) ^ 1);
    let words = ["CRC-32C", "nothing was stored"];
    let damaged = put_as(client, wanted.clone(), &bytes).await;
    let info = damaged.as_ref().unwrap_err().get_details_error_info();
    assert_eq!(info.unwrap().reason, "CHECKSUM_DIFFERS");
    refused(damaged, Code::Aborted, &words);
    refused(head(client, "s", 1).await, Code::NotFound, &["no lump"]);
    wanted.crc32c = Some(crc32c(&bytes));
    let put = put_as(client, wanted, &bytes).await.unwrap();
    assert_eq!(put.crc32c, crc32c(&bytes));
    let (head, got) = get_range(client, "s", 1, None).await.unwrap();
    assert!(got == bytes);
    assert_eq!(head.crc32c, Some(crc32c(&bytes)));
    let (head, _) = get_range(client, "s", 1, range(5, Some(9))).await.unwrap();
    assert_eq!(head.crc32c, None);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_conditional_puts_one_wins() {
    let service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let mut puts = tokio::task::JoinSet::new();
    for seed in 0..8_u128 {
        let mut client = service.client.clone();
        puts.spawn(async move {
            let mut wanted = header("s", 1, 50_000);
            wanted.condition = v1::PutCondition::IfAbsent.into();
            (seed, put_as(&mut client, wanted, &body(seed, 50_000)).await)
        });
    }
    let mut winner = None;
    while let Some(ended) = puts.join_next().await {
        let (seed, result) = ended.unwrap();
        match result {
            Ok(reply) => {
                assert!(reply.created);
                assert_eq!(winner.replace(seed), None, "two have won");
            }
            Err(status) => {
                let words = ["already", "nothing was stored"];
                refused::<()>(Err(status), Code::AlreadyExists, &words);
            }
        }
    }
    let mut client = service.client.clone();
    let got = get(&mut client, "s", 1).await.unwrap();
    assert!(got == body(winner.unwrap(), 50_000));
    drop(client);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_deletes_in_one_call() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    for id in [1, 3] {
        put(client, "s", id, &body(id, 100)).await.unwrap();
    }
    let request = |ids: &[u128]| v1::DeleteManyRequest {
        store: "s".into(),
        ids: ids.iter().filter_map(|id| raw_id(*id)).collect(),
        ..Default::default()
    };
    let done = client.delete_many(request(&[3, 2, 1, 3])).await.unwrap();
    assert_eq!(done.into_inner().existed, [true, false, true, false]);
    let many: Vec<u128> = (0..16_385).collect();
    let result = client.delete_many(request(&many)).await;
    refused(result, Code::InvalidArgument, &["16385", "16384"]);
    service.stop().await;
}

fn many(part: v1::put_many_request::Part) -> v1::PutManyRequest {
    v1::PutManyRequest { part: Some(part) }
}

fn lump(header: v1::PutHeader, body: &Bytes) -> Vec<v1::PutManyRequest> {
    use v1::put_many_request::Part;
    let part = |chunk| many(Part::Chunk(Bytes::copy_from_slice(chunk)));
    let head = std::iter::once(many(Part::Header(header)));
    head.chain(body.chunks(70_000).map(part)).collect()
}

type Outcomes = BTreeMap<u64, v1::put_many_response::Outcome>;

async fn put_many(
    client: &mut Client,
    messages: Vec<v1::PutManyRequest>,
) -> (Outcomes, Result<(), Status>) {
    let reply = client.put_many(tokio_stream::iter(messages)).await.unwrap();
    let (mut replies, mut outcomes) = (reply.into_inner(), BTreeMap::new());
    loop {
        match replies.message().await {
            Ok(Some(one)) => assert!(outcomes.insert(one.index, one.outcome.unwrap()).is_none()),
            Ok(None) => return (outcomes, Ok(())),
            Err(status) => return (outcomes, Err(status)),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_puts_through_one_stream() {
    use v1::put_many_response::Outcome;
    let dir = folder();
    let path = store_file(dir.path(), "puts", 64 * MIB, 4096, 0.05);
    let other = store_file(dir.path(), "other", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("s", &path), ("o", &other)]).await;
    let client = &mut service.client;
    let mut messages = Vec::new();
    for id in 0..40_u128 {
        let bytes = body(id, usize::try_from(id).unwrap() * 20_000);
        let store = if id % 2 == 0 { "s" } else { "o" };
        let mut wanted = header(store, id, bytes.len() as u64);
        match id {
            7 => wanted.store = "none".into(),
            9 => wanted.crc32c = Some(crc32c(&bytes) ^ 9),
            11 => wanted.id = None,
            _ => {}
        }
        messages.extend(lump(wanted, &bytes));
    }
    let (outcomes, end) = put_many(client, messages).await;
    end.unwrap();
    assert_eq!(outcomes.len(), 40);
    for (index, outcome) in outcomes {
        let id = u128::from(index);
        let why = match outcome {
            Outcome::Stored(stored) => {
                let bytes = body(id, usize::try_from(id).unwrap() * 20_000);
                assert_eq!(stored.crc32c, crc32c(&bytes));
                let store = if id % 2 == 0 { "s" } else { "o" };
                assert!(get(client, store, id).await.unwrap() == bytes);
                continue;
            }
            Outcome::Failed(failed) => failed,
        };
        let (code, reason) = match index {
            7 => (Code::NotFound, "UNKNOWN_STORE"),
            9 => (Code::Aborted, "CHECKSUM_DIFFERS"),
            11 => (Code::InvalidArgument, "ID_MISSING"),
            _ => panic!("{index}: {why:?}"),
        };
        assert_eq!(why.code, i32::from(code), "{why:?}");
        assert_eq!(&*why.reason, reason, "{why:?}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_lump_that_is_refused_on_its_way_does_not_end_the_stream() {
    use v1::put_many_response::Outcome;
    let mut service = Running::alone("s", 64 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let bytes = body(1, 3 << 20);
    put(client, "s", 1, &bytes).await.unwrap();
    let mut wanted = header("s", 1, bytes.len() as u64);
    wanted.condition = v1::PutCondition::IfAbsent.into();
    let mut messages = lump(wanted, &bytes);
    messages.extend(lump(header("s", 2, bytes.len() as u64), &bytes));
    let (mut outcomes, end) = put_many(client, messages).await;
    end.unwrap();
    let Some(Outcome::Failed(failed)) = outcomes.remove(&0) else {
        panic!("it was there");
    };
    assert_eq!(failed.reason, "LUMP_EXISTS");
    assert!(matches!(outcomes.remove(&1), Some(Outcome::Stored(_))));
    assert!(outcomes.is_empty() && get(client, "s", 2).await.unwrap() == bytes);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_of_puts_that_breaks_the_rules_ends() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let good = || lump(header("s", 1, 10), &body(1, 10));
    let short = || lump(header("s", 2, 11), &body(2, 10));
    let long = || lump(header("s", 3, 9), &body(3, 10));
    let tail = || good().split_off(1);
    let empty = || vec![v1::PutManyRequest { part: None }];
    for (messages, answered, word) in [
        ([good(), short()].concat(), 1, "10 of 11"),
        ([good(), short(), good()].concat(), 1, "10 of 11"),
        ([good(), long()].concat(), 1, "more than the 9"),
        ([good(), tail()].concat(), 1, "more than the 10"),
        ([good(), empty()].concat(), 1, "empty"),
        (tail(), 0, "first message"),
    ] {
        let (outcomes, end) = put_many(client, messages).await;
        assert_eq!(outcomes.len(), answered, "{word}");
        let status = end.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(word), "{word}: {status:?}");
    }
    let (outcomes, end) = put_many(client, vec![]).await;
    assert!(outcomes.is_empty() && end.is_ok());
    for id in [2, 3] {
        refused(head(client, "s", id).await, Code::NotFound, &["no lump"]);
    }
    assert!(get(client, "s", 1).await.unwrap() == body(1, 10));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_gets_in_the_order_asked_for() {
    use v1::get_many_response::Part;
    let mut service = Running::alone("s", 64 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let len = |id: u128| usize::try_from(id).unwrap() * 300_000;
    for id in 0..8 {
        put(client, "s", id, &body(id, len(id))).await.unwrap();
    }
    let order: Vec<u128> = vec![7, 0, 3, 99, 3, 1, 6];
    let request = v1::GetManyRequest {
        store: "s".into(),
        ids: order.iter().filter_map(|id| raw_id(*id)).collect(),
        ..Default::default()
    };
    let mut replies = client.get_many(request.clone()).await.unwrap().into_inner();
    let mut got: Vec<Option<Vec<u8>>> = Vec::new();
    while let Some(reply) = replies.message().await.unwrap() {
        match reply.part.unwrap() {
            Part::Header(head) => {
                assert_eq!(reply.index, got.len() as u64);
                assert!(head.crc32c.is_some());
                got.push(Some(Vec::new()));
            }
            Part::Chunk(chunk) => {
                assert!(chunk.len() <= 1 << 20);
                assert_eq!(reply.index + 1, got.len() as u64);
                got.last_mut().unwrap().as_mut().unwrap().extend(chunk);
            }
            Part::Failed(failed) => {
                assert_eq!((reply.index, &*failed.reason), (3, "UNKNOWN_LUMP"));
                assert_eq!(failed.code, i32::from(Code::NotFound));
                got.push(None);
            }
        }
    }
    assert_eq!(got.len(), order.len());
    for (id, bytes) in order.iter().zip(got) {
        let want = (*id != 99).then(|| body(*id, len(*id)).to_vec());
        assert!(bytes == want, "{id}");
    }
    let unknown = v1::GetManyRequest {
        store: "t".into(),
        ..request.clone()
    };
    let result = client.get_many(unknown).await;
    refused(result, Code::NotFound, &["no store"]);
    let ids = (0..16_385).filter_map(raw_id).collect();
    let too_many = v1::GetManyRequest { ids, ..request };
    let result = client.get_many(too_many).await;
    refused(result, Code::InvalidArgument, &["16385", "16384"]);
    service.stop().await;
}
