//! Answers in JSON.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

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

/// `{"error": why}`, with a status.
pub(super) fn failed(status: StatusCode, why: &str) -> Response {
    said(status, &json!({"error": why}))
}
