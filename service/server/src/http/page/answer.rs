//! Answers in JSON.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::request::ReplyMemory;

/// Headers of every answer with data: not to be cached, with a fixed type.
pub(super) const BROWSER_RULES: [(HeaderName, HeaderValue); 2] = [
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
];

/// `value`, with a status.
pub(super) fn said(status: StatusCode, value: &Value) -> Response {
    let kind = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let body = Body::from(value.to_string());
    (status, BROWSER_RULES, kind, body).into_response()
}

/// Keeps the memory of an answer until the transport has taken it.
pub(super) fn keeping(kept: Arc<ReplyMemory>, response: Response) -> Response {
    // An answer whose length is not known counts as the longest.
    if let Some(bytes) = response.body().size_hint().exact() {
        kept.shrink(usize::try_from(bytes).unwrap_or(usize::MAX));
    }
    response
        .map(|body| Body::new(body.map_frame(move |frame| frame.map_data(|data| kept.part(data)))))
}

/// `{"error": why}`, with a status.
pub(super) fn failed(status: StatusCode, why: &str) -> Response {
    said(status, &json!({"error": why}))
}
