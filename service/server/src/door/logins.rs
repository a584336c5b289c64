//! The file of tokens: who is let in, and what each may do.
//!
//! ```toml
//! [[token]]
//! name = "backup"                 # for logs
//! sha256 = "9f86d081..."          # of the token; `lumpscope token` makes both
//! scopes = ["read"]               # rights: read, write, admin, observe
//! stores = ["disk1"]              # "*", or left out: all stores
//!
//! [[certificate]]
//! name = "spiffe://cluster/writer" # DNS or URI name in the client's certificate
//! scopes = ["read", "write"]
//!
//! [end]                           # nothing is missing behind it
//! ```
//!
//! A file that is cut off in the middle must give nobody more than was meant: it is refused when its
//! last entry names no `stores`, unless it ends with `[end]`.
//!
//! Only hashes are in the file, so whoever can read it cannot log in with what is there. A token
//! that is sent decides alone; without one the client's certificate decides, by the first entry
//! that names it.

use std::collections::BTreeSet;
use std::path::Path;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use toml::Spanned;

use super::caller::{Caller, Right};
use super::connection::Connection;
use crate::config::ServeConfig;
use crate::error::ServerError;
use crate::files::{TOO_OPEN, bad, read, unread};

/// Entries in the file, tokens and certificates each. Every request is compared with all tokens.
const MAX_ENTRIES: usize = 1024;

/// Advice where the end of the file may be missing.
const MAY_BE_CUT: &str = "its last entry names no stores, so its end may be missing: write \
    `stores = [\"*\"]` for all stores, or `[end]` as the last line of the file";
/// Stands for all stores.
const EVERY_STORE: &str = "*";

/// Why a caller is not known. Never holds what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// No token and no certificate that is known.
    #[error("this service asks for a token: send the metadata `authorization: Bearer TOKEN`")]
    Missing,
    /// `authorization` of another form.
    #[error("the metadata `authorization` is no bearer token: send `Bearer TOKEN`, once")]
    Malformed,
    /// A token that nobody has.
    #[error("the token is not one this service knows: it may be misspelt or withdrawn")]
    Unknown,
    /// A certificate that was accepted when the connection was made.
    #[error(
        "the client certificate is no longer accepted: it has expired, is revoked, or its authority \
         was removed; connect again with another one"
    )]
    Certificate,
}

impl Denied {
    /// The word in metrics.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Certificate => "certificate",
        }
    }
}

/// Everybody who is let in over TCP.
#[derive(Debug)]
pub(super) enum Logins {
    /// No login is asked for, or TLS has asked for a certificate, which is enough.
    Open(Caller),
    /// By this list.
    Listed(List),
}

/// Content of the file.
#[derive(Debug, Default)]
pub(super) struct List {
    tokens: Vec<([u8; 32], Caller)>,
    certificates: Vec<(String, Caller)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    #[serde(default)]
    token: Vec<TokenForm>,
    #[serde(default)]
    certificate: Vec<CertificateForm>,
    /// Only for the parser: where it stands is what counts.
    #[serde(rename = "end")]
    _end: Option<EndForm>,
}

/// `[end]`: nothing is missing behind it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndForm {}

/// True: the last line says that it is the last. A mark with entries behind it says nothing.
pub(super) fn is_ended(text: &str) -> bool {
    let lines = text.lines();
    let mut lines = lines.map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.rfind(|line| !line.is_empty()) == Some("[end]")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenForm {
    name: Spanned<String>,
    sha256: String,
    scopes: Vec<String>,
    stores: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CertificateForm {
    name: Spanned<String>,
    scopes: Vec<String>,
    stores: Option<Vec<String>>,
}

impl Logins {
    /// Reads the file that the configuration names.
    ///
    /// # Errors
    /// A file that cannot be read, that everybody may write, or that has a mistake.
    pub(super) fn load(config: &ServeConfig) -> Result<Self, ServerError> {
        let Some(path) = &config.tokens else {
            return Ok(Self::Open(Caller::anybody("anybody")));
        };
        Self::of_file(path, &read(path, Some(TOO_OPEN))?)
    }

    /// Credentials from the bytes of a file; `path` is for messages.
    ///
    /// # Errors
    /// It has a mistake, or its end may be missing: whoever writes the file may be at it.
    pub(super) fn of_file(path: &Path, bytes: &[u8]) -> Result<Self, ServerError> {
        let text = str::from_utf8(bytes).map_err(|_| bad(path, "it is not UTF-8"))?;
        parse(path, text).map(Self::Listed)
    }

    /// Keeps the callers of `before` whose entries have not changed.
    pub(super) fn keep(&mut self, before: &Self) {
        if let (Self::Listed(now), Self::Listed(before)) = (self, before) {
            keep(&mut now.tokens, &before.tokens);
            keep(&mut now.certificates, &before.certificates);
        }
    }

    /// Withdraws the callers that are not among those of `now`.
    pub(super) fn withdraw_unless_in(&self, now: &Self) {
        if let (Self::Listed(before), Self::Listed(now)) = (self, now) {
            withdraw(&before.tokens, &now.tokens);
            withdraw(&before.certificates, &now.certificates);
        }
    }

    /// Tokens that are accepted.
    pub(super) fn tokens(&self) -> u32 {
        match self {
            Self::Open(_) => 0,
            Self::Listed(list) => u32::try_from(list.tokens.len()).unwrap_or(u32::MAX),
        }
    }

    pub(super) fn caller(
        &self,
        connection: Option<&Connection>,
        headers: &HeaderMap,
    ) -> Result<Caller, Denied> {
        let list = match self {
            Self::Open(caller) => return Ok(caller.clone()),
            Self::Listed(list) => list,
        };
        let mut sent = headers.get_all(AUTHORIZATION).iter();
        match (sent.next(), sent.next()) {
            (Some(value), None) => list.by_token(bearer(value.as_bytes())?),
            (Some(_), Some(_)) => Err(Denied::Malformed),
            (None, _) => connection
                .and_then(Connection::identities)
                .and_then(|names| list.by_certificate(names))
                .ok_or(Denied::Missing),
        }
    }
}

impl List {
    /// Looks at all tokens, and takes the same time for each: how long it takes says nothing about
    /// how much of a guess was right.
    fn by_token(&self, token: &[u8]) -> Result<Caller, Denied> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (known, caller) in &self.tokens {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(caller);
            }
        }
        found.cloned().ok_or(Denied::Unknown)
    }

    fn by_certificate(&self, names: &[String]) -> Option<Caller> {
        let shown = |entry: &str| names.iter().any(|name| name.eq_ignore_ascii_case(entry));
        let mut entries = self.certificates.iter();
        let (_, caller) = entries.find(|(entry, _)| shown(entry))?;
        Some(caller.clone())
    }
}

fn keep<K: PartialEq>(now: &mut [(K, Caller)], before: &[(K, Caller)]) {
    for (key, caller) in now {
        let same = |(k, c): &&(K, Caller)| k == key && c.equals(caller);
        if let Some((_, kept)) = before.iter().find(same) {
            *caller = kept.clone();
        }
    }
}

fn withdraw<K>(before: &[(K, Caller)], now: &[(K, Caller)]) {
    for (_, caller) in before {
        if !now.iter().any(|(_, kept)| kept.is(caller)) {
            caller.withdrawn().cancel();
        }
    }
}

/// The token in `Bearer TOKEN` (RFC 6750; the scheme in any case).
fn bearer(value: &[u8]) -> Result<&[u8], Denied> {
    let (scheme, token) = value.split_at_checked(7).ok_or(Denied::Malformed)?;
    let token = token.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer ") || token.is_empty() {
        return Err(Denied::Malformed);
    }
    Ok(token)
}

fn parse(path: &Path, text: &str) -> Result<List, ServerError> {
    let form: FileForm = toml::from_str(text).map_err(|error| unread(path, text, &error))?;
    if form.token.len() > MAX_ENTRIES || form.certificate.len() > MAX_ENTRIES {
        let why = format!("it has more than {MAX_ENTRIES} entries of one kind");
        return Err(bad(path, why));
    }
    let may_be_cut = form.is_open() && !is_ended(text);
    let mut list = List::default();
    for token in form.token {
        let entry = EntryName::new(path, "token", token.name.get_ref(), &list.tokens)?;
        let digest = digest(&token.sha256).ok_or_else(|| {
            entry.bad(
                "sha256 is not the 64 hexadecimal digits of a hash; `lumpscope token` makes it",
            )
        })?;
        if list.tokens.iter().any(|(other, _)| *other == digest) {
            return Err(entry.bad("another entry has the same sha256"));
        }
        let caller = entry.caller(&token.scopes, token.stores)?;
        list.tokens.push((digest, caller));
    }
    for certificate in form.certificate {
        let name = certificate.name.into_inner();
        let entry = EntryName::new(path, "certificate", &name, &list.certificates)?;
        let caller = entry.caller(&certificate.scopes, certificate.stores)?;
        list.certificates.push((name, caller));
    }
    match may_be_cut {
        true => Err(bad(path, MAY_BE_CUT)),
        false => Ok(list),
    }
}

impl FileForm {
    /// True: the last entry names no stores.
    fn is_open(&self) -> bool {
        let tokens = self.token.iter().map(|entry| (&entry.name, &entry.stores));
        let others = self.certificate.iter();
        let others = others.map(|entry| (&entry.name, &entry.stores));
        let last = tokens
            .chain(others)
            .max_by_key(|(name, _)| name.span().start);
        last.is_some_and(|(_, stores)| stores.is_none())
    }
}

/// An entry that is being read, for messages.
struct EntryName<'a> {
    path: &'a Path,
    kind: &'static str,
    name: &'a str,
}

impl<'a> EntryName<'a> {
    fn new<K>(
        path: &'a Path,
        kind: &'static str,
        name: &'a str,
        before: &[(K, Caller)],
    ) -> Result<Self, ServerError> {
        let entry = Self { path, kind, name };
        if name.is_empty() || name.len() > 256 || name.chars().any(char::is_control) {
            return Err(entry.bad("name must have 1 to 256 characters that can be printed"));
        }
        if before.iter().any(|(_, caller)| caller.name() == name) {
            return Err(entry.bad("another entry has the same name"));
        }
        Ok(entry)
    }

    fn bad(&self, why: impl std::fmt::Display) -> ServerError {
        bad(self.path, format!("{} {:?}: {why}", self.kind, self.name))
    }

    fn caller(
        &self,
        scopes: &[String],
        stores: Option<Vec<String>>,
    ) -> Result<Caller, ServerError> {
        let right = |word: &String| {
            let known = Right::ALL.into_iter().find(|right| right.name() == word);
            known.ok_or_else(|| {
                self.bad(format!(
                    "scope {word:?} is none of read, write, admin, observe"
                ))
            })
        };
        let rights: Vec<Right> = scopes.iter().map(right).collect::<Result<_, _>>()?;
        if rights.is_empty() {
            return Err(self.bad("scopes is empty: it may do nothing; leave the entry out"));
        }
        if stores.as_ref().is_some_and(|all| all.len() > MAX_ENTRIES) {
            return Err(self.bad(format!("stores has more than {MAX_ENTRIES} names")));
        }
        if stores.as_ref().is_some_and(Vec::is_empty) {
            return Err(self.bad("stores is empty: leave it out for all stores"));
        }
        let all = |stores: &Vec<String>| stores.len() == 1 && stores[0] == EVERY_STORE;
        let stores = stores
            .filter(|stores| !all(stores))
            .map(BTreeSet::from_iter);
        Ok(Caller::new(self.name.to_owned(), rights, stores))
    }
}

fn digest(hex: &str) -> Option<[u8; 32]> {
    let digits = hex.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let (high, low) = (char::from(pair[0]), char::from(pair[1]));
        let value = high.to_digit(16)? * 16 + low.to_digit(16)?;
        *byte = u8::try_from(value).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

    fn list(text: &str) -> Result<List, ServerError> {
        parse(Path::new("tokens.toml"), text)
    }

    #[test]
    fn a_token_is_known_by_its_hash() {
        let text = format!(
            "[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\nscopes = [\"read\", \"observe\"]\n\
             stores = [\"s\"]\n[[certificate]]\nname = \"Host.example\"\nscopes = [\"admin\"]\n\
             [end]\n"
        );
        let list = list(&text).unwrap();
        let caller = list.by_token(b"test").unwrap();
        assert_eq!(caller.name(), "a");
        assert!(caller.has(Right::Read) && caller.has(Right::Observe) && !caller.has(Right::Write));
        assert!(caller.may_use("s") && !caller.may_use("t") && caller.is_restricted());
        assert_eq!(list.by_token(b"tesu").unwrap_err(), Denied::Unknown);
        let names = ["other".to_owned(), "host.EXAMPLE".to_owned()];
        let caller = list.by_certificate(&names).unwrap();
        assert!(caller.has(Right::Admin) && !caller.is_restricted());
        assert!(list.by_certificate(&names[..1]).is_none());
    }

    #[test]
    fn every_mistake_is_named_and_no_value_is_repeated() {
        let entry = |fields: &str| format!("[[token]]\nname = \"a\"\n{fields}");
        let good = format!("sha256 = \"{HASH}\"\nscopes = [\"read\"]\n");
        for (text, words) in [
            (entry("token = \"hunter2\"\n"), ["unknown field", "line 3"]),
            (
                entry("sha256 = \"hunter2\"\nscopes = [\"read\"]\n"),
                ["token \"a\"", "lumpscope token"],
            ),
            (
                entry(&good.replace("[\"read\"]", "[\"root\"]")),
                ["\"root\"", "observe"],
            ),
            (
                entry(&good.replace("[\"read\"]", "[]")),
                ["scopes", "empty"],
            ),
            (
                entry(&format!("{good}stores = []\n")),
                ["stores", "leave it out"],
            ),
            (entry(&good) + &entry(&good), ["token \"a\"", "same name"]),
            (
                entry(&good) + &entry(&good).replace("\"a\"", "\"b\""),
                ["token \"b\"", "same sha256"],
            ),
            ("[[tokens]]\n".to_owned(), ["unknown field", "line 1"]),
        ] {
            let message = list(&text).unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "{word:?} in {message:?}");
            }
            assert!(!message.contains("hunter2"), "{message:?}");
            assert!(message.starts_with("tokens.toml"), "{message:?}");
        }
    }

    #[test]
    fn a_file_that_is_cut_gives_no_more_than_was_meant() {
        let whole = format!(
            "[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\nscopes = [\"read\"]\n\
             [[certificate]]\nname = \"b\"\nscopes = [\"read\"]\nstores = [\"s\"]\n"
        );
        for cut in 0..whole.len() {
            let Ok(list) = list(&whole[..cut]) else {
                continue;
            };
            let wide = list.by_certificate(&["b".to_owned()]);
            assert!(wide.is_none_or(|caller| caller.is_restricted()), "{cut}");
        }
        list(&whole).unwrap();
        let wide = whole.replace("\"s\"", "\"*\"");
        let caller = list(&wide).unwrap().by_certificate(&["b".to_owned()]);
        assert!(!caller.unwrap().is_restricted());
        let (open, _) = whole.split_once("stores").unwrap();
        for cut in [
            open.to_owned(),
            format!("[end]\n{open}"),
            format!("{open}# [end]\n"),
        ] {
            let message = list(&cut).unwrap_err().to_string();
            assert!(message.contains("`[end]` as the last line"), "{message}");
        }
        list(&format!("{open}[end] # the last\n\n# line\n")).unwrap();
        list("").unwrap();
    }

    #[test]
    fn only_entries_that_have_changed_are_withdrawn() {
        let text = format!(
            "[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\nscopes = [\"read\"]\n\
             [[certificate]]\nname = \"b\"\nscopes = [\"read\"]\n[end]\n"
        );
        let before = Logins::Listed(list(&text).unwrap());
        let mut now =
            Logins::Listed(list(&text.replace("[\"read\"]\n[[c", "[\"write\"]\n[[c")).unwrap());
        let (Logins::Listed(old), names) = (&before, ["b".to_owned()]) else {
            panic!("it is a list");
        };
        let (token, certificate) = (old.by_token(b"test").unwrap(), old.by_certificate(&names));
        now.keep(&before);
        before.withdraw_unless_in(&now);
        assert!(token.withdrawn().is_cancelled());
        assert!(!certificate.unwrap().withdrawn().is_cancelled());
    }

    #[test]
    fn only_one_bearer_token_is_read() {
        assert_eq!(bearer(b"Bearer abc"), Ok(&b"abc"[..]));
        assert_eq!(bearer(b"bEARER   abc "), Ok(&b"abc"[..]));
        for other in [&b"Bearer "[..], b"Basic abc", b"Bearerabc", b"", b"abc"] {
            assert_eq!(bearer(other), Err(Denied::Malformed));
        }
    }
}
