//! Everything a client can do wrong: its own code, a message that helps, and the service goes on.

use crate::common::*;
use bytes::Bytes;
use lumpscope_proto::v1;
use tonic::{Code, Status};

const MIB: u64 = 1 << 20;

async fn send(client: &mut Client, messages: Vec<v1::PutRequest>) -> Result<u64, Status> {
    let reply = client.put(tokio_stream::iter(messages)).await?;
    Ok(reply.into_inner().request_id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_and_stores() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let raw = |bytes: &'static [u8]| {
        Some(v1::LumpId {
            form: Some(v1::lump_id::Form::Raw(Bytes::from_static(bytes))),
        })
    };
    for (id, words) in [
        (None, ["id", "missing"]),
        (Some(v1::LumpId { form: None }), ["id", "missing"]),
        (raw(b""), ["0 bytes", "16"]),
        (raw(b"123456789012345"), ["15 bytes", "16"]),
        (raw(b"12345678901234567"), ["17 bytes", "16"]),
        (text_id(""), ["text", "hexadecimal"]),
        (text_id("12g4"), ["12g4", "hexadecimal"]),
        (text_id("+1"), ["+1", "hexadecimal"]),
        (text_id(&"123456789".repeat(4)[..33]), ["text", "1 to 32"]),
    ] {
        let store = "s".to_owned();
        let request = v1::HeadRequest {
            store,
            id,
            ..Default::default()
        };
        let result = client.head(request.clone()).await;
        refused(result, Code::InvalidArgument, &words);
        let mut wanted = header("s", 0, 0);
        wanted.id = request.id;
        let result = put_as(client, wanted, &Bytes::new()).await;
        refused(result, Code::InvalidArgument, &words);
    }
    let words = ["no store \"t\"", "has s"];
    refused(head(client, "t", 1).await, Code::NotFound, &words);
    refused(get(client, "t", 1).await, Code::NotFound, &words);
    refused(delete(client, "t", 1).await, Code::NotFound, &words);
    let result = put(client, "t", 1, &Bytes::new()).await;
    refused(result, Code::NotFound, &words);
    let mut observe = service.observe().await;
    let request = v1::ReportRequest {
        store: "t".into(),
        ..Default::default()
    };
    refused(observe.report(request).await, Code::NotFound, &words);
    // The service goes on.
    service.put("s", 1, &body(1, 10)).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn put_streams() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let (invalid, empty) = (Code::InvalidArgument, v1::PutRequest { part: None });
    let start = || first(header("s", 1, 10));
    let wrong = |change: fn(&mut v1::PutHeader)| {
        let mut wrong = header("s", 1, 0);
        change(&mut wrong);
        vec![first(wrong)]
    };
    let huge = vec![first(header("s", 1, 9 << 20)), chunk(body(1, 9 << 20))];
    for (messages, code, words) in [
        (vec![], invalid, ["first message", "header"]),
        (vec![chunk("x")], invalid, ["first message", "header"]),
        (vec![empty.clone()], invalid, ["first message", ""]),
        (vec![start()], invalid, ["0 of 10", "nothing was stored"]),
        (
            vec![start(), chunk("123"), chunk("456789")],
            invalid,
            ["9 of 10", ""],
        ),
        (
            vec![start(), chunk("1234567"), chunk("89012")],
            invalid,
            ["more than the 10", ""],
        ),
        (vec![start(), start()], invalid, ["one header", ""]),
        (vec![start(), empty], invalid, ["empty", ""]),
        (
            wrong(|it| it.durability = 77),
            invalid,
            ["durability", "77"],
        ),
        (wrong(|it| it.placement = 78), invalid, ["placement", "78"]),
        (huge, Code::OutOfRange, ["chunks of at most", "8388"]),
        (
            wrong(|it| it.length = u64::MAX),
            Code::OutOfRange,
            ["too large", ""],
        ),
    ] {
        refused(send(client, messages).await, code, &words);
    }
    // Nothing of all that was stored; the service goes on.
    refused(head(client, "s", 1).await, Code::NotFound, &["no lump"]);
    let good = vec![start(), chunk(""), chunk("12345"), chunk("67890")];
    send(client, good).await.unwrap();
    assert_eq!(get(client, "s", 1).await.unwrap(), b"1234567890");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_falls_silent_is_given_up() {
    let dir = folder();
    let path = store_file(dir.path(), "silent", 16 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    config.body_timeout = std::time::Duration::from_millis(300);
    let mut service = Running::with(config).await;
    let client = &mut service.client;
    let (sender, receiver) = tokio::sync::mpsc::channel(4);
    sender.send(first(header("s", 1, 10))).await.unwrap();
    sender.send(chunk("123")).await.unwrap();
    let stalled = client
        .put(tokio_stream::wrappers::ReceiverStream::new(receiver))
        .await;
    refused(stalled, Code::DeadlineExceeded, &["3 of 10"]);
    drop(sender);
    refused(head(client, "s", 1).await, Code::NotFound, &["no lump"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ranges_and_pages() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let (start, end) = (raw_id(9), raw_id(8));
    let list = v1::ListRequest {
        store: "s".into(),
        start: start.clone(),
        end: end.clone(),
        ..v1::ListRequest::default()
    };
    let result = client.list(list.clone()).await;
    refused(result, Code::InvalidArgument, &["reversed", "swap"]);
    let usage = v1::UsageRequest {
        store: "s".into(),
        start: start.clone(),
        end: end.clone(),
        ..Default::default()
    };
    let result = client.usage(usage).await;
    refused(result, Code::InvalidArgument, &["reversed"]);
    let range = v1::DeleteRangeRequest {
        store: "s".into(),
        start,
        end,
        durability: 0,
        ..Default::default()
    };
    let result = client.delete_range(range.clone()).await;
    refused(result, Code::InvalidArgument, &["reversed"]);
    let open = v1::DeleteRangeRequest { end: None, ..range };
    let result = client.delete_range(open).await;
    refused(result, Code::InvalidArgument, &["end", "missing"]);
    let tokens: [&[u8]; 3] = [b"x", &[0; 17], &[9; 16]];
    for token in tokens {
        let request = v1::ListRequest {
            end: raw_id(10),
            page_token: Bytes::copy_from_slice(token),
            ..list.clone()
        };
        let result = client.list(request).await;
        refused(result, Code::InvalidArgument, &["page_token"]);
    }
    let request = v1::ListRequest {
        end: None,
        page_size: 10_001,
        ..list
    };
    let result = client.list(request).await;
    refused(result, Code::InvalidArgument, &["page_size", "10000"]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_says_so_and_deletes_still_work() {
    let mut service = Running::alone("s", 4 * MIB, 4096, 0.05).await;
    let client = &mut service.client;
    let bytes = body(1, 300_000);
    let mut stored = 0_u128;
    let full = loop {
        match put(client, "s", stored, &bytes).await {
            Ok(_) => stored += 1,
            Err(status) => break status,
        }
        assert!(stored < 100, "a store of 4 MiB took 30 MB");
    };
    assert!(stored > 5);
    let words = ["data region is full", "delete"];
    refused::<()>(Err(full), Code::ResourceExhausted, &words);
    for id in 0..stored {
        assert!(get(client, "s", id).await.unwrap() == bytes);
    }
    assert!(delete(client, "s", 0).await.unwrap());
    put(client, "s", 99, &bytes).await.unwrap();
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_says_so_and_deletes_still_work() {
    let mut service = Running::alone("s", 8 * MIB, 4096, 0.1).await;
    let client = &mut service.client;
    let bytes = body(1, 60_000);
    let embed = |id| {
        let mut wanted = header("s", id, 60_000);
        wanted.placement = v1::Placement::Embedded.into();
        wanted
    };
    let mut stored = 0_u128;
    let full = loop {
        match put_as(client, embed(stored), &bytes).await {
            Ok(_) => stored += 1,
            Err(status) => break status,
        }
        assert!(stored < 100, "a journal of 0.8 MiB took 6 MB");
    };
    refused::<()>(
        Err(full),
        Code::ResourceExhausted,
        &["journal is full", "delete"],
    );
    for id in 0..stored {
        assert!(get(client, "s", id).await.unwrap() == bytes);
        assert!(delete(client, "s", id).await.unwrap());
    }
    put_as(client, embed(99), &bytes).await.unwrap();
    service.stop().await;
}

/// Waits until the metrics have a line.
async fn wait_for(service: &Running, line: &str) {
    let mut page = String::new();
    for _ in 0..400 {
        page = service.http_get("/metrics").await.1;
        if page.contains(line) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{line} did not come: {page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_goes_away_stores_nothing() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    // In the middle of the body, and with all of it sent but the end of the stream.
    for (gone, sent) in [(1, 1 << 20), (2, 2 << 20)] {
        let (sender, receiver) = tokio::sync::mpsc::channel(4);
        let mut other = connect(&service.grpc).await;
        let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
        let call = tokio::spawn(async move { other.put(messages).await });
        sender.send(first(header("s", 1, 2 << 20))).await.unwrap();
        sender.send(chunk(body(1, sent))).await.unwrap();
        let memory = "lumpscope_body_memory_bytes{direction=\"put\"} 2162688.0\n";
        wait_for(&service, memory).await;
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
        let labels = "store=\"s\",method=\"put\",code=\"CANCELLED\"";
        let want = format!("lumpscope_requests_total{{{labels}}} {gone}\n");
        wait_for(&service, &want).await;
        let found = head(&mut service.client, "s", 1).await;
        refused(found, Code::NotFound, &["no lump"]);
    }
    let bytes = body(2, 2 << 20);
    put(&mut service.client, "s", 1, &bytes).await.unwrap();
    assert!(get(&mut service.client, "s", 1).await.unwrap() == bytes);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_bytes_are_never_returned() {
    let dir = folder();
    let path = store_file(dir.path(), "damage", 16 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("s", &path)]).await;
    let bytes = body(1, 20_000);
    put(&mut service.client, "s", 1, &bytes).await.unwrap();
    service.put("s", 2, &body(2, 20_000)).await;
    service.stop().await;

    let mut image = std::fs::read(&path).unwrap();
    let at = image.windows(64).position(|w| w == &bytes[..64]).unwrap();
    image[at + 10_000] ^= 1;
    std::fs::write(&path, &image).unwrap();

    let mut service = Running::start(&[("s", &path)]).await;
    let sector = (at / 512).to_string();
    let words = ["\"s\"", "00000001", "checksum", "sectors", &sector];
    let result = get(&mut service.client, "s", 1).await;
    refused(result, Code::DataLoss, &words);
    let range = Some(v1::ByteRange {
        offset: 0,
        length: Some(10),
    });
    let part = get_range(&mut service.client, "s", 1, range).await;
    refused(part, Code::DataLoss, &["checksum"]);
    assert!(get(&mut service.client, "s", 2).await.unwrap() == body(2, 20_000));
    service.stop().await;
}
