//! Settings of `lumpscope serve`: flags, environment and one TOML file, all with the same keys.
//!
//! A flag wins over its environment variable, which wins over the file, which wins over the
//! default. The keys of the file are the long names of the flags; a key that is not known is an
//! error, because a misspelt one would otherwise be ignored in silence.

mod args;
pub mod document;
mod page;
mod resolve;
mod settings;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use lumpscope_engine::{Durability, IoBackendChoice, QueuePolicy};
use lumpscope_observer::{EventPolicy, GuardPolicy, WatchedStore};
use lumpscope_units::{Size, Span};

pub use args::ServeArgs;
pub use page::{PageConfig, Rhythm};
pub use values::{
    DurabilityArg, GuardRule, IoBackendArg, LogFormat, QueuePolicyArg, S3Etag, StoreSpec, UnixMode,
};

/// Where gRPC is served unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:50051";
/// Where metrics are served unless told otherwise.
pub const DEFAULT_METRICS_LISTEN: &str = "127.0.0.1:9464";
/// Bytes of lumps in memory, put and get each.
pub const DEFAULT_BODY_MEMORY: Size = Size(256 << 20);
/// Largest gRPC message accepted.
pub const DEFAULT_MAX_MESSAGE: Size = Size(8 << 20);
/// I/Os one store has in flight at its disk.
pub const DEFAULT_QUEUE_DEPTH: usize = 32;
/// Requests one store lets wait before it answers UNAVAILABLE.
pub const DEFAULT_QUEUE_LIMIT: usize = 1024;
/// Seconds that a store's queue must be long before the store counts as overloaded.
pub const DEFAULT_OVERLOAD_AFTER_SECONDS: u64 = 10;
/// Bytes of lumps a store holds in memory: twice what is let in by default.
pub const DEFAULT_BUFFER_BUDGET: Size = Size(1 << 30);
/// Hours from the start of one pass of a scrubber to the next.
pub const DEFAULT_SCRUB_INTERVAL_HOURS: u64 = 7 * 24;
/// Journal records after which a store writes a checkpoint of its index.
pub const DEFAULT_CHECKPOINT_RECORDS: u64 = 1_000_000;
/// Seconds without a byte after which a put's stream is given up.
pub const DEFAULT_BODY_TIMEOUT_SECONDS: u64 = 30;
/// Seconds between two looks at the files of certificates and tokens.
pub const DEFAULT_RELOAD_INTERVAL_SECONDS: u64 = 10;
/// Connections open at a time.
pub const DEFAULT_MAX_CONNECTIONS: usize = 2048;
/// Calls under way on one connection.
pub const DEFAULT_MAX_STREAMS: u32 = 256;
/// Most bytes of the headers of one call.
pub const DEFAULT_MAX_HEADER: Size = Size(16 << 10);
/// Seconds without a call after which a connection is closed.
pub const DEFAULT_IDLE_TIMEOUT_SECONDS: u64 = 600;
/// Seconds a connection has for its handshakes.
pub const DEFAULT_HANDSHAKE_TIMEOUT_SECONDS: u64 = 10;
/// Slowest body, in bytes a second.
pub const DEFAULT_MIN_RATE: Size = Size(64 << 10);
/// Bytes a client may send ahead on one call.
pub const DEFAULT_STREAM_WINDOW: Size = Size(2 << 20);
/// Bytes a client may send ahead on one connection.
pub const DEFAULT_CONNECTION_WINDOW: Size = Size(4 << 20);
/// Largest HTTP/2 frame a client may send: bodies are MiB, and small frames halve their throughput.
pub const DEFAULT_FRAME_SIZE: Size = Size(1 << 20);
/// Largest body of one put or part of S3: what S3 itself allows.
pub const DEFAULT_S3_MAX_BODY: Size = Size(5 << 30);
/// Hours after which a multipart upload that was not completed is given up.
pub const DEFAULT_S3_UPLOAD_EXPIRY_HOURS: u64 = 7 * 24;
/// Seconds that requests under way are waited for at the end.
pub const DEFAULT_DRAIN_TIMEOUT_SECONDS: u64 = 10;
/// Share of requests that are traced by chance.
pub const DEFAULT_TRACE_RATIO: f64 = 0.01;
/// Every request that takes at least so long is traced.
pub const DEFAULT_TRACE_SLOWER_THAN: Span = Span(Duration::from_millis(100));

/// Configuration of `serve`, complete and checked.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The stores, at least one, with distinct names.
    pub stores: Vec<StoreSpec>,
    /// Address for gRPC.
    pub listen: SocketAddr,
    /// Address for metrics.
    pub metrics_listen: SocketAddr,
    /// True: other machines may reach these addresses without TLS and a login.
    pub allow_remote: bool,
    /// False: no probe is loaded.
    pub probes: bool,
    /// Compiled probe object; `None`: the built-in one.
    pub probe_object: Option<PathBuf>,
    /// Which completed block requests are handed out as events, from the start on.
    pub events: EventPolicy,
    /// Where the probes' maps are pinned.
    pub pin_maps: Option<PathBuf>,
    /// Collector of traces; `None`: none are made.
    pub otlp_endpoint: Option<String>,
    /// Settings of the web page.
    pub page: PageConfig,
    /// Which requests are traced.
    pub sampling: Sampling,
    /// Policies for other processes that open the stores' devices for writing.
    pub guard: Vec<GuardRule>,
    /// True: the kernel counts how often the probes run and how long.
    pub program_statistics: bool,
    /// Backend of disk I/O.
    pub io_backend: IoBackendChoice,
    /// I/Os a store has in flight.
    pub queue_depth: usize,
    /// Requests a store lets wait.
    pub queue_limit: usize,
    /// Which waiting request starts next.
    pub queue_policy: QueuePolicy,
    /// Younger requests that may start before a waiting one.
    pub max_overtakes: u32,
    /// Requests that make a store overloaded when they wait for `overload_after`.
    pub overload_threshold: usize,
    /// See `overload_threshold`.
    pub overload_after: Duration,
    /// Bytes of lumps in memory, each store.
    pub buffer_budget: u64,
    /// Bytes a second of each store's scrubber; 0: off.
    pub scrub_rate: u64,
    /// From one pass of a scrubber to the next.
    pub scrub_interval: Duration,
    /// Bytes a second of each journal's garbage collection; 0: no limit.
    pub gc_rate: u64,
    /// Journal records after which a checkpoint is written; 0: never.
    pub checkpoint_records: u64,
    /// True: damaged stores are repaired when they are opened.
    pub salvage: bool,
    /// Durability when a request does not say.
    pub durability: Durability,
    /// Bytes of lumps that are being put.
    pub put_memory: u64,
    /// Bytes of lumps that are being read or sent, each store.
    pub get_memory: u64,
    /// Largest gRPC message, in bytes.
    pub max_message: usize,
    /// Longest silence inside a put's stream.
    pub body_timeout: Duration,
    /// How connections are let in.
    pub door: DoorConfig,
    /// How S3 is served.
    pub s3: S3Config,
    /// Longest that requests under way are waited for at the end.
    pub drain_timeout: Duration,
    /// `USER[:GROUP]` to become; `None`: stay who we are.
    pub user: Option<String>,
    /// True: all capabilities are kept.
    pub keep_privileges: bool,
    /// True: every store must open.
    pub require_all_stores: bool,
    /// Form of the log.
    pub log_format: LogFormat,
    /// Filter of the log.
    pub log: String,
}

impl ServeConfig {
    /// Watch options of a store, for the observer.
    #[must_use]
    pub fn watched(&self, spec: &StoreSpec) -> WatchedStore {
        WatchedStore {
            name: spec.name.clone(),
            path: spec.path.clone(),
            guard: self.guard_of(&spec.name),
        }
    }

    /// The store that S3 serves; `None`: S3 is off, or it is not clear which one.
    #[must_use]
    pub fn s3_store(&self) -> Option<&str> {
        self.s3.listen?;
        match (&self.s3.store, self.stores.as_slice()) {
            (Some(name), stores) => {
                let found = stores.iter().find(|spec| spec.name == *name)?;
                Some(&found.name)
            }
            (None, [only]) => Some(&only.name),
            (None, _) => None,
        }
    }

    /// Policy when another process opens this store's device for writing: the last rule that names
    /// the store wins, else the last one for all.
    fn guard_of(&self, store: &str) -> GuardPolicy {
        let last = |wanted: Option<&str>| {
            let mut rules = self.guard.iter().rev();
            rules.find(|rule| rule.store.as_deref() == wanted)
        };
        let rule = last(Some(store)).or_else(|| last(None));
        rule.map_or(GuardPolicy::Off, |rule| rule.policy)
    }
}

/// Which requests are exported, besides those whose client asks for it (the sampled flag).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Share of all requests, 0 to 1, by the trace's id: services that use the same rule keep or
    /// leave the same traces.
    pub ratio: f64,
    /// Every request that took at least so long; zero: all.
    pub slower_than: Duration,
}

/// How S3 is served.
#[derive(Clone, Debug)]
pub struct S3Config {
    /// Address; `None`: it is not served.
    pub listen: Option<SocketAddr>,
    /// The store; `None`: the only one there is.
    pub store: Option<String>,
    /// Bytes of the body of one put or part.
    pub max_body: u64,
    /// Source of the `ETag` of an object put in one request.
    pub etag: S3Etag,
    /// Age at which a multipart upload is given up; zero: never.
    pub upload_expiry: Duration,
}

/// How connections are let in, and how much of the service each may take.
#[derive(Clone, Debug)]
pub struct DoorConfig {
    /// Where gRPC is served beside TCP.
    pub unix_socket: Option<PathBuf>,
    /// Permissions of that socket.
    pub unix_mode: u32,
    /// `None`: no TLS.
    pub tls: Option<TlsFiles>,
    /// File of the tokens; `None`: none is asked for.
    pub tokens: Option<PathBuf>,
    /// File of the access keys of S3; `None`: there are none.
    pub s3_credentials: Option<PathBuf>,
    /// Time between two looks at these files; zero: never.
    pub reload_interval: Duration,
    /// Connections open at a time.
    pub max_connections: usize,
    /// Calls under way on one connection.
    pub max_streams: u32,
    /// Most bytes of the headers of one call.
    pub max_header_bytes: u32,
    /// Time without a call after which a connection is closed; zero: never.
    pub idle_timeout: Duration,
    /// Time a connection has for its handshakes.
    pub handshake_timeout: Duration,
    /// Slowest body in bytes a second, on average; 0: no limit.
    pub min_rate: u64,
    /// Bytes a client may send ahead on one call.
    pub stream_window: u32,
    /// Bytes a client may send ahead on one connection.
    pub connection_window: u32,
    /// Largest HTTP/2 frame a client may send.
    pub frame_size: u32,
}

impl DoorConfig {
    /// True: strangers can neither read nor ask. TLS, and tokens or certificates of clients.
    #[must_use]
    pub fn is_safe(&self) -> bool {
        let known = |tls: &TlsFiles| self.tokens.is_some() || tls.client_ca.is_some();
        self.tls.as_ref().is_some_and(known)
    }
}

/// The files of TLS, all PEM.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// Certificate chain of the service.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// CA certificates for clients; `None`: clients need no certificate.
    pub client_ca: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ServerError;

    fn from_file(text: &str) -> Result<ServeConfig, ServerError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        ServeArgs {
            config: Some(file.path().to_owned()),
            ..ServeArgs::default()
        }
        .resolve()
    }

    #[test]
    fn a_file_says_the_same_as_flags() {
        let config = from_file(
            "store = [\"a=/dev/sdb\", \"b=/x=y\"]\nlisten = \"127.0.0.1:1\"\nno-probes = true\n\
             put-memory = \"64M\"\nqueue-depth = 7\ndurability = \"journaled\"\n",
        )
        .unwrap();
        assert_eq!(config.stores[1].path, PathBuf::from("/x=y"));
        assert_eq!((config.listen.port(), config.probes), (1, false));
        assert_eq!((config.put_memory, config.queue_depth), (64 << 20, 7));
        assert_eq!(config.durability, Durability::Journaled);
    }

    #[test]
    fn the_engines_settings_come_from_the_file_and_follow_the_queue_limit() {
        let config = from_file(
            "store = [\"a=/x\"]\nqueue-limit = 100\nqueue-policy = \"fifo\"\nscrub-rate = \"5M\"\n\
             gc-rate = 1048576\nscrub-interval = 2\noverload-after = 3\n",
        )
        .unwrap();
        assert_eq!(config.queue_policy, QueuePolicy::Fifo);
        assert_eq!((config.max_overtakes, config.overload_threshold), (50, 75));
        assert_eq!((config.scrub_rate, config.gc_rate), (5 << 20, 1 << 20));
        assert_eq!(config.scrub_interval, Duration::from_secs(7200));
        let settings = config.settings();
        assert!(settings.contains(&("scrub-rate", "5M".to_owned())));
        assert!(settings.contains(&("overload-after", "3".to_owned())));
    }

    #[test]
    fn a_store_has_room_for_what_is_let_in() {
        let memory = |text: &str| {
            let config = from_file(&format!("store = [\"a=/x\"]\n{text}")).unwrap();
            (config.put_memory >> 20, config.get_memory >> 20)
        };
        assert_eq!(memory(""), (256, 256));
        assert_eq!(memory("buffer-budget = \"256M\""), (128, 128));
        assert_eq!(memory("put-memory = \"768M\""), (768, 256));
        assert_eq!(
            memory("buffer-budget = \"400M\"\nput-memory = \"300M\""),
            (300, 100)
        );
    }

    #[test]
    fn a_rule_of_the_guard_that_names_a_store_wins() {
        let text = "store = [\"a=/x\", \"b=/y\"]\nguard = [\"b=audit\", \"deny\"]\n";
        let config = from_file(text).unwrap();
        let policies = [("a", GuardPolicy::Deny), ("b", GuardPolicy::Audit)];
        for (spec, (name, policy)) in config.stores.iter().zip(policies) {
            let watched = config.watched(spec);
            assert_eq!((watched.name.as_str(), watched.guard), (name, policy));
        }
        assert_eq!(config.guard_of("added later"), GuardPolicy::Deny);
        let off = from_file("store = [\"a=/x\"]\n").unwrap();
        assert_eq!(off.guard_of("a"), GuardPolicy::Off);
    }

    #[test]
    fn flags_win_over_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "store = [\"a=/x\"]\nqueue-depth = 7\n").unwrap();
        let config = ServeArgs {
            config: Some(file.path().to_owned()),
            queue_depth: Some(9),
            ..ServeArgs::default()
        };
        assert_eq!(config.resolve().unwrap().queue_depth, 9);
    }

    #[test]
    fn every_mistake_is_named_with_its_place() {
        for (text, words) in [
            (
                "store = [\"a=/x\"]\nquue-depth = 7\n",
                ["line 2", "quue-depth"],
            ),
            ("\n\nstore = [\"a\"]\n", ["line 3", "NAME=PATH"]),
            (
                "store = [\"a=/x\"]\nput-memory = \"1X\"\n",
                ["line 2", "64M"],
            ),
            ("store = [\"a=/x\", \"a=/y\"]", ["\"a\"", "own name"]),
            ("listen = \"127.0.0.1:1\"", ["no store", "--store"]),
            ("store = [\"a b=/x\"]", ["a b", "letters"]),
            (
                "store = [\"a=/x\"]\nlisten = \"0.0.0.0:1\"",
                ["listen", "--allow-remote"],
            ),
            (
                "store = [\"a=/x\"]\nqueue-depth = 0",
                ["queue-depth", "1 to"],
            ),
            (
                "store = [\"a=/x\"]\nbuffer-budget = \"1M\"",
                ["buffer-budget", "256M"],
            ),
            (
                "store = [\"a=/x\"]\nput-memory = \"800M\"",
                ["put-memory", "three quarters of buffer-budget"],
            ),
            (
                "store = [\"a=/x\"]\nput-memory = \"700M\"\nget-memory = \"325M\"",
                ["get-memory", "put-memory leaves"],
            ),
            (
                "store = [\"a=/x\"]\nqueue-policy = \"lifo\"",
                ["line 2", "position"],
            ),
            (
                "store = [\"a=/x\"]\nguard = [\"a=on\"]",
                ["line 2", "off, audit or deny"],
            ),
            (
                "store = [\"a=/x\"]\nscrub-interval = 0",
                ["scrub-interval", "1 hour"],
            ),
            (
                "store = [\"a=/x\"]\nmax-message = 10",
                ["max-message", "4K"],
            ),
        ] {
            let message = from_file(text).unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "{word:?} in {message:?}");
            }
            assert!(!message.contains('\n'), "{message:?}");
        }
        let remote = "store = [\"a=/x\"]\nlisten = \"0.0.0.0:1\"\nallow-remote = true";
        assert!(from_file(remote).is_ok());
    }
}
