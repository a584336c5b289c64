//! Values of the configuration that have names: stores and choices.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use lumpscope_engine::format::label;
use lumpscope_engine::guard;
use lumpscope_engine::{CommitMode, Durability, IoBackendChoice, QueuePolicy};
use lumpscope_observer::GuardPolicy;
use lumpscope_units::Span;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// What a store's place begins with when it is named by the UUID of its image.
const UUID: &str = "uuid:";

/// A store to serve: `NAME=PATH` or `NAME=uuid:UUID`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSpec {
    /// The name in requests, metrics and logs.
    pub name: String,
    /// Block device or file; of a store that is named by its UUID, no path until it is found.
    pub path: PathBuf,
    /// UUID that its image must have.
    pub uuid: Option<Uuid>,
}

impl StoreSpec {
    /// The same with the path of the block device that has the image, if it is named by its UUID.
    ///
    /// # Errors
    /// No device has it, or several have; the text says which.
    pub fn found(&self) -> Result<Self, String> {
        let mut spec = self.clone();
        if let Some(uuid) = self.uuid.filter(|_| self.path.is_relative()) {
            spec.path = guard::find_image(uuid)?;
        }
        Ok(spec)
    }
}

impl FromStr for StoreSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} has no '=': write NAME=PATH, as disk1=/dev/sdb"))?;
        if !label::is_name(name) {
            return Err(label::wrong_name(name));
        }
        if path.is_empty() {
            return Err(format!("store {name:?} has no path: write {name}=PATH"));
        }
        let uuid = path.strip_prefix(UUID).map(|uuid| {
            let uuid = Uuid::parse_str(uuid);
            uuid.map_err(|error| format!("store {name:?}: {path:?} is no UUID: {error}"))
        });
        Ok(Self {
            name: name.to_owned(),
            path: PathBuf::from(path),
            uuid: uuid.transpose()?,
        })
    }
}

impl fmt::Display for StoreSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uuid {
            Some(uuid) => write!(f, "{}={UUID}{uuid}", self.name),
            None => write!(f, "{}={}", self.name, self.path.display()),
        }
    }
}

/// When something is slow: a time, or one that the service chooses for each store by its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowerThan {
    /// Chosen by the service.
    #[default]
    Auto,
    /// This, for all stores.
    Than(Span),
}

/// Slow enough to be traced, where the service decides: on a disk that may have an arm, and on one
/// without.
pub const TRACE_AUTO: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_millis(50));
/// Slow enough for the flight recorder, likewise.
pub const FLIGHT_AUTO: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(2));

impl SlowerThan {
    /// The time in force, of one for a disk that may have an arm and one for a disk without.
    #[must_use]
    pub fn of(self, (with_arm, without): (Duration, Duration), has_arm: bool) -> Duration {
        match self {
            Self::Than(span) => span.0,
            Self::Auto if has_arm => with_arm,
            Self::Auto => without,
        }
    }
}

impl FromStr for SlowerThan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "auto" => Ok(Self::Auto),
            text => text
                .parse()
                .map(Self::Than)
                .map_err(|_| format!("{text:?} is neither auto nor a length of time, as 5ms")),
        }
    }
}

impl fmt::Display for SlowerThan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Than(span) => span.fmt(f),
        }
    }
}

/// Policy when another process opens a store's device for writing: `POLICY` for all stores,
/// `NAME=POLICY` for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuardRule {
    /// The store; `None`: every one that no other rule names.
    pub store: Option<String>,
    /// Reaction to a foreign open for writing.
    pub policy: GuardPolicy,
}

impl FromStr for GuardRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (store, policy) = match text.split_once('=') {
            Some((name, policy)) => (Some(name.to_owned()), policy),
            None => (None, text),
        };
        let all = [GuardPolicy::Off, GuardPolicy::Audit, GuardPolicy::Deny];
        let known = all.into_iter().find(|known| known.word() == policy);
        let policy = known.ok_or_else(|| {
            format!(
                "{policy:?} is no policy of the guard: write off, audit or deny, or NAME=POLICY \
                 for one store"
            )
        })?;
        Ok(Self { store, policy })
    }
}

impl fmt::Display for GuardRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policy = self.policy.word();
        match &self.store {
            Some(name) => write!(f, "{name}={policy}"),
            None => f.write_str(policy),
        }
    }
}

/// How a store does its disk I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
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

/// Meaning of "acknowledged" for requests that do not set it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DurabilityArg {
    /// On stable storage: survives a power cut.
    #[default]
    Synced,
    /// Written: survives the death of the service; the flush follows at once.
    Journaled,
}

/// Format of the log on stderr.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Source of the `ETag` of an object that was put in one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum S3Etag {
    /// Its MD5, always; 1.7 ms of a processor for each MiB
    #[default]
    Md5,
    /// Its CRCs and length, if the client sends a checksum (`x-amz-checksum-*`) and no MD5, with "-1" behind them so
    /// that nobody takes them for an MD5; otherwise its MD5
    Auto,
}

/// How a put becomes durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CommitArg {
    /// The data, one put behind the other, then one flush; records follow, many at a time. After a
    /// power cut opening looks for puts without a record in at most 32 MiB.
    #[default]
    Runs,
    /// The data and a flush, then the record and a flush: for stores that CannyLS must be able to
    /// open after a power cut.
    Ordered,
}

/// Which waiting request starts next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum QueuePolicyArg {
    /// Deadlines at risk first, the others in the order of their place on the disk.
    #[default]
    Position,
    /// Earliest deadline first; a request without a deadline may wait for ever.
    Deadline,
    /// In the order of arrival.
    Fifo,
}

/// Permissions of a file, as chmod writes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnixMode(pub u32);

impl FromStr for UnixMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777)
            .map(Self)
            .ok_or_else(|| format!("{text:?} is no mode: write octal digits, as 660"))
    }
}

impl fmt::Display for UnixMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o}", self.0)
    }
}

/// Choices of the engine, by the same names.
macro_rules! of_engine {
    ($($arg:ident => $choice:ident { $($name:ident),* })*) => {$(
        impl From<$arg> for $choice {
            fn from(arg: $arg) -> Self {
                match arg {
                    $($arg::$name => Self::$name,)*
                }
            }
        }
    )*};
}

of_engine! {
    IoBackendArg => IoBackendChoice { Auto, Threads, Uring }
    DurabilityArg => Durability { Synced, Journaled }
    CommitArg => CommitMode { Runs, Ordered }
    QueuePolicyArg => QueuePolicy { Position, Deadline, Fifo }
}

/// These stand in a file as on the command line.
macro_rules! as_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                String::deserialize(from)?.parse().map_err(de::Error::custom)
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    )*};
}

as_text!(StoreSpec, SlowerThan, GuardRule, UnixMode);

/// An address to listen at. `localhost` is the one name that means the same everywhere: 127.0.0.1.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:");
    let numbers = local.map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    numbers.parse().map_err(|_| {
        format!(
            "{text:?} is no address to listen at: write an IP address and a port, as \
             127.0.0.1:50051 or [::]:50051, or localhost:50051"
        )
    })
}

/// As [`address`], in a file.
pub(super) fn address_in_file<'de, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<SocketAddr>,
{
    let text = String::deserialize(from)?;
    address(&text).map(T::from).map_err(de::Error::custom)
}

/// Longest time of a setting, a century: more is never, and some clocks cannot count it.
const MAX_SECONDS: u64 = 100 * 365 * 24 * 3600;

/// A time that is written as a whole number of units of so many seconds.
pub(super) struct Whole<const SECONDS: u64>;

impl<const SECONDS: u64> Whole<SECONDS> {
    fn time(units: u64) -> Duration {
        Duration::from_secs(units.saturating_mul(SECONDS).min(MAX_SECONDS))
    }

    pub(super) fn parse(text: &str) -> Result<Duration, std::num::ParseIntError> {
        text.parse().map(Self::time)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Self::time)
    }

    /// Numbers of a TOML file have 63 bits.
    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        let units = time.as_secs() / SECONDS;
        to.serialize_i64(i64::try_from(units).unwrap_or(i64::MAX))
    }
}

/// Writes a path for people: one that is no UTF-8 cannot stand in a file, and comes from a flag.
#[expect(clippy::ref_option, reason = "serde hands the field in")]
pub(super) fn shown<S: Serializer>(path: &Option<PathBuf>, to: S) -> Result<S::Ok, S::Error> {
    let text = path.as_ref().map(|path| path.to_string_lossy());
    text.serialize(to)
}
