//! Every method, with the sizes and ranges at which things go wrong.

use std::collections::BTreeSet;

use crate::common::*;
use bytes::Bytes;
use lumpscope_proto::v1;
use lumpscope_units::Size;
use tonic::Code;

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lumps_of_every_size_come_back() {
    let mut service = Running::alone("s", 64 * MIB, 4096, 0.02).await;
    let client = &mut service.client;
    let edges = [4096_usize, 8192, 65_536, 1 << 20, 4 << 20];
    let mut sizes: Vec<usize> = vec![0, 1, 2, 511, 512, 513];
    let around = |e: &usize| [e - 21, e - 20, e - 2, e - 1, *e, e + 1];
    sizes.extend(edges.iter().flat_map(around));
    for (i, &len) in sizes.iter().enumerate() {
        let id = i as u128;
        let bytes = body(id, len);
        let reply = put(client, "s", id, &bytes).await.unwrap();
        assert!(reply.created);
        assert_eq!(reply.durability(), v1::Durability::Synced);
        let found = head(client, "s", id).await.unwrap();
        assert_eq!(found.length, len as u64);
        let got = get(client, "s", id).await.unwrap();
        assert!(got == bytes, "{len} bytes differ");
    }
    // All of them, after all the others were written.
    for (i, &len) in sizes.iter().enumerate() {
        let id = i as u128;
        let got = get(client, "s", id).await.unwrap();
        assert!(got == body(id, len), "{len} bytes differ");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_lump_of_a_store_with_small_blocks() {
    let mut service = Running::alone("s", 80 * MIB, 512, 0.02).await;
    let client = &mut service.client;
    let stores = client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    let max = stores.into_inner().stores[0].max_lump_bytes;
    assert!((33_000_000..33_554_432).contains(&max), "{max}");
    let bytes = body(7, usize::try_from(max).unwrap());
    assert!(put(client, "s", 7, &bytes).await.unwrap().created);
    assert!(get(client, "s", 7).await.unwrap() == bytes);
    let result = put_as(client, header("s", 8, max + 1), &Bytes::new()).await;
    refused(result, Code::OutOfRange, &["too large", &max.to_string()]);
    assert!(get(client, "s", 7).await.unwrap() == bytes);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn byte_ranges() {
    let mut service = Running::alone("s", 32 * MIB, 4096, 0.02).await;
    let client = &mut service.client;
    let bytes = body(1, 3_000_000);
    put(client, "s", 1, &bytes).await.unwrap();
    let all = bytes.len() as u64;
    for (offset, length, want) in [
        (0, None, 0..3_000_000),
        (0, Some(0), 0..0),
        (0, Some(1), 0..1),
        (4095, Some(2), 4095..4097),
        (1_048_511, Some(1_048_578), 1_048_511..2_097_089),
        (2_999_999, None, 2_999_999..3_000_000),
        (2_999_000, Some(u64::MAX), 2_999_000..3_000_000),
        (all, None, 3_000_000..3_000_000),
    ] {
        let range = Some(v1::ByteRange { offset, length });
        let (head, got) = get_range(client, "s", 1, range).await.unwrap();
        assert!(got == bytes[want.clone()], "{offset} {length:?}");
        assert_eq!((head.lump_length, head.offset), (all, offset));
        assert!(head.verified);
    }
    let behind = Some(v1::ByteRange {
        offset: all + 1,
        length: None,
    });
    let result = get_range(client, "s", 1, behind).await;
    refused(result, Code::OutOfRange, &["3000001", "3000000"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_replaces_and_delete_says_what_was_there() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.02).await;
    let client = &mut service.client;
    let max = u128::MAX;
    assert!(put(client, "s", max, &body(1, 5000)).await.unwrap().created);
    assert!(!put(client, "s", max, &body(2, 9000)).await.unwrap().created);
    assert!(get(client, "s", max).await.unwrap() == body(2, 9000));
    // The same lump under the other form of its id.
    let head = |id| v1::HeadRequest {
        store: "s".into(),
        id: text_id(id),
        ..Default::default()
    };
    let found = client.head(head("ffffffffffffffffffffffffffffffff")).await;
    assert_eq!(found.unwrap().into_inner().length, 9000);
    assert!(delete(client, "s", max).await.unwrap());
    assert!(!delete(client, "s", max).await.unwrap());
    let result = get(client, "s", max).await;
    refused(result, Code::NotFound, &["no lump", "\"s\""]);
    put(client, "s", 0xab, &body(3, 10)).await.unwrap();
    let found = client.head(head("aB")).await.unwrap();
    assert_eq!(found.into_inner().length, 10);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn embedded_and_journaled() {
    let mut service = Running::alone("s", 32 * MIB, 4096, 0.1).await;
    let client = &mut service.client;
    for (id, len) in [(1_u128, 0_usize), (2, 1), (3, 4096), (4, 65_535)] {
        let mut wanted = header("s", id, len as u64);
        wanted.placement = v1::Placement::Embedded.into();
        wanted.durability = v1::Durability::Journaled.into();
        let bytes = body(id, len);
        let reply = put_as(client, wanted, &bytes).await.unwrap();
        assert_ne!(reply.durability(), v1::Durability::Unspecified);
        let found = head(client, "s", id).await.unwrap();
        assert_eq!(found.placement(), v1::Placement::Embedded);
        assert_eq!(found.length, len as u64);
        assert!(get(client, "s", id).await.unwrap() == bytes);
    }
    let mut wanted = header("s", 5, 65_536);
    wanted.placement = v1::Placement::Embedded.into();
    let result = put_as(client, wanted, &body(5, 65_536)).await;
    refused(result, Code::OutOfRange, &["65536", "65535"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pages_show_every_id_once() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let ids: BTreeSet<u128> = (0..57_u128).map(|i| i * 3).chain([u128::MAX]).collect();
    for &id in &ids {
        put(client, "s", id, &body(id, 100)).await.unwrap();
    }
    for page_size in [1, 7, 58, 0] {
        let mut seen = Vec::new();
        let mut page_token = Bytes::new();
        loop {
            let request = v1::ListRequest {
                store: "s".into(),
                page_size,
                page_token,
                ..v1::ListRequest::default()
            };
            let page = client.list(request).await.unwrap().into_inner();
            assert!(page_size == 0 || page.ids.len() <= page_size as usize);
            let id = |id: &Bytes| u128::from_be_bytes(id[..].try_into().unwrap());
            seen.extend(page.ids.iter().map(id));
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        let are_all = seen.iter().eq(ids.iter());
        assert!(are_all, "page size {page_size}: {seen:?}");
    }
    let request = v1::ListRequest {
        store: "s".into(),
        start: raw_id(3),
        end: raw_id(12),
        ..v1::ListRequest::default()
    };
    let page = client.list(request).await.unwrap().into_inner();
    assert_eq!(page.ids, [3_u128, 6, 9].map(|id| id.to_be_bytes().to_vec()));
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delete_range_and_usage() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    for id in 0..20 {
        put(client, "s", id, &body(id, 20_000)).await.unwrap();
    }
    let usage = |start, end| v1::UsageRequest {
        store: "s".into(),
        start,
        end,
        ..Default::default()
    };
    let all = client.usage(usage(None, None)).await.unwrap().into_inner();
    assert_eq!((all.lumps, all.stored_bytes), (20, 20 * 20_480));
    assert_eq!(all.data_used_bytes, 20 * 20_480);
    assert!(all.journal_used_bytes > 0 && all.journal_used_bytes < all.journal_capacity_bytes);
    assert!(all.largest_free_bytes > 8 * MIB && all.data_capacity_bytes > 8 * MIB);
    let request = v1::DeleteRangeRequest {
        store: "s".into(),
        start: raw_id(5),
        end: raw_id(15),
        durability: 0,
        ..Default::default()
    };
    for deleted in [10, 0] {
        let done = client.delete_range(request.clone()).await.unwrap();
        assert_eq!(done.into_inner().deleted, deleted);
    }
    let some = client.usage(usage(raw_id(4), raw_id(16))).await;
    let some = some.unwrap().into_inner();
    assert_eq!((some.lumps, some.data_used_bytes), (2, 10 * 20_480));
    for id in 0..20 {
        let is_there = get(client, "s", id).await.is_ok();
        assert_eq!(is_there, !(5..15).contains(&id), "{id}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_clients_at_once_and_a_restart() {
    let dir = folder();
    let one = store_file(dir.path(), "one", 96 * MIB, 4096, 0.05);
    let two = store_file(dir.path(), "two", 96 * MIB, 512, 0.05);
    let stores: [(&str, &std::path::Path); 2] = [("one", &one), ("two", &two)];
    let service = Running::start(&stores).await;
    let mut work = tokio::task::JoinSet::new();
    for client_no in 0..8_u128 {
        let grpc = service.grpc.clone();
        work.spawn(async move {
            let mut client = connect(&grpc).await;
            let store = if client_no % 2 == 0 { "one" } else { "two" };
            for i in 0..12_u128 {
                let id = client_no << 64 | i;
                let bytes = body(id, 1 + (i as usize * 97_001) % 900_000);
                put(&mut client, store, id, &bytes).await.unwrap();
                assert!(get(&mut client, store, id).await.unwrap() == bytes);
                if i % 4 == 3 {
                    assert!(delete(&mut client, store, id).await.unwrap());
                }
            }
        });
    }
    while let Some(done) = work.join_next().await {
        done.unwrap();
    }
    service.stop().await;

    let mut service = Running::start(&stores).await;
    for client_no in 0..8_u128 {
        let store = if client_no % 2 == 0 { "one" } else { "two" };
        for i in 0..12_u128 {
            let id = client_no << 64 | i;
            let found = get(&mut service.client, store, id).await;
            if i % 4 == 3 {
                refused(found, Code::NotFound, &["no lump"]);
            } else {
                assert!(found.unwrap() == body(id, 1 + (i as usize * 97_001) % 900_000));
            }
        }
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_are_described() {
    let dir = folder();
    let path = store_file(dir.path(), "info", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("my-store", &path)]).await;
    let reply = service.client.list_stores(v1::ListStoresRequest {}).await;
    let reply = reply.unwrap().into_inner();
    assert!(reply.request_id > 0);
    let [store] = &reply.stores[..] else {
        panic!("{reply:?}")
    };
    assert_eq!(store.name.as_str(), "my-store");
    assert_eq!(store.layout.as_str(), "lusf");
    assert_eq!(store.block_size, 4096);
    assert_eq!(store.path.as_str(), path.to_str().unwrap());
    assert_eq!(store.uuid.len(), 36);
    assert!(!store.observed && !store.not_observed_because.is_empty());
    assert!(store.failed.is_empty());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_larger_than_the_memory_for_them_take_turns() {
    let dir = folder();
    let path = store_file(dir.path(), "memory", 64 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    config.put_memory = Some(Size(MIB));
    config.get_memory = Some(Size(MIB));
    let service = Running::with(config).await;
    let mut work = tokio::task::JoinSet::new();
    for id in 0..8_u128 {
        let grpc = service.grpc.clone();
        work.spawn(async move {
            let mut client = connect(&grpc).await;
            let bytes = body(id, 3 << 20);
            put(&mut client, "s", id, &bytes).await.unwrap();
            assert!(get(&mut client, "s", id).await.unwrap() == bytes);
        });
    }
    while let Some(done) = work.join_next().await {
        done.unwrap();
    }
    let page = service.http_get("/metrics").await.1;
    let none = "lumpscope_body_memory_bytes{direction=\"get\"} 0.0";
    assert!(page.contains(none), "{page}");
    service.stop().await;
}
