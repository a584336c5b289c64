//! The files that a configuration names: can they be read and used, and for how long?

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use lumpscope_engine::IoBackendChoice;
use lumpscope_engine::device::DeviceFacts;
use lumpscope_engine::guard::VolatileMedium;
use lumpscope_observer::{Finding, Level};
use lumpscope_server::check::{certificate_not_after, kinds};
use lumpscope_server::config::{ServeConfig, StoreSpec};

use lumpscope_units::human;

/// A certificate that ends within this time is warned of.
const SOON_DAYS: i64 = 14;
const DAY_SECONDS: i64 = 24 * 3600;

/// Findings about the files of `config`.
pub(super) fn findings(config: &ServeConfig) -> Vec<Finding> {
    let [only_tls, only_tokens, only_s3] = kinds(config);
    let mut found: Vec<Finding> = config
        .stores
        .iter()
        .filter_map(|store| disk(config, store))
        .collect();
    if let Some(tls) = config.tls() {
        found.push(certificate(&only_tls, &tls.cert));
        found.push(private("private key", &tls.key));
    }
    if let Some(tokens) = &config.tokens {
        found.push(usable("token file", &only_tokens, tokens));
        found.push(private("token file", tokens));
    }
    if let Some(keys) = &config.s3_credentials {
        found.push(usable("S3 credentials", &only_s3, keys));
        found.push(private("S3 credentials", keys));
    }
    found
}

/// The disk below a store, and what is used of it; `None`: a file that lasts.
fn disk(config: &ServeConfig, store: &StoreSpec) -> Option<Finding> {
    let topic = format!("disk of {}", store.name);
    if let Some(medium) = VolatileMedium::of_path(&store.path) {
        return Some(Finding::lacking(
            &topic,
            Level::Degraded,
            format!("{}: {medium}", store.path.display()),
            "what clients put does not last",
            "serve a disk, or a file on one",
        ));
    }
    let facts = DeviceFacts::of(&store.path)?;
    let forces = IoBackendChoice::from(config.io_backend) != IoBackendChoice::Threads && facts.fua;
    let used = facts.used(forces);
    let found = format!("{}: {facts}; durable by {used}", store.path.display());
    Some(Finding::good(&topic, found))
}

fn certificate(door: &ServeConfig, cert: &Path) -> Finding {
    let topic = "certificate";
    let end = match certificate_not_after(door) {
        Ok(end) => end.unwrap_or(i64::MAX),
        Err(error) => {
            return Finding::lacking(
                topic,
                Level::Missing,
                error.to_string(),
                "`lumpscope serve` does not start with it",
                "correct the file, or run this as the user that serves",
            );
        }
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let left = end.saturating_sub(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
    let days = left / DAY_SECONDS;
    let found = format!(
        "{}: matches its key, valid for {}",
        cert.display(),
        in_days(days)
    );
    let renew = "replace certificate and key; the service reloads them automatically, or on SIGHUP";
    match left {
        ..0 => Finding::lacking(
            topic,
            Level::Missing,
            format!("{}: expired {} ago", cert.display(), in_days(-days)),
            "clients refuse to connect",
            renew,
        ),
        _ if days < SOON_DAYS => Finding::lacking(
            topic,
            Level::Degraded,
            found,
            "clients will refuse to connect",
            renew,
        ),
        _ => Finding::good(topic, found),
    }
}

fn in_days(days: i64) -> String {
    human::counted(days.unsigned_abs(), "day")
}

fn usable(topic: &str, door: &ServeConfig, path: &Path) -> Finding {
    match certificate_not_after(door) {
        Ok(_) => Finding::good(topic, format!("{}: valid", path.display())),
        Err(error) => Finding::lacking(
            topic,
            Level::Missing,
            error.to_string(),
            "`lumpscope serve` does not start with it",
            "correct the file, or run this as the user that serves",
        ),
    }
}

/// Nobody but its owner and group may read a secret, and nobody but its owner write it.
fn private(what: &str, path: &Path) -> Finding {
    let topic = format!("{what} permissions");
    match std::fs::metadata(path) {
        Ok(meta) => {
            let mode = meta.permissions().mode() & 0o777;
            let found = format!("{}: {mode:o}", path.display());
            match mode & 0o027 {
                0 => Finding::good(&topic, found),
                _ => Finding::lacking(
                    &topic,
                    Level::Missing,
                    found,
                    "others on this machine can use it",
                    &format!("chmod o-rwx,g-w {}", path.display()),
                ),
            }
        }
        Err(error) => Finding::lacking(
            &topic,
            Level::Missing,
            format!("{}: {error}", path.display()),
            "`lumpscope serve` does not start with it",
            "correct the path",
        ),
    }
}
