//! HTTP for machines that watch, through the same door as gRPC, and for people: the web page with
//! its data, see `page/`.
//!
//! | path | answers 200 | for |
//! |---|---|---|
//! | `/metrics` | always, but only to who has the right observe when tokens are configured | Prometheus |
//! | `/livez` | while the process answers | who restarts what hangs |
//! | `/readyz` | while any store takes every request, as gRPC health of the whole service | who sends clients here |
//! | `/healthz` | while every store takes every request | who wakes people up |
//!
//! Without a login and TLS all but `/livez` answer only to names that no web site can own, unless
//! `allow-remote` opens the service to everybody.
//!
//! Else they answer 503 with a line for each store that does not serve. A restart helps no store
//! that drains or has failed: restart on `/livez` only.

mod exposition;
mod page;
mod serve;

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use lumpscope_proto::v1::StoreState;
use tokio::sync::watch;

use crate::config::PageConfig;
use crate::door::{Connection, Door, Right};
use crate::observed::SharedAnswers;
use crate::stores::Stores;
use crate::telemetry::{Metrics, MetricsFormat, Sources};

pub(crate) use page::gate::check as check_site;
pub(crate) use serve::serve;

#[derive(Clone)]
struct Served {
    metrics: Arc<Metrics>,
    /// One at a time, for all who have asked meanwhile.
    scrapes: Arc<SharedAnswers<MetricsFormat, Option<Bytes>>>,
    stores: Stores,
    door: Door,
}

/// The routes. The page's streams end when `stopped` says so. `any_name`: numbers are for everybody
/// on the network, by whatever name it finds the service.
fn router(
    sources: Sources,
    page: PageConfig,
    any_name: bool,
    stopped: watch::Receiver<bool>,
) -> Router {
    let page = page::router(&sources, page, stopped);
    let (stores, door) = (sources.stores.clone(), sources.door.clone());
    let mut numbers = Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz));
    if !any_name {
        let asked = middleware::from_fn_with_state(door.clone(), asked_from_here);
        numbers = numbers.layer(asked);
    }
    numbers
        .route("/livez", get(async || "ok\n"))
        .with_state(Served {
            scrapes: Arc::default(),
            metrics: Arc::new(Metrics::new(sources)),
            stores,
            door,
        })
        .merge(page)
}

/// Keeps out the pages of other sites, as from the data of our own page.
async fn asked_from_here(State(door): State<Door>, request: Request, next: Next) -> Response {
    match page::gate::check(&door, request.headers()) {
        Ok(()) => next.run(request).await,
        Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
    }
}

/// All metrics, in the form that the request prefers, for who may see all of them.
async fn metrics(State(shared): State<Served>, request: Request) -> Response {
    if let Some(refused) = refused(&shared.door, &request) {
        return refused;
    }
    let (form, kind) = exposition::preferred(request.headers());
    let metrics = Arc::clone(&shared.metrics);
    // It asks the observer, which may be busy: no work for a thread of the runtime.
    let answer = move || metrics.write(form).ok().map(Bytes::from);
    exposition::answer(kind, shared.scrapes.ask(form, answer).await)
}

/// The answer to who has no login, or one that does not cover every store's numbers.
fn refused(door: &Door, request: &Request) -> Option<Response> {
    let connection = Connection::of(request.extensions());
    let caller = match door.caller(connection, request.headers()) {
        Ok(caller) => caller,
        Err(denied) => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            let text = format!("{denied}\n");
            return Some((StatusCode::UNAUTHORIZED, challenge, text).into_response());
        }
    };
    let why = if !caller.has(Right::Observe) {
        "it lacks the scope \"observe\""
    } else if caller.is_restricted() {
        "it may use some stores only, and the metrics are those of all"
    } else {
        return None;
    };
    let metrics = &door.metrics;
    metrics.login_failed(connection, "scope", caller.name());
    let text = format!("{:?} may not read the metrics: {why}\n", caller.name());
    Some((StatusCode::FORBIDDEN, text).into_response())
}

/// 200 while every store takes every request, else 503 with what does not. Stores that are degraded
/// are named in either.
async fn healthz(State(shared): State<Served>) -> Response {
    let not_serving = not_serving(&shared.stores);
    let degraded = degraded(&shared.stores);
    answer(not_serving.is_empty(), not_serving + &degraded)
}

/// 200 while any store takes every request.
async fn readyz(State(shared): State<Served>) -> Response {
    let any = shared.stores.all().iter().any(|named| named.serves());
    answer(any, not_serving(&shared.stores) + &degraded(&shared.stores))
}

/// A line for each store that does not take every request.
fn not_serving(stores: &Stores) -> String {
    let (open, failed) = (stores.all(), stores.failed());
    let open = open.iter().filter_map(|named| {
        let why = named.why_not_serving()?;
        Some(format!("store {} does not serve: {why}\n", named.name))
    });
    let failed = failed
        .iter()
        .map(|failed| format!("store {} does not serve: {}\n", failed.name, failed.why));
    open.chain(failed).collect()
}

/// A line for each store that takes every request and whose disk has errors.
fn degraded(stores: &Stores) -> String {
    let all = stores.all();
    let states = all.iter().map(|named| (&named.name, named.state()));
    states
        .filter(|(_, (state, _))| *state == StoreState::Degraded)
        .map(|(name, (_, reason))| format!("store {name} is degraded: {reason}\n"))
        .collect()
}

fn answer(good: bool, text: String) -> Response {
    if good {
        return format!("ok\n{text}").into_response();
    }
    let text = if text.is_empty() {
        "there is no store\n".to_owned()
    } else {
        text
    };
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}
