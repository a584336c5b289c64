//! Callers and their rights.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

/// A right of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Right {
    /// Read lumps and lists.
    Read,
    /// Change lumps.
    Write,
    /// Run the service.
    Admin,
    /// Look at numbers, reports and findings.
    Observe,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Write, Self::Admin, Self::Observe];

    /// The word in the file of tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
            Self::Observe => "observe",
        }
    }
}

/// The caller of a request. Cheap to clone; it is in the extensions of every request, and in its
/// `Scope`.
#[derive(Clone, Debug)]
pub struct Caller {
    inner: Arc<CallerInner>,
}

#[derive(Debug)]
struct CallerInner {
    name: String,
    has_login: bool,
    rights: Vec<Right>,
    /// `None`: all stores.
    stores: Option<BTreeSet<String>>,
    withdrawn: CancellationToken,
}

impl Caller {
    /// A caller with these rights on these stores; `None`: on all.
    #[must_use]
    pub fn new(name: String, rights: Vec<Right>, stores: Option<BTreeSet<String>>) -> Self {
        Self::of(name, rights, stores, true)
    }

    fn of(
        name: String,
        rights: Vec<Right>,
        stores: Option<BTreeSet<String>>,
        has_login: bool,
    ) -> Self {
        Self {
            inner: Arc::new(CallerInner {
                name,
                has_login,
                rights,
                stores,
                withdrawn: CancellationToken::new(),
            }),
        }
    }

    /// One who may do everything: who came where no login is asked for.
    #[must_use]
    pub fn anybody(name: &str) -> Self {
        Self::of(name.to_owned(), Right::ALL.to_vec(), None, false)
    }

    /// True: it has shown who it is.
    #[must_use]
    pub fn has_login(&self) -> bool {
        self.inner.has_login
    }

    /// Cancelled when the login is not in force any more, or not as it was.
    #[must_use]
    pub fn withdrawn(&self) -> &CancellationToken {
        &self.inner.withdrawn
    }

    /// True: both may do the same, by the same name.
    pub(super) fn equals(&self, other: &Self) -> bool {
        let of = |caller: &Self| {
            let CallerInner {
                name,
                rights,
                stores,
                ..
            } = &*caller.inner;
            (name.clone(), rights.clone(), stores.clone())
        };
        of(self) == of(other)
    }

    /// True: both are one login.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Name of the token or certificate, for logs. Never a secret.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// True: the caller has this right.
    #[must_use]
    pub fn has(&self, right: Right) -> bool {
        self.inner.rights.contains(&right)
    }

    /// True: the caller's rights hold for this store, whether it exists or not.
    #[must_use]
    pub fn may_use(&self, store: &str) -> bool {
        let stores = self.inner.stores.as_ref();
        stores.is_none_or(|stores| stores.contains(store))
    }

    /// True: the caller's rights hold for some stores only, so not for what concerns the whole
    /// service.
    #[must_use]
    pub fn is_restricted(&self) -> bool {
        self.inner.stores.is_some()
    }
}
