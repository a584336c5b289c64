//! Which form of the metrics a scraper gets.
//!
//! Prometheus with `scrape_native_histograms: true` asks for protobuf first, others for text. Who
//! names neither gets text.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::observed::Unanswered;
use crate::telemetry::{Form, Metrics};

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROTOBUF: &str =
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited";

/// The form that a request's `Accept` prefers. Text where both are worth the same.
pub(super) fn preferred(headers: &HeaderMap) -> Form {
    let ranges = headers.get_all(header::ACCEPT).into_iter();
    let ranges = ranges.filter_map(|value| value.to_str().ok());
    let (mut text, mut protobuf) = (0.0_f64, 0.0_f64);
    for range in ranges.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<&str> = parts.collect();
        let worth = worth(&parameters);
        match kind.as_str() {
            "application/vnd.google.protobuf" if is_ours(&parameters) => {
                protobuf = protobuf.max(worth);
            }
            "application/openmetrics-text" | "text/plain" | "text/*" | "*/*" => {
                text = text.max(worth);
            }
            _ => {}
        }
    }
    if protobuf > text {
        Form::Protobuf
    } else {
        Form::Text
    }
}

/// The metrics in this form; `None`: they could not be written. Asks the observer, which may be
/// busy: no work for a thread of the runtime.
pub(super) fn write(form: Form, metrics: &Metrics) -> Option<Bytes> {
    match form {
        Form::Text => metrics.text().ok().map(Bytes::from),
        Form::Protobuf => metrics.protobuf().ok().map(Bytes::from),
    }
}

/// The answer with these metrics.
pub(super) fn answer(form: Form, written: Result<Option<Bytes>, Unanswered>) -> Response {
    let kind = match form {
        Form::Text => OPENMETRICS,
        Form::Protobuf => PROTOBUF,
    };
    match written {
        Ok(Some(body)) => ([(header::CONTENT_TYPE, kind)], body).into_response(),
        Err(Unanswered::Busy) => {
            let retry = [(header::RETRY_AFTER, "1")];
            let text = "too many scrapes wait: try again later\n";
            (StatusCode::SERVICE_UNAVAILABLE, retry, text).into_response()
        }
        Ok(None) | Err(Unanswered::Lost(_)) => {
            let text = "the metrics could not be written\n";
            (StatusCode::INTERNAL_SERVER_ERROR, text).into_response()
        }
    }
}

/// Weight of a media range, 0 to 1; 1 without one, 0 when it is invalid.
fn worth(parameters: &[&str]) -> f64 {
    let mut found = parameters.iter().filter_map(|p| value_of(p, "q"));
    found.next().map_or(1.0, |q| {
        let q = q.parse().unwrap_or(0.0);
        if (0.0..=1.0).contains(&q) { q } else { 0.0 }
    })
}

/// True: protobuf as it is written here.
fn is_ours(parameters: &[&str]) -> bool {
    let says = |name, want| {
        let mut values = parameters.iter().filter_map(|p| value_of(p, name));
        values.next() == Some(want)
    };
    says("proto", "io.prometheus.client.MetricFamily") && says("encoding", "delimited")
}

fn value_of<'p>(parameter: &'p str, name: &str) -> Option<&'p str> {
    let (found, value) = parameter.split_once('=')?;
    let found = found.trim().eq_ignore_ascii_case(name);
    found.then(|| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> Form {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        preferred(&headers)
    }

    #[test]
    fn prometheus_gets_what_it_prefers() {
        const TEXTS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.2";
        const PROTO: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        assert_eq!(preferred(&HeaderMap::new()), Form::Text);
        assert_eq!(form(TEXTS), Form::Text);
        assert_eq!(form("*/*"), Form::Text);
        let with_native = format!("{PROTO};encoding=delimited;q=0.6,{TEXTS}");
        assert_eq!(form(&with_native), Form::Protobuf);
        assert_eq!(
            form(&format!("{PROTO}; encoding=\"delimited\"")),
            Form::Protobuf
        );
        // Not the form that is written here, not wanted, or nonsense.
        assert_eq!(
            form(&format!("{PROTO};encoding=text;q=0.9,{TEXTS}")),
            Form::Text
        );
        assert_eq!(form(&format!("{PROTO};encoding=delimited;q=0")), Form::Text);
        assert_eq!(
            form(&format!("{PROTO};encoding=delimited;q=7,{TEXTS}")),
            Form::Text
        );
        assert_eq!(
            form(",;,=;q=,\u{7f}".trim_end_matches('\u{7f}')),
            Form::Text
        );
    }
}
