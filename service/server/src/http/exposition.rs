//! Which form of the metrics a scraper gets: the one that it likes best of those it names.
//!
//! Prometheus with `scrape_native_histograms: true` asks for protobuf first, else for OpenMetrics,
//! which has exemplars. Who names none gets the text that every scraper of metrics reads.

use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;

use crate::observed::Unanswered;
use crate::telemetry::MetricsFormat;

/// A form, and its name in the answer.
type Named = (MetricsFormat, &'static str);

const PROTOBUF: Named = (
    MetricsFormat::Protobuf,
    "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited",
);
const OPENMETRICS: Named = (
    MetricsFormat::OpenMetrics,
    "application/openmetrics-text; version=1.0.0; charset=utf-8",
);
/// What Prometheus asks for since before version 1.0.0: nothing that is written here differs.
const OLDER_OPENMETRICS: Named = (
    MetricsFormat::OpenMetrics,
    "application/openmetrics-text; version=0.0.1; charset=utf-8",
);
const PLAIN: Named = (
    MetricsFormat::Plain,
    "text/plain; version=0.0.4; charset=utf-8",
);
/// It may quote names, which none here needs.
const NEWER_PLAIN: Named = (
    MetricsFormat::Plain,
    "text/plain; version=1.0.0; charset=utf-8",
);

/// The form that a request's `Accept` prefers; of those that are worth the same, the first.
pub(super) fn preferred(headers: &HeaderMap) -> Named {
    let ranges = headers.get_all(header::ACCEPT).into_iter();
    let ranges = ranges.filter_map(|value| value.to_str().ok());
    let mut best = (0.0, PLAIN);
    for range in ranges.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<&str> = parts.collect();
        let worth = worth(&parameters);
        match named(&kind, &parameters) {
            Some(form) if worth > best.0 => best = (worth, form),
            _ => {}
        }
    }
    best.1
}

/// The form of a media range; `None`: it is not written here.
fn named(kind: &str, parameters: &[&str]) -> Option<Named> {
    let says = |name| parameters.iter().find_map(|p| value_of(p, name));
    match (kind, says("version")) {
        ("application/vnd.google.protobuf", _) => {
            let ours = (Some("io.prometheus.client.MetricFamily"), Some("delimited"));
            ((says("proto"), says("encoding")) == ours).then_some(PROTOBUF)
        }
        ("application/openmetrics-text", None | Some("1.0.0")) => Some(OPENMETRICS),
        ("application/openmetrics-text", Some("0.0.1")) => Some(OLDER_OPENMETRICS),
        ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => Some(PLAIN),
        ("text/plain", Some("1.0.0")) => Some(NEWER_PLAIN),
        _ => None,
    }
}

/// The answer with these metrics.
pub(super) fn answer(kind: &'static str, written: Result<Option<Bytes>, Unanswered>) -> Response {
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

fn value_of<'p>(parameter: &'p str, name: &str) -> Option<&'p str> {
    let (found, value) = parameter.split_once('=')?;
    let found = found.trim().eq_ignore_ascii_case(name);
    found.then(|| value.trim().trim_matches('"'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> Named {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().unwrap());
        preferred(&headers)
    }

    #[test]
    fn a_scraper_gets_what_it_prefers() {
        const TEXTS: &str = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
            application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.2";
        const PROTO: &str =
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily";
        assert_eq!(preferred(&HeaderMap::new()), PLAIN);
        for (accept, wanted) in [
            (TEXTS, OPENMETRICS),
            ("*/*", PLAIN),
            ("text/plain;version=0.0.4;q=1,*/*;q=0.1", PLAIN),
            ("text/plain", PLAIN),
            ("text/plain;version=1.0.0;escaping=allow-utf-8", NEWER_PLAIN),
            (
                "application/openmetrics-text; version=0.0.1,text/plain;q=0.5",
                OLDER_OPENMETRICS,
            ),
            (
                "application/openmetrics-text;version=9.0.0,text/plain;version=7,text/*;q=0.1",
                PLAIN,
            ),
            (",;,=;q=,", PLAIN),
        ] {
            assert_eq!(form(accept), wanted, "{accept}");
        }
        for (encoding, wanted) in [
            ("encoding=delimited;q=0.6", PROTOBUF),
            ("encoding=\"delimited\"", PROTOBUF),
            // Not the form that is written here, not wanted, or nonsense.
            ("encoding=text;q=0.9", OPENMETRICS),
            ("encoding=delimited;q=0", OPENMETRICS),
            ("encoding=delimited;q=7", OPENMETRICS),
        ] {
            let found = form(&format!("{PROTO};{encoding},{TEXTS}"));
            assert_eq!(found, wanted, "{encoding}");
        }
    }
}
