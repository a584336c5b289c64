//! The log on stderr: lines for people, or one flat JSON object a line for machines.
//!
//! JSON has the fields of the event and of the spans around it side by side, so that whoever looks
//! for a request finds `request_id` and `trace_id` at the top of every line that was logged for it:
//! `{"timestamp":...,"level":...,"target":...,"message":...,"request_id":...,...}`. When names are
//! the same the event's own field wins, and after it the innermost span's.
//!
//! A line is a line whatever a client has sent: what a terminal would obey is written as escapes. The
//! libraries of the transport log only errors unless the filter names them, because they write a
//! line for bytes that any stranger may send as often as it likes.

use std::fmt;

use lumpscope_units::escape::{escaped, escaped_json};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, JsonFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormattedFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;
use crate::error::ServerError;

/// Starts logging for the whole process. Does nothing when somebody has started it before.
///
/// # Errors
/// [`ServerError::LogFilter`].
pub fn start(format: LogFormat, filter: &str) -> Result<(), ServerError> {
    let parsed = parse(filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr);
    // A log that is already there is the caller's (a test's), and stays.
    let _ = match format {
        LogFormat::Text => {
            let builder = builder.with_ansi(false);
            builder.map_event_format(OneLine).finish().try_init()
        }
        LogFormat::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(FlatJson)
            .finish()
            .try_init(),
    };
    Ok(())
}

/// Checks a filter.
///
/// # Errors
/// [`ServerError::LogFilter`].
pub fn check(filter: &str) -> Result<(), ServerError> {
    parse(filter).map(|_| ())
}

fn parse(filter: &str) -> Result<EnvFilter, ServerError> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| ServerError::LogFilter {
        filter: filter.to_owned(),
        why: error.to_string(),
    })?;
    // s3s logs headers with signatures, and an error for every key that is not there. Requests are
    // logged by this service.
    let mut quiet = vec!["s3s=off".to_owned()];
    let named = |library: &&str| filter.contains(&format!("{library}="));
    let unnamed = TRANSPORT.iter().filter(|library| !named(library));
    quiet.extend(unnamed.map(|library| format!("{library}=error")));
    let quiet = quiet.iter().filter_map(|directive| directive.parse().ok());
    Ok(quiet.fold(parsed, EnvFilter::add_directive))
}

/// Libraries between the socket and the services.
const TRANSPORT: [&str; 6] = [
    "h2",
    "hyper",
    "hyper_util",
    "rustls",
    "tokio_rustls",
    "tonic",
];

/// Writes each event as one line of text.
struct OneLine<F>(F);

impl<S, N, F> FormatEvent<S, N> for OneLine<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        let Self(inner) = self;
        inner.format_event(context, Writer::new(&mut text), event)?;
        writeln!(writer, "{}", escaped(text.trim_end_matches('\n')))
    }
}

/// Writes each event as one flat object.
struct FlatJson;

impl<S, N> FormatEvent<S, N> for FlatJson
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Map::new();
        for span in context
            .event_scope()
            .into_iter()
            .flat_map(|s| s.from_root())
        {
            let extensions = span.extensions();
            let formatted = extensions.get::<FormattedFields<N>>();
            let of_span = formatted.and_then(|f| serde_json::from_str(&f.fields).ok());
            if let Some(Value::Object(of_span)) = of_span {
                fields.extend(of_span);
            }
        }
        event.record(&mut Flat(&mut fields));
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let about = event.metadata();
        for (key, value) in [
            ("timestamp", time.as_str()),
            ("level", about.level().as_str()),
            ("target", about.target()),
        ] {
            fields.insert(key.to_owned(), value.into());
        }
        // An object of strings, numbers and truth values always has a text.
        let line = serde_json::to_string(&fields).map_err(|_| fmt::Error)?;
        writeln!(writer, "{}", escaped_json(&line))
    }
}

/// Takes the fields of an event.
struct Flat<'a>(&'a mut Map<String, Value>);

impl Flat<'_> {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for Flat<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.set(field, format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_of_text_cannot_be_forged() {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .map_event_format(OneLine)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let path = "/a\r\n2026-01-01 ERROR forged\u{202e}";
            let span = tracing::info_span!("request", %path);
            let _span = span.enter();
            tracing::info!(%path, "refused: {path}");
        });
        let bytes = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.matches('\n').count(), 1, "{text:?}");
        assert!(!text.contains(['\r', '\u{202e}']), "{text:?}");
        assert!(text.contains("\\r\\n2026"), "{text:?}");
    }

    #[test]
    fn the_transport_is_quiet_unless_it_is_named() {
        let quiet = parse("info").unwrap().to_string();
        assert!(quiet.contains("h2=error"), "{quiet}");
        assert!(quiet.contains("s3s=off"), "{quiet}");
        let loud = parse("info,h2=debug").unwrap().to_string();
        assert!(loud.contains("h2=debug"), "{loud}");
        assert!(!loud.contains("h2=error"), "{loud}");
        assert!(loud.contains("rustls=error"), "{loud}");
    }

    #[test]
    fn a_line_is_flat_and_has_the_fields_of_its_spans() {
        let lines = Lines::default();
        let to = lines.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .fmt_fields(JsonFields::new())
            .event_format(FlatJson)
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let outer = tracing::info_span!("outer", request_id = 7_u64, store = "a");
            let _outer = outer.enter();
            let inner = tracing::info_span!("inner", trace_id = "ab\"c\n", store = "b");
            let _inner = inner.enter();
            tracing::info!(bytes = 5_u64, late = false, "two\nlines");
            tracing::warn!(store = "c", "other");
        });
        let bytes = lines.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        let parsed: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(parsed.len(), 2, "{text}");
        let first = &parsed[0];
        assert_eq!(first["request_id"], 7);
        assert_eq!(first["trace_id"], "ab\"c\n");
        assert_eq!((&first["store"], &first["bytes"]), (&"b".into(), &5.into()));
        assert_eq!(first["message"], "two\nlines");
        assert_eq!(
            (&first["level"], &first["late"]),
            (&"INFO".into(), &false.into())
        );
        assert_eq!(parsed[1]["store"], "c");
        for line in &parsed {
            let flat = |value: &Value| !value.is_object() && !value.is_array();
            assert!(line.as_object().unwrap().values().all(flat), "{line}");
        }
    }
}
