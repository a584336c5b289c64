//! The file of access keys: who may ask over S3, and for what.
//!
//! ```toml
//! [[key]]
//! name = "juicefs"                # for logs
//! access = "AKIAJUICEFS"          # what the client sends
//! secret = "..."                  # what both know: 16 to 128 characters that can be printed
//!
//! [[key.allow]]
//! bucket = "data"                 # "*": every bucket
//! prefix = "volume1/"             # "", or left out: every key of the bucket
//! rights = ["read", "write"]
//!
//! [end]                           # nothing is missing behind it
//! ```
//!
//! A file that is cut off in the middle must give nobody more than was meant: it is refused when its
//! last rule has no `prefix`, unless it ends with `[end]`.
//!
//! A signature needs the secret itself, so others must not be able to read the file. A key may do
//! what any of its rules allows, and nothing else. Buckets are made and deleted with the right to
//! write all keys of the bucket. Secrets are in no message and no `Debug`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use zeroize::Zeroizing;

use super::logins::{EndForm, is_ended};
use crate::error::ServerError;
use crate::files::{bad as bad_file, read_secret, unread};

/// Access keys in the file.
const MAX_KEYS: usize = 1024;
/// Rules of one key.
const MAX_RULES: usize = 256;
/// Characters of a secret, at least and at most.
const SECRET: std::ops::RangeInclusive<usize> = 16..=128;
/// Characters of an access key, at least and at most.
const ACCESS: std::ops::RangeInclusive<usize> = 3..=128;
/// Most bytes of a prefix: a key has no more.
const MAX_PREFIX: usize = 1024;

/// Advice where the end of the file may be missing.
const MAY_BE_CUT: &str = "its last rule has no prefix, so its end may be missing: write \
    `prefix = \"\"` for all keys, or `[end]` as the last line of the file";

/// Access that a rule allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Get, head and list objects.
    Read,
    /// Put and delete objects.
    Write,
}

/// Everybody who may ask over S3.
#[derive(Debug, Default)]
pub struct Credentials {
    keys: HashMap<String, Key>,
}

struct Key {
    secret: Zeroizing<Box<str>>,
    grants: Arc<Grants>,
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.grants.fmt(f)
    }
}

/// Rights of one access key.
#[derive(Debug)]
pub struct Grants {
    name: String,
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    /// `None`: every bucket.
    bucket: Option<String>,
    prefix: String,
    rights: Vec<Access>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileForm {
    #[serde(default)]
    key: Vec<KeyForm>,
    /// Only for the parser: where it stands is what counts.
    #[serde(rename = "end")]
    _end: Option<EndForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyForm {
    name: String,
    access: String,
    secret: String,
    #[serde(default)]
    allow: Vec<RuleForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleForm {
    bucket: String,
    prefix: Option<String>,
    rights: Vec<Access>,
}

impl Credentials {
    /// Reads the file.
    ///
    /// # Errors
    /// A file that cannot be read, that others can read, or that has a mistake.
    pub fn load(path: &Path) -> Result<Self, ServerError> {
        Self::of_file(path, &read_secret(path)?)
    }

    /// Credentials from the bytes of a file; `path` is for messages.
    ///
    /// # Errors
    /// It has a mistake, or its end may be missing: somebody may be writing it just now.
    pub fn of_file(path: &Path, bytes: &[u8]) -> Result<Self, ServerError> {
        let text = str::from_utf8(bytes).map_err(|_| bad_file(path, "it is not UTF-8"))?;
        parse(path, text)
    }

    /// The secret of an access key.
    #[must_use]
    pub fn secret(&self, access: &str) -> Option<&str> {
        self.keys.get(access).map(|key| &**key.secret)
    }

    /// Rights of an access key.
    #[must_use]
    pub fn grants(&self, access: &str) -> Option<Arc<Grants>> {
        self.keys.get(access).map(|key| Arc::clone(&key.grants))
    }

    /// Access keys that are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// True: nobody may ask.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
}

impl Grants {
    /// Its name, for logs.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// True: it may do this to the object, or to every object whose key begins so.
    #[must_use]
    pub fn allow(&self, access: Access, bucket: &str, key: &str) -> bool {
        self.of(bucket)
            .any(|rule| rule.rights.contains(&access) && key.starts_with(&rule.prefix))
    }

    /// True: it may do anything in the bucket, so it may know that it is there.
    #[must_use]
    pub fn know(&self, bucket: &str) -> bool {
        self.of(bucket).next().is_some()
    }

    fn of(&self, bucket: &str) -> impl Iterator<Item = &Rule> {
        self.rules
            .iter()
            .filter(move |rule| rule.bucket.as_deref().is_none_or(|name| name == bucket))
    }
}

fn parse(path: &Path, text: &str) -> Result<Credentials, ServerError> {
    let form: FileForm = toml::from_str(text).map_err(|error| unread(path, text, &error))?;
    if form.key.len() > MAX_KEYS {
        return Err(bad_file(path, format!("it has more than {MAX_KEYS} keys")));
    }
    let may_be_cut = form.is_open() && !is_ended(text);
    let mut credentials = Credentials::default();
    for form in form.key {
        let name = form.name.clone();
        let named = |why: String| bad_file(path, format!("key {name:?}: {why}"));
        let (access, key) = form.checked().map_err(&named)?;
        if credentials.keys.insert(access, key).is_some() {
            return Err(named("another entry has the same access key".to_owned()));
        }
    }
    match may_be_cut {
        true => Err(bad_file(path, MAY_BE_CUT)),
        false => Ok(credentials),
    }
}

impl FileForm {
    /// True: the last rule has no prefix. TOML adds rules to the last key only, so the last rule in
    /// the file is the last here.
    fn is_open(&self) -> bool {
        let last = self.key.last().and_then(|key| key.allow.last());
        last.is_some_and(|rule| rule.prefix.is_none())
    }
}

impl KeyForm {
    fn checked(self) -> Result<(String, Key), String> {
        if self.name.is_empty() || self.name.len() > 256 || self.name.chars().any(char::is_control)
        {
            return Err("name must have 1 to 256 characters that can be printed".to_owned());
        }
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if !ACCESS.contains(&self.access.len()) || !self.access.chars().all(plain) {
            return Err("access must have 3 to 128 letters, digits, '-', '_' or '.'".to_owned());
        }
        let printed = |c: char| c.is_ascii_graphic();
        if !SECRET.contains(&self.secret.len()) || !self.secret.chars().all(printed) {
            return Err("secret must have 16 to 128 characters of ASCII without spaces".to_owned());
        }
        if self.allow.is_empty() || self.allow.len() > MAX_RULES {
            return Err(format!(
                "it needs 1 to {MAX_RULES} entries `allow`: without one it may do nothing"
            ));
        }
        let rules: Result<Vec<Rule>, String> =
            self.allow.into_iter().map(RuleForm::checked).collect();
        let grants = Arc::new(Grants {
            name: self.name,
            rules: rules?,
        });
        let secret = Zeroizing::new(self.secret.into_boxed_str());
        Ok((self.access, Key { secret, grants }))
    }
}

impl RuleForm {
    fn checked(self) -> Result<Rule, String> {
        if self.bucket.is_empty() || self.bucket.len() > 63 {
            return Err("bucket must have 1 to 63 characters; \"*\" is every one".to_owned());
        }
        let prefix = self.prefix.unwrap_or_default();
        if prefix.len() > MAX_PREFIX {
            return Err(format!("prefix has more than {MAX_PREFIX} bytes"));
        }
        if self.rights.is_empty() {
            return Err("rights is empty: leave the entry out".to_owned());
        }
        Ok(Rule {
            bucket: Some(self.bucket).filter(|name| name != "*"),
            prefix,
            rights: self.rights,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-secret-of-the-tests";

    fn credentials(text: &str) -> Result<Credentials, ServerError> {
        parse(Path::new("keys.toml"), text)
    }

    fn entry(more: &str) -> String {
        format!("[[key]]\nname = \"a\"\naccess = \"AKA\"\nsecret = \"{SECRET}\"\n{more}")
    }

    #[test]
    fn a_key_may_do_what_a_rule_allows_and_nothing_else() {
        let text = entry(
            "[[key.allow]]\nbucket = \"b\"\nprefix = \"p/\"\nrights = [\"read\", \"write\"]\n\
             [[key.allow]]\nbucket = \"*\"\nrights = [\"read\"]\n\
             [[key]]\nname = \"b\"\naccess = \"AKB\"\nsecret = \"another-secret-of-them\"\n\
             [[key.allow]]\nbucket = \"c\"\nrights = [\"write\"]\n[end]\n",
        );
        let all = credentials(&text).unwrap();
        assert_eq!(all.len(), 2);
        assert_eq!(all.secret("AKA"), Some(SECRET));
        assert!(all.secret("AKC").is_none());
        let a = all.grants("AKA").unwrap();
        assert!(a.allow(Access::Write, "b", "p/x") && !a.allow(Access::Write, "b", "q"));
        assert!(!a.allow(Access::Write, "b", ""), "not the whole bucket");
        assert!(a.allow(Access::Read, "any", "q") && a.know("any"));
        let b = all.grants("AKB").unwrap();
        assert!(b.allow(Access::Write, "c", "") && !b.allow(Access::Read, "c", ""));
        assert!(!b.know("b"));
    }

    #[test]
    fn a_file_that_is_cut_gives_no_more_than_was_meant() {
        let whole = entry(
            "[[key.allow]]\nbucket = \"b\"\nrights = [\"read\"]\nprefix = \"p/\"\n\
             [[key.allow]]\nbucket = \"c\"\nrights = [\"write\"]\nprefix = \"q/\"\n",
        );
        for cut in 0..whole.len() {
            let Ok(read) = credentials(&whole[..cut]) else {
                continue;
            };
            let wide = read.grants("AKA").is_some_and(|key| {
                key.allow(Access::Read, "b", "") || key.allow(Access::Write, "c", "")
            });
            assert!(!wide, "{cut}");
        }
        credentials(&whole).unwrap();
        let (open, _) = whole.rsplit_once("prefix").unwrap();
        for cut in [open.to_owned(), format!("[end]\n{open}")] {
            let message = credentials(&cut).unwrap_err().to_string();
            assert!(message.contains("`[end]` as the last line"), "{message}");
        }
        credentials(&format!("{open}prefix = \"\"\n")).unwrap();
        credentials(&format!("{open}[end]\n")).unwrap();
        credentials("").unwrap();
    }

    #[test]
    fn every_mistake_is_named_and_no_secret_is_repeated() {
        let rule = "[[key.allow]]\nbucket = \"b\"\nrights = [\"read\"]\nprefix = \"\"\n";
        for (text, word) in [
            (entry(""), "allow"),
            (entry(&rule.replace("read", "root")), "line 7"),
            (entry(&rule.replace("\"read\"", "")), "rights"),
            (entry(rule) + &entry(rule), "same access key"),
            (entry(rule).replace("AKA", "A K"), "access"),
            (entry(rule).replace("-the-tests", " the"), "secret"),
            (entry(rule).replace("secret =", "secrets ="), "line 4"),
            ("[[keys]]\n".to_owned(), "line 1"),
        ] {
            let message = credentials(&text).unwrap_err().to_string();
            assert!(message.contains(word), "{word:?} in {message:?}");
            assert!(!message.contains("a-secret"), "{message:?}");
        }
        let good = credentials(&entry(rule)).unwrap();
        assert!(!format!("{good:?}").contains(SECRET));
    }
}
