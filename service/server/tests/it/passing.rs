//! Lumps that are sent while they are read, or written while they come in: whatever happens in the
//! middle, no wrong byte is sent or stored, and memory and blocks come back.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use lumpscope_proto::v1;
use lumpscope_units::Size;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use crate::common::*;

const MIB: u64 = 1 << 20;
/// Bytes of a chunk of a lump of 8 MB.
const CHUNK: usize = 128 << 10;

/// Place of a lump in a store's file.
fn place(path: &Path, lump: &[u8]) -> u64 {
    let file = std::fs::read(path).unwrap();
    let at = file.windows(64).position(|window| *window == lump[..64]);
    at.unwrap() as u64
}

/// Turns one bit of a file, below the service: direct reads see what was written.
fn rot(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path);
    let (file, mut byte) = (file.unwrap(), [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 4], at).unwrap();
}

fn request(id: u128) -> v1::GetRequest {
    v1::GetRequest {
        store: "s".into(),
        id: raw_id(id),
        ..Default::default()
    }
}

/// What comes of a reply until its end.
async fn rest(replies: &mut Streaming<v1::GetResponse>) -> (Vec<u8>, Result<(), Status>) {
    let mut bytes = Vec::new();
    loop {
        match replies.message().await {
            Ok(Some(message)) => {
                if let Some(v1::get_response::Part::Chunk(chunk)) = message.part {
                    assert!(!chunk.is_empty() && chunk.len() as u64 <= MIB);
                    bytes.extend_from_slice(&chunk);
                }
            }
            Ok(None) => return (bytes, Ok(())),
            Err(status) => return (bytes, Err(status)),
        }
    }
}

/// A client whose windows hold a MiB, so that the service is soon held back by one that does not
/// read.
async fn narrow(service: &Running) -> Client {
    let endpoint = tonic::transport::Endpoint::from_shared(service.grpc.clone()).unwrap();
    let windows = endpoint
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(1 << 20);
    Client::new(windows.connect().await.unwrap())
}

/// A metric of the store.
async fn metric(service: &Running, name: &str) -> f64 {
    let page = service.http_get("/metrics").await.1;
    let start = format!("lumpscope_{name}{{store=\"s\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&*start));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

async fn nothing_is_held(service: &Running) {
    store_holds(service, "store_buffer_used_bytes", 0.0).await;
}

/// Waits until a metric of the store has this value.
async fn store_holds(service: &Running, name: &str, value: f64) {
    for _ in 0..6000 {
        if (metric(service, name).await - value).abs() < 0.5 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{name} never is {value}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rot_in_any_chunk_is_never_sent() {
    let dir = folder();
    let path = store_file(dir.path(), "rot", 32 * MIB, 4096, 0.05);
    let mut service = Running::start(&[("s", &path)]).await;
    // Of several pieces: of damage in a later one is told when the first has been sent.
    let lump = body(1, 8_000_000);
    let mut in_the_middle = 0;
    for id in 0..3 {
        let other = body(id, 900_000);
        let bytes = if id == 1 { lump.clone() } else { other };
        put(&mut service.client, "s", id, &bytes).await.unwrap();
    }
    let place = place(&path, &lump);
    for chunk in 0..lump.len().div_ceil(CHUNK) {
        let good = chunk * CHUNK;
        rot(&path, place + good as u64 + 5);
        let (bytes, end) = match service.client.get(request(1)).await {
            Ok(reply) => rest(&mut reply.into_inner()).await,
            Err(status) => (Vec::new(), Err(status)),
        };
        assert!(bytes.len() <= good && bytes == lump[..bytes.len()]);
        in_the_middle += usize::from(!bytes.is_empty());
        let status = end.unwrap_err();
        assert_eq!(status.code(), Code::DataLoss, "{chunk}: {status:?}");
        assert!(status.message().contains(&format!("chunk {chunk} ")));
        // A range that does not need it, and one that begins before it.
        let length = None;
        let part = |offset: u64| v1::ByteRange { offset, length };
        let behind = good + CHUNK;
        if behind < lump.len() {
            let got = get_range(&mut service.client, "s", 1, Some(part(behind as u64))).await;
            assert!(got.unwrap().1 == lump[behind..]);
        }
        let got = get_range(&mut service.client, "s", 1, Some(part(1))).await;
        assert_eq!(got.unwrap_err().code(), Code::DataLoss);
        // Of many, the others come.
        let (all, failed) = many(&mut service.client, 3).await;
        assert!(all[0] == body(0, 900_000) && all[2] == body(2, 900_000));
        assert!(all[1].len() <= good && all[1] == lump[..all[1].len()]);
        assert_eq!(failed, [(1, i32::from(Code::DataLoss))]);
        rot(&path, place + good as u64 + 5);
    }
    assert!(in_the_middle > 10, "{in_the_middle}");
    assert!(get(&mut service.client, "s", 1).await.unwrap() == lump);
    nothing_is_held(&service).await;
    service.stop().await;
}

/// The bytes of the lumps `0..count` by one call, and which failed.
async fn many(client: &mut Client, count: u128) -> (Vec<Vec<u8>>, Vec<(u64, i32)>) {
    use v1::get_many_response::Part;
    let request = v1::GetManyRequest {
        store: "s".into(),
        ids: (0..count).filter_map(raw_id).collect(),
        ..Default::default()
    };
    let mut replies = client.get_many(request).await.unwrap().into_inner();
    let (mut all, mut failed) = (vec![Vec::new(); 3], Vec::new());
    while let Some(reply) = replies.message().await.unwrap() {
        match reply.part.unwrap() {
            Part::Header(_) => {}
            Part::Chunk(chunk) => all[usize::try_from(reply.index).unwrap()].extend(chunk),
            Part::Failed(why) => failed.push((reply.index, why.code)),
        }
    }
    (all, failed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_version_that_was_opened_is_sent_to_its_end() {
    let mut service = Running::alone("s", 28 * MIB, 4096, 0.05).await;
    let lump = body(1, 10 << 20);
    put(&mut service.client, "s", 1, &lump).await.unwrap();
    let mut slow = narrow(&service).await;
    let mut replies = slow.get(request(1)).await.unwrap().into_inner();
    replies.message().await.unwrap().expect("a header");
    // Replaced, removed, and the store filled again and again.
    service.put("s", 1, &body(2, 10 << 20)).await;
    assert!(delete(&mut service.client, "s", 1).await.unwrap());
    for id in 2..4 {
        let bytes = body(id, 10 << 20);
        put(&mut service.client, "s", id, &bytes).await.unwrap();
        assert!(delete(&mut service.client, "s", id).await.unwrap());
    }
    service.put("s", 7, &body(7, 10 << 20)).await;
    // The blocks that are still read are not to be had, and nobody waits for them.
    let full = put(&mut service.client, "s", 8, &body(8, 10 << 20)).await;
    assert_eq!(full.unwrap_err().code(), Code::ResourceExhausted);
    let (bytes, end) = rest(&mut replies).await;
    end.unwrap();
    assert!(bytes == lump);
    drop(replies);
    let gone = get(&mut service.client, "s", 1).await;
    assert_eq!(gone.unwrap_err().code(), Code::NotFound);
    nothing_is_held(&service).await;
    service.put("s", 8, &body(8, 10 << 20)).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_goes_away_in_the_middle_leaves_nothing() {
    let mut service = Running::alone("s", 16 * MIB, 4096, 0.05).await;
    service.put("s", 1, &body(1, 10 << 20)).await;
    for round in 0..8 {
        let mut slow = narrow(&service).await;
        let mut replies = slow.get(request(1)).await.unwrap().into_inner();
        for _ in 0..round {
            replies.message().await.unwrap().expect("more of it");
        }
        if round % 2 == 0 {
            // The connection with the call, and the call alone.
            drop(slow);
        }
        drop(replies);
    }
    nothing_is_held(&service).await;
    // Nobody holds the blocks either.
    assert!(delete(&mut service.client, "s", 1).await.unwrap());
    service.put("s", 2, &body(2, 10 << 20)).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_read_is_given_up_and_the_others_are_served() {
    let dir = folder();
    let path = store_file(dir.path(), "slow", 32 * MIB, 4096, 0.05);
    let mut config = config(&[("s", &path)]);
    config.body_timeout = Duration::from_secs(2);
    config.min_rate = Size(2 * MIB);
    config.get_memory = Some(Size(8 * MIB));
    let mut service = Running::with(config).await;
    let lump = body(1, 10 << 20);
    put(&mut service.client, "s", 1, &lump).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..4 {
        let mut slow = narrow(&service).await;
        all.push((slow.get(request(1)).await.unwrap().into_inner(), slow));
    }
    assert!(get(&mut service.client, "s", 1).await.unwrap() == lump);
    // It was served when the first was given up. Who reads before its own time is up gets the rest.
    nothing_is_held(&service).await;
    for (replies, _client) in &mut all {
        let (bytes, end) = rest(replies).await;
        assert!(bytes == lump[..bytes.len()]);
        assert!(end.is_err() && bytes.len() < lump.len());
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_in_the_middle_ends_the_lump() {
    let mut service = Running::alone("s", 32 * MIB, 4096, 0.05).await;
    let lump = body(1, 10 << 20);
    put(&mut service.client, "s", 1, &lump).await.unwrap();
    let mut slow = narrow(&service).await;
    let mut call = Request::new(request(1));
    call.metadata_mut()
        .insert("grpc-timeout", "2S".parse().unwrap());
    let mut replies = match slow.get(call).await {
        Ok(reply) => reply.into_inner(),
        Err(late) => panic!("no answer within two seconds: {late:?}"),
    };
    tokio::time::sleep(Duration::from_millis(2100)).await;
    let (bytes, end) = rest(&mut replies).await;
    assert!(bytes == lump[..bytes.len()] && bytes.len() < lump.len());
    assert_eq!(end.unwrap_err().code(), Code::DeadlineExceeded);
    nothing_is_held(&service).await;
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_lump_takes_the_memory_of_a_few_pieces() {
    let mut service = Running::alone("s", 300 * MIB, 4096, 0.05).await;
    let lump: Bytes = body(1, 255 << 20);
    put(&mut service.client, "s", 1, &lump).await.unwrap();
    nothing_is_held(&service).await;
    let mut slow = narrow(&service).await;
    let mut replies = slow.get(request(1)).await.unwrap().into_inner();
    let (mut at, mut most) = (0, 0.0_f64);
    while let Some(message) = replies.message().await.unwrap() {
        if let Some(v1::get_response::Part::Chunk(chunk)) = message.part {
            assert!(chunk == lump[at..at + chunk.len()]);
            at += chunk.len();
            if at % (8 << 20) == 0 {
                most = most.max(metric(&service, "store_buffer_used_bytes").await);
            }
        }
    }
    assert_eq!(at, lump.len());
    let limit = f64::from(20 << 20);
    assert!(most > 0.5 && most < limit, "{most} bytes at a time");
    nothing_is_held(&service).await;
    service.stop().await;
}

/// How a put comes to its end.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Short,
    Long,
    Checksum,
    Reset,
    Deadline,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_put_that_ends_wrong_leaves_nothing() {
    const LEN: u64 = 6 << 20;
    let mut service = Running::alone("s", 100 * MIB, 4096, 0.05).await;
    service.put("s", 1, &Bytes::from_static(b"old")).await;
    let used = metric(&service, "store_data_used_bytes").await;
    let commits = metric(&service, "store_journal_commits_total").await;
    for (end, code) in [
        (End::Short, Code::InvalidArgument),
        (End::Long, Code::InvalidArgument),
        (End::Checksum, Code::Aborted),
        (End::Reset, Code::Cancelled),
        (End::Deadline, Code::DeadlineExceeded),
    ] {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut wanted = header("s", 1, LEN);
        wanted.crc32c = (end == End::Checksum).then_some(7);
        let mut call = Request::new(ReceiverStream::new(receiver));
        if end == End::Deadline {
            let time = "3S".parse().unwrap();
            call.metadata_mut().insert("grpc-timeout", time);
        }
        let mut client = service.client.clone();
        let putting = tokio::spawn(async move { client.put(call).await });
        sender.send(first(wanted)).await.unwrap();
        for _ in 0..4 {
            sender.send(chunk(vec![1; 1 << 20])).await.unwrap();
        }
        // Its blocks are taken while it comes, and the memory of two pieces is all it has.
        let whole = (LEN + 4096) as f64;
        store_holds(&service, "store_data_used_bytes", used + whole).await;
        assert!(metric(&service, "store_buffer_used_bytes").await < 2.5 * MIB as f64);
        let more = match end {
            End::Checksum => 2,
            End::Long => 3,
            End::Short | End::Reset | End::Deadline => 0,
        };
        for _ in 0..more {
            // Nobody takes what is too much.
            let _ = sender.send(chunk(vec![1; 1 << 20])).await;
        }
        if end == End::Reset {
            putting.abort();
            assert!(putting.await.unwrap_err().is_cancelled());
        } else {
            let held = (end == End::Deadline).then_some(sender);
            let refused = putting.await.unwrap().unwrap_err();
            // The time of a client may be over a moment before that of the service.
            let late = end == End::Deadline && refused.code() == Code::Cancelled;
            assert!(late || refused.code() == code, "{end:?}: {refused:?}");
            drop(held);
        }
        store_holds(&service, "store_data_used_bytes", used).await;
        nothing_is_held(&service).await;
        assert_eq!(get(&mut service.client, "s", 1).await.unwrap(), b"old");
        let now = metric(&service, "store_journal_commits_total").await;
        let is_same = (now - commits).abs() < 0.5;
        assert!(is_same, "{end:?} has reached the journal");
    }
    let lump = body(2, 6 << 20);
    put(&mut service.client, "s", 1, &lump).await.unwrap();
    assert!(get(&mut service.client, "s", 1).await.unwrap() == lump);
    service.stop().await;
}
