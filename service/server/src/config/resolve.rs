//! Flags, environment, file and defaults made one, and checked.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use super::{
    DEFAULT_BODY_MEMORY, DEFAULT_BODY_TIMEOUT_SECONDS, DEFAULT_BUFFER_BUDGET,
    DEFAULT_CHECKPOINT_RECORDS, DEFAULT_CONNECTION_WINDOW, DEFAULT_DRAIN_TIMEOUT_SECONDS,
    DEFAULT_FRAME_SIZE, DEFAULT_HANDSHAKE_TIMEOUT_SECONDS, DEFAULT_IDLE_TIMEOUT_SECONDS,
    DEFAULT_LISTEN, DEFAULT_MAX_CONNECTIONS, DEFAULT_MAX_HEADER, DEFAULT_MAX_MESSAGE,
    DEFAULT_MAX_STREAMS, DEFAULT_METRICS_LISTEN, DEFAULT_MIN_RATE, DEFAULT_OVERLOAD_AFTER_SECONDS,
    DEFAULT_QUEUE_DEPTH, DEFAULT_QUEUE_LIMIT, DEFAULT_RELOAD_INTERVAL_SECONDS,
    DEFAULT_SCRUB_INTERVAL_HOURS, DEFAULT_STREAM_WINDOW, DoorConfig, ServeArgs, ServeConfig,
    StoreSpec, TlsFiles,
};
use crate::error::ServerError;
use crate::size::Size;

/// Longest that can be configured for requests under way at the end.
const MAX_DRAIN: Duration = Duration::from_mins(10);

impl ServeArgs {
    /// Flags, environment, file and defaults made one.
    ///
    /// # Errors
    /// A file that cannot be read or parsed, and every value that does not make sense.
    pub fn resolve(self) -> Result<ServeConfig, ServerError> {
        let config = self.resolve_settings()?;
        check_stores(&config.stores)?;
        Ok(config)
    }

    /// The same, but there need not be any store.
    ///
    /// # Errors
    /// As [`ServeArgs::resolve`].
    pub fn resolve_settings(self) -> Result<ServeConfig, ServerError> {
        let args = match &self.config {
            Some(path) => {
                let file = read_file(path)?;
                self.over(file)
            }
            None => self,
        };
        let config = args.with_defaults()?;
        check_numbers(&config)?;
        Ok(config)
    }

    /// What these do not say, the file says.
    fn over(self, file: Self) -> Self {
        Self {
            store: if self.store.is_empty() {
                file.store
            } else {
                self.store
            },
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
            log_format: self.log_format.or(file.log_format),
            log: self.log.or(file.log),
        }
    }

    fn with_defaults(self) -> Result<ServeConfig, ServerError> {
        let door = self.door()?;
        let safe = self.allow_remote.unwrap_or(false) || door.is_safe();
        let listens = |key, given, default| address(key, given, default, safe);
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
        Ok(ServeConfig {
            stores: self.store,
            listen: listens("listen", self.listen, DEFAULT_LISTEN)?,
            metrics_listen: listens(
                "metrics-listen",
                self.metrics_listen,
                DEFAULT_METRICS_LISTEN,
            )?,
            allow_remote: self.allow_remote.unwrap_or(false),
            probes: !self.no_probes.unwrap_or(false),
            probe_object: self.probe_object,
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
            max_message: message_size(self.max_message)?,
            body_timeout: seconds(self.body_timeout, DEFAULT_BODY_TIMEOUT_SECONDS),
            door,
            drain_timeout: seconds(self.drain_timeout, DEFAULT_DRAIN_TIMEOUT_SECONDS),
            user: self.user,
            keep_privileges: self.keep_privileges.unwrap_or(false),
            require_all_stores: self.require_all_stores.unwrap_or(false),
            log_format: self.log_format.unwrap_or_default(),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
        })
    }

    /// How connections are let in.
    fn door(&self) -> Result<DoorConfig, ServerError> {
        let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(cert), Some(key)) => Some(TlsFiles {
                cert: cert.clone(),
                key: key.clone(),
                client_ca: self.tls_client_ca.clone(),
            }),
            (None, None) if self.tls_client_ca.is_none() => None,
            (cert, _) => {
                return Err(ServerError::TlsIncomplete {
                    missing: if cert.is_none() {
                        "tls-cert"
                    } else {
                        "tls-key"
                    },
                });
            }
        };
        let (window, frame) = (DEFAULT_STREAM_WINDOW, DEFAULT_FRAME_SIZE);
        Ok(DoorConfig {
            unix_socket: self.unix_socket.clone(),
            unix_mode: self.unix_mode.unwrap_or_default().0,
            tls,
            tokens: self.tokens.clone(),
            reload_interval: seconds(self.reload_interval, DEFAULT_RELOAD_INTERVAL_SECONDS),
            max_connections: self.max_connections.unwrap_or(DEFAULT_MAX_CONNECTIONS),
            max_streams: self.max_streams.unwrap_or(DEFAULT_MAX_STREAMS),
            max_header_bytes: bounded(
                "max-header-bytes",
                self.max_header_bytes,
                DEFAULT_MAX_HEADER,
            )?,
            idle_timeout: seconds(self.idle_timeout, DEFAULT_IDLE_TIMEOUT_SECONDS),
            handshake_timeout: seconds(self.handshake_timeout, DEFAULT_HANDSHAKE_TIMEOUT_SECONDS),
            min_rate: self.min_rate.unwrap_or(DEFAULT_MIN_RATE).0,
            stream_window: bounded("stream-window", self.stream_window, window)?,
            connection_window: bounded(
                "connection-window",
                self.connection_window,
                DEFAULT_CONNECTION_WINDOW,
            )?,
            frame_size: bounded("frame-size", self.frame_size, frame)?,
        })
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

fn check_stores(stores: &[StoreSpec]) -> Result<(), ServerError> {
    if stores.is_empty() {
        return Err(ServerError::NoStores);
    }
    for (i, store) in stores.iter().enumerate() {
        if stores[..i].iter().any(|other| other.name == store.name) {
            return Err(ServerError::DuplicateName {
                name: store.name.clone(),
            });
        }
    }
    Ok(())
}

fn address(
    key: &'static str,
    given: Option<SocketAddr>,
    default: &str,
    safe: bool,
) -> Result<SocketAddr, ServerError> {
    let address = given.unwrap_or_else(|| default.parse().expect("the defaults are addresses"));
    if address.ip().is_loopback() || safe {
        return Ok(address);
    }
    Err(ServerError::RemoteRefused { key, address })
}

fn message_size(given: Option<Size>) -> Result<usize, ServerError> {
    let size = given.unwrap_or(DEFAULT_MAX_MESSAGE);
    usize::try_from(size.0)
        .ok()
        .filter(|bytes| (4096..=1 << 30).contains(bytes))
        .ok_or(ServerError::BadValue {
            key: "max-message",
            value: size.to_string(),
            want: "a size from 4K to 1G",
        })
}

fn check_numbers(config: &ServeConfig) -> Result<(), ServerError> {
    let bad = |key, value: String, want| Err(ServerError::BadValue { key, value, want });
    if !(1..=4096).contains(&config.queue_depth) {
        return bad("queue-depth", config.queue_depth.to_string(), "1 to 4096");
    }
    if !(1..=1 << 20).contains(&config.queue_limit) {
        return bad(
            "queue-limit",
            config.queue_limit.to_string(),
            "1 to 1048576",
        );
    }
    // A lump of the largest size must fit.
    if !(256 << 20..=1 << 40).contains(&config.buffer_budget) {
        let value = Size(config.buffer_budget).to_string();
        return bad("buffer-budget", value, "a size from 256M to 1T");
    }
    for (key, bytes) in [
        ("put-memory", config.put_memory),
        ("get-memory", config.get_memory),
    ] {
        if !(1 << 20..=1 << 40).contains(&bytes) {
            return bad(key, Size(bytes).to_string(), "a size from 1M to 1T");
        }
    }
    // A store must have room for what the service lets in: puts get three quarters of its buffers.
    let (budget, put) = (config.buffer_budget, config.put_memory);
    if put > budget - budget / 4 {
        let want = "at most three quarters of buffer-budget, which must hold what is let in";
        return bad("put-memory", Size(put).to_string(), want);
    }
    if config.get_memory > budget - put {
        let want = "at most what put-memory leaves of buffer-budget";
        return bad("get-memory", Size(config.get_memory).to_string(), want);
    }
    if config.overload_threshold == 0 {
        return bad("overload-threshold", "0".to_owned(), "at least 1");
    }
    if config.scrub_interval.is_zero() {
        return bad("scrub-interval", "0".to_owned(), "at least 1 hour");
    }
    if config.body_timeout.is_zero() {
        return bad("body-timeout", "0".to_owned(), "at least 1 second");
    }
    let door = &config.door;
    if door.handshake_timeout.is_zero() {
        return bad("handshake-timeout", "0".to_owned(), "at least 1 second");
    }
    if !(1..=1 << 20).contains(&door.max_connections) {
        let value = door.max_connections.to_string();
        return bad("max-connections", value, "1 to 1048576");
    }
    if !(1..=1 << 16).contains(&door.max_streams) {
        return bad("max-streams", door.max_streams.to_string(), "1 to 65536");
    }
    if config.drain_timeout > MAX_DRAIN {
        let value = config.drain_timeout.as_secs().to_string();
        return bad("drain-timeout", value, "0 to 600 seconds");
    }
    Ok(())
}

/// Sizes that HTTP/2 counts in 31 bits.
fn bounded(key: &'static str, given: Option<Size>, default: Size) -> Result<u32, ServerError> {
    let size = given.unwrap_or(default);
    let (least, most, want) = match key {
        "frame-size" => (16 << 10, 8 << 20, "a size from 16K to 8M"),
        "max-header-bytes" => (1 << 10, 1 << 20, "a size from 1K to 1M"),
        _ => (64 << 10, 1 << 30, "a size from 64K to 1G"),
    };
    u32::try_from(size.0)
        .ok()
        .filter(|bytes| (least..=most).contains(bytes))
        .ok_or(ServerError::BadValue {
            key,
            value: size.to_string(),
            want,
        })
}
