//! Standard health: the whole service, `lumpscope.v1.LumpStore`, and `store/NAME` for each store.
//!
//! A store serves while it takes every request: one that drains, is read-only, failed or gone, or
//! could not be opened does not; one that is degraded does. The service as a whole serves while any store does, because
//! then there is somebody to talk to; who needs one store asks for that store. A store that is
//! taken out is first said not to serve, to those who watch it, and then no longer known.
//!
//! Anybody may ask for the whole service. Which stores there are is for those who may use them:
//! for others none exists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lumpscope_proto::v1::StoreState;
use lumpscope_proto::v1::lump_store_server::LumpStoreServer;
use tokio::sync::Mutex;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_health::server::{HealthReporter, HealthService};
use tracing::{info, warn};

use super::LumpStoreService;
use crate::door::Caller;
use crate::stores::Stores;

/// How often the stores are looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Prefix of the services that stand for a store.
const STORE: &str = "store/";

/// Keeps the health service up to date.
#[derive(Clone)]
pub struct Health {
    reporter: HealthReporter,
    stores: Stores,
    told: Arc<Mutex<SentStatus>>,
}

/// Last status sent.
#[derive(Default)]
struct SentStatus {
    serves: BTreeMap<String, bool>,
    /// Of the open stores, with the reasons.
    states: BTreeMap<String, (StoreState, Arc<str>)>,
    ended: bool,
}

impl Health {
    /// The reporter and the service to be served.
    #[must_use]
    pub fn new(stores: Stores) -> (Self, HealthServer<impl HealthApi>) {
        let reporter = HealthReporter::new();
        let all = HealthService::from_health_reporter(reporter.clone());
        let server = HealthServer::new(Discreet(all));
        let health = Self {
            reporter,
            stores,
            told: Arc::default(),
        };
        (health, server)
    }

    /// Looks at the stores again and again until the task is ended.
    pub async fn watch(self) {
        let mut tick = tokio::time::interval(PERIOD);
        loop {
            tick.tick().await;
            self.look().await;
        }
    }

    /// Looks at the stores once.
    pub async fn look(&self) {
        let mut told = self.told.lock().await;
        if told.ended {
            return;
        }
        let mut now: BTreeMap<String, bool> = BTreeMap::new();
        for failed in self.stores.failed().iter() {
            now.insert(service(&failed.name), false);
        }
        let open = self.stores.all();
        told.states
            .retain(|name, _| open.iter().any(|named| named.name == *name));
        for named in open.iter() {
            now.insert(service(&named.name), named.serves());
            told.log(&named.name, named.state());
        }
        let any = now.values().any(|serves| *serves);
        for whole in whole() {
            now.insert(whole.to_owned(), any);
        }
        self.tell(&mut told, now).await;
    }

    /// Says that nothing is served any more, for good.
    pub async fn end(&self) {
        let mut told = self.told.lock().await;
        told.ended = true;
        let nothing = told.serves.keys().map(|name| (name.clone(), false));
        let nothing = nothing.collect();
        self.tell(&mut told, nothing).await;
    }

    async fn tell(&self, told: &mut SentStatus, now: BTreeMap<String, bool>) {
        for (name, serves) in &now {
            if told.serves.get(name) != Some(serves) {
                self.reporter
                    .set_service_status(name, status(*serves))
                    .await;
            }
        }
        let gone = told
            .serves
            .iter()
            .filter(|(name, _)| !now.contains_key(*name));
        for (name, served) in gone {
            if *served {
                self.reporter.set_service_status(name, status(false)).await;
            }
            self.reporter.clone().clear_service_status(name).await;
        }
        told.serves = now;
    }
}

impl SentStatus {
    /// Says in the log that a store is in another state. A store begins by serving.
    fn log(&mut self, store: &str, (state, reason): (StoreState, Arc<str>)) {
        let before = self.states.get(store);
        let before = before.map_or(StoreState::Serving, |(state, _)| *state);
        if state != before {
            let (now, before) = (state.word(), before.word());
            match state {
                StoreState::Serving | StoreState::Draining => {
                    info!(store, state = now, before, %reason, "the store is in another state");
                }
                _ => warn!(store, state = now, before, %reason, "the store is in another state"),
            }
        }
        self.states.insert(store.to_owned(), (state, reason));
    }
}

fn service(store: &str) -> String {
    format!("{STORE}{store}")
}

/// Health of which each caller sees its own stores.
struct Discreet(HealthService);

impl Discreet {
    fn seen(request: Request<HealthCheckRequest>) -> Request<HealthCheckRequest> {
        let caller = request.extensions().get::<Caller>().cloned();
        request.map(|mut asked| {
            let may_use = |store| caller.is_some_and(|caller| caller.may_use(store));
            if !asked.service.strip_prefix(STORE).is_none_or(may_use) {
                // No store has this name.
                asked.service = STORE.to_owned();
            }
            asked
        })
    }
}

#[tonic::async_trait]
impl HealthApi for Discreet {
    type WatchStream = <HealthService as HealthApi>::WatchStream;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        self.0.check(Self::seen(request)).await
    }

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.0.watch(Self::seen(request)).await
    }
}

/// The names that stand for all stores together.
fn whole() -> [&'static str; 2] {
    [
        "",
        <LumpStoreServer<LumpStoreService> as NamedService>::NAME,
    ]
}

fn status(serves: bool) -> ServingStatus {
    if serves {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}
