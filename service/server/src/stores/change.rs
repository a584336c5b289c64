//! Stores that are added, taken out, drained and resumed while the service runs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use lumpscope_engine::Error;
use lumpscope_objects::Objects;
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use super::named::{Mode, NamedStore};
use super::opening::identity;
use super::{FailedStore, Set, Stores};
use crate::config::StoreSpec;
use crate::error::ServerError;
use crate::refusal::Refusal;

/// Ends with the changes that are under way in a store.
pub type Changes = oneshot::Receiver<()>;

/// Requests that are cut off have this long to notice before their store is closed.
const CUT_OFF: Duration = Duration::from_secs(1);

impl Stores {
    /// Opens a store and serves it. Never formats. Blocks.
    ///
    /// # Errors
    /// [`Refusal::StoreExists`], [`Refusal::StoreUnusable`], [`Refusal::NotNow`],
    /// [`Refusal::ShuttingDown`].
    pub fn add(&self, spec: &StoreSpec, salvage: bool) -> Result<Arc<NamedStore>, Refusal> {
        let closed = self.lock();
        if *closed {
            return Err(Refusal::ShuttingDown);
        }
        let spec = &spec.found().map_err(|why| Refusal::StoreUnusable { why })?;
        self.check_name(spec)?;
        self.check_path(spec)?;
        let observer = &self.shared.opener.observer;
        let index = observer.add_store(self.shared.opener.config.watched(spec));
        match self.shared.opener.open(index, spec, salvage) {
            Ok(named) => {
                let added = &named;
                self.change(|set| {
                    set.failed.retain(|failed| failed.name != added.name);
                    set.open.push(Arc::clone(added));
                });
                self.shared.opener.tell_blind_spot(&named.name);
                info!(store = named.name, "added");
                Ok(named)
            }
            Err(error) => {
                observer.remove_store(index);
                let now = FailedStore::new(spec, &error);
                self.change(|set| {
                    let before = set.failed.iter_mut().find(|f| f.name == now.name);
                    if let Some(before) = before {
                        *before = now.clone();
                    }
                });
                Err(cannot_open(&error))
            }
        }
    }

    /// Begins to take a store out: it takes no new requests, for good. [`Stores::remove`] must
    /// follow. `None`: it was not open, and is gone.
    ///
    /// # Errors
    /// [`Refusal::UnknownStore`]; [`Refusal::NotNow`] when somebody else is just taking it out.
    pub fn leave(&self, name: &str) -> Result<Option<Arc<NamedStore>>, Refusal> {
        if self.find(name).is_none() && self.find_failed(name).is_some() {
            self.change(|set| set.failed.retain(|failed| failed.name != name));
            info!(store = name, "taken out; it was not open");
            return Ok(None);
        }
        let named = self.get(name)?;
        if !named.set_mode(Mode::Leaving) {
            return Err(Refusal::NotNow {
                why: format!("store {name:?} is being taken out already"),
            });
        }
        info!(store = name, under_way = named.under_way(), "taking it out");
        Ok(Some(named))
    }

    /// Ends what [`Stores::leave`] began: requests under way may finish for `longest`, then they
    /// are cut off, and the store is closed. False: some were cut off. To be run to its end.
    ///
    /// # Errors
    /// [`Refusal::Engine`] when the store was in order and did not close in order. It is gone
    /// then, too.
    pub async fn remove(
        &self,
        named: &Arc<NamedStore>,
        longest: Duration,
    ) -> Result<bool, Refusal> {
        let name = &named.name;
        let finished = named.idle(longest).await;
        if !finished {
            let left = named.under_way();
            warn!(
                store = name,
                left, "requests are cut off: their time is over"
            );
            named.cut_off().cancel();
            named.idle(CUT_OFF).await;
        }
        let was_in_order = named.failed().is_empty();
        let closing = Arc::clone(named);
        let closed = tokio::task::spawn_blocking(move || closing.store.clone().close()).await;
        named.set_gone();
        self.shared.opener.images.forget(name);
        let objects = named.objects();
        let buckets = objects.map(Objects::buckets).unwrap_or_default();
        self.change(|set| {
            set.open.retain(|other| !Arc::ptr_eq(other, named));
            let names = buckets.iter().map(|bucket| bucket.name.clone());
            Arc::make_mut(&mut set.buckets_out).extend(names);
        });
        self.shared.opener.observer.remove_store(named.index);
        match closed {
            Ok(Err(error)) if was_in_order && !matches!(error, Error::Closed) => {
                error!(store = name, %error, "taken out; it did not close in order");
                Err(named.refusal(error))
            }
            _ => {
                info!(store = name, "taken out");
                Ok(finished)
            }
        }
    }

    /// Has stores take no new requests on data.
    ///
    /// # Errors
    /// [`Refusal::NotNow`]: one of them is being taken out.
    pub fn drain(&self, stores: &[Arc<NamedStore>]) -> Result<(), Refusal> {
        set_modes(stores, Mode::Draining)
    }

    /// Has stores take no changes; what is returned ends with those under way.
    ///
    /// # Errors
    /// As [`Stores::drain`].
    pub fn freeze(&self, stores: &[Arc<NamedStore>]) -> Result<Vec<Changes>, Refusal> {
        let mut changes = Vec::new();
        for named in stores {
            if named.mode() == Mode::Leaving {
                let name = named.name.clone();
                return Err(Refusal::StoreLeaving { name });
            }
            let (done, ended) = oneshot::channel();
            let told = Box::new(move |_, _| {
                // The receiver is gone when the client is: nobody waits then.
                let _ = done.send(());
            });
            // A store that is closed has no changes under way.
            if named.store.submit_freeze(told).is_ok() {
                changes.push(ended);
            }
        }
        Ok(changes)
    }

    /// Waits until the changes under way have ended, for `longest` altogether. Answers how many
    /// requests may still have some; 0: none.
    pub async fn wait_settled(
        &self,
        stores: &[Arc<NamedStore>],
        changes: Vec<Changes>,
        longest: Duration,
    ) -> u64 {
        let all = async {
            for ended in changes {
                // One that is not told of ended with its store.
                let _ = ended.await;
            }
        };
        if tokio::time::timeout(longest, all).await.is_ok() {
            return 0;
        }
        let left: u64 = stores.iter().map(|named| named.under_way()).sum();
        left.max(1)
    }

    /// Has stores take requests, and changes, again.
    ///
    /// # Errors
    /// As [`Stores::drain`].
    pub fn resume(&self, stores: &[Arc<NamedStore>]) -> Result<(), Refusal> {
        set_modes(stores, Mode::Serving)?;
        stores.iter().for_each(|named| named.store.thaw());
        Ok(())
    }

    /// Waits until no request on data is under way in these stores, for `longest` altogether.
    /// Answers how many are left.
    pub async fn wait_idle(&self, stores: &[Arc<NamedStore>], longest: Duration) -> u64 {
        let all = async {
            for named in stores {
                named.idle(Duration::MAX).await;
            }
        };
        // Whoever comes too late is counted below.
        let _ = tokio::time::timeout(longest, all).await;
        stores.iter().map(|named| named.under_way()).sum()
    }

    fn check_name(&self, spec: &StoreSpec) -> Result<(), Refusal> {
        let name = &spec.name;
        let why = match self.find(name) {
            None => None,
            Some(named) if named.mode() == Mode::Leaving => Some("is just being taken out"),
            Some(named) if !named.failed().is_empty() => {
                Some("has failed and is still open: take it out first, then add it")
            }
            Some(_) => return Err(Refusal::StoreExists { name: name.clone() }),
        };
        if let Some(why) = why {
            let why = format!("store {name:?} {why}");
            return Err(Refusal::NotNow { why });
        }
        match self.find_failed(name) {
            Some(failed) if failed.path != spec.path && spec.uuid.is_none() => {
                Err(Refusal::StoreUnusable {
                    why: format!(
                        "store {name:?} could not be opened at {}: give that path, take it out \
                     first, or choose another name",
                        failed.path.display()
                    ),
                })
            }
            _ => Ok(()),
        }
    }

    /// Ensures that a device or file is served once.
    fn check_path(&self, spec: &StoreSpec) -> Result<(), Refusal> {
        let Some(wanted) = identity(&spec.path) else {
            return Ok(());
        };
        let all = self.all();
        let first = all
            .iter()
            .find(|named| identity(&named.path).as_ref() == Some(&wanted));
        first.map_or(Ok(()), |first| {
            let same = ServerError::SameDevice {
                first: first.name.clone(),
                second: spec.name.clone(),
                path: spec.path.clone(),
            };
            Err(Refusal::StoreUnusable {
                why: same.to_string(),
            })
        })
    }

    /// Publishes another set. Readers see the one or the other.
    fn change(&self, how: impl Fn(&mut Changing)) {
        self.shared.set.rcu(|set| {
            let mut changing = Changing {
                open: set.open.to_vec(),
                failed: set.failed.to_vec(),
                buckets_out: Arc::clone(&set.buckets_out),
            };
            how(&mut changing);
            Set {
                open: Arc::new(changing.open),
                failed: Arc::new(changing.failed),
                buckets_out: changing.buckets_out,
            }
        });
    }
}

/// A set that is being changed.
struct Changing {
    open: Vec<Arc<NamedStore>>,
    failed: Vec<FailedStore>,
    buckets_out: Arc<BTreeSet<String>>,
}

fn set_modes(stores: &[Arc<NamedStore>], mode: Mode) -> Result<(), Refusal> {
    for named in stores {
        if !named.set_mode(mode) {
            return Err(Refusal::StoreLeaving {
                name: named.name.clone(),
            });
        }
    }
    Ok(())
}

fn cannot_open(error: &ServerError) -> Refusal {
    Refusal::NotNow {
        why: error.to_string(),
    }
}
