//! Standard health: the whole service, `lumpscope.v1.LumpStore`, and `store/NAME` for each store.

use std::time::Duration;

use lumpscope_proto::v1::lump_store_server::LumpStoreServer;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health as HealthApi, HealthServer};
use tonic_health::server::HealthReporter;

use super::LumpStoreService;
use crate::stores::Stores;

/// How often the stores are looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Keeps the health service up to date.
#[derive(Clone)]
pub struct Health {
    reporter: HealthReporter,
    stores: Stores,
}

impl Health {
    /// The reporter and the service to be served.
    #[must_use]
    pub fn new(stores: Stores) -> (Self, HealthServer<impl HealthApi>) {
        let (reporter, server) = tonic_health::server::health_reporter();
        (Self { reporter, stores }, server)
    }

    /// Looks at the stores again and again until the task is ended.
    pub async fn watch(self) {
        let mut tick = tokio::time::interval(PERIOD);
        loop {
            tick.tick().await;
            self.look().await;
        }
    }

    /// Looks at the stores once. The service as a whole serves while any store does.
    pub async fn look(&self) {
        let mut any = false;
        for named in self.stores.all().iter() {
            let serves = named.store.failed().is_none();
            any |= serves;
            let name = format!("store/{}", named.name);
            self.reporter.set_service_status(name, status(serves)).await;
        }
        self.set_all(any).await;
    }

    /// Says that nothing is served any more.
    pub async fn end(&self) {
        for named in self.stores.all().iter() {
            let name = format!("store/{}", named.name);
            self.reporter.set_service_status(name, status(false)).await;
        }
        self.set_all(false).await;
    }

    async fn set_all(&self, serves: bool) {
        self.reporter.set_service_status("", status(serves)).await;
        if serves {
            self.reporter
                .set_serving::<LumpStoreServer<LumpStoreService>>()
                .await;
        } else {
            self.reporter
                .set_not_serving::<LumpStoreServer<LumpStoreService>>()
                .await;
        }
    }
}

fn status(serves: bool) -> ServingStatus {
    if serves {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}
