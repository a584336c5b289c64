//! What `lumpscope serve` is told: flags, environment and one TOML file, all with the same keys.
//!
//! A flag wins over its environment variable, which wins over the file, which wins over the
//! default. The keys of the file are the long names of the flags; a key that is not known is an
//! error, because a misspelt one would otherwise be ignored in silence.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, ValueEnum};
use lumpscope_engine::{Durability, IoBackendChoice};
use serde::{Deserialize, Deserializer, de};

use crate::error::ServerError;
use crate::size::Size;

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
/// Seconds without a byte after which a put's stream is given up.
pub const DEFAULT_BODY_TIMEOUT_SECONDS: u64 = 30;

/// A store to serve: `NAME=PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// The name in requests, metrics and logs.
    pub name: String,
    /// Block device or file.
    pub path: PathBuf,
}

impl FromStr for StoreSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} has no '=': write NAME=PATH, as disk1=/dev/sdb"))?;
        let good = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
            return Err(format!(
                "{name:?} is no store name: use 1 to 64 letters, digits, '-', '_' or '.'"
            ));
        }
        if path.is_empty() {
            return Err(format!("store {name:?} has no path: write {name}=PATH"));
        }
        Ok(Self {
            name: name.to_owned(),
            path: PathBuf::from(path),
        })
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.path.display())
    }
}

impl<'de> Deserialize<'de> for StoreSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

/// How a store does its disk I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IoBackendArg {
    /// io_uring where it works, else threads.
    #[default]
    Auto,
    /// A pool of threads that call pread and pwrite.
    Threads,
    /// io_uring, or refuse to start.
    Uring,
}

impl From<IoBackendArg> for IoBackendChoice {
    fn from(arg: IoBackendArg) -> Self {
        match arg {
            IoBackendArg::Auto => Self::Auto,
            IoBackendArg::Threads => Self::Threads,
            IoBackendArg::Uring => Self::Uring,
        }
    }
}

/// What "acknowledged" means when a request does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityArg {
    /// On stable storage: survives a power cut.
    #[default]
    Synced,
    /// Written: survives the death of the service; the flush follows at once.
    Journaled,
}

impl From<DurabilityArg> for Durability {
    fn from(arg: DurabilityArg) -> Self {
        match arg {
            DurabilityArg::Synced => Self::Synced,
            DurabilityArg::Journaled => Self::Journaled,
        }
    }
}

/// Form of the log on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

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
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => Self::default(),
        };
        let (a, f) = (self, file);
        let allow_remote = a.allow_remote.or(f.allow_remote).unwrap_or(false);
        let stores = if a.store.is_empty() { f.store } else { a.store };
        check_stores(&stores)?;
        let config = ServeConfig {
            stores,
            listen: address(
                "listen",
                a.listen.or(f.listen),
                DEFAULT_LISTEN,
                allow_remote,
            )?,
            metrics_listen: address(
                "metrics-listen",
                a.metrics_listen.or(f.metrics_listen),
                DEFAULT_METRICS_LISTEN,
                allow_remote,
            )?,
            probes: !a.no_probes.or(f.no_probes).unwrap_or(false),
            probe_object: a.probe_object.or(f.probe_object),
            io_backend: a.io_backend.or(f.io_backend).unwrap_or_default().into(),
            queue_depth: a
                .queue_depth
                .or(f.queue_depth)
                .unwrap_or(DEFAULT_QUEUE_DEPTH),
            queue_limit: a
                .queue_limit
                .or(f.queue_limit)
                .unwrap_or(DEFAULT_QUEUE_LIMIT),
            durability: a.durability.or(f.durability).unwrap_or_default().into(),
            put_memory: a
                .put_memory
                .or(f.put_memory)
                .unwrap_or(DEFAULT_BODY_MEMORY)
                .0,
            get_memory: a
                .get_memory
                .or(f.get_memory)
                .unwrap_or(DEFAULT_BODY_MEMORY)
                .0,
            max_message: message_size(a.max_message.or(f.max_message))?,
            body_timeout: Duration::from_secs(
                a.body_timeout
                    .or(f.body_timeout)
                    .unwrap_or(DEFAULT_BODY_TIMEOUT_SECONDS),
            ),
            log_format: a.log_format.or(f.log_format).unwrap_or_default(),
            log: a.log.or(f.log).unwrap_or_else(|| "info".to_owned()),
        };
        check_numbers(&config)?;
        Ok(config)
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
