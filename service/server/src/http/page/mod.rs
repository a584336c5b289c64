//! The built-in web page: its files, and the data that it draws.
//!
//! | path | answers |
//! |---|---|
//! | `/`, `/page/...` | the files of the page; they hold no data and need no login |
//! | `/api/v1/live?since=SEQ` | what happens, as a stream of events: see `stream.rs` and `frame.rs` |
//! | `/api/v1/past?since=SEQ` | what happened in the last hour, in frames of ten seconds: see `past.rs` |
//! | `/api/v1/slowest?store=&within_seconds=300&limit=20&failed=false` | the slowest requests, or those that failed, explained |
//! | `/api/v1/requests/ID` | one request, explained |
//! | `/api/v1/observer` | what the observer is made of |
//!
//! ```text
//! observer ── glance, block requests ──▶ looks.rs ──▶ pulse.rs: ring of frames ──▶ stream.rs, one a viewer
//! engine   ── numbers                    (frame.rs, dots.rs,   shared bytes, a place in the ring
//!                                         health.rs)  └▶ past.rs: ring of frames ──▶ past
//! ```
//!
//! The pulse beats once a second, and only while somebody looks; the past grows by a frame every ten
//! seconds whether anybody looks or not, without dots. A frame is written once, whoever looks; a viewer is a
//! socket and a place in the ring, so one that reads slowly holds up nobody and costs nothing.

mod answer;
mod dots;
mod files;
mod frame;
pub(super) mod gate;
mod health;
mod hello;
mod looks;
mod past;
mod pulse;
mod ring;
mod stream;

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderValue, StatusCode, header::CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router, middleware};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use self::answer::{BROWSER_RULES, failed, keeping, said};
use self::health::Recent;
use self::past::Past;
use self::pulse::Pulse;
use crate::config::PageConfig;
use crate::door::{Caller, Connection, Door};
use crate::json::to_json;
use crate::observed::{
    Asking, DEFAULT_SLOWEST, MAX_VIEWERS, MOST_SLOWEST, Unanswered, WatchKind, Watches,
    bytes_of_explained,
};
use crate::request::payer;
use crate::telemetry::Sources;

/// How far back the slow ones are looked for when nothing is said, in seconds.
const DEFAULT_WITHIN: u32 = 300;

/// State of all of `/api`. Cheap to clone.
#[derive(Clone)]
struct Api {
    door: Door,
    asking: Asking,
    watches: Arc<Watches>,
    pulse: Pulse,
    past: Past,
    hello: Arc<hello::Service>,
    stopped: watch::Receiver<bool>,
}

/// The routes of the page. Its streams end when `stopped` says so.
pub(super) fn router(
    sources: &Sources,
    config: PageConfig,
    stopped: watch::Receiver<bool>,
) -> Router {
    let asking = Asking {
        stores: sources.stores.clone(),
        observer: sources.observer.clone(),
        turns: sources.watches.turns.clone(),
    };
    let recent = Recent::default();
    let (rhythm, end) = (config.rhythm, stopped.clone());
    let api = Api {
        door: sources.door.clone(),
        watches: Arc::clone(&sources.watches),
        past: Past::keep(asking.clone(), recent.clone(), rhythm, end.clone()),
        pulse: Pulse::new(asking.clone(), recent, rhythm, end),
        hello: Arc::new(hello::Service::new(config)),
        asking,
        stopped,
    };
    let unknown = async || failed(StatusCode::NOT_FOUND, "there is no such path");
    let data = Router::new()
        .route("/live", get(live))
        .route("/past", get(past))
        .route("/slowest", get(slowest))
        .route("/requests/{id}", get(request))
        .route("/observer", get(observer))
        .fallback(unknown)
        .layer(middleware::from_fn_with_state(api.clone(), gate::admit));
    files::routes().nest("/api/v1", data).with_state(api)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Option<u64>,
}

/// Live frames, from now on until the viewer or the service goes.
async fn live(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<Since>, QueryRejection>,
    request: Request,
) -> Response {
    let since = match query {
        Ok(Query(asked)) => asked.since.unwrap_or(0),
        Err(wrong) => return bad_query(&wrong),
    };
    let Ok(watching) = api.watches.begin(WatchKind::Page) else {
        let why = format!("{MAX_VIEWERS} pages are open, which is the most: close one first");
        return failed(StatusCode::SERVICE_UNAVAILABLE, &why);
    };
    let viewer = match api.pulse.join() {
        Ok(viewer) => viewer,
        Err(error) => {
            let why = format!("nobody can watch: a thread cannot be started: {error}");
            return failed(StatusCode::SERVICE_UNAVAILABLE, &why);
        }
    };
    let connection = Connection::of(request.extensions()).cloned();
    stream::answer(stream::PageStream {
        asking: api.asking,
        hello: api.hello,
        stopped: api.stopped,
        caller,
        watching,
        viewer,
        since,
        connection,
    })
}

/// The frames of the past that the page does not have yet.
async fn past(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    query: Result<Query<Since>, QueryRejection>,
) -> Response {
    let since = match query {
        Ok(Query(asked)) => asked.since.unwrap_or(0),
        Err(wrong) => return bad_query(&wrong),
    };
    let mut pieces = vec![Bytes::from_static(b"{\"frames\":[")];
    for (at, frame) in api.past.after(since).iter().enumerate() {
        pieces.extend(frame.json(if at > 0 { "," } else { "" }, &caller, 0));
    }
    pieces.push(Bytes::from_static(b"]}"));
    let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    // The bytes of the ring, not a copy for each who asks.
    let pieces = pieces.into_iter().map(Ok::<_, Infallible>);
    let body = Body::from_stream(tokio_stream::iter(pieces));
    (BROWSER_RULES, kind, body).into_response()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Slowest {
    #[serde(default)]
    store: String,
    within_seconds: Option<u32>,
    limit: Option<usize>,
    #[serde(default)]
    failed: bool,
}

async fn slowest(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    connection: Option<Extension<Connection>>,
    query: Result<Query<Slowest>, QueryRejection>,
) -> Response {
    let asked = match query {
        Ok(Query(asked)) => asked,
        Err(wrong) => return bad_query(&wrong),
    };
    let wanted = asked.store;
    if !wanted.is_empty() && !caller.may_use(&wanted) {
        let why = format!("{:?} may not use this store", caller.name());
        return failed(StatusCode::FORBIDDEN, &why);
    }
    let mut names = names(&api, &caller);
    if !wanted.is_empty() {
        names.retain(|name| *name == wanted);
        if names.is_empty() {
            return failed(StatusCode::NOT_FOUND, "there is no store of this name");
        }
    }
    let limit = asked.limit.unwrap_or(DEFAULT_SLOWEST);
    if !(1..=MOST_SLOWEST).contains(&limit) {
        let why = format!("limit is a number from 1 to {MOST_SLOWEST}");
        return failed(StatusCode::BAD_REQUEST, &why);
    }
    let within = asked.within_seconds.unwrap_or(DEFAULT_WITHIN);
    let of = (names, asked.failed);
    let bytes = bytes_of_explained(limit);
    kept(&api, (&caller, connection), bytes, async {
        let found = api.asking.slowest(of, within, limit).await;
        told(found.map(|found| json!({"requests": found})))
    })
    .await
}

async fn request(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    connection: Option<Extension<Connection>>,
    Path(id): Path<String>,
) -> Response {
    let Ok(id) = id.parse::<u64>() else {
        return failed(StatusCode::BAD_REQUEST, "the id of a request is a number");
    };
    kept(&api, (&caller, connection), bytes_of_explained(1), async {
        let known = api.asking.explain(id, |store| caller.may_use(store)).await;
        match known {
            Ok(None) => {
                let why = format!(
                    "request {id} is not known, or no longer: the slowest of the last minutes are kept"
                );
                failed(StatusCode::NOT_FOUND, &why)
            }
            known => told(known.map(|known| to_json(&known.unwrap_or_default()))),
        }
    })
    .await
}

/// The answer to a question, whose memory it keeps until the client has taken it.
async fn kept(
    api: &Api,
    (caller, connection): (&Caller, Option<Extension<Connection>>),
    bytes: u64,
    answer: impl Future<Output = Response>,
) -> Response {
    let connection = connection.as_deref();
    let payer = payer(caller.name(), connection);
    let answers = &api.watches.answers;
    match answers.reserve(payer, connection, bytes).await {
        Ok(kept) => keeping(kept, answer.await),
        Err(refusal) => failed(StatusCode::SERVICE_UNAVAILABLE, &refusal.to_string()),
    }
}

async fn observer(State(api): State<Api>, Extension(caller): Extension<Caller>) -> Response {
    let described = api.asking.describe(names(&api, &caller)).await;
    told(described.map(|described| to_json(&described)))
}

/// The stores that a caller may see.
fn names(api: &Api, caller: &Caller) -> Vec<String> {
    let all = api.asking.stores.all();
    let names = all.iter().map(|named| named.name.clone());
    names.filter(|name| caller.may_use(name)).collect()
}

fn bad_query(wrong: &QueryRejection) -> Response {
    failed(StatusCode::BAD_REQUEST, &wrong.body_text())
}

fn told(answer: Result<Value, Unanswered>) -> Response {
    match answer {
        Ok(value) => said(StatusCode::OK, &value),
        Err(error) => {
            let status = match error {
                Unanswered::Busy => StatusCode::SERVICE_UNAVAILABLE,
                Unanswered::Lost(_) => StatusCode::INTERNAL_SERVER_ERROR,
            };
            failed(status, &error.to_string())
        }
    }
}
