//! The certificate and the logins in force, and how new ones take their place.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use http::HeaderMap;
use rustls::ServerConfig;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::caller::Caller;
use super::connection::Connection;
use super::handshake::Protocol;
use super::keys::Credentials;
use super::logins::{Denied, Logins};
use super::metrics::DoorMetrics;
use super::tls::{Tls, read_or_before};
use crate::config::ServeConfig;
use crate::error::ServerError;
use crate::files;

/// A certificate that ends within this time is warned of: a week.
const SOON_SECONDS: i64 = 7 * DAY_SECONDS;
/// After this time age is warned of again.
const DAY_SECONDS: i64 = 24 * 3600;
/// The certificate of a client is checked again after this time at the latest.
const RECHECK: Duration = Duration::from_mins(1);

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
/// Each file is read and checked on its own: one with a mistake keeps what it said before, and the
/// others count. Handshakes and requests that begin later use them; a connection whose client has
/// shown a certificate is told to leave when that is not accepted any more.
#[derive(Debug)]
pub struct Reloader {
    config: ServeConfig,
    state: ArcSwap<DoorState>,
    /// Digest of the files as they were just before they were last read, whatever came of it.
    seen: Mutex<[u8; 32]>,
    /// Last warning of age, in seconds since 1970.
    warned: AtomicI64,
    /// Tells the connections of a reload.
    reloads: watch::Sender<()>,
    metrics: Arc<DoorMetrics>,
}

#[derive(Debug)]
struct DoorState {
    tls: Option<Arc<Tls>>,
    logins: Arc<Logins>,
    s3: Arc<Credentials>,
}

impl DoorState {
    /// Reads the files. What cannot be used is added to `wrong`, and what `before` has of it stays;
    /// `None`: it has none.
    fn load(
        config: &ServeConfig,
        before: Option<&Self>,
        wrong: &mut Vec<ServerError>,
    ) -> Option<Self> {
        let tls_before = before.and_then(|before| before.tls.as_ref());
        let tls = config.tls().map(|files| {
            let tls = Tls::load(&files, tls_before.map(Arc::as_ref), wrong);
            // What rustls alone refuses must not keep a token from being withdrawn.
            tls.map(Arc::new).or_else(|| tls_before.cloned())
        });
        let logins = Logins::load(config).map(|mut logins| {
            if let Some(before) = before {
                logins.keep(&before.logins);
            }
            Arc::new(logins)
        });
        let logins = read_or_before(logins, before.map(|before| before.logins.clone()), wrong);
        let s3 = config.s3_credentials.as_deref().map(Credentials::load);
        let s3 = s3.transpose().map(|s3| Arc::new(s3.unwrap_or_default()));
        let s3 = read_or_before(s3, before.map(|before| before.s3.clone()), wrong);
        Some(Self {
            tls: match tls {
                None => None,
                Some(tls) => Some(tls?),
            },
            logins: logins?,
            s3: s3?,
        })
    }

    fn summary(&self) -> Reloaded {
        Reloaded {
            tokens: self.logins.tokens(),
            certificate_not_after: self.tls.as_deref().map(Tls::not_after),
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
        let mut wrong = Vec::new();
        let state = match DoorState::load(config, None, &mut wrong) {
            Some(state) if wrong.is_empty() => state,
            _ => return Err(wrong.swap_remove(0)),
        };
        let warned = AtomicI64::new(now());
        warn_of_age(&state);
        Ok(Self {
            config: config.clone(),
            state: ArcSwap::from_pointee(state),
            seen: Mutex::new(seen),
            warned,
            reloads: watch::Sender::default(),
            metrics,
        })
    }

    /// Everything that is wrong with the files.
    pub(crate) fn problems(config: &ServeConfig) -> Vec<ServerError> {
        let mut wrong = Vec::new();
        let _ = DoorState::load(config, None, &mut wrong);
        wrong
    }

    /// Reads certificates and tokens again. Blocks for as long as reading small files does.
    ///
    /// # Errors
    /// Files that cannot be read or used; each is named, logged and counted, and what it said
    /// before stays in force. The others count all the same.
    pub fn reload(&self) -> Result<Reloaded, ServerError> {
        // One at a time. The digest first: what changes after it is found at the next look.
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        *seen = self.config.digest();
        let (before, mut wrong) = (self.state.load_full(), Vec::new());
        let state = DoorState::load(&self.config, Some(&before), &mut wrong);
        self.metrics.reloaded(wrong.is_empty());
        for error in &wrong {
            error!(%error, "not reloaded: what this file said before stays in force");
        }
        if let Some(state) = state.map(Arc::new) {
            self.warned.store(now(), Ordering::Relaxed);
            warn_of_age(&state);
            self.state.store(Arc::clone(&state));
            // Calls that begin from now on find the new list; those without an end of their own end.
            before.logins.withdraw_unless_in(&state.logins);
            self.reloads.send_replace(());
        }
        if !wrong.is_empty() {
            return Err(ServerError::NotReloaded { wrong });
        }
        let summary = self.in_force();
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
        } else {
            self.warn_again();
        }
    }

    /// Warns of age once a day, and when a revocation list has passed its next update.
    fn warn_again(&self) {
        let (state, now) = (self.state.load(), now());
        let last = self.warned.load(Ordering::Relaxed);
        let passed = |(_, until): (String, i64)| (last..now).contains(&until);
        let passed = |tls: &Tls| tls.next_updates().any(passed);
        if now - last >= DAY_SECONDS || state.tls.as_deref().is_some_and(passed) {
            self.warned.store(now, Ordering::Relaxed);
            warn_of_age(&state);
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

    /// Checks the certificate that the client has shown; one that has shown none has none to check.
    pub(super) fn verify(&self, connection: &Connection) -> Result<(), rustls::Error> {
        let state = self.state.load();
        match (&state.tls, connection.certificate()) {
            (Some(tls), Some(shown)) => tls.verify(shown),
            _ => Ok(()),
        }
    }

    /// Completes when the certificate that the client has shown is not accepted any more: after a
    /// reload, when it expires, and at the latest a minute after the clock was set.
    pub(super) async fn withdrawn(&self, connection: &Connection) -> rustls::Error {
        let Some(shown) = connection.certificate() else {
            return std::future::pending().await;
        };
        let mut reloads = self.reloads.subscribe();
        loop {
            if let Err(error) = self.verify(connection) {
                return error;
            }
            // The second in which it ends is the last in which it counts.
            let left = u64::try_from(seconds_left(shown.not_after)).unwrap_or(0) + 1;
            // Either ends the wait: a reload, or the time.
            let _ = tokio::time::timeout(RECHECK.min(Duration::from_secs(left)), reloads.changed())
                .await;
        }
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
        if connection.is_some_and(|connection| connection.withdrawn().is_cancelled()) {
            return Err(Denied::Certificate);
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
            let bytes = files::read(path, None);
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
fn warn_of_age(state: &DoorState) {
    let Some(tls) = &state.tls else { return };
    let left = seconds_left(tls.not_after());
    if left < 0 {
        warn!(
            seconds = -left,
            "the certificate has expired: clients will refuse it"
        );
    } else if left < SOON_SECONDS {
        warn!(seconds = left, "the certificate expires soon: replace it");
    }
    for (ca, until) in tls.next_updates() {
        let left = seconds_left(until);
        if left < 0 {
            warn!(
                ca,
                seconds = -left,
                "the revocation list is out of date: replace it"
            );
        }
    }
}

/// Seconds until a time in seconds since 1970; negative: since then.
fn seconds_left(until: i64) -> i64 {
    until.saturating_sub(now())
}

/// In seconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
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

    fn start(config: &ServeConfig) -> Result<Arc<DoorState>, ServerError> {
        Ok(Reloader::new(config, Arc::default())?.state.load_full())
    }

    #[test]
    fn a_list_that_passes_its_next_update_is_warned_of_when_it_does_and_daily() {
        const NEXT: i64 = 1_700_000_000;
        let folder = tempfile::tempdir().unwrap();
        let path = |name| Some(folder.path().join(name));
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["ca".to_owned()]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let cert = params.self_signed(&key).unwrap().pem();
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let list = rcgen::CertificateRevocationListParams {
            this_update: epoch,
            next_update: epoch + Duration::from_secs(NEXT.unsigned_abs()),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: rcgen::KeyIdMethod::Sha256,
        };
        let config = ServeConfig {
            tls_cert: path("cert.pem"),
            tls_key: path("key.pem"),
            tls_client_ca: path("cert.pem"),
            tls_client_crl: path("clients.crl"),
            ..ServeConfig::default()
        };
        write(&path("cert.pem").unwrap(), &cert);
        write(&path("key.pem").unwrap(), &key.serialize_pem());
        let list = list.signed_by(&rcgen::Issuer::new(params, key)).unwrap();
        write(&path("clients.crl").unwrap(), &list.pem().unwrap());
        let log = tempfile::NamedTempFile::new().unwrap();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(Mutex::new(log.reopen().unwrap()))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let told = || {
                let log = std::fs::read_to_string(log.path()).unwrap();
                log.matches("the revocation list is out of date").count()
            };
            let reloader = Reloader::new(&config, Arc::default()).unwrap();
            reloader.look();
            assert_eq!(told(), 1);
            for (warned, all) in [(NEXT, 2), (now() - DAY_SECONDS, 3)] {
                reloader.warned.store(warned, Ordering::Relaxed);
                reloader.look();
                reloader.look();
                assert_eq!(told(), all);
            }
        });
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
