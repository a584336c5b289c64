//! What `lumpscope serve` is told: flags, environment and one TOML file, all with the same keys.
//!
//! A flag wins over its environment variable, which wins over the file, which wins over the
//! default. The keys of the file are the long names of the flags; a key that is not known is an
//! error, because a misspelt one would otherwise be ignored in silence.

mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use lumpscope_engine::{Durability, IoBackendChoice, QueuePolicy};
use serde::Deserialize;

use crate::error::ServerError;
use crate::size::Size;

pub use values::{DurabilityArg, IoBackendArg, LogFormat, QueuePolicyArg, StoreSpec};

/// Where gRPC is served unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:50051";
/// Where metrics are served unless told otherwise.
pub const DEFAULT_METRICS_LISTEN: &str = "127.0.0.1:9464";
/// Bytes of bodies in memory, put and get each.
pub const DEFAULT_BODY_MEMORY: Size = Size(256 << 20);
/// Largest gRPC message accepted.
pub const DEFAULT_MAX_MESSAGE: Size = Size(8 << 20);
/// I/Os one store has in flight at its disk.
pub const DEFAULT_QUEUE_DEPTH: usize = 32;
/// Requests one store lets wait before it answers UNAVAILABLE.
pub const DEFAULT_QUEUE_LIMIT: usize = 1024;
/// Seconds that a store's queue must be long before the store counts as overloaded.
pub const DEFAULT_OVERLOAD_AFTER_SECONDS: u64 = 10;
/// Bytes of lumps a store holds in memory: twice what the bounds on bodies let in by default. Buffers
/// are up to twice as large as their bodies, and a store must not refuse what the service let in.
pub const DEFAULT_BUFFER_BUDGET: Size = Size(1 << 30);
/// Hours from the start of one pass of a scrubber to the next.
pub const DEFAULT_SCRUB_INTERVAL_HOURS: u64 = 7 * 24;
/// Journal records after which a store writes a checkpoint of its index.
pub const DEFAULT_CHECKPOINT_RECORDS: u64 = 1_000_000;
/// Seconds without a byte after which a put's stream is given up.
pub const DEFAULT_BODY_TIMEOUT_SECONDS: u64 = 30;

/// Flags of `lumpscope serve`. Every flag is also a key of the file and, as LUMPSCOPE_NAME, an
/// environment variable.
#[derive(Args, Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ServeArgs {
    /// A store to serve; repeat for more (in the environment separated by ';')
    #[arg(
        long,
        value_name = "NAME=PATH",
        env = "LUMPSCOPE_STORE",
        value_delimiter = ';'
    )]
    pub store: Vec<StoreSpec>,
    /// Address for gRPC; port 0: any free one [default: 127.0.0.1:50051]
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_LISTEN")]
    pub listen: Option<SocketAddr>,
    /// Address for /metrics and /healthz; port 0: any free one [default: 127.0.0.1:9464]
    #[arg(long, value_name = "ADDR:PORT", env = "LUMPSCOPE_METRICS_LISTEN")]
    pub metrics_listen: Option<SocketAddr>,
    /// Allow addresses that other machines can reach; there is no encryption and no login yet
    #[arg(long, env = "LUMPSCOPE_ALLOW_REMOTE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub allow_remote: Option<bool>,
    /// TOML file with the same keys
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_CONFIG")]
    #[serde(skip)]
    pub config: Option<PathBuf>,
    /// Do not observe the disks
    #[arg(long, env = "LUMPSCOPE_NO_PROBES", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub no_probes: Option<bool>,
    /// Load this compiled probe object instead of the built-in one
    #[arg(long, value_name = "FILE", env = "LUMPSCOPE_PROBE_OBJECT")]
    pub probe_object: Option<PathBuf>,
    /// How to do disk I/O [default: auto]
    #[arg(long, value_enum, env = "LUMPSCOPE_IO_BACKEND")]
    pub io_backend: Option<IoBackendArg>,
    /// I/Os a store has in flight at its disk [default: 32]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_QUEUE_DEPTH")]
    pub queue_depth: Option<usize>,
    /// Requests a store lets wait before it answers UNAVAILABLE [default: 1024]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_QUEUE_LIMIT")]
    pub queue_limit: Option<usize>,
    /// Which waiting request starts next [default: position]
    #[arg(long, value_enum, env = "LUMPSCOPE_QUEUE_POLICY")]
    pub queue_policy: Option<QueuePolicyArg>,
    /// With the policy position: most younger requests that start before a waiting one [default:
    /// half of queue-limit]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_MAX_OVERTAKES")]
    pub max_overtakes: Option<u32>,
    /// A store is overloaded when so many requests wait for overload-after; more than queue-limit:
    /// never [default: three quarters of queue-limit]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_OVERLOAD_THRESHOLD")]
    pub overload_threshold: Option<usize>,
    /// See overload-threshold [default: 10]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_OVERLOAD_AFTER")]
    pub overload_after: Option<u64>,
    /// Memory of each store for lumps that are put or read [default: 1G]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_BUFFER_BUDGET")]
    pub buffer_budget: Option<Size>,
    /// Bytes a second that each store's scrubber reads to find damage; 0: off [default: 0]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_SCRUB_RATE")]
    pub scrub_rate: Option<Size>,
    /// From the start of one pass of a scrubber to the start of the next [default: 168]
    #[arg(long, value_name = "HOURS", env = "LUMPSCOPE_SCRUB_INTERVAL")]
    pub scrub_interval: Option<u64>,
    /// Bytes a second that each store's journal garbage collection reads and writes; exceeded when
    /// the journal is nearly full; 0: no limit [default: 0]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_GC_RATE")]
    pub gc_rate: Option<Size>,
    /// Journal records after which a store writes a checkpoint of its index, so that it opens
    /// quickly; 0: never [default: 1000000]
    #[arg(long, value_name = "N", env = "LUMPSCOPE_CHECKPOINT_RECORDS")]
    pub checkpoint_records: Option<u64>,
    /// Open damaged stores without what is lost, repair them, and log what was done: use it once,
    /// after `lumpscope inspect --salvage` has said what that will be
    #[arg(long, env = "LUMPSCOPE_SALVAGE", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub salvage: Option<bool>,
    /// What "acknowledged" means when a request does not say [default: synced]
    #[arg(long, value_enum, env = "LUMPSCOPE_DURABILITY")]
    pub durability: Option<DurabilityArg>,
    /// Memory for bodies that are being put, all clients together [default: 256M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_PUT_MEMORY")]
    pub put_memory: Option<Size>,
    /// Memory for bodies that are being sent, all clients together [default: 256M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_GET_MEMORY")]
    pub get_memory: Option<Size>,
    /// Largest gRPC message accepted; a body may have any number of them [default: 8M]
    #[arg(long, value_name = "SIZE", env = "LUMPSCOPE_MAX_MESSAGE")]
    pub max_message: Option<Size>,
    /// Give up a put whose client sends nothing for so long [default: 30]
    #[arg(long, value_name = "SECONDS", env = "LUMPSCOPE_BODY_TIMEOUT")]
    pub body_timeout: Option<u64>,
    /// Form of the log on stderr [default: text]
    #[arg(long, value_enum, env = "LUMPSCOPE_LOG_FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What is logged, as "info" or "lumpscope=debug,warn" [default: info]
    #[arg(long, value_name = "FILTER", env = "LUMPSCOPE_LOG")]
    pub log: Option<String>,
}

/// What `serve` does, complete and checked.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The stores, at least one, with distinct names.
    pub stores: Vec<StoreSpec>,
    /// Address for gRPC.
    pub listen: SocketAddr,
    /// Address for metrics.
    pub metrics_listen: SocketAddr,
    /// False: no probe is loaded.
    pub probes: bool,
    /// Compiled probe object; `None`: the built-in one.
    pub probe_object: Option<PathBuf>,
    /// How to do disk I/O.
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
    /// Bytes of bodies that are being put.
    pub put_memory: u64,
    /// Bytes of bodies that are being sent.
    pub get_memory: u64,
    /// Largest gRPC message, in bytes.
    pub max_message: usize,
    /// Longest silence inside a put's stream.
    pub body_timeout: Duration,
    /// Form of the log.
    pub log_format: LogFormat,
    /// Filter of the log.
    pub log: String,
}

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
        let allow_remote = self.allow_remote.unwrap_or(false);
        let listens = |key, given, default| address(key, given, default, allow_remote);
        let queue_limit = self.queue_limit.unwrap_or(DEFAULT_QUEUE_LIMIT);
        let half = u32::try_from(queue_limit / 2).unwrap_or(u32::MAX);
        let bytes = |given: Option<Size>, default: Size| given.unwrap_or(default).0;
        let seconds = |given: Option<u64>, default| Duration::from_secs(given.unwrap_or(default));
        let hours = self.scrub_interval.unwrap_or(DEFAULT_SCRUB_INTERVAL_HOURS);
        Ok(ServeConfig {
            stores: self.store,
            listen: listens("listen", self.listen, DEFAULT_LISTEN)?,
            metrics_listen: listens(
                "metrics-listen",
                self.metrics_listen,
                DEFAULT_METRICS_LISTEN,
            )?,
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
            buffer_budget: bytes(self.buffer_budget, DEFAULT_BUFFER_BUDGET),
            scrub_rate: bytes(self.scrub_rate, Size(0)),
            scrub_interval: Duration::from_secs(hours.saturating_mul(3600)),
            gc_rate: bytes(self.gc_rate, Size(0)),
            checkpoint_records: self
                .checkpoint_records
                .unwrap_or(DEFAULT_CHECKPOINT_RECORDS),
            salvage: self.salvage.unwrap_or(false),
            durability: self.durability.unwrap_or_default().into(),
            put_memory: bytes(self.put_memory, DEFAULT_BODY_MEMORY),
            get_memory: bytes(self.get_memory, DEFAULT_BODY_MEMORY),
            max_message: message_size(self.max_message)?,
            body_timeout: seconds(self.body_timeout, DEFAULT_BODY_TIMEOUT_SECONDS),
            log_format: self.log_format.unwrap_or_default(),
            log: self.log.unwrap_or_else(|| "info".to_owned()),
        })
    }
}

impl ServeConfig {
    /// The settings of the engine as keys and values of the file.
    #[must_use]
    pub fn engine_settings(&self) -> Vec<(&'static str, String)> {
        let rate = |bytes| match bytes {
            0 => "0".to_owned(),
            bytes => Size(bytes).to_string(),
        };
        vec![
            ("queue-depth", self.queue_depth.to_string()),
            ("queue-limit", self.queue_limit.to_string()),
            ("queue-policy", self.queue_policy.name().to_owned()),
            ("max-overtakes", self.max_overtakes.to_string()),
            ("overload-threshold", self.overload_threshold.to_string()),
            ("overload-after", self.overload_after.as_secs().to_string()),
            ("buffer-budget", Size(self.buffer_budget).to_string()),
            ("scrub-rate", rate(self.scrub_rate)),
            (
                "scrub-interval",
                (self.scrub_interval.as_secs() / 3600).to_string(),
            ),
            ("gc-rate", rate(self.gc_rate)),
            ("checkpoint-records", self.checkpoint_records.to_string()),
            ("salvage", self.salvage.to_string()),
        ]
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
    allow_remote: bool,
) -> Result<SocketAddr, ServerError> {
    let address = given.unwrap_or_else(|| default.parse().expect("the defaults are addresses"));
    if address.ip().is_loopback() || allow_remote {
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
    for (key, bytes) in [
        ("put-memory", config.put_memory),
        ("get-memory", config.get_memory),
    ] {
        if !(1 << 20..=1 << 40).contains(&bytes) {
            return bad(key, Size(bytes).to_string(), "a size from 1M to 1T");
        }
    }
    // A lump of the largest size must fit.
    if !(256 << 20..=1 << 40).contains(&config.buffer_budget) {
        let value = Size(config.buffer_budget).to_string();
        return bad("buffer-budget", value, "a size from 256M to 1T");
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
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let settings = config.engine_settings();
        assert!(settings.contains(&("scrub-rate", "5M".to_owned())));
        assert!(settings.contains(&("overload-after", "3".to_owned())));
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
                "store = [\"a=/x\"]\nqueue-policy = \"lifo\"",
                ["line 2", "position"],
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
