//! The stores a service owns: opened at the start or added later, found by name, taken out or
//! closed together.

mod change;
mod images;
mod named;
mod opening;
mod sink;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use arc_swap::ArcSwap;
use lumpscope_engine::{Error, Machine};
use lumpscope_observer::Observer;
use tracing::{error, info, warn};

use crate::config::{ServeConfig, StoreSpec};
use crate::error::ServerError;
use crate::refusal::Refusal;

pub use change::Changes;
pub use named::{Mode, NamedStore, UnderWay};

use images::Images;
use named::ServiceGate;
use opening::Opener;

pub(crate) use opening::check_distinct;

/// A store that is configured, or was asked for, and could not be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedStore {
    /// As requests name it.
    pub name: String,
    /// Where it should be.
    pub path: PathBuf,
    /// Why it could not be opened.
    pub why: String,
}

/// All stores, in the order in which they were configured or added. Cheap to clone; every clone is
/// the same set, and whoever looks sees it as it is at that moment.
#[derive(Clone)]
pub struct Stores {
    shared: Arc<StoresShared>,
}

struct StoresShared {
    set: ArcSwap<Set>,
    /// True: closed. Held by whoever adds a store, so that none is added behind the end.
    closed: Mutex<bool>,
    opener: Opener,
}

#[derive(Clone, Default)]
struct Set {
    open: Arc<Vec<Arc<NamedStore>>>,
    failed: Arc<Vec<FailedStore>>,
    /// Buckets of the stores that were taken out.
    buckets_out: Arc<BTreeSet<String>>,
}

impl Stores {
    /// Opens every store, all at the same time. Blocks. Those that do not open are logged, and the
    /// others are served; see [`Stores::failed`].
    ///
    /// # Errors
    /// A device or file given twice. When none opens, or with
    /// [`require_all_stores`](ServeConfig::require_all_stores) when any does not: what kept the
    /// first of these from being opened; those that did are closed.
    pub fn open(config: &ServeConfig, observer: &Observer) -> Result<Self, ServerError> {
        check_distinct(&config.stores)?;
        let gate = Arc::new(ServiceGate::default());
        let machine = Machine::this();
        let machine = match &config.machine {
            Some(name) => machine.named(name),
            None => machine,
        };
        let mut opener = Opener {
            config: config.clone(),
            observer: observer.clone(),
            images: Images::default(),
            machine,
            gate,
        };
        let (mut open, mut failed, mut first) = (Vec::new(), Vec::new(), None);
        for (index, (spec, opened)) in opener.open_all().into_iter().enumerate() {
            match opened {
                Ok(store) => open.push(store),
                Err(error) => {
                    observer.remove_store(index);
                    failed.push(FailedStore::new(spec, &error));
                    first.get_or_insert(error);
                }
            }
        }
        // Whoever claims one of them later has not been given up.
        opener.config.take_over.clear();
        let none = open.is_empty();
        let stores = Self::of(opener, open, failed);
        match first {
            Some(error) if none || config.require_all_stores => {
                if let Err(closing) = stores.close() {
                    error!(%closing, "while giving up");
                }
                Err(error)
            }
            _ => {
                for failed in stores.failed().iter() {
                    let (store, why) = (&failed.name, &failed.why);
                    error!(
                        store,
                        why, "NOT SERVED: it could not be opened; the others are"
                    );
                }
                Ok(stores)
            }
        }
    }

    fn of(opener: Opener, open: Vec<Arc<NamedStore>>, failed: Vec<FailedStore>) -> Self {
        let set = Set {
            open: Arc::new(open),
            failed: Arc::new(failed),
            buckets_out: Arc::default(),
        };
        let shared = StoresShared {
            set: ArcSwap::from_pointee(set),
            closed: Mutex::new(false),
            opener,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The open store with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Arc<NamedStore>> {
        let set = self.shared.set.load();
        set.open.iter().find(|store| store.name == name).cloned()
    }

    /// The open store with this name.
    ///
    /// # Errors
    /// [`Refusal::UnknownStore`], [`Refusal::StoreNotOpen`].
    pub fn get(&self, name: &str) -> Result<Arc<NamedStore>, Refusal> {
        if let Some(named) = self.find(name) {
            return Ok(named);
        }
        Err(match self.find_failed(name) {
            Some(failed) => Refusal::StoreNotOpen {
                name: failed.name,
                why: failed.why,
            },
            None => Refusal::UnknownStore {
                name: name.chars().take(80).collect(),
                known: self.names(),
            },
        })
    }

    /// All open stores.
    #[must_use]
    pub fn all(&self) -> Arc<Vec<Arc<NamedStore>>> {
        Arc::clone(&self.shared.set.load().open)
    }

    /// The stores that could not be opened.
    #[must_use]
    pub fn failed(&self) -> Arc<Vec<FailedStore>> {
        Arc::clone(&self.shared.set.load().failed)
    }

    /// The store with this name that could not be opened.
    #[must_use]
    pub fn find_failed(&self, name: &str) -> Option<FailedStore> {
        let failed = self.failed();
        failed.iter().find(|failed| failed.name == name).cloned()
    }

    /// True: a store that was open and was taken out has this bucket. It stays true when the store
    /// is added again.
    #[must_use]
    pub fn took_out(&self, bucket: &str) -> bool {
        self.shared.set.load().buckets_out.contains(bucket)
    }

    /// Names of all stores, for messages.
    #[must_use]
    pub fn names(&self) -> String {
        let set = self.shared.set.load();
        let open = set.open.iter().map(|store| store.name.as_str());
        let failed = set.failed.iter().map(|store| store.name.as_str());
        let names: Vec<&str> = open.chain(failed).collect();
        if names.is_empty() {
            return "none".to_owned();
        }
        names.join(", ")
    }

    /// Says in the log which stores are observed, and why the others are not.
    pub fn tell_blind_spots(&self) {
        for named in self.all().iter() {
            self.shared.opener.tell_blind_spot(&named.name);
        }
    }

    /// Requests on data under way in all stores.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.all().iter().map(|named| named.under_way()).sum()
    }

    /// Lets no request on data in any more, for good: the service ends.
    pub fn stop(&self) {
        let gate = &self.shared.opener.gate;
        gate.stopping.store(true, Ordering::SeqCst);
    }

    /// Ends the requests under way, with an error.
    pub fn cut_off(&self) {
        for named in self.all().iter() {
            named.cut_off().cancel();
        }
    }

    /// Finishes what was accepted, flushes and closes every store; none can be added any more.
    /// Blocks.
    ///
    /// # Errors
    /// The first store that was in order and did not close in order; the others are closed all the
    /// same.
    pub fn close(&self) -> Result<(), ServerError> {
        let mut closed = self.lock();
        *closed = true;
        let all = self.all();
        // At the same time: a disk that hangs holds up its own store only.
        let mut first = None;
        thread::scope(|scope| {
            let closing: Vec<_> = all
                .iter()
                .map(|named| scope.spawn(|| close_one(named)))
                .collect();
            for closing in closing {
                match closing.join() {
                    Ok(closed) => first = first.take().or(closed.err()),
                    Err(panicked) => std::panic::resume_unwind(panicked),
                }
            }
        });
        first.map_or(Ok(()), Err)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, bool> {
        let closed = self.shared.closed.lock();
        closed.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes one store. That one which had failed before does not close in order is no news.
fn close_one(named: &NamedStore) -> Result<(), ServerError> {
    let failed = named.failed();
    let store = &named.name;
    match named.store.clone().close() {
        // Closed already: it was just being taken out.
        Ok(()) | Err(Error::Closed) => info!(store, "closed"),
        Err(_) if !failed.is_empty() => warn!(store, failed, "closed; it had failed before"),
        Err(source) => {
            error!(store, %source, "did not close in order");
            return Err(ServerError::CloseStore {
                name: named.name.clone(),
                source,
            });
        }
    }
    Ok(())
}

impl FailedStore {
    fn new(spec: &StoreSpec, error: &ServerError) -> Self {
        Self {
            name: spec.name.clone(),
            path: spec.path.clone(),
            why: error.to_string(),
        }
    }
}
