//! Settings in force, as keys and values of the file.

use std::time::Duration;

use lumpscope_engine::{Durability, IoBackendChoice};
use lumpscope_units::{Size, Span};
use toml::Value;

use super::{LogFormat, ServeConfig};

/// A key and its value; `None`: it is not set and has no default.
type Entry = (&'static str, Option<Value>);

impl ServeConfig {
    /// Every key and what is in force for it, in the order of the documentation. A list is
    /// separated by `;`; a key that is not set has an empty value. Never a secret: secrets are in
    /// files of which only the path is here.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let plain = |value: Value| match value {
            Value::String(text) => text,
            Value::Array(list) => {
                let texts: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
                texts.join(";")
            }
            other => other.to_string(),
        };
        let entries = self.entries().into_iter();
        entries
            .map(|(key, value)| (key, value.map(plain).unwrap_or_default()))
            .collect()
    }

    /// The settings as a file for `--config`: one `key = value` a line. Keys that are not set are
    /// comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let line = |(key, value): Entry| match value {
            Some(value) => format!("{key} = {value}\n"),
            None => format!("# {key} is not set\n"),
        };
        self.entries().into_iter().map(line).collect()
    }

    fn entries(&self) -> Vec<Entry> {
        [
            self.door_entries(),
            self.service_entries(),
            self.engine_entries(),
            self.s3_entries(),
        ]
        .concat()
    }

    fn door_entries(&self) -> Vec<Entry> {
        let door = &self.door;
        let tls = door.tls.as_ref();
        let stores = self.stores.iter().map(ToString::to_string);
        vec![
            (
                "store",
                Some(Value::Array(stores.map(Value::String).collect())),
            ),
            ("listen", text(self.listen)),
            ("metrics-listen", text(self.metrics_listen)),
            ("allow-remote", flag(self.allow_remote)),
            ("unix-socket", door.unix_socket.as_deref().and_then(path)),
            ("unix-mode", text(format_args!("{:o}", door.unix_mode))),
            ("tls-cert", tls.and_then(|tls| path(&tls.cert))),
            ("tls-key", tls.and_then(|tls| path(&tls.key))),
            (
                "tls-client-ca",
                tls.and_then(|tls| path(tls.client_ca.as_deref()?)),
            ),
            ("tokens", door.tokens.as_deref().and_then(path)),
            ("reload-interval", seconds(door.reload_interval)),
            ("max-connections", number(door.max_connections)),
            ("max-streams", whole(door.max_streams.into())),
            ("max-header-bytes", size(door.max_header_bytes)),
            ("idle-timeout", seconds(door.idle_timeout)),
            ("handshake-timeout", seconds(door.handshake_timeout)),
            ("min-rate", size(door.min_rate)),
            ("stream-window", size(door.stream_window)),
            ("connection-window", size(door.connection_window)),
            ("frame-size", size(door.frame_size)),
        ]
    }

    fn guard_rules(&self) -> Value {
        let rules = self.guard.iter().map(ToString::to_string);
        let mut rules: Vec<Value> = rules.map(Value::String).collect();
        if rules.is_empty() {
            rules.push(Value::String("off".to_owned()));
        }
        Value::Array(rules)
    }

    fn service_entries(&self) -> Vec<Entry> {
        vec![
            ("drain-timeout", seconds(self.drain_timeout)),
            ("user", self.user.clone().map(Value::String)),
            ("keep-privileges", flag(self.keep_privileges)),
            ("require-all-stores", flag(self.require_all_stores)),
            ("no-probes", flag(!self.probes)),
            ("probe-object", self.probe_object.as_deref().and_then(path)),
            ("event-one-in", whole(self.events.one_in.into())),
            (
                "event-slower-than",
                text(Span(Duration::from_nanos(self.events.slower_than_ns))),
            ),
            ("pin-maps", self.pin_maps.as_deref().and_then(path)),
            (
                "otlp-endpoint",
                self.otlp_endpoint.clone().map(Value::String),
            ),
            ("trace-url", self.page.trace_url.clone().map(Value::String)),
            ("trace-ratio", Some(Value::Float(self.sampling.ratio))),
            ("trace-slower-than", text(Span(self.sampling.slower_than))),
            ("program-statistics", flag(self.program_statistics)),
            ("put-memory", size(self.put_memory)),
            ("get-memory", size(self.get_memory)),
            ("max-message", size(self.max_message as u64)),
            ("body-timeout", seconds(self.body_timeout)),
            (
                "log-format",
                text(match self.log_format {
                    LogFormat::Text => "text",
                    LogFormat::Json => "json",
                }),
            ),
            ("log", text(&self.log)),
        ]
    }

    fn s3_entries(&self) -> Vec<Entry> {
        let credentials = self.door.s3_credentials.as_deref();
        vec![
            ("s3-listen", self.s3.listen.and_then(text)),
            ("s3-store", self.s3.store.clone().map(Value::String)),
            ("s3-credentials", credentials.and_then(path)),
            ("s3-max-body", size(self.s3.max_body)),
            ("s3-etag", text(self.s3.etag)),
            (
                "s3-upload-expiry",
                whole(self.s3.upload_expiry.as_secs() / 3600),
            ),
        ]
    }

    fn engine_entries(&self) -> Vec<Entry> {
        vec![
            ("guard", Some(self.guard_rules())),
            (
                "io-backend",
                text(match self.io_backend {
                    IoBackendChoice::Auto => "auto",
                    IoBackendChoice::Threads => "threads",
                    IoBackendChoice::Uring => "uring",
                }),
            ),
            ("queue-depth", number(self.queue_depth)),
            ("queue-limit", number(self.queue_limit)),
            ("queue-policy", text(self.queue_policy.name())),
            ("max-overtakes", whole(self.max_overtakes.into())),
            ("overload-threshold", number(self.overload_threshold)),
            ("overload-after", seconds(self.overload_after)),
            ("buffer-budget", size(self.buffer_budget)),
            ("scrub-rate", size(self.scrub_rate)),
            (
                "scrub-interval",
                whole(self.scrub_interval.as_secs() / 3600),
            ),
            ("gc-rate", size(self.gc_rate)),
            ("checkpoint-records", whole(self.checkpoint_records)),
            ("salvage", flag(self.salvage)),
            (
                "durability",
                text(match self.durability {
                    Durability::Synced => "synced",
                    Durability::Journaled => "journaled",
                }),
            ),
        ]
    }
}

fn text(value: impl std::fmt::Display) -> Option<Value> {
    Some(Value::String(value.to_string()))
}

fn flag(value: bool) -> Option<Value> {
    Some(Value::Boolean(value))
}

/// Numbers of a TOML file have 63 bits; no setting needs more.
fn whole(value: u64) -> Option<Value> {
    Some(Value::Integer(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn number(value: usize) -> Option<Value> {
    whole(value as u64)
}

fn seconds(value: Duration) -> Option<Value> {
    whole(value.as_secs())
}

fn size(bytes: impl Into<u64>) -> Option<Value> {
    text(Size(bytes.into()))
}

/// A path that is no UTF-8 cannot stand in the file; it comes from a flag.
fn path(value: &std::path::Path) -> Option<Value> {
    text(value.display())
}
