//! Calls against a service that is busy, silent, gone, or wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Act, Fake, client, get_reply, options};
use bytes::Bytes;
use crc_fast::crc32_iscsi;
use lumpscope_client::{Body, BoxRead, Client, Code, Error, LumpId, PutOptions, Token};
use tokio_stream::StreamExt as _;
use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

const ID: LumpId = LumpId(5);

fn busy(wait: Duration) -> Status {
    let mut details = ErrorDetails::with_retry_info(Some(wait));
    let store = [("store".to_owned(), "s".to_owned())];
    details.set_error_info("QUEUE_FULL", "lumpscope", store);
    let mut status = Status::with_error_details(Code::Unavailable, "busy", details);
    let id = lumpscope_proto::REQUEST_ID_KEY;
    status.metadata_mut().insert(id, "41".parse().unwrap());
    status
}

fn if_absent() -> PutOptions {
    PutOptions {
        if_absent: true,
        ..PutOptions::default()
    }
}

#[tokio::test]
async fn a_busy_service_is_asked_again_not_before_it_wishes() {
    let wait = Duration::from_millis(300);
    let (fake, server) = Fake::start(vec![Act::Refuse(busy(wait))]).await;
    let client = client(&server).await.unwrap();
    let begin = Instant::now();
    let body = Bytes::from_static(b"body");
    // A refusal of the service itself is no doubt: even a put "if absent" is repeated.
    let stored = client
        .put("s", ID, body.clone(), &if_absent())
        .await
        .unwrap();
    assert!(begin.elapsed() >= wait);
    assert_eq!(stored.request_id, 7);
    assert_eq!(fake.calls(), 2);
    let header = fake.call(1).header.unwrap();
    assert_eq!(header.crc32c, Some(crc32_iscsi(&body)));
    assert_eq!(fake.call(1).body, body);
}

#[tokio::test]
async fn tries_come_to_an_end() {
    let acts = (0..9).map(|_| Act::Refuse(busy(Duration::ZERO))).collect();
    let (fake, server) = Fake::start(acts).await;
    let client = client(&server).await.unwrap();
    let error = client.stores().await.unwrap_err();
    let refusal = error.refusal().unwrap();
    assert_eq!(refusal.code, Code::Unavailable);
    assert_eq!(refusal.reason, "QUEUE_FULL");
    assert_eq!(refusal.store, "s");
    assert_eq!(refusal.request_id, Some(41));
    assert_eq!(error.to_string(), "busy (UNAVAILABLE, request 41)");
    assert_eq!(fake.calls(), 4);
}

#[tokio::test]
async fn a_wait_that_ends_after_the_deadline_is_not_begun() {
    let (fake, server) = Fake::start(vec![Act::Refuse(busy(Duration::from_secs(3600)))]).await;
    let client = client(&server).await.unwrap();
    let error = client.stores().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(fake.calls(), 1);
}

#[tokio::test]
async fn what_can_never_work_is_tried_once() {
    let (fake, server) = Fake::start(vec![Act::Refuse(Status::invalid_argument("no"))]).await;
    let client = client(&server).await.unwrap();
    let error = client.put("s", ID, "body", &PutOptions::default()).await;
    assert_eq!(error.unwrap_err().code(), Some(Code::InvalidArgument));
    assert_eq!(fake.calls(), 1);
}

#[tokio::test]
async fn a_broken_connection_is_made_again() {
    let (fake, server) = Fake::start(vec![Act::Cut, Act::Cut]).await;
    let client = client(&server).await.unwrap();
    let body = vec![9; 3_000_000];
    client
        .put("s", ID, body.clone(), &PutOptions::default())
        .await
        .unwrap();
    assert_eq!(fake.calls(), 3);
    assert!(fake.call(2).body == body);
}

#[tokio::test]
async fn the_fate_of_a_put_if_absent_is_said_to_be_unknown() {
    let (fake, server) = Fake::start(vec![Act::Cut, Act::Silent]).await;
    let mut options = options(&server);
    options.timeout = Some(Duration::from_secs(2));
    let client = Client::connect(options).await.unwrap();
    for calls in [1, 2] {
        let error = client.put("s", ID, "body", &if_absent()).await.unwrap_err();
        assert!(matches!(error, Error::Ambiguous { .. }), "{error:?}");
        assert!(error.to_string().contains("lump 0000"), "{error}");
        assert_eq!(fake.calls(), calls);
    }
}

#[tokio::test]
async fn a_call_ends_with_its_time_and_the_service_knows_it() {
    let (fake, server) = Fake::start(vec![Act::Silent]).await;
    let mut options = options(&server);
    options.timeout = Some(Duration::from_secs(1));
    let client = Client::connect(options).await.unwrap();
    let error = client.stores().await.unwrap_err();
    assert!(matches!(error, Error::TimeOver { .. }), "{error:?}");
    assert_eq!(fake.calls(), 1);
    let sent = fake.call(0).metadata.get("grpc-timeout").cloned().unwrap();
    let sent = sent.to_str().unwrap().to_owned();
    assert!(sent.ends_with(['n', 'u', 'm']), "under a second: {sent}");
}

#[tokio::test]
async fn nobody_there() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = client(&server).await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    assert!(error.to_string().contains("refused"), "{error}");
    let error = client("unix:/nowhere/at.all").await.unwrap_err();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
}

#[tokio::test]
async fn the_token_is_sent_and_not_shown() {
    let (fake, server) = Fake::start(vec![]).await;
    let mut options = options(&server);
    options.token = Some(Token::new("s3cret").unwrap());
    let client = Client::connect(options).await.unwrap();
    client.stores().await.unwrap();
    let sent = fake.call(0).metadata.get("authorization").cloned().unwrap();
    assert_eq!(sent.to_str().unwrap(), "Bearer s3cret");
    assert!(!format!("{client:?}").contains("s3cret"));
}

#[tokio::test]
async fn bytes_that_change_on_their_way_are_noticed() {
    let wrong =
        |length, chunks: &[&[u8]]| Act::Get(get_reply(length, Some(crc32_iscsi(b"abc")), chunks));
    let (_fake, server) = Fake::start(vec![
        Act::Crc(1),
        wrong(3, &[b"abd"]),
        wrong(3, &[b"ab"]),
        wrong(3, &[b"ab", b"cd"]),
        wrong(3, &[b"abd"]),
        Act::Get(vec![]),
    ])
    .await;
    let client = client(&server).await.unwrap();
    let error = client.put("s", ID, "abc", &PutOptions::default()).await;
    let error = error.unwrap_err();
    assert!(
        matches!(error, Error::ChecksumMismatch { came: 1, .. }),
        "{error:?}"
    );
    let error = client.get("s", ID, None).await.unwrap_err();
    assert!(matches!(error, Error::ChecksumMismatch { .. }), "{error:?}");
    for got in [2, 4] {
        let error = client.get("s", ID, None).await.unwrap_err();
        assert!(
            matches!(error, Error::LengthMismatch { announced: 3, got: came, .. } if came == got),
            "{error:?}"
        );
    }
    let mut out = Vec::new();
    let error = client.get_into("s", ID, None, &mut out).await.unwrap_err();
    assert!(matches!(error, Error::ChecksumMismatch { .. }), "{error:?}");
    let error = client.get("s", ID, None).await.unwrap_err();
    assert!(matches!(error, Error::Protocol(_)), "{error:?}");
    assert_eq!(&client.get("s", ID, None).await.unwrap().bytes[..], b"abc");
}

#[tokio::test]
async fn a_body_that_can_be_opened_again_is_repeated_and_a_reader_is_not() {
    let (fake, server) = Fake::start(vec![Act::Cut, Act::Serve, Act::Cut]).await;
    let client = client(&server).await.unwrap();
    let opened = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&opened);
    let body = Body::opened(5, move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Box::pin(std::io::Cursor::new(b"hello, and more")) as BoxRead)
    });
    let options = PutOptions::default();
    client.put("s", ID, body, &options).await.unwrap();
    assert_eq!(opened.load(Ordering::Relaxed), 2);
    assert_eq!(fake.call(1).body, b"hello");
    let body = Body::reader(std::io::Cursor::new(b"hello"), 5);
    let error = client.put("s", ID, body, &options).await.unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    let short = Body::reader(std::io::Cursor::new(b"hell"), 5);
    let error = client.put("s", ID, short, &options).await.unwrap_err();
    assert!(matches!(error, Error::ReadBody(_)), "{error:?}");
    assert_eq!(fake.calls(), 3);
}

#[tokio::test]
async fn many_lumps_each_have_their_outcome() {
    let (fake, server) = Fake::start(vec![Act::Cut]).await;
    let client = client(&server).await.unwrap();
    let lumps: Vec<_> = (0..4_u8)
        .map(|n| (LumpId(n.into()), Bytes::from(vec![n; 1_500_000])))
        .collect();
    let outcomes = client.put_many("s", lumps, &PutOptions::default()).await;
    let outcomes = outcomes.unwrap();
    assert_eq!(fake.calls(), 2);
    assert_eq!(outcomes[2].as_ref().unwrap().request_id, 2);
    let refusal = outcomes[3].as_ref().unwrap_err().refusal().unwrap().clone();
    assert_eq!(refusal.code, Code::NotFound);
    assert_eq!(refusal.reason, "LUMP_NOT_FOUND");

    let mut many = client.get_many("s", (0..3).map(LumpId).collect()).await;
    let many = many.as_mut().unwrap();
    let mut got = Vec::new();
    while let Some((id, outcome)) = many.next().await.unwrap() {
        got.push((id, outcome.map(|lump| lump.bytes)));
    }
    assert_eq!(got.len(), 3);
    assert_eq!(got[0].1.as_ref().unwrap(), "abc");
    assert_eq!(got[1].1.as_ref().unwrap_err().code(), Some(Code::NotFound));
    assert_eq!(
        (got[2].0, got[2].1.as_ref().unwrap()),
        (LumpId(2), &"abc".into())
    );
}

#[tokio::test]
async fn a_list_goes_through_all_pages() {
    let (fake, server) = Fake::start(vec![Act::Serve, Act::Cut]).await;
    let client = client(&server).await.unwrap();
    // Spawned: what the client hands out can move between threads.
    let ids = tokio::spawn(async move {
        let ids: Result<Vec<_>, _> = client.list("s", None, None).collect().await;
        ids.unwrap()
    });
    let expected: Vec<_> = (0..6).map(LumpId).collect();
    assert_eq!(ids.await.unwrap(), expected);
    assert_eq!(fake.calls(), 4);
}
