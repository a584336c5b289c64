//! Certificates and keys: from PEM files to what rustls serves with.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;

use crate::config::TlsFiles;
use crate::error::ServerError;

/// No file of the door is larger.
const MAX_FILE: u64 = 4 << 20;
/// Permissions that a secret must not have: its group may read it, nobody else.
const TOO_OPEN_KEY: u32 = 0o027;

/// TLS configuration for each protocol, and the end of its validity.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) grpc: Arc<ServerConfig>,
    pub(super) http: Arc<ServerConfig>,
    /// End of the certificate's validity, in seconds since 1970.
    pub(super) not_after: i64,
}

impl Tls {
    /// Reads and checks the files.
    ///
    /// # Errors
    /// A file that cannot be read, holds nothing that fits, or a key that others can read or that
    /// is not that of the certificate.
    pub(super) fn load(files: &TlsFiles) -> Result<Self, ServerError> {
        let chain = certificates(&files.cert)?;
        let not_after = not_after(&files.cert, &chain[0])?;
        let key = key(&files.key)?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad(&files.cert, error))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => builder.with_client_cert_verifier(clients(path)?),
        };
        let config = builder.with_single_cert(chain, key).map_err(|error| {
            bad(
                &files.key,
                format!("{error}; is it the key of {}?", files.cert.display()),
            )
        })?;
        let speaking = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            grpc: speaking(&[b"h2", b"http/1.1"]),
            http: speaking(&[b"http/1.1"]),
            not_after,
        })
    }
}

/// DNS and URI names of a certificate that has been checked.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let names = parsed.valid_dns_names().chain(parsed.valid_uri_names());
    names.map(str::to_owned).collect()
}

/// Reads a file of the door. `too_open`: permissions it must not have, and what to do then.
pub(super) fn read(path: &Path, too_open: Option<u32>) -> Result<Vec<u8>, ServerError> {
    let failed = |source| ServerError::File {
        what: "read",
        path: path.to_owned(),
        source,
    };
    // A pipe is not waited for: only a file is read.
    let mut options = File::options();
    let file = options
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(bad(path, "it is no regular file"));
    }
    let mode = meta.permissions().mode() & 0o777;
    if too_open.is_some_and(|bits| mode & bits != 0) {
        return Err(bad(
            path,
            format!(
                "its permissions are {mode:o}, so others can use it; do `chmod o-rwx,g-w` on it"
            ),
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(bad(path, "it is larger than 4M; is it the right file?"));
    }
    Ok(bytes)
}

/// Reads a file with a secret in it.
///
/// # Errors
/// A file that cannot be read, or that others can read or write.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, ServerError> {
    read(path, Some(TOO_OPEN_KEY))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    let text = read(path, None)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| bad(path, format!("it is no PEM: {error}")))?;
    if found.is_empty() {
        return Err(bad(
            path,
            "there is no certificate (BEGIN CERTIFICATE) in it",
        ));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, ServerError> {
    let text = read(path, Some(TOO_OPEN_KEY))?;
    // What the parser says is about the form of the PEM and holds nothing of the key.
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| bad(path, format!("there is no private key in it: {error}")))
}

fn clients(
    path: &Path,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, ServerError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).map_err(|error| bad(path, error))?;
    }
    let provider = Arc::new(ring::default_provider());
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| bad(path, error))
}

fn not_after(path: &Path, certificate: &CertificateDer<'_>) -> Result<i64, ServerError> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).map_err(|error| {
        bad(
            path,
            format!("its first certificate cannot be read: {error}"),
        )
    })?;
    Ok(parsed.validity().not_after.timestamp())
}

/// Error in a file of the door.
pub(crate) fn bad(path: &Path, why: impl std::fmt::Display) -> ServerError {
    ServerError::DoorFile {
        path: path.to_owned(),
        why: why.to_string(),
    }
}
