//! Flags, environment, file and defaults made one, and checked.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use lumpscope_observer::EventPolicy;
use lumpscope_units::Size;

use super::{
    DEFAULT_BODY_MEMORY, DEFAULT_BODY_TIMEOUT_SECONDS, DEFAULT_BUFFER_BUDGET,
    DEFAULT_CHECKPOINT_RECORDS, DEFAULT_CONNECTION_WINDOW, DEFAULT_DRAIN_TIMEOUT_SECONDS,
    DEFAULT_FRAME_SIZE, DEFAULT_HANDSHAKE_TIMEOUT_SECONDS, DEFAULT_IDLE_TIMEOUT_SECONDS,
    DEFAULT_LISTEN, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_HEADER, DEFAULT_MAX_MESSAGE,
    DEFAULT_MAX_STREAMS, DEFAULT_METRICS_LISTEN, DEFAULT_MIN_RATE, DEFAULT_OVERLOAD_AFTER_SECONDS,
    DEFAULT_QUEUE_DEPTH, DEFAULT_QUEUE_LIMIT, DEFAULT_RELOAD_INTERVAL_SECONDS, DEFAULT_S3_MAX_BODY,
    DEFAULT_S3_UPLOAD_EXPIRY_HOURS, DEFAULT_SCRUB_INTERVAL_HOURS, DEFAULT_STREAM_WINDOW,
    DEFAULT_TRACE_RATIO, DEFAULT_TRACE_SLOWER_THAN, DoorConfig, PageConfig, S3Config, Sampling,
    ServeArgs, ServeConfig, StoreSpec, TlsFiles,
};
use crate::error::ServerError;

/// Longest that can be configured for requests under way at the end.
const MAX_DRAIN: Duration = Duration::from_mins(10);

/// Everything that is wrong, in the order in which it was found.
type Problems = Vec<ServerError>;

impl ServeArgs {
    /// Flags, environment, file and defaults made one.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, and the first value that does not make sense.
    pub fn resolve(self) -> Result<ServeConfig, ServerError> {
        none_of(self.examined()?)
    }

    /// As [`ServeArgs::resolve`], but there need not be any store.
    ///
    /// # Errors
    /// As [`ServeArgs::resolve`].
    pub fn resolve_settings(self) -> Result<ServeConfig, ServerError> {
        none_of(self.put_together()?)
    }

    /// As [`ServeArgs::resolve`], with every problem and defaults in the place of whatever is wrong.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    pub(crate) fn examined(self) -> Result<(ServeConfig, Problems), ServerError> {
        let (config, mut problems) = self.put_together()?;
        check_stores(&config.stores, &mut problems);
        check_s3(&config, &mut problems);
        Ok((config, problems))
    }

    /// A configuration that has defaults in the place of whatever is wrong.
    ///
    /// # Errors
    /// A file that cannot be read or parsed.
    fn put_together(self) -> Result<(ServeConfig, Problems), ServerError> {
        let args = match &self.config {
            Some(path) => {
                let file = read_file(path)?;
                self.over(file)
            }
            None => self,
        };
        let mut problems = Vec::new();
        let config = args.with_defaults(&mut problems);
        check_numbers(&config, &mut problems);
        check_memory(&config, &mut problems);
        Ok((config, problems))
    }

    /// Fills unset keys from the file.
    fn over(self, file: Self) -> Self {
        Self {
            store: said(self.store, file.store),
            config: self.config,
            listen: self.listen.or(file.listen),
            metrics_listen: self.metrics_listen.or(file.metrics_listen),
            allow_remote: self.allow_remote.or(file.allow_remote),
            unix_socket: self.unix_socket.or(file.unix_socket),
            unix_mode: self.unix_mode.or(file.unix_mode),
            tls_cert: self.tls_cert.or(file.tls_cert),
            tls_key: self.tls_key.or(file.tls_key),
            tls_client_ca: self.tls_client_ca.or(file.tls_client_ca),
            tokens: self.tokens.or(file.tokens),
            reload_interval: self.reload_interval.or(file.reload_interval),
            max_connections: self.max_connections.or(file.max_connections),
            max_streams: self.max_streams.or(file.max_streams),
            max_header_bytes: self.max_header_bytes.or(file.max_header_bytes),
            idle_timeout: self.idle_timeout.or(file.idle_timeout),
            handshake_timeout: self.handshake_timeout.or(file.handshake_timeout),
            min_rate: self.min_rate.or(file.min_rate),
            stream_window: self.stream_window.or(file.stream_window),
            connection_window: self.connection_window.or(file.connection_window),
            frame_size: self.frame_size.or(file.frame_size),
            drain_timeout: self.drain_timeout.or(file.drain_timeout),
            user: self.user.or(file.user),
            keep_privileges: self.keep_privileges.or(file.keep_privileges),
            require_all_stores: self.require_all_stores.or(file.require_all_stores),
            check_config: self.check_config,
            no_probes: self.no_probes.or(file.no_probes),
            probe_object: self.probe_object.or(file.probe_object),
            event_one_in: self.event_one_in.or(file.event_one_in),
            event_slower_than: self.event_slower_than.or(file.event_slower_than),
            pin_maps: self.pin_maps.or(file.pin_maps),
            otlp_endpoint: self.otlp_endpoint.or(file.otlp_endpoint),
            trace_url: self.trace_url.or(file.trace_url),
            trace_ratio: self.trace_ratio.or(file.trace_ratio),
            trace_slower_than: self.trace_slower_than.or(file.trace_slower_than),
            guard: said(self.guard, file.guard),
            program_statistics: self.program_statistics.or(file.program_statistics),
            io_backend: self.io_backend.or(file.io_backend),
            queue_depth: self.queue_depth.or(file.queue_depth),
            queue_limit: self.queue_limit.or(file.queue_limit),
            queue_policy: self.queue_policy.or(file.queue_policy),
            max_overtakes: self.max_overtakes.or(file.max_overtakes),
            overload_threshold: self.overload_threshold.or(file.overload_threshold),
            overload_after: self.overload_after.or(file.overload_after),
            buffer_budget: self.buffer_budget.or(file.buffer_budget),
            scrub_rate: self.scrub_rate.or(file.scrub_rate),
            scrub_interval: self.scrub_interval.or(file.scrub_interval),
            gc_rate: self.gc_rate.or(file.gc_rate),
            checkpoint_records: self.checkpoint_records.or(file.checkpoint_records),
            salvage: self.salvage.or(file.salvage),
            durability: self.durability.or(file.durability),
            put_memory: self.put_memory.or(file.put_memory),
            get_memory: self.get_memory.or(file.get_memory),
            max_message: self.max_message.or(file.max_message),
            body_timeout: self.body_timeout.or(file.body_timeout),
            s3_listen: self.s3_listen.or(file.s3_listen),
            s3_store: self.s3_store.or(file.s3_store),
            s3_credentials: self.s3_credentials.or(file.s3_credentials),
            s3_max_body: self.s3_max_body.or(file.s3_max_body),
            s3_etag: self.s3_etag.or(file.s3_etag),
            s3_upload_expiry: self.s3_upload_expiry.or(file.s3_upload_expiry),
            log_format: self.log_format.or(file.log_format),
            log: self.log.or(file.log),
        }
    }

    fn with_defaults(self, problems: &mut Problems) -> ServeConfig {
        let (door, events) = (self.door(problems), self.events());
        let safe = self.allow_remote.unwrap_or(false) || door.is_safe();
        let s3 = self.s3(&door, problems);
        let mut listens = |key, given, default| address(key, given, default, safe, problems);
        let listen = listens("listen", self.listen, DEFAULT_LISTEN);
        let metrics_listen = listens(
            "metrics-listen",
            self.metrics_listen,
            DEFAULT_METRICS_LISTEN,
        );
        let sampling = self.sampling();
        let queue_limit = self.queue_limit.unwrap_or(DEFAULT_QUEUE_LIMIT);
        let half = u32::try_from(queue_limit / 2).unwrap_or(u32::MAX);
        let bytes = |given: Option<Size>, default: Size| given.unwrap_or(default).0;
        let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
        let buffer_budget = bytes(self.buffer_budget, DEFAULT_BUFFER_BUDGET);
        // What is not given follows from what is.
        let body_memory = |most| Size(DEFAULT_BODY_MEMORY.0.min(most));
        let put_memory = bytes(self.put_memory, body_memory(buffer_budget / 2));
        let rest = buffer_budget.saturating_sub(put_memory);
        let get_memory = bytes(self.get_memory, body_memory(rest));
        let hours = self.scrub_interval.unwrap_or(DEFAULT_SCRUB_INTERVAL_HOURS);
        ServeConfig {
            stores: self.store,
            listen,
            metrics_listen,
            allow_remote: self.allow_remote.unwrap_or(false),
            probes: !self.no_probes.unwrap_or(false),
            probe_object: self.probe_object,
            events,
            pin_maps: self.pin_maps,
            otlp_endpoint: endpoint(self.otlp_endpoint, problems),
            page: page(self.trace_url, problems),
            sampling,
            guard: self.guard,
            program_statistics: self.program_statistics.unwrap_or(false),
            io_backend: self.io_backend.unwrap_or_default().into(),
            queue_depth: self.queue_depth.unwrap_or(DEFAULT_QUEUE_DEPTH),
            queue_limit,
            queue_policy: self.queue_policy.unwrap_or_default().into(),
            max_overtakes: self.max_overtakes.unwrap_or(half),
            overload_threshold: self
                .overload_threshold
                .unwrap_or((queue_limit / 4).saturating_mul(3).max(1)),
            overload_after: seconds(self.overload_after, DEFAULT_OVERLOAD_AFTER_SECONDS),
            buffer_budget,
            scrub_rate: bytes(self.scrub_rate, Size(0)),
            scrub_interval: Duration::from_secs(hours.saturating_mul(3600)),
            gc_rate: bytes(self.gc_rate, Size(0)),
            checkpoint_records: self
                .checkpoint_records
                .unwrap_or(DEFAULT_CHECKPOINT_RECORDS),
            salvage: self.salvage.unwrap_or(false),
            durability: self.durability.unwrap_or_default().into(),
            put_memory,
            get_memory,
            max_message: message_size(self.max_message, problems),
            body_timeout: seconds(self.body_timeout, DEFAULT_BODY_TIMEOUT_SECONDS),
            door,
            s3,
            drain_timeout: seconds(self.drain_timeout, DEFAULT_DRAIN_TIMEOUT_SECONDS),
            user: self.user,
            keep_privileges: self.keep_privileges.unwrap_or(false),
            require_all_stores: self.require_all_stores.unwrap_or(false),
            log_format: self.log_format.unwrap_or_default(),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
        }
    }

    /// How S3 is served.
    fn s3(&self, door: &DoorConfig, problems: &mut Problems) -> S3Config {
        // Every request of S3 is signed, so TLS alone keeps strangers out.
        let safe = self.allow_remote.unwrap_or(false) || door.tls.is_some();
        let listen = self
            .s3_listen
            .map(|given| address("s3-listen", Some(given), "", safe, problems));
        let max_body = self.s3_max_body.unwrap_or(DEFAULT_S3_MAX_BODY);
        let good = (1 << 20..=DEFAULT_S3_MAX_BODY.0).contains(&max_body.0);
        check(
            problems,
            good,
            "s3-max-body",
            max_body,
            "a size from 1M to 5G",
        );
        let missing = listen.is_some() && door.s3_credentials.is_none();
        let want = "the file of access keys, which s3-listen needs";
        check(problems, !missing, "s3-credentials", "", want);
        let hours = self
            .s3_upload_expiry
            .unwrap_or(DEFAULT_S3_UPLOAD_EXPIRY_HOURS);
        S3Config {
            listen,
            store: self.s3_store.clone().filter(|name| !name.is_empty()),
            max_body: max_body.0,
            etag: self.s3_etag.unwrap_or_default(),
            upload_expiry: Duration::from_secs(hours.saturating_mul(3600)),
        }
    }

    /// Which requests are traced.
    fn sampling(&self) -> Sampling {
        let slower_than = self.trace_slower_than.unwrap_or(DEFAULT_TRACE_SLOWER_THAN);
        Sampling {
            ratio: self.trace_ratio.unwrap_or(DEFAULT_TRACE_RATIO),
            slower_than: slower_than.0,
        }
    }

    /// Which completed block requests are handed out as events.
    fn events(&self) -> EventPolicy {
        EventPolicy {
            one_in: self.event_one_in.unwrap_or(1),
            slower_than_ns: self.event_slower_than.unwrap_or_default().nanoseconds(),
        }
    }

    /// How connections are let in.
    fn door(&self, problems: &mut Problems) -> DoorConfig {
        let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: self.tls_client_ca.clone(),
            }),
            (None, None) if self.tls_client_ca.is_none() => None,
            (cert, _) => {
                problems.push(ServerError::TlsIncomplete {
                    missing: if cert.is_none() {
                        "tls-cert"
                    } else {
                        "tls-key"
                    },
                });
                None
            }
        };
        let mut bounded = |key, given, default| bounded(key, given, default, problems);
        let (window, frame) = (DEFAULT_STREAM_WINDOW, DEFAULT_FRAME_SIZE);
        DoorConfig {
            unix_socket: self.unix_socket.clone(),
            unix_mode: self.unix_mode.unwrap_or_default().0,
            tls,
            tokens: self.tokens.clone(),
            s3_credentials: self.s3_credentials.clone(),
            reload_interval: seconds(self.reload_interval, DEFAULT_RELOAD_INTERVAL_SECONDS),
            max_connections: self.max_connections.unwrap_or(DEFAULT_MAX_CONNECTIONS),
            max_streams: self.max_streams.unwrap_or(DEFAULT_MAX_STREAMS),
            max_header_bytes: bounded(
                "max-header-bytes",
                self.max_header_bytes,
                DEFAULT_MAX_HEADER,
            ),
            idle_timeout: seconds(self.idle_timeout, DEFAULT_IDLE_TIMEOUT_SECONDS),
            handshake_timeout: seconds(self.handshake_timeout, DEFAULT_HANDSHAKE_TIMEOUT_SECONDS),
            min_rate: self.min_rate.unwrap_or(DEFAULT_MIN_RATE).0,
            stream_window: bounded("stream-window", self.stream_window, window),
            connection_window: bounded(
                "connection-window",
                self.connection_window,
                DEFAULT_CONNECTION_WINDOW,
            ),
            frame_size: bounded("frame-size", self.frame_size, frame),
        }
    }
}

/// A list of the first that has one.
fn said<T>(first: Vec<T>, second: Vec<T>) -> Vec<T> {
    match first.is_empty() {
        true => second,
        false => first,
    }
}

fn read_file(path: &Path) -> Result<ServeArgs, ServerError> {
    let text = std::fs::read_to_string(path).map_err(|source| ServerError::ConfigRead {
        path: path.to_owned(),
        source,
    })?;
    toml::from_str(&text).map_err(|error| ServerError::ConfigParse {
        path: path.to_owned(),
        line: error
            .span()
            .map_or(1, |span| 1 + text[..span.start].matches('\n').count()),
        why: error.message().replace('\n', " "),
    })
}

fn none_of((config, problems): (ServeConfig, Problems)) -> Result<ServeConfig, ServerError> {
    problems.into_iter().next().map_or(Ok(config), Err)
}

fn check_stores(stores: &[StoreSpec], problems: &mut Problems) {
    if stores.is_empty() {
        problems.push(ServerError::NoStores);
    }
    for (i, store) in stores.iter().enumerate() {
        if stores[..i].iter().any(|other| other.name == store.name) {
            problems.push(ServerError::DuplicateName {
                name: store.name.clone(),
            });
        }
    }
}

/// S3 has one store.
fn check_s3(config: &ServeConfig, problems: &mut Problems) {
    if config.s3.listen.is_some() && config.s3_store().is_none() {
        let given = config.s3.store.clone().unwrap_or_default();
        let want = "the name of one of the stores";
        check(problems, false, "s3-store", given, want);
    }
}

fn address(
    key: &'static str,
    given: Option<SocketAddr>,
    default: &str,
    safe: bool,
    problems: &mut Problems,
) -> SocketAddr {
    let address = given.unwrap_or_else(|| default.parse().expect("the defaults are addresses"));
    if !address.ip().is_loopback() && !safe {
        problems.push(ServerError::RemoteRefused { key, address });
    }
    address
}

/// An address that can be connected to; an empty one is none.
fn endpoint(given: Option<String>, problems: &mut Problems) -> Option<String> {
    let given = given.filter(|url| !url.is_empty())?;
    let url = given.parse::<http::Uri>().ok();
    let good = url.is_some_and(|url| {
        let plain = url.scheme_str() == Some("http") && matches!(url.path(), "" | "/");
        plain && url.host().is_some_and(|host| !host.is_empty())
    });
    let want =
        "http://HOST:PORT; a collector that wants TLS is reached through one beside this service";
    check(problems, good, "otlp-endpoint", &given, want);
    good.then_some(given)
}

/// Settings of the web page.
fn page(trace_url: Option<String>, problems: &mut Problems) -> PageConfig {
    PageConfig {
        trace_url: trace_place(trace_url, problems),
        ..PageConfig::default()
    }
}

/// Where the page leads to for a trace.
fn trace_place(given: Option<String>, problems: &mut Problems) -> Option<String> {
    const PLACE: &str = "{trace_id}";
    let given = given.filter(|url| !url.is_empty())?;
    let url = given.replace(PLACE, "0af7651916cd43dd8448eb211c80319c");
    let good = given.contains(PLACE)
        && url.parse::<http::Uri>().is_ok_and(|url| {
            let host = url.host().is_some_and(|host| !host.is_empty());
            host && matches!(url.scheme_str(), Some("http" | "https"))
        });
    let want = "http:// or https:// with {trace_id} where the id of the trace belongs";
    check(problems, good, "trace-url", &given, want);
    good.then_some(given)
}

fn message_size(given: Option<Size>, problems: &mut Problems) -> usize {
    let size = given.unwrap_or(DEFAULT_MAX_MESSAGE);
    let bytes = usize::try_from(size.0).unwrap_or(usize::MAX);
    if !(4096..=1 << 30).contains(&bytes) {
        problems.push(ServerError::BadValue {
            key: "max-message",
            value: size.to_string(),
            want: "a size from 4K to 1G",
        });
    }
    bytes
}

/// Notes a value that is not as it must be.
fn check(
    problems: &mut Problems,
    good: bool,
    key: &'static str,
    value: impl ToString,
    want: &'static str,
) {
    if !good {
        let value = value.to_string();
        problems.push(ServerError::BadValue { key, value, want });
    }
}

fn check_numbers(config: &ServeConfig, problems: &mut Problems) {
    let ratio = config.sampling.ratio;
    let good = (0.0..=1.0).contains(&ratio);
    check(problems, good, "trace-ratio", ratio, "a number from 0 to 1");
    let mut check = |good, key, value: u64, want| check(problems, good, key, value, want);
    let (depth, limit) = (config.queue_depth, config.queue_limit);
    let good = (1..=4096).contains(&depth);
    check(good, "queue-depth", depth as u64, "1 to 4096");
    let good = (1..=1 << 20).contains(&limit);
    check(good, "queue-limit", limit as u64, "1 to 1048576");
    let (threshold, interval) = (config.overload_threshold, config.scrub_interval);
    check(threshold > 0, "overload-threshold", 0, "at least 1");
    check(!interval.is_zero(), "scrub-interval", 0, "at least 1 hour");
    let (body, drain) = (config.body_timeout, config.drain_timeout);
    check(!body.is_zero(), "body-timeout", 0, "at least 1 second");
    let good = drain <= MAX_DRAIN;
    check(good, "drain-timeout", drain.as_secs(), "0 to 600 seconds");
    let door = &config.door;
    let good = !door.handshake_timeout.is_zero();
    check(good, "handshake-timeout", 0, "at least 1 second");
    let (connections, streams) = (door.max_connections, door.max_streams);
    let good = (1..=1 << 20).contains(&connections);
    check(good, "max-connections", connections as u64, "1 to 1048576");
    let good = (1..=1 << 16).contains(&streams);
    check(good, "max-streams", streams.into(), "1 to 65536");
}

fn check_memory(config: &ServeConfig, problems: &mut Problems) {
    let mut check = |good, key, bytes, want| check(problems, good, key, Size(bytes), want);
    let budget = config.buffer_budget;
    // A lump of the largest size must fit.
    let good = (256 << 20..=1 << 40).contains(&budget);
    check(good, "buffer-budget", budget, "a size from 256M to 1T");
    let (put, get) = (config.put_memory, config.get_memory);
    for (key, bytes) in [("put-memory", put), ("get-memory", get)] {
        let good = (1 << 20..=1 << 40).contains(&bytes);
        check(good, key, bytes, "a size from 1M to 1T");
    }
    // A store must have room for what the service lets in: puts get three quarters of its buffers.
    let want = "at most three quarters of buffer-budget, which must hold what is let in";
    check(put <= budget - budget / 4, "put-memory", put, want);
    let want = "at most what put-memory leaves of buffer-budget";
    check(get <= budget.saturating_sub(put), "get-memory", get, want);
}

/// Sizes that HTTP/2 counts in 31 bits.
fn bounded(key: &'static str, given: Option<Size>, default: Size, problems: &mut Problems) -> u32 {
    let size = given.unwrap_or(default);
    let (least, most, want) = match key {
        "frame-size" => (16 << 10, 8 << 20, "a size from 16K to 8M"),
        "max-header-bytes" => (1 << 10, 1 << 20, "a size from 1K to 1M"),
        _ => (64 << 10, 1 << 30, "a size from 64K to 1G"),
    };
    let bytes = u32::try_from(size.0).unwrap_or(u32::MAX);
    if !(least..=most).contains(&bytes) {
        problems.push(ServerError::BadValue {
            key,
            value: size.to_string(),
            want,
        });
    }
    bytes
}
