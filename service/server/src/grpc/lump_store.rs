//! `lumpscope.v1.LumpStore`: from wire to engine and back. Put and Get have files of their own.

use std::sync::Arc;
use std::time::Duration;

use lumpscope_engine::{Durability, Error};
use lumpscope_observer::Observer;
use lumpscope_proto::v1::{self, lump_store_server::LumpStore};
use tonic::{Request, Response, Status, Streaming};

use super::{convert, describe, list, small};
use crate::config::ServeConfig;
use crate::refusal::Refusal;
use crate::request::Bodies;
use crate::request::Readers;
use crate::request::Scope;
use crate::stores::{NamedStore, Stores};
use crate::usdt::LumpOp;

/// The service; cheap to clone.
#[derive(Clone)]
pub struct LumpStoreService {
    stores: Stores,
    observer: Observer,
    pub(super) durability: Durability,
    pub(super) body_timeout: Duration,
    pub(super) max_message: usize,
    pub(super) min_rate: u64,
    pub(super) put_memory: Bodies,
    pub(super) list_memory: Bodies,
    pub(super) readers: Readers,
}

impl LumpStoreService {
    /// A service over open stores. Must be called within a runtime.
    #[must_use]
    pub fn new(
        stores: Stores,
        observer: Observer,
        config: &ServeConfig,
        put_memory: Bodies,
    ) -> Self {
        Self {
            stores,
            observer,
            durability: config.durability.into(),
            body_timeout: config.body_timeout,
            max_message: config.max_message.as_usize(),
            min_rate: config.min_rate.0,
            put_memory,
            list_memory: Bodies::new(list::LISTS),
            readers: Readers::new(config.body_timeout, config.min_rate.0),
        }
    }

    /// The store a request names; the scope learns of it.
    pub(super) fn store(&self, scope: &Scope, name: &str) -> Result<Arc<NamedStore>, Refusal> {
        scope.check_store(name)?;
        let named = self.stores.get(name)?;
        scope.enter(&named)?;
        Ok(named)
    }
}

pub(super) fn engine(named: &NamedStore) -> impl FnOnce(Error) -> Refusal {
    let store = named.name.clone();
    move |error| Refusal::Engine { store, error }
}

/// Reply type of the generated service for a call that [`Direct`](super::Direct) serves before it.
type Never<T> = tokio_stream::Empty<Result<T, Status>>;

/// For the calls that never get here.
fn served_before<T>() -> Result<Response<T>, Status> {
    Err(Status::internal(
        "the service was put together without what serves this call; this is a defect of it",
    ))
}

#[tonic::async_trait]
impl LumpStore for LumpStoreService {
    type GetStream = Never<v1::GetResponse>;
    type GetManyStream = Never<v1::GetManyResponse>;
    type PutManyStream = Never<v1::PutManyResponse>;

    async fn put(
        &self,
        _: Request<Streaming<v1::PutRequest>>,
    ) -> Result<Response<v1::PutResponse>, Status> {
        served_before()
    }

    async fn put_many(
        &self,
        _: Request<Streaming<v1::PutManyRequest>>,
    ) -> Result<Response<Self::PutManyStream>, Status> {
        served_before()
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> Result<Response<Self::GetStream>, Status> {
        served_before()
    }

    async fn get_many(
        &self,
        _: Request<v1::GetManyRequest>,
    ) -> Result<Response<Self::GetManyStream>, Status> {
        served_before()
    }

    async fn put_small(
        &self,
        request: Request<v1::PutSmallRequest>,
    ) -> Result<Response<v1::PutSmallResponse>, Status> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        let put = small::put_small(self, &scope, asked).await?;
        Ok(Response::new(put))
    }

    async fn get_small(
        &self,
        _: Request<v1::GetSmallRequest>,
    ) -> Result<Response<v1::GetSmallResponse>, Status> {
        served_before()
    }

    async fn delete_many(
        &self,
        request: Request<v1::DeleteManyRequest>,
    ) -> Result<Response<v1::DeleteManyResponse>, Status> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let ids = convert::lump_ids("ids", &asked.ids)?;
        for id in &ids {
            scope.lump(*id, LumpOp::Delete);
        }
        let durability = convert::durability(asked.durability, self.durability)?;
        let outcome = scope
            .ask((), |ctx, on_done| {
                named
                    .store
                    .submit_delete_many(ctx, ids, durability, on_done)
            })
            .await
            .map_err(engine(named))?;
        Ok(Response::new(v1::DeleteManyResponse {
            request_id: scope.id(),
            existed: outcome.existed,
            durability: convert::durability_reply(outcome.durability),
        }))
    }

    async fn head(
        &self,
        request: Request<v1::HeadRequest>,
    ) -> Result<Response<v1::HeadResponse>, Status> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let id = convert::lump_id("id", asked.id.as_ref())?;
        scope.lump(id, LumpOp::Head);
        let found = scope
            .ask((), |ctx, on_done| {
                named
                    .store
                    .submit_head_with(ctx, id, asked.checksum, on_done)
            })
            .await
            .map_err(engine(named))?;
        Ok(Response::new(v1::HeadResponse {
            request_id: scope.id(),
            length: found.length,
            placement: convert::placement_reply(found.placement),
            crc32c: found.crc32c,
        }))
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteRequest>,
    ) -> Result<Response<v1::DeleteResponse>, Status> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let id = convert::lump_id("id", asked.id.as_ref())?;
        scope.lump(id, LumpOp::Delete);
        let durability = convert::durability(asked.durability, self.durability)?;
        let outcome = scope
            .ask((), |ctx, on_done| {
                named.store.submit_delete(ctx, id, durability, on_done)
            })
            .await
            .map_err(engine(named))?;
        Ok(Response::new(v1::DeleteResponse {
            request_id: scope.id(),
            existed: outcome.existed,
            durability: convert::durability_reply(outcome.durability),
        }))
    }

    async fn delete_range(
        &self,
        request: Request<v1::DeleteRangeRequest>,
    ) -> Result<Response<v1::DeleteRangeResponse>, Status> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let start = convert::lump_id("start", asked.start.as_ref())?;
        let end = convert::lump_id("end", asked.end.as_ref())?;
        let durability = convert::durability(asked.durability, self.durability)?;
        let outcome = scope
            .ask((), |ctx, on_done| {
                named
                    .store
                    .submit_delete_range(ctx, start, end, durability, on_done)
            })
            .await
            .map_err(engine(named))?;
        Ok(Response::new(v1::DeleteRangeResponse {
            request_id: scope.id(),
            deleted: outcome.deleted,
            durability: convert::durability_reply(outcome.durability),
        }))
    }

    async fn list(
        &self,
        _: Request<v1::ListRequest>,
    ) -> Result<Response<v1::ListResponse>, Status> {
        served_before()
    }

    async fn usage(
        &self,
        request: Request<v1::UsageRequest>,
    ) -> Result<Response<v1::UsageResponse>, Status> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let range = convert::range(asked.start.as_ref(), asked.end.as_ref())?;
        let used = scope
            .ask((), |ctx, on_done| {
                named.store.submit_usage(ctx, range, on_done)
            })
            .await
            .map_err(engine(named))?;
        let stats = named.store.stats();
        let largest = stats.largest_free_bytes;
        Ok(Response::new(v1::UsageResponse {
            request_id: scope.id(),
            lumps: used.lumps,
            stored_bytes: used.stored_bytes,
            data_capacity_bytes: stats.data_capacity_bytes,
            data_used_bytes: stats.data_used_bytes,
            journal_capacity_bytes: stats.journal_capacity_bytes,
            journal_used_bytes: stats.journal_used_bytes,
            largest_free_bytes: largest.min(named.store.info().max_lump_bytes),
            changes: Some(used.changes),
        }))
    }

    async fn list_stores(
        &self,
        request: Request<v1::ListStoresRequest>,
    ) -> Result<Response<v1::ListStoresResponse>, Status> {
        let scope = Scope::of(request.extensions());
        Ok(Response::new(v1::ListStoresResponse {
            request_id: scope.id(),
            stores: describe::all(&self.stores, &self.observer)
                .into_iter()
                .filter(|store| scope.may_use(&store.name))
                .collect(),
        }))
    }
}
