//! More than a service should take: streams, headers, frames of every kind.

use super::harness::{Abused, PATIENCE};
use super::wire::{
    self, CONTINUATION, END_HEADERS, GOAWAY, HEADERS, PING, PUT, RST_STREAM, SETTINGS, frame,
    literal_headers,
};

/// Streams a connection may have open, as these tests set it.
const MAX_STREAMS: u32 = 64;
const REFUSED_STREAM: [u8; 4] = 7_u32.to_be_bytes();

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_streams() {
    let mut abused = Abused::with(|config| config.max_streams = MAX_STREAMS).await;
    let headers = literal_headers(PUT, &[]);
    for _ in 0..3 {
        let mut socket = wire::raw(abused.address()).await;
        for number in 0..3000 {
            let open = frame(HEADERS, END_HEADERS, number * 2 + 1, &headers);
            if !wire::offer(&mut socket, &open).await {
                break;
            }
        }
        abused.works().await;
        let open = abused.metric("lumpscope_requests_in_progress").await;
        assert!(open <= f64::from(MAX_STREAMS) * 3.0, "{open} are under way");
        wire::offer(&mut socket, &frame(GOAWAY, 0, 0, &[0; 8])).await;
        let answers = wire::until_closed(&mut socket).await;
        let refused = answers
            .iter()
            .filter(|(kind, _, payload)| *kind == RST_STREAM && payload[..] == REFUSED_STREAM);
        assert!(refused.count() > 0, "no stream was refused");
    }
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_are_opened_and_reset() {
    let mut abused = Abused::start().await;
    let headers = literal_headers(PUT, &[]);
    for _ in 0..10 {
        let mut socket = wire::raw(abused.address()).await;
        let mut all = Vec::new();
        for number in 0..5000 {
            all.extend(frame(HEADERS, END_HEADERS, number * 2 + 1, &headers));
            all.extend(frame(RST_STREAM, 0, number * 2 + 1, &8_u32.to_be_bytes()));
        }
        let taken = wire::offer(&mut socket, &all).await;
        abused.works().await;
        let frames = wire::until_closed(&mut socket).await;
        let calm = frames
            .iter()
            .any(|(kind, _, payload)| *kind == GOAWAY && payload[4..8] == 11_u32.to_be_bytes());
        assert!(calm || !taken, "the connection was not ended");
    }
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_without_end() {
    let mut abused = Abused::start().await;
    for pieces in [0, 10_000] {
        let mut socket = wire::raw(abused.address()).await;
        // 256 KiB of one value: four times what a frame carries, many times what is allowed.
        let value = "x".repeat(200_000);
        let headers = literal_headers(PUT, &[("x-large", &value)]);
        let mut parts = headers.chunks(16_000);
        let mut all = frame(HEADERS, 0, 1, parts.next().unwrap());
        for part in parts {
            all.extend(frame(CONTINUATION, 0, 1, part));
        }
        for _ in 0..pieces {
            all.extend(frame(CONTINUATION, 0, 1, b""));
        }
        if pieces == 0 {
            all.extend(frame(CONTINUATION, END_HEADERS, 1, b""));
            all.extend(frame(GOAWAY, 0, 0, &[0; 8]));
        }
        wire::offer(&mut socket, &all).await;
        abused.works().await;
        // Either the call is refused or the connection ended; the service does not go on reading.
        let _ = wire::until_closed(&mut socket).await;
    }
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_headers_are_refused() {
    let mut abused = Abused::start().await;
    let client = wire::connect(abused.address(), 1 << 20).await;
    let mut request = wire::request(PUT);
    for number in 0..100 {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        let value = http::HeaderValue::from_str(&"y".repeat(1000)).unwrap();
        request.headers_mut().insert(name, value);
    }
    let mut ready = client.clone().ready().await.unwrap();
    let (reply, _stream) = ready.send_request(request, true).unwrap();
    let ended = wire::end_of(reply).await;
    assert!(ended.refused(), "{ended:?}");
    abused.works().await;
    drop((client, ready));
    abused.survived().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn frames_that_ask_for_answers() {
    let mut abused = Abused::start().await;
    let settings = [0, 4, 0, 1, 0, 0];
    for flood in [
        frame(PING, 0, 0, &[7; 8]),
        frame(SETTINGS, 0, 0, &settings),
        // An empty continuation of nothing, data on no stream, a window that opens by nothing.
        frame(8, 0, 0, &[0; 4]),
        frame(0, 0, 0, &[]),
    ] {
        let mut socket = wire::raw(abused.address()).await;
        let many = flood.repeat(1000);
        // Nobody reads the answers: the service stops reading, or ends the connection.
        for _ in 0..300 {
            if !wire::offer(&mut socket, &many).await {
                break;
            }
        }
        let works = tokio::time::timeout(PATIENCE, abused.works());
        works.await.expect("others are served meanwhile");
    }
    abused.survived().await;
}
