//! One open store, who is let in, and how many are inside.

use std::ffi::CString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use lumpscope_engine::{self as engine, Store};
use lumpscope_objects::Objects;
use lumpscope_proto::v1::StoreState;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::StoreSpec;
use crate::refusal::Refusal;

/// One open store.
pub struct NamedStore {
    /// The observer's index of the store; never that of another one.
    pub index: usize,
    /// As requests name it.
    pub name: String,
    /// The name as a C string, for static probes.
    pub c_name: CString,
    /// Where it was opened.
    pub path: PathBuf,
    /// The engine's handle.
    pub store: Store,
    /// True: its disk says that it has no arm.
    pub armless: bool,
    /// Objects for S3; `None`: S3 does not serve this store.
    objects: Option<Objects>,
    /// Why what is put does not last; `None`: it does.
    not_durable: Option<Arc<str>>,
    mode: AtomicU8,
    under_way: AtomicU64,
    /// Somebody may wait for the last request to end.
    left: Notify,
    cut_off: CancellationToken,
    gone: AtomicBool,
    service: Arc<ServiceGate>,
}

/// Gate of all stores of a service.
#[derive(Debug, Default)]
pub(super) struct ServiceGate {
    /// True: the service ends, and nobody is let in.
    pub(super) stopping: AtomicBool,
}

/// Whether a store takes requests on data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mode {
    /// It does.
    Serving = 0,
    /// Not until it is told to.
    Draining = 1,
    /// Never again: it is being taken out.
    Leaving = 2,
}

impl NamedStore {
    /// An error of its engine, as requests are told of it.
    #[must_use]
    pub fn refusal(&self, error: engine::Error) -> Refusal {
        Refusal::Engine {
            store: self.name.clone(),
            error,
        }
    }

    pub(super) fn new(
        index: usize,
        spec: StoreSpec,
        (store, objects): (Store, Option<Objects>),
        armless: bool,
        service: Arc<ServiceGate>,
    ) -> Self {
        Self {
            index,
            // A name has letters, digits and a few signs: it always is a C string.
            c_name: CString::new(spec.name.as_str()).unwrap_or_default(),
            name: spec.name,
            path: spec.path,
            not_durable: store
                .info()
                .volatile
                .map(|medium| format!("NOT DURABLE: it is {medium}").into()),
            store,
            armless,
            objects,
            mode: AtomicU8::new(Mode::Serving as u8),
            under_way: AtomicU64::new(0),
            left: Notify::new(),
            cut_off: CancellationToken::new(),
            gone: AtomicBool::new(false),
            service,
        }
    }

    /// Objects with names, where S3 serves this store.
    #[must_use]
    pub fn objects(&self) -> Option<&Objects> {
        self.objects.as_ref()
    }

    /// Lets a request on data in. It counts as under way until the [`UnderWay`] is dropped.
    ///
    /// # Errors
    /// [`Refusal::ShuttingDown`], [`Refusal::StoreDraining`], [`Refusal::StoreLeaving`].
    pub fn enter(self: &Arc<Self>) -> Result<UnderWay, Refusal> {
        // Counted before the look at the mode: who changes the mode first and counts then sees
        // every request that was let in.
        self.under_way.fetch_add(1, Ordering::SeqCst);
        let entered = UnderWay {
            named: Arc::clone(self),
        };
        let name = || self.name.clone();
        if self.service.stopping.load(Ordering::SeqCst) {
            return Err(Refusal::ShuttingDown);
        }
        match self.mode() {
            Mode::Serving => Ok(entered),
            Mode::Draining => Err(Refusal::StoreDraining { name: name() }),
            Mode::Leaving => Err(Refusal::StoreLeaving { name: name() }),
        }
    }

    /// Whether it takes requests on data.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self.mode.load(Ordering::SeqCst) {
            0 => Mode::Serving,
            1 => Mode::Draining,
            _ => Mode::Leaving,
        }
    }

    /// True: it serves everything.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.why_not_serving().is_none()
    }

    /// Its state, and why it is in it; in every state the reason says whether its medium loses what is
    /// put. Empty: it is serving, and durable.
    #[must_use]
    pub fn state(&self) -> (StoreState, Arc<str>) {
        let (state, reason) = self.condition();
        match &self.not_durable {
            None => (state, reason),
            Some(why) if reason.is_empty() => (state, Arc::clone(why)),
            Some(why) => (state, format!("{reason}; {why}").into()),
        }
    }

    fn condition(&self) -> (StoreState, Arc<str>) {
        match self.mode() {
            Mode::Draining => (StoreState::Draining, "it is draining".into()),
            Mode::Leaving => (StoreState::Draining, "it is being taken out".into()),
            Mode::Serving if self.service.stopping.load(Ordering::SeqCst) => {
                (StoreState::Draining, "the service is shutting down".into())
            }
            Mode::Serving => {
                let health = self.store.health();
                if self.store.is_frozen() && health.state.takes_everything() {
                    return (StoreState::ReadOnly, engine::FROZEN.into());
                }
                let state = match health.state {
                    engine::StoreState::Serving => StoreState::Serving,
                    engine::StoreState::Degraded => StoreState::Degraded,
                    engine::StoreState::ReadOnly => StoreState::ReadOnly,
                    engine::StoreState::Failed => StoreState::Failed,
                    engine::StoreState::Gone => StoreState::Gone,
                };
                (state, health.reason)
            }
        }
    }

    /// Why it does not serve everything; `None`: it does.
    #[must_use]
    pub fn why_not_serving(&self) -> Option<String> {
        let (state, reason) = self.state();
        match state {
            StoreState::Serving | StoreState::Degraded => None,
            StoreState::Draining => Some(reason.to_string()),
            _ => Some(format!("it is {}: {reason}", state.word())),
        }
    }

    /// Why the engine does not take every request; empty: it does.
    #[must_use]
    pub fn failed(&self) -> String {
        let health = self.store.health();
        if health.state.takes_everything() {
            return String::new();
        }
        health.reason.to_string()
    }

    /// Requests on data under way.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.under_way.load(Ordering::SeqCst)
    }

    /// True: it was taken out; whatever is still said of it concerns nobody.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Changes the mode, unless it is being taken out; false: it is.
    pub(super) fn set_mode(&self, mode: Mode) -> bool {
        let stays = |now| (now != Mode::Leaving as u8).then_some(mode as u8);
        let (set, fetch) = (Ordering::SeqCst, Ordering::SeqCst);
        self.mode.fetch_update(set, fetch, stays).is_ok()
    }

    /// Ends when requests under way should end at once, with an error.
    pub(crate) fn cut_off(&self) -> &CancellationToken {
        &self.cut_off
    }

    /// Waits until no request is under way; false: some still are after `longest`.
    pub(super) async fn idle(&self, longest: Duration) -> bool {
        let wait = async {
            loop {
                let left = self.left.notified();
                tokio::pin!(left);
                left.as_mut().enable();
                if self.under_way() == 0 {
                    return;
                }
                left.await;
            }
        };
        tokio::time::timeout(longest, wait).await.is_ok()
    }
}

/// A request on data under way in a store.
pub struct UnderWay {
    named: Arc<NamedStore>,
}

impl UnderWay {
    /// Its store.
    #[must_use]
    pub fn store(&self) -> &Arc<NamedStore> {
        &self.named
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if self.named.under_way.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.named.left.notify_waiters();
        }
    }
}
