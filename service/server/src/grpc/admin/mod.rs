//! `lumpscope.v1.Admin`: running the service.

mod describe;
mod scrub;
mod stores;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lumpscope_observer::Observer;
use lumpscope_proto::v1::{self, admin_server};
use tonic::{Request, Response, Status};

use super::RpcResult;
use super::health::Health;
use crate::config::ServeConfig;
use crate::door::Door;
use crate::refusal::Refusal;
use crate::request::Scope;
use crate::stores::{NamedStore, Stores};
use crate::telemetry::Sources;
use crate::telemetry::metrics::RequestMetrics;

/// State for running the service.
struct Admin {
    stores: Stores,
    observer: Observer,
    requests: Arc<RequestMetrics>,
    health: Health,
    door: Door,
    settings: HashMap<String, String>,
    drain_timeout: Duration,
    started: Instant,
}

/// The gRPC service; cheap to clone.
#[derive(Clone)]
pub struct AdminService {
    admin: Arc<Admin>,
}

impl AdminService {
    /// For the service with this configuration.
    #[must_use]
    pub fn new(config: &ServeConfig, sources: &Sources, health: Health) -> Self {
        let admin = Admin {
            stores: sources.stores.clone(),
            observer: sources.observer.clone(),
            requests: Arc::clone(&sources.requests),
            health,
            door: sources.door.clone(),
            settings: config.settings().into_iter().collect(),
            drain_timeout: config.drain_timeout,
            started: Instant::now(),
        };
        Self {
            admin: Arc::new(admin),
        }
    }

    /// The open store a request names; the scope learns of it.
    fn store(&self, scope: &Scope, name: &str) -> Result<Arc<NamedStore>, Refusal> {
        scope.check_store(name)?;
        let named = self.admin.stores.get(name)?;
        scope.set_store(&named);
        Ok(named)
    }
}

#[tonic::async_trait]
impl admin_server::Admin for AdminService {
    async fn sync(&self, request: Request<v1::SyncRequest>) -> RpcResult<v1::SyncResponse> {
        let scope = Scope::of(request.extensions());
        let named = self.store(&scope, &request.get_ref().store)?;
        scope.sync(&named).await?;
        Ok(Response::new(v1::SyncResponse {
            request_id: scope.id(),
        }))
    }

    async fn collect_journal(
        &self,
        request: Request<v1::CollectJournalRequest>,
    ) -> RpcResult<v1::CollectJournalResponse> {
        let scope = Scope::of(request.extensions());
        let named = self.store(&scope, &request.get_ref().store)?;
        let done = scope.ask(&named, (), |store, _, on_done| {
            store.submit_collect(on_done)
        });
        let done = done.await?;
        Ok(Response::new(v1::CollectJournalResponse {
            request_id: scope.id(),
            freed_bytes: done.freed_bytes,
            relocated_records: done.relocated,
            dropped_records: done.dropped,
            used_bytes: done.used_bytes,
            live_bytes: done.live_bytes,
        }))
    }

    async fn start_scrub(
        &self,
        request: Request<v1::StartScrubRequest>,
    ) -> RpcResult<v1::StartScrubResponse> {
        let scope = Scope::of(request.extensions());
        let named = self.store(&scope, &request.get_ref().store)?;
        let rate = request.get_ref().bytes_per_second;
        named.store.scrub_start((rate > 0).then_some(rate));
        Ok(Response::new(v1::StartScrubResponse {
            request_id: scope.id(),
        }))
    }

    async fn stop_scrub(
        &self,
        request: Request<v1::StopScrubRequest>,
    ) -> RpcResult<v1::StopScrubResponse> {
        let scope = Scope::of(request.extensions());
        let named = self.store(&scope, &request.get_ref().store)?;
        named.store.scrub_stop();
        Ok(Response::new(v1::StopScrubResponse {
            request_id: scope.id(),
        }))
    }

    async fn get_scrub(
        &self,
        request: Request<v1::GetScrubRequest>,
    ) -> RpcResult<v1::GetScrubResponse> {
        let scope = Scope::of(request.extensions());
        let named = self.store(&scope, &request.get_ref().store)?;
        let status = named.store.scrub_status();
        Ok(Response::new(scrub::status(scope.id(), status)))
    }

    async fn describe_store(
        &self,
        request: Request<v1::DescribeStoreRequest>,
    ) -> RpcResult<v1::DescribeStoreResponse> {
        let scope = Scope::of(request.extensions());
        describe::store(self, &scope, &request.get_ref().store).map(Response::new)
    }

    async fn add_store(
        &self,
        request: Request<v1::AddStoreRequest>,
    ) -> RpcResult<v1::AddStoreResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        stores::add(self, &scope, asked).await.map(Response::new)
    }

    async fn remove_store(
        &self,
        request: Request<v1::RemoveStoreRequest>,
    ) -> RpcResult<v1::RemoveStoreResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        stores::remove(self, &scope, asked).await.map(Response::new)
    }

    async fn drain(&self, request: Request<v1::DrainRequest>) -> RpcResult<v1::DrainResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        stores::drain(self, &scope, asked).await.map(Response::new)
    }

    async fn resume(&self, request: Request<v1::ResumeRequest>) -> RpcResult<v1::ResumeResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        stores::resume(self, &scope, asked).await.map(Response::new)
    }

    async fn describe_service(
        &self,
        request: Request<v1::DescribeServiceRequest>,
    ) -> RpcResult<v1::DescribeServiceResponse> {
        let scope = Scope::of(request.extensions());
        scope.check_service()?;
        Ok(Response::new(describe::service(self, &scope)))
    }

    async fn reload(&self, request: Request<v1::ReloadRequest>) -> RpcResult<v1::ReloadResponse> {
        let scope = Scope::of(request.extensions());
        scope.check_service()?;
        let reloader = Arc::clone(&self.admin.door.reloader);
        let done = tokio::task::spawn_blocking(move || reloader.reload()).await;
        let done = done.map_err(|error| Status::internal(format!("not reloaded: {error}")))?;
        let now = done.map_err(|error| Refusal::NotReloaded(Box::new(error)))?;
        Ok(Response::new(v1::ReloadResponse {
            request_id: scope.id(),
            tokens: now.tokens,
            certificate_not_after: now.certificate_not_after.unwrap_or(0),
        }))
    }
}
