//! Plain HTTP for machines that watch: `/metrics` and `/healthz`.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use crate::stores::Stores;
use crate::telemetry::{ServiceCollector, Sources};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Clone)]
struct Shared {
    registry: Arc<Registry>,
    stores: Stores,
}

/// The routes.
pub fn router(sources: Sources) -> Router {
    let stores = sources.stores.clone();
    let mut registry = Registry::default();
    registry.register_collector(Box::new(ServiceCollector::new(sources)));
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .with_state(Shared {
            registry: Arc::new(registry),
            stores,
        })
}

/// All metrics, in the text form of OpenMetrics.
async fn metrics(State(shared): State<Shared>) -> Response {
    // A report asks the observer, which may be busy: that is no work for a thread of the runtime.
    let written = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        encode(&mut text, &shared.registry).map(|()| text)
    })
    .await;
    match written {
        Ok(Ok(text)) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Ok(Err(_)) | Err(_) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics could not be written\n",
        )
            .into_response(),
    }
}

/// 200 while every store takes changes, else 503 with what has failed.
async fn healthz(State(shared): State<Shared>) -> Response {
    let failed: Vec<String> = shared
        .stores
        .all()
        .iter()
        .filter_map(|named| {
            let reason = named.store.failed()?;
            Some(format!("store {} has failed: {reason}\n", named.name))
        })
        .collect();
    if failed.is_empty() {
        return "ok\n".into_response();
    }
    (StatusCode::SERVICE_UNAVAILABLE, failed.concat()).into_response()
}
