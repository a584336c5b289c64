//! Revocation lists of the authorities of clients: which of them count.
//!
//! rustls takes the first list of an authority's name and refuses every certificate of an authority
//! without one. So a list signed by another key of that name, a second list, or a missing one is
//! refused here, where it can be said, and not at every handshake.

use std::path::Path;

use rustls::pki_types::CertificateRevocationListDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;

use super::tls::{Authorities, all_in};
use crate::error::ServerError;
use crate::files::{TOO_OPEN, bad};

/// Which certificates of its authority a list is about: all, where the extension is missing.
const ISSUING_DISTRIBUTION_POINT: &str = "2.5.29.28";

/// A list, and what decides whether it counts.
#[derive(Clone, Debug)]
pub(super) struct RevocationList {
    pub(super) der: CertificateRevocationListDer<'static>,
    /// Name of its authority.
    issuer: String,
    /// Which certificates it is about, as the list has it.
    scope: Option<Vec<u8>>,
    /// In seconds since 1970.
    next_update: Option<i64>,
}

/// Reads a file of lists.
pub(super) fn read(path: &Path) -> Result<Vec<RevocationList>, ServerError> {
    let found = all_in(path, "revocation list (BEGIN X509 CRL)", Some(TOO_OPEN))?;
    let lists = found.into_iter().map(RevocationList::of);
    let lists: Result<Vec<_>, String> = lists.collect();
    lists.map_err(|error| bad(path, format!("a list in it cannot be read: {error}")))
}

impl RevocationList {
    fn of(der: CertificateRevocationListDer<'static>) -> Result<Self, String> {
        webpki::BorrowedCertRevocationList::from_der(&der).map_err(|error| error.to_string())?;
        let parsed = x509_parser::parse_x509_crl(&der);
        let (_, list) = parsed.map_err(|error| error.to_string())?;
        let mut extensions = list.extensions().iter();
        let scope = extensions.find(|it| it.oid.to_id_string() == ISSUING_DISTRIBUTION_POINT);
        Ok(Self {
            issuer: list.issuer().to_string(),
            scope: scope.map(|extension| extension.value.to_vec()),
            next_update: list.next_update().map(|time| time.timestamp()),
            der,
        })
    }

    /// Name of its authority, and when the next one was to come, in seconds since 1970.
    pub(super) fn next_update(&self) -> Option<(String, i64)> {
        Some((self.issuer.clone(), self.next_update?))
    }

    fn is_signed_by(&self, authority: &X509Certificate<'_>) -> bool {
        x509_parser::parse_x509_crl(&self.der)
            .is_ok_and(|(_, list)| list.verify_signature(authority.public_key()).is_ok())
    }
}

/// Keeps the lists that count. For an authority whose lists do not, those of `before` stay, with the
/// authorities of that time; so do those of an authority between these and a client that has none
/// now. Returns why, for each.
pub(super) fn settle(
    authorities: &Authorities,
    lists: &mut Vec<RevocationList>,
    before: Option<(&Authorities, &[RevocationList])>,
) -> Vec<String> {
    let roots = authorities.parsed();
    let names = |certificates: &[X509Certificate<'_>]| {
        let names = certificates.iter().map(|it| it.subject().to_string());
        names.collect::<Vec<String>>()
    };
    let gone = before.map_or(Vec::new(), |(before, _)| names(&before.parsed()));
    let before = before.map_or(&[][..], |(_, lists)| lists);
    let between = before.iter().map(|list| list.issuer.clone());
    let between = between.filter(|name| !gone.contains(name));
    let listed = lists.iter().map(|list| list.issuer.clone());
    let mut all: Vec<String> = names(&roots)
        .into_iter()
        .chain(between)
        .chain(listed)
        .collect();
    all.sort();
    all.dedup();
    let mut refused = Vec::new();
    for name in all {
        let keys = roots.iter().filter(|it| it.subject().to_string() == name);
        let keys: Vec<&X509Certificate<'_>> = keys.collect();
        let own = lists.iter().filter(|list| list.issuer == name);
        if let Some(why) = wrong_with(&name, &keys, &own.collect::<Vec<_>>()) {
            refused.push(why);
            lists.retain(|list| list.issuer != name);
            lists.extend(before.iter().filter(|list| list.issuer == name).cloned());
        }
    }
    refused
}

/// Why the lists of an authority do not count. `keys`: its certificates; none: it stands between
/// these and a client.
fn wrong_with(
    name: &str,
    keys: &[&X509Certificate<'_>],
    lists: &[&RevocationList],
) -> Option<String> {
    if keys
        .iter()
        .any(|key| key.public_key().raw != keys[0].public_key().raw)
    {
        return Some(format!(
            "two CAs are named {name}: with revocation lists each needs a name of its own"
        ));
    }
    let twice = |at: usize| lists[..at].iter().any(|it| it.scope == lists[at].scope);
    if lists.is_empty() {
        return Some(format!(
            "there is no list of {name} in it: all of its certificates would be refused"
        ));
    }
    if (0..lists.len()).any(twice) {
        return Some(format!(
            "there are two lists of {name} in it: leave the newer one"
        ));
    }
    let first = keys.first()?;
    let forged = lists.iter().any(|list| !list.is_signed_by(first));
    forged.then(|| format!("the list of {name} in it is not signed with the key of that CA"))
}

impl Authorities {
    fn parsed(&self) -> Vec<X509Certificate<'_>> {
        let parsed = self
            .certificates
            .iter()
            .map(|der| X509Certificate::from_der(der));
        // What cannot be read has been refused by rustls.
        parsed.filter_map(|it| Some(it.ok()?.1)).collect()
    }
}
