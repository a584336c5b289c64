//! Settings of `lumpscope serve`: flags, environment and one TOML file, all with the same keys.
//!
//! A flag wins over its environment variable, which wins over the file, which wins over the
//! default. The keys of the file are the long names of the flags; a key that is not known is an
//! error, because a misspelt one would otherwise be ignored in silence.
//!
//! [`ServeConfig`] is all of it: serde reads the file into it, clap lays the flags and variables that
//! are given over it, and serde writes it out again.

mod args;
pub mod document;
mod page;
mod reach;
mod settings;
mod validate;
mod values;

use std::path::PathBuf;

use clap::{Arg, Args as _, Command};
use lumpscope_observer::{EventPolicy, GuardPolicy, WatchedStore};
use lumpscope_units::Size;
use toml::Value;

pub use args::ServeArgs;
pub use page::{PageConfig, Rhythm};
pub use settings::ServeConfig;
pub use values::{
    CommitArg, DurabilityArg, FLIGHT_AUTO, GuardRule, IoBackendArg, LogFormat, QueuePolicyArg,
    S3Etag, SlowerThan, StoreSpec, TRACE_AUTO, UnixMode,
};

/// Bytes of lumps in memory, put and get each, where buffer-budget has room for them.
const BODY_MEMORY: u64 = 256 << 20;

/// A value as a flag takes it; a list is separated by `;`.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(";"),
        other => other.to_string(),
    }
}

impl ServeConfig {
    /// Every key and the value in force, in the order of the documentation. A list is separated by
    /// `;`; a key that is not set has an empty value. Never a secret: secrets are in files of which
    /// only the path is here.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let entries = self.entries().into_iter();
        entries
            .map(|(key, value)| (key, value.as_ref().map(plain).unwrap_or_default()))
            .collect()
    }

    /// The settings as a file for `--config`: one `key = value` a line. Keys that are not set are
    /// comments.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let line = |(key, value)| match value {
            Some(value) => format!("{key} = {value}\n"),
            None => format!("# {key} is not set\n"),
        };
        self.entries().into_iter().map(line).collect()
    }

    fn entries(&self) -> Vec<(String, Option<Value>)> {
        let mut table = self.table();
        let command = Self::augment_args(Command::new("serve"));
        let keys = command.get_arguments().filter_map(Arg::get_long);
        keys.map(|key| (key.to_owned(), table.remove(key)))
            .collect()
    }

    fn table(&self) -> toml::Table {
        toml::Table::try_from(self).expect("a setting is a number, a text or a list of texts")
    }

    /// Bytes of lumps that are being put.
    #[must_use]
    pub fn put_memory(&self) -> Size {
        let room = Size(BODY_MEMORY.min(self.buffer_budget.0 / 2));
        self.put_memory.unwrap_or(room)
    }

    /// Bytes of lumps that are being read or sent, each store.
    #[must_use]
    pub fn get_memory(&self) -> Size {
        let rest = self.buffer_budget.0.saturating_sub(self.put_memory().0);
        self.get_memory.unwrap_or(Size(BODY_MEMORY.min(rest)))
    }

    /// Younger requests that may start before a waiting one.
    #[must_use]
    pub fn max_overtakes(&self) -> u32 {
        let half = u32::try_from(self.queue_limit / 2).unwrap_or(u32::MAX);
        self.max_overtakes.unwrap_or(half)
    }

    /// Requests that make a store overloaded when they wait for `overload_after`.
    #[must_use]
    pub fn overload_threshold(&self) -> usize {
        let most = (self.queue_limit / 4).saturating_mul(3).max(1);
        self.overload_threshold.unwrap_or(most)
    }

    /// The files of TLS; `None`: no TLS.
    #[must_use]
    pub fn tls(&self) -> Option<TlsFiles> {
        Some(TlsFiles {
            cert: self.tls_cert.clone()?,
            key: self.tls_key.clone()?,
            client_ca: self.tls_client_ca.clone(),
            client_crl: self.tls_client_crl.clone(),
        })
    }

    /// The files that are read again while they are in use.
    pub fn reloaded(&self) -> impl Iterator<Item = &PathBuf> {
        let tls = [&self.tls_cert, &self.tls_key];
        let clients = [&self.tls_client_ca, &self.tls_client_crl];
        let logins = [&self.tokens, &self.s3_credentials];
        tls.into_iter().chain(clients).chain(logins).flatten()
    }

    /// Completed block requests that are handed out as events, from the start on.
    #[must_use]
    pub fn events(&self) -> EventPolicy {
        EventPolicy {
            one_in: self.event_one_in,
            slower_than_ns: self.event_slower_than.nanoseconds(),
        }
    }

    /// Settings of the web page.
    #[must_use]
    pub fn page(&self) -> PageConfig {
        PageConfig {
            trace_url: self.trace_url.clone(),
            rhythm: self.rhythm,
        }
    }

    /// Requests that are traced.
    #[must_use]
    pub fn sampling(&self) -> Sampling {
        Sampling {
            ratio: self.trace_ratio,
            slower_than: self.trace_slower_than,
        }
    }

    /// Watch options of a store, for the observer.
    #[must_use]
    pub fn watched(&self, spec: &StoreSpec) -> WatchedStore {
        WatchedStore {
            name: spec.name.clone(),
            path: spec.path.clone(),
            guard: self.guard_of(&spec.name),
        }
    }

    /// The same with the paths of the stores that are named by UUIDs. One that is not found has none:
    /// opening it says why.
    #[must_use]
    pub fn with_places(mut self) -> Self {
        for spec in &mut self.stores {
            if let Ok(found) = spec.found() {
                *spec = found;
            }
        }
        self
    }

    /// True: S3 serves the store with this name.
    #[must_use]
    pub fn serves_s3(&self, store: &str) -> bool {
        let only = self.s3_store.as_deref();
        self.s3_listen.is_some() && only.is_none_or(|only| only == store)
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
    pub slower_than: SlowerThan,
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
    /// Revocation lists of these; `None`: no certificate is revoked.
    pub client_crl: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::time::Duration;

    use clap::FromArgMatches as _;
    use lumpscope_engine::{Durability, QueuePolicy};

    use super::*;
    use crate::error::ServerError;

    fn from_file(text: &str) -> Result<ServeConfig, ServerError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        ServeConfig::of_file(file.path())?.checked()
    }

    #[test]
    fn a_file_says_the_same_as_flags() {
        let config = from_file(
            "store = [\"a=/dev/sdb\", \"b=/x=y\"]\nlisten = \"127.0.0.1:1\"\nno-probes = true\n\
             put-memory = \"64M\"\nqueue-depth = 7\ndurability = \"journaled\"\n",
        )
        .unwrap();
        assert_eq!(config.stores[1].path, PathBuf::from("/x=y"));
        assert_eq!((config.listen.port(), config.no_probes), (1, true));
        assert_eq!((config.put_memory().0, config.queue_depth), (64 << 20, 7));
        assert_eq!(Durability::from(config.durability), Durability::Journaled);
    }

    #[test]
    fn the_engines_settings_come_from_the_file_and_follow_the_queue_limit() {
        let config = from_file(
            "store = [\"a=/x\"]\nqueue-limit = 100\nqueue-policy = \"fifo\"\nscrub-rate = \"5M\"\n\
             gc-rate = 1048576\nscrub-interval = 2\noverload-after = 3\n",
        )
        .unwrap();
        assert_eq!(QueuePolicy::from(config.queue_policy), QueuePolicy::Fifo);
        assert_eq!(config.max_overtakes(), 50);
        assert_eq!(config.overload_threshold(), 75);
        assert_eq!((config.scrub_rate.0, config.gc_rate.0), (5 << 20, 1 << 20));
        assert_eq!(config.scrub_interval, Duration::from_secs(7200));
        let settings = config.settings();
        assert!(settings.contains(&("scrub-rate".to_owned(), "5M".to_owned())));
        assert!(settings.contains(&("overload-after".to_owned(), "3".to_owned())));
    }

    #[test]
    fn no_time_is_longer_than_clocks_count() {
        let most = i64::MAX;
        let config = from_file(&format!(
            "store = [\"a=/x\"]\nidle-timeout = {most}\nhandshake-timeout = {most}\n\
             body-timeout = {most}\nscrub-interval = {most}\n"
        ))
        .unwrap();
        let now = std::time::Instant::now();
        for time in [
            config.idle_timeout,
            config.handshake_timeout,
            config.body_timeout,
            config.scrub_interval,
        ] {
            assert!(now.checked_add(time * 3).is_some(), "{time:?}");
        }
    }

    #[test]
    fn a_store_has_room_for_what_is_let_in() {
        let memory = |text: &str| {
            let config = from_file(&format!("store = [\"a=/x\"]\n{text}")).unwrap();
            (config.put_memory().0 >> 20, config.get_memory().0 >> 20)
        };
        assert_eq!(memory(""), (256, 256));
        assert_eq!(memory("buffer-budget = \"256M\""), (128, 128));
        assert_eq!(memory("put-memory = \"768M\""), (768, 256));
        let found = memory("buffer-budget = \"400M\"\nput-memory = \"300M\"");
        assert_eq!(found, (300, 100));
    }

    #[test]
    fn every_value_that_a_flag_can_have_is_shown() {
        let config = ServeConfig {
            stores: vec!["a=/x".parse().unwrap()],
            tokens: Some(OsStr::from_bytes(b"/k\xff").into()),
            checkpoint_records: u64::MAX,
            overload_threshold: Some(usize::MAX),
            idle_timeout: Duration::MAX,
            ..ServeConfig::default()
        };
        let settings = config.checked().unwrap().settings();
        let most = i64::MAX.to_string();
        for (key, value) in [
            ("tokens", "/k\u{fffd}"),
            ("checkpoint-records", &most),
            ("overload-threshold", &most),
            ("idle-timeout", &most),
        ] {
            let shown = settings.iter().find(|(known, _)| known == key).unwrap();
            assert_eq!(shown.1, value, "{key}");
        }
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
        let path = file.path().to_str().unwrap();
        let command = ServeArgs::augment_args(Command::new("serve"));
        let flags = command.get_matches_from(["serve", "--config", path, "--queue-depth", "9"]);
        let args = ServeArgs::from_arg_matches(&flags).unwrap();
        assert_eq!(args.resolve().unwrap().queue_depth, 9);
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
                ["put-memory", "3/4 of buffer-budget"],
            ),
            (
                "store = [\"a=/x\"]\nput-memory = \"700M\"\nget-memory = \"325M\"",
                ["get-memory", "buffer-budget less put-memory"],
            ),
            (
                "store = [\"a=/x\"]\nqueue-policy = \"learned\"",
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
                "store = [\"a=/x\"]\ns3-domain = [\"s3.example.org:9000\"]",
                ["s3-domain", "without a port"],
            ),
            (
                "store = [\"a=/x\"]\ns3-domain = [\"\"]",
                ["s3-domain", "DNS name"],
            ),
            (
                "store = [\"a=/x\"]\nmetrics-listen = \"127.0.0.1:50051\"",
                ["metrics-listen", "taken by listen"],
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
