//! Revocation lists of the authorities of clients: which of them count.
//!
//! For a certificate, rustls takes the first list that covers it and refuses a certificate that no
//! list covers. So a list signed by another key of that name or in a way that rustls does not verify,
//! a second list for a certificate, or a missing one is refused here, where it can be said, and not
//! at every handshake.

use std::path::Path;

use rustls::crypto::ring;
use rustls::pki_types::CertificateRevocationListDer;
use x509_parser::asn1_rs::Sequence;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{DistributionPointName, ParsedExtension, X509Extension};
use x509_parser::objects::{oid_registry, oid2sn};
use x509_parser::prelude::FromDer as _;
use x509_parser::revocation_list::CertificateRevocationList;
use x509_parser::x509::X509Name;

use super::tls::{Authorities, all_in};
use crate::error::ServerError;
use crate::files::{TOO_OPEN, bad};

/// A name as messages have it, and its bytes: rustls compares these, and two may read alike.
type IssuerName = (String, Vec<u8>);

/// A list, and what decides whether it counts.
#[derive(Clone, Debug)]
pub(super) struct RevocationList {
    pub(super) der: CertificateRevocationListDer<'static>,
    /// Name of its authority.
    issuer: IssuerName,
    /// True: it covers no authorities between its own and a client.
    only_clients: bool,
    /// True: it covers no clients.
    only_authorities: bool,
    /// It covers the certificates that name one of these; none: all.
    points: Vec<String>,
    /// In seconds since 1970, as is the next.
    this_update: i64,
    next_update: Option<i64>,
    /// Algorithm of its signature, if rustls does not verify that.
    unknown_algorithm: Option<String>,
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
        // It is what rustls does, which looks at each entry as well.
        webpki::OwnedCertRevocationList::from_der(&der).map_err(|error| error.to_string())?;
        let parsed = x509_parser::parse_x509_crl(&der);
        let (_, list) = parsed.map_err(|error| error.to_string())?;
        let mut extensions = list
            .extensions()
            .iter()
            .map(X509Extension::parsed_extension);
        let scope = extensions.find_map(|extension| match extension {
            ParsedExtension::IssuingDistributionPoint(scope) => Some(scope),
            _ => None,
        });
        let points = match scope.and_then(|scope| scope.distribution_point.as_ref()) {
            Some(DistributionPointName::FullName(names)) => &names[..],
            _ => &[],
        };
        Ok(Self {
            issuer: name(list.issuer()),
            only_clients: scope.is_some_and(|scope| scope.only_contains_user_certs),
            only_authorities: scope.is_some_and(|scope| scope.only_contains_ca_certs),
            points: points.iter().map(ToString::to_string).collect(),
            this_update: list.last_update().timestamp(),
            next_update: list.next_update().map(|time| time.timestamp()),
            unknown_algorithm: unknown_algorithm(&list),
            der,
        })
    }

    /// Name of its authority, and when the next one was to come, in seconds since 1970.
    pub(super) fn next_update(&self) -> Option<(String, i64)> {
        Some((self.issuer.0.clone(), self.next_update?))
    }

    fn is_signed_by(&self, authority: &X509Certificate<'_>) -> bool {
        x509_parser::parse_x509_crl(&self.der)
            .is_ok_and(|(_, list)| list.verify_signature(authority.public_key()).is_ok())
    }

    /// True: a certificate may be covered by both, of which rustls would look at one.
    fn overlaps(&self, other: &Self) -> bool {
        let apart = (self.only_clients && other.only_authorities)
            || (self.only_authorities && other.only_clients);
        let all = self.points.is_empty() || other.points.is_empty();
        !apart && (all || self.points.iter().any(|it| other.points.contains(it)))
    }
}

fn name(name: &X509Name<'_>) -> IssuerName {
    (name.to_string(), name.as_raw().to_vec())
}

/// Algorithm of the signature, if rustls does not verify that. It compares the bytes of algorithm and
/// parameters.
fn unknown_algorithm(list: &CertificateRevocationList<'_>) -> Option<String> {
    let (_, parts) = Sequence::from_der(list.as_raw()).ok()?;
    let (after, _signed) = Sequence::from_der(&parts.content).ok()?;
    let (_, algorithm) = Sequence::from_der(after).ok()?;
    let known = ring::default_provider().signature_verification_algorithms;
    let mut known = known.all.iter().map(|it| it.signature_alg_id());
    if known.any(|it| *it == *algorithm.content) {
        return None;
    }
    let id = &list.signature_algorithm.algorithm;
    Some(oid2sn(id, oid_registry()).map_or_else(|_| id.to_id_string(), str::to_owned))
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
        let names = certificates.iter().map(|it| name(it.subject()));
        names.collect::<Vec<IssuerName>>()
    };
    let gone = before.map_or(Vec::new(), |(before, _)| names(&before.parsed()));
    let before = before.map_or(&[][..], |(_, lists)| lists);
    let between = before.iter().map(|list| list.issuer.clone());
    let between = between.filter(|name| !gone.contains(name));
    let listed = lists.iter().map(|list| list.issuer.clone());
    let mut all: Vec<IssuerName> = names(&roots)
        .into_iter()
        .chain(between)
        .chain(listed)
        .collect();
    all.sort();
    all.dedup();
    let mut refused = Vec::new();
    for name in all {
        let keys = roots.iter().filter(|it| it.subject().as_raw() == name.1);
        let keys: Vec<&X509Certificate<'_>> = keys.collect();
        let own: Vec<_> = lists.iter().filter(|list| list.issuer == name).collect();
        let in_force = before.iter().filter(|list| list.issuer == name);
        let in_force: Vec<&RevocationList> = in_force.collect();
        if let Some(why) = wrong_with(&name.0, &keys, &own, &in_force) {
            refused.push(why);
            lists.retain(|list| list.issuer != name);
            lists.extend(in_force.into_iter().cloned());
        }
    }
    refused
}

/// Why the lists of an authority do not count. `keys`: its certificates; none: it stands between
/// these and a client. `before`: its lists in force.
fn wrong_with(
    name: &str,
    keys: &[&X509Certificate<'_>],
    lists: &[&RevocationList],
    before: &[&RevocationList],
) -> Option<String> {
    if keys
        .iter()
        .any(|key| key.public_key().raw != keys[0].public_key().raw)
    {
        return Some(format!(
            "two CAs are named {name}: with revocation lists each needs a name of its own"
        ));
    }
    if lists.is_empty() {
        return Some(format!(
            "there is no list of {name} in it, with the name encoded as in the CA: all of its \
             certificates would be refused"
        ));
    }
    let twice = |at: usize| lists[..at].iter().any(|it| it.overlaps(lists[at]));
    if (0..lists.len()).any(twice) {
        return Some(format!(
            "there are two lists of {name} in it: leave the newer one"
        ));
    }
    let mut algorithms = lists.iter().filter_map(|it| it.unknown_algorithm.as_ref());
    if let Some(algorithm) = algorithms.next() {
        return Some(format!(
            "the list of {name} in it is signed with {algorithm}, which is not accepted: make it \
             with SHA-256"
        ));
    }
    let forged = |key: &&X509Certificate<'_>| lists.iter().any(|list| !list.is_signed_by(key));
    if keys.first().is_some_and(forged) {
        return Some(format!(
            "the list of {name} in it is not signed with the key of that CA"
        ));
    }
    let older = |list: &&RevocationList| {
        let mut covering = before.iter().filter(|it| it.overlaps(list));
        covering.any(|it| it.this_update > list.this_update)
    };
    lists.iter().any(older).then(|| {
        format!("the list of {name} in it is older than the one in force; to go back, restart")
    })
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
