//! Puts that are reset in the middle: nothing of them may become visible, and nothing stay in use.

use std::time::{Duration, Instant};

use bytes::Bytes;
use lumpscope_proto::v1::{ListRequest, PutRequest};
use serde::Serialize;
use tokio_stream::StreamExt as _;

use crate::failure::call_failed;
use crate::load::grpc::{self as client, CHUNK_BYTES, Client, STORE, content};
use crate::process::Interrupt;
use crate::process::{SERVICE, Server};

/// Size announced by each put.
const SIZE: usize = 4 << 20;
/// Their ids begin here: nothing else of the measurement has such.
const FIRST_ID: u64 = 1 << 41;
/// Puts under way at a time.
const AT_ONCE: usize = 16;
/// How long the service may take to let go of everything.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// The observation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct ResetsView {
    pub(super) resets: usize,
    /// Puts that were answered before they could be reset.
    pub(super) answered: usize,
    /// Lumps of these puts that can be listed afterwards.
    pub(super) visible: usize,
    /// Bytes of the engine's buffers that are still in use.
    pub(super) leaked_buffer_bytes: Option<f64>,
    /// Bytes still reserved for bodies.
    pub(super) leaked_body_bytes: Option<f64>,
    /// Bytes of the store's data region in use, afterwards more than before.
    pub(super) leaked_disk_bytes: i64,
    pub(super) met: bool,
}

/// Resets `count` puts: after the header, at any place of the body, and after all of it but before
/// the end of the stream.
pub(super) async fn measure(
    server: &Server,
    count: usize,
    interrupt: &Interrupt,
) -> anyhow::Result<ResetsView> {
    let mut random = fastrand::Rng::with_seed(4);
    let connection = client::connect(SERVICE, &server.url).await?;
    let used_before = used(&mut connection.clone()).await?;
    let mut answered = 0;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..count {
        interrupt.check()?;
        while tasks.len() >= AT_ONCE {
            answered += usize::from(
                tasks
                    .join_next()
                    .await
                    .is_some_and(|ended| ended.is_ok_and(|it| it)),
            );
        }
        let sent = match number % 8 {
            0 => 0,
            1 => SIZE,
            _ => random.usize(1..SIZE),
        };
        let wait = Duration::from_micros(random.u64(0..20_000));
        tasks.spawn(reset_one(
            connection.clone(),
            FIRST_ID + number as u64,
            sent,
            wait,
        ));
    }
    while let Some(ended) = tasks.join_next().await {
        answered += usize::from(ended.is_ok_and(|it| it));
    }
    let (buffers, bodies) = settle(server).await?;
    let mut client = connection;
    let visible = visible(&mut client).await?;
    let leaked_disk_bytes = i64::try_from(used(&mut client).await?).unwrap_or(i64::MAX)
        - i64::try_from(used_before).unwrap_or(i64::MAX);
    let nothing = |value: Option<f64>| value.is_some_and(|value| value.abs() < 0.5);
    Ok(ResetsView {
        resets: count,
        answered,
        visible,
        leaked_buffer_bytes: buffers,
        leaked_body_bytes: bodies,
        leaked_disk_bytes,
        met: answered == 0
            && visible == 0
            && leaked_disk_bytes == 0
            && nothing(buffers)
            && nothing(bodies),
    })
}

/// Begins a put, sends a part, waits a little and drops the call, which resets its stream. True: it
/// was answered before.
async fn reset_one(mut client: Client, id: u64, sent: usize, wait: Duration) -> bool {
    let messages = tokio_stream::iter(part(id, sent)).chain(tokio_stream::pending());
    let call = client.put(messages);
    tokio::time::timeout(wait, call).await.is_ok()
}

/// Header and the first `sent` bytes.
fn part(id: u64, sent: usize) -> Vec<PutRequest> {
    let mut messages = vec![client::header(id, SIZE)];
    let mut rest: Bytes = content::body(id, SIZE).split_to(sent);
    while !rest.is_empty() {
        messages.push(client::chunk(rest.split_to(rest.len().min(CHUNK_BYTES))));
    }
    messages
}

/// Waits until nothing is in use any more, and says what is when that takes too long.
async fn settle(server: &Server) -> anyhow::Result<(Option<f64>, Option<f64>)> {
    let begin = Instant::now();
    loop {
        let buffers = server.metric("lumpscope_store_buffer_used_bytes")?;
        let bodies = server.metric("lumpscope_body_memory_bytes")?;
        let none = |value: Option<f64>| value.is_none_or(|value| value < 0.5);
        if (none(buffers) && none(bodies)) || begin.elapsed() > PATIENCE {
            return Ok((buffers, bodies));
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn visible(client: &mut Client) -> anyhow::Result<usize> {
    let request = ListRequest {
        store: STORE.to_owned(),
        start: Some(client::lump_id(FIRST_ID)),
        page_size: 10_000,
        ..ListRequest::default()
    };
    let reply = client.list(request).await;
    reply
        .map(|reply| reply.into_inner().ids.len())
        .map_err(call_failed(SERVICE, "list"))
}

async fn used(client: &mut Client) -> anyhow::Result<u64> {
    let request = lumpscope_proto::v1::UsageRequest {
        store: STORE.to_owned(),
        ..Default::default()
    };
    let reply = client.usage(request).await;
    reply
        .map(|reply| reply.into_inner().data_used_bytes)
        .map_err(call_failed(SERVICE, "usage"))
}
