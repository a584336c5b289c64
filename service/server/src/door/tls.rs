//! Certificates and keys: from PEM files to what rustls serves with.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};

use super::revocation::{self, RevocationList};
use crate::config::TlsFiles;
use crate::error::ServerError;
use crate::files::{TOO_OPEN, bad, read, read_secret};

/// TLS configuration for each protocol, and the files that it is made from.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) grpc: Arc<ServerConfig>,
    pub(super) http: Arc<ServerConfig>,
    /// Checks the certificates of clients; `None`: they need none.
    clients: Option<Arc<dyn ClientCertVerifier>>,
    identity: Identity,
    authorities: Option<Arc<Authorities>>,
    lists: Vec<RevocationList>,
}

/// Authorities that sign the certificates of clients.
#[derive(Debug)]
pub(super) struct Authorities {
    roots: Arc<RootCertStore>,
    pub(super) certificates: Vec<CertificateDer<'static>>,
}

/// The certificate of the service, with its key.
#[derive(Clone, Debug)]
struct Identity {
    shown: Arc<SingleCertAndKey>,
    /// End of its validity, in seconds since 1970.
    not_after: i64,
}

/// The value that was read, or else the one before. What is wrong is added to `wrong`.
pub(super) fn read_or_before<T>(
    read: Result<T, ServerError>,
    before: Option<T>,
    wrong: &mut Vec<ServerError>,
) -> Option<T> {
    read.map_err(|error| wrong.push(error)).ok().or(before)
}

impl Tls {
    /// Reads and checks the files. A file that cannot be read, holds nothing that fits, or a key
    /// that others can read or that is not that of the certificate, is added to `wrong`, and what
    /// `before` has of it is used; `None`: it has none.
    pub(super) fn load(
        files: &TlsFiles,
        before: Option<&Self>,
        wrong: &mut Vec<ServerError>,
    ) -> Option<Self> {
        let identity = Identity::load(files, wrong);
        let identity = identity.or_else(|| before.map(|tls| tls.identity.clone()));
        let found = files.client_ca.as_deref().map(authorities).transpose();
        let found = read_or_before(found, before.map(|tls| tls.authorities.clone()), wrong);
        let lists = files
            .client_crl
            .as_deref()
            .map_or(Ok(Vec::new()), revocation::read);
        let lists = read_or_before(lists, before.map(|tls| tls.lists.clone()), wrong);
        let (found, mut lists) = (found?, lists?);
        if let (Some(found), Some(path)) = (&found, &files.client_crl) {
            let before = before.and_then(|tls| Some((tls.authorities.as_deref()?, &tls.lists[..])));
            let refused = revocation::settle(found, &mut lists, before);
            wrong.extend(refused.into_iter().map(|why| bad(path, why)));
        }
        let made = Self::new(identity?, found, lists);
        // What is wrong with a file has been found: this is for what rustls alone may know.
        made.map_err(|error| wrong.push(bad(&files.cert, error)))
            .ok()
    }

    fn new(
        identity: Identity,
        authorities: Option<Arc<Authorities>>,
        lists: Vec<RevocationList>,
    ) -> Result<Self, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let clients = authorities.as_ref().map(|authorities| {
            let roots = Arc::clone(&authorities.roots);
            WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                .with_crls(lists.iter().map(|list| list.der.clone()))
                .build()
        });
        let clients = clients
            .transpose()
            .map_err(|error| rustls::Error::General(error.to_string()))?;
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match &clients {
            None => builder.with_no_client_auth(),
            Some(clients) => builder.with_client_cert_verifier(Arc::clone(clients)),
        };
        let config = builder.with_cert_resolver(identity.shown.clone());
        let speaking = |protocols: &[&[u8]]| {
            let mut config = config.clone();
            config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
            Arc::new(config)
        };
        Ok(Self {
            grpc: speaking(&[b"h2", b"http/1.1"]),
            http: speaking(&[b"http/1.1"]),
            clients,
            identity,
            authorities,
            lists,
        })
    }

    /// End of the certificate's validity, in seconds since 1970.
    pub(super) fn not_after(&self) -> i64 {
        self.identity.not_after
    }

    /// Authority of each revocation list with when its next one was to come, in seconds since 1970.
    pub(super) fn next_updates(&self) -> impl Iterator<Item = (String, i64)> {
        self.lists.iter().filter_map(RevocationList::next_update)
    }

    /// Checks the certificate that a client has shown, as a handshake would now.
    ///
    /// # Errors
    /// It has expired, is revoked, or its authority is gone.
    pub(super) fn verify(&self, shown: &ClientCertificate) -> Result<(), rustls::Error> {
        let (Some(clients), Some((first, rest))) = (&self.clients, shown.chain.split_first())
        else {
            return Ok(());
        };
        let checked = clients.verify_client_cert(first, rest, UnixTime::now());
        checked.map(|_| ())
    }
}

impl Identity {
    fn load(files: &TlsFiles, wrong: &mut Vec<ServerError>) -> Option<Self> {
        let chain = read_or_before(certificates(&files.cert, None), None, wrong);
        let key = read_or_before(key(&files.key), None, wrong);
        read_or_before(Self::of(files, chain?, key?), None, wrong)
    }

    fn of(
        files: &TlsFiles,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Self, ServerError> {
        let not_after = not_after(&chain[0])
            .map_err(|why| bad(&files.cert, format!("its first certificate {why}")))?;
        let shown = CertifiedKey::from_der(chain, key, &ring::default_provider());
        let shown = shown.map_err(|error| {
            let why = format!("{error}; is it the key of {}?", files.cert.display());
            bad(&files.key, why)
        })?;
        Ok(Self {
            shown: Arc::new(shown.into()),
            not_after,
        })
    }
}

/// The certificate that a client has shown, and those between it and its authority.
#[derive(Debug)]
pub(super) struct ClientCertificate {
    chain: Vec<CertificateDer<'static>>,
    /// Its DNS and URI names.
    pub(super) names: Vec<String>,
    /// End of its validity, in seconds since 1970.
    pub(super) not_after: i64,
}

impl ClientCertificate {
    /// `chain` has been checked.
    pub(super) fn new(chain: &[CertificateDer<'_>]) -> Self {
        let owned = chain.iter().map(|der| der.clone().into_owned());
        let first = chain.first();
        Self {
            chain: owned.collect(),
            names: first.map(names).unwrap_or_default(),
            not_after: first.map_or(0, |first| not_after(first).unwrap_or(0)),
        }
    }
}

/// DNS and URI names of a certificate that has been checked.
fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(parsed) = webpki::EndEntityCert::try_from(certificate) else {
        return Vec::new();
    };
    let names = parsed.valid_dns_names().chain(parsed.valid_uri_names());
    names.map(str::to_owned).collect()
}

fn certificates(
    path: &Path,
    too_open: Option<u32>,
) -> Result<Vec<CertificateDer<'static>>, ServerError> {
    all_in(path, "certificate (BEGIN CERTIFICATE)", too_open)
}

/// Everything of one kind in a PEM file, at least one. `too_open`: permissions that the file must not
/// have.
pub(super) fn all_in<T: PemObject>(
    path: &Path,
    kind: &str,
    too_open: Option<u32>,
) -> Result<Vec<T>, ServerError> {
    let text = read(path, too_open)?;
    let found: Result<Vec<T>, _> = T::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| bad(path, format!("it is no PEM: {error}")))?;
    if found.is_empty() {
        return Err(bad(path, format!("there is no {kind} in it")));
    }
    Ok(found)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, ServerError> {
    let text = read_secret(path)?;
    // What the parser says is about the form of the PEM and holds nothing of the key.
    PrivateKeyDer::from_pem_slice(&text)
        .map_err(|error| bad(path, format!("there is no private key in it: {error}")))
}

fn authorities(path: &Path) -> Result<Arc<Authorities>, ServerError> {
    let mut roots = RootCertStore::empty();
    // Whoever writes it lets others in.
    let certificates = certificates(path, Some(TOO_OPEN))?;
    for certificate in &certificates {
        let added = roots.add(certificate.clone());
        added.map_err(|error| bad(path, error))?;
    }
    Ok(Arc::new(Authorities {
        roots: Arc::new(roots),
        certificates,
    }))
}

fn not_after(certificate: &CertificateDer<'_>) -> Result<i64, String> {
    let parsed = x509_parser::parse_x509_certificate(certificate);
    let (_, parsed) = parsed.map_err(|error| format!("cannot be read: {error}"))?;
    Ok(parsed.validity().not_after.timestamp())
}
