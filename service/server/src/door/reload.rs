//! The certificate and the logins in force, and how new ones take their place.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::HeaderMap;
use rustls::ServerConfig;
use sha2::{Digest as _, Sha256};
use tracing::{error, info, warn};

use super::caller::Caller;
use super::connection::Connection;
use super::handshake::Protocol;
use super::keys::Credentials;
use super::logins::{Denied, Logins};
use super::metrics::DoorMetrics;
use super::tls::{self, Tls};
use crate::config::ServeConfig;
use crate::error::ServerError;

/// A certificate that ends within this time is warned of: a week.
const SOON_SECONDS: i64 = 7 * 24 * 3600;

/// Values in force after a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reloaded {
    /// Tokens that are accepted.
    pub tokens: u32,
    /// End of the certificate's validity in seconds since 1970; `None`: there is no TLS.
    pub certificate_not_after: Option<i64>,
    /// Access keys of S3 that are known.
    pub s3_keys: usize,
}

/// Holds the certificate and the logins, and reads them again when told to.
///
/// All files are read and checked before any of them counts, and then all count at once: handshakes
/// and requests that begin later use the new ones. Connections that are open keep their session.
#[derive(Debug)]
pub struct Reloader {
    config: ServeConfig,
    state: ArcSwap<State>,
    /// Digest of the files as they were just before they were last read, whatever came of it.
    seen: Mutex<[u8; 32]>,
    metrics: Arc<DoorMetrics>,
}

#[derive(Debug)]
struct State {
    tls: Option<Tls>,
    logins: Logins,
    s3: Arc<Credentials>,
}

impl State {
    fn load(config: &ServeConfig) -> Result<Self, ServerError> {
        let tls = config.tls().as_ref().map(Tls::load).transpose()?;
        let logins = Logins::load(config)?;
        let s3 = config.s3_credentials.as_deref().map(Credentials::load);
        let s3 = s3.transpose()?.unwrap_or_default();
        Ok(Self {
            tls,
            logins,
            s3: Arc::new(s3),
        })
    }

    fn summary(&self) -> Reloaded {
        Reloaded {
            tokens: self.logins.tokens(),
            certificate_not_after: self.tls.as_ref().map(|tls| tls.not_after),
            s3_keys: self.s3.len(),
        }
    }
}

impl Reloader {
    /// Reads everything for the first time.
    ///
    /// # Errors
    /// A file that cannot be read or used; the message names it.
    pub fn new(config: &ServeConfig, metrics: Arc<DoorMetrics>) -> Result<Self, ServerError> {
        let seen = config.digest();
        let state = State::load(config)?;
        warn_of_age(&state);
        Ok(Self {
            config: config.clone(),
            state: ArcSwap::from_pointee(state),
            seen: Mutex::new(seen),
            metrics,
        })
    }

    /// Reads certificates and tokens again. Blocks for as long as reading small files does.
    ///
    /// # Errors
    /// A file that cannot be read or used; the message names it, it is logged and counted, and
    /// what was in force stays.
    pub fn reload(&self) -> Result<Reloaded, ServerError> {
        // One at a time. The digest first: what changes after it is found at the next look.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.config.digest();
        let loaded = State::load(&self.config);
        self.metrics.reloaded(loaded.is_ok());
        let mut state = loaded.inspect_err(|error| {
            error!(%error, "certificates and tokens not reloaded: the old ones stay in force");
        })?;
        let summary = state.summary();
        warn_of_age(&state);
        let before = self.state.load_full();
        state.logins.keep(&before.logins);
        let state = Arc::new(state);
        self.state.store(Arc::clone(&state));
        // Calls that begin from now on find the new list; those without an end of their own end.
        before.logins.withdraw_unless_in(&state.logins);
        info!(
            tokens = summary.tokens,
            certificate_not_after = summary.certificate_not_after,
            s3_keys = summary.s3_keys,
            "certificates and tokens reloaded"
        );
        Ok(summary)
    }

    /// Values in force.
    #[must_use]
    pub fn in_force(&self) -> Reloaded {
        self.state.load().summary()
    }

    /// True: there is a list of who is let in.
    pub(crate) fn has_tokens(&self) -> bool {
        self.config.tokens.is_some()
    }

    /// True: there is a list of who is let in, or TLS, so that a client knows whom it talks to.
    pub(crate) fn has_login_or_tls(&self) -> bool {
        self.config.tokens.is_some() || self.config.tls_cert.is_some()
    }

    /// Looks at the files every `reload-interval` and reloads them when they have changed. Returns
    /// at once when there is nothing to look at.
    pub async fn watch(self: Arc<Self>) {
        let interval = self.config.reload_interval;
        let config = &self.config;
        let none = config.tls_cert.is_none() && config.tokens.is_none();
        if interval.is_zero() || (none && config.s3_credentials.is_none()) {
            return;
        }
        loop {
            tokio::time::sleep(interval).await;
            let reloader = Arc::clone(&self);
            let looked = tokio::task::spawn_blocking(move || reloader.look()).await;
            if let Err(error) = looked {
                error!(%error, "the look at certificates and tokens ended out of turn");
            }
        }
    }

    /// Reloads when the files are not as they were. A mistake in them is logged once, not at every
    /// look.
    fn look(&self) {
        let now = self.config.digest();
        let seen = *self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if now != seen {
            // The error is logged where it is found.
            let _ = self.reload();
        }
    }

    /// Credentials of S3.
    #[must_use]
    pub fn s3(&self) -> Arc<Credentials> {
        Arc::clone(&self.state.load().s3)
    }

    /// TLS configuration; `None`: not configured.
    pub(super) fn tls(&self, protocol: Protocol) -> Option<Arc<ServerConfig>> {
        let state = self.state.load();
        let tls = state.tls.as_ref()?;
        Some(Arc::clone(match protocol {
            Protocol::Grpc => &tls.grpc,
            Protocol::Http => &tls.http,
        }))
    }

    /// Caller of a request with these headers.
    pub(crate) fn caller(
        &self,
        connection: Option<&Connection>,
        headers: &HeaderMap,
    ) -> Result<Caller, Denied> {
        if connection.is_some_and(Connection::is_unix) {
            return Ok(Caller::anybody("unix socket"));
        }
        self.state.load().logins.caller(connection, headers)
    }
}

impl ServeConfig {
    /// A digest of content and permissions of the files; a file that cannot be read counts by its
    /// error.
    fn digest(&self) -> [u8; 32] {
        let mut hasher = Sha256::new();
        for path in self.reloaded() {
            let bytes = tls::read(path, None);
            let mode = std::fs::metadata(path).map_or(0, |meta| meta.permissions().mode());
            hasher.update(mode.to_le_bytes());
            match bytes {
                Ok(bytes) => hasher.update(Sha256::digest(bytes)),
                Err(error) => hasher.update(error.to_string()),
            }
        }
        hasher.finalize().into()
    }
}

/// Says it when clients will not accept the certificate, or soon will not.
fn warn_of_age(state: &State) {
    let Some(tls) = &state.tls else { return };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let left = tls.not_after - i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if left < 0 {
        warn!(
            seconds = -left,
            "the certificate has expired: clients will refuse it"
        );
    } else if left < SOON_SECONDS {
        warn!(seconds = left, "the certificate expires soon: replace it");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;
    use std::path::Path;

    use super::super::keys::Access;
    use super::*;

    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn write(path: &Path, text: &str) {
        use std::io::Write as _;
        let mut options = std::fs::OpenOptions::new();
        let file = options.create(true).write(true).truncate(true).mode(0o600);
        file.open(path).unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn start(config: &ServeConfig) -> Result<Arc<State>, ServerError> {
        Ok(Reloader::new(config, Arc::default())?.state.load_full())
    }

    #[test]
    fn a_start_with_a_cut_file_is_refused_or_gives_no_more_than_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name| Some(folder.path().join(name));
        let config = ServeConfig {
            tokens: path("tokens.toml"),
            s3_credentials: path("keys.toml"),
            ..ServeConfig::default()
        };
        let (tokens_path, keys_path) = (path("tokens.toml").unwrap(), path("keys.toml").unwrap());
        let mut bearer = HeaderMap::new();
        bearer.append("authorization", "Bearer test".parse().unwrap());
        let tokens = format!(
            "[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\nscopes = [\"read\"]\nstores = [\"s\"]\n"
        );
        let keys = "[[key]]\nname = \"a\"\naccess = \"AKA\"\nsecret = \"a-secret-of-the-tests\"\n\
            [[key.allow]]\nbucket = \"b\"\nrights = [\"read\"]\nprefix = \"p/\"\n";
        write(&keys_path, "");
        for cut in 0..=tokens.len() {
            write(&tokens_path, &tokens[..cut]);
            let Ok(state) = start(&config) else { continue };
            let caller = state.logins.caller(None, &bearer);
            assert!(caller.is_err() || caller.is_ok_and(|caller| caller.is_restricted()));
        }
        start(&config).unwrap();
        for cut in 0..=keys.len() {
            write(&keys_path, &keys[..cut]);
            let Ok(state) = start(&config) else { continue };
            let grants = state.s3.grants("AKA");
            assert!(grants.is_none_or(|grants| !grants.allow(Access::Read, "b", "")));
        }
        start(&config).unwrap();
        let (open, _) = tokens.split_once("stores").unwrap();
        write(&tokens_path, open);
        let message = start(&config).unwrap_err().to_string();
        assert!(message.contains("[end]"), "{message}");
        assert!(message.contains("tokens.toml"), "{message}");
    }
}
