//! `lumpscope.v1.LumpStore`: from wire to engine and back. Put and Get have files of their own.

use std::sync::Arc;
use std::time::Duration;

use lumpscope_engine::Durability;
use lumpscope_observer::Observer;
use lumpscope_proto::v1::{self, lump_store_server::LumpStore};
use tonic::{Request, Response, Status, Streaming};

use super::{RpcResult, convert, describe, list, small};
use crate::config::ServeConfig;
use crate::refusal::Refusal;
use crate::request::{Budget, Readers, Replies, Scope};
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
    pub(super) put_memory: Budget,
    pub(super) lists: Replies,
    pub(super) readers: Readers,
}

impl LumpStoreService {
    /// A service over open stores. Must be called within a runtime.
    #[must_use]
    pub fn new(
        stores: Stores,
        observer: Observer,
        config: &ServeConfig,
        put_memory: Budget,
    ) -> Self {
        let patience = config.body_timeout;
        let readers = Readers::new(patience, config.min_rate.0);
        Self {
            stores,
            observer,
            durability: config.durability.into(),
            body_timeout: patience,
            max_message: config.max_message.as_usize(),
            min_rate: config.min_rate.0,
            put_memory,
            lists: Replies::new(list::LISTS, readers.clone(), patience),
            readers,
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

/// Reply type of the generated service for a call that [`Direct`](super::Direct) serves before it.
type Never<T> = tokio_stream::Empty<Result<T, Status>>;

/// For the calls that never get here.
fn served_before<T>() -> RpcResult<T> {
    Err(Status::internal(
        "the service was put together without what serves this call; this is a defect of it",
    ))
}

#[tonic::async_trait]
impl LumpStore for LumpStoreService {
    type GetStream = Never<v1::GetResponse>;
    type GetManyStream = Never<v1::GetManyResponse>;
    type PutManyStream = Never<v1::PutManyResponse>;

    async fn put(&self, _: Request<Streaming<v1::PutRequest>>) -> RpcResult<v1::PutResponse> {
        served_before()
    }

    async fn put_many(
        &self,
        _: Request<Streaming<v1::PutManyRequest>>,
    ) -> RpcResult<Self::PutManyStream> {
        served_before()
    }

    async fn get(&self, _: Request<v1::GetRequest>) -> RpcResult<Self::GetStream> {
        served_before()
    }

    async fn get_many(&self, _: Request<v1::GetManyRequest>) -> RpcResult<Self::GetManyStream> {
        served_before()
    }

    async fn put_small(
        &self,
        request: Request<v1::PutSmallRequest>,
    ) -> RpcResult<v1::PutSmallResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        let put = small::put_small(self, &scope, asked).await?;
        Ok(Response::new(put))
    }

    async fn get_small(&self, _: Request<v1::GetSmallRequest>) -> RpcResult<v1::GetSmallResponse> {
        served_before()
    }

    async fn delete_many(
        &self,
        request: Request<v1::DeleteManyRequest>,
    ) -> RpcResult<v1::DeleteManyResponse> {
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
            .ask(named, (), |store, ctx, on_done| {
                store.submit_delete_many(ctx, ids, durability, on_done)
            })
            .await?;
        Ok(Response::new(v1::DeleteManyResponse {
            request_id: scope.id(),
            existed: outcome.existed,
            durability: convert::durability_reply(outcome.durability),
        }))
    }

    async fn head(&self, request: Request<v1::HeadRequest>) -> RpcResult<v1::HeadResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let id = convert::lump_id("id", asked.id.as_ref())?;
        scope.lump(id, LumpOp::Head);
        let found = scope
            .ask(named, (), |store, ctx, on_done| {
                store.submit_head_with(ctx, id, asked.checksum, on_done)
            })
            .await?;
        Ok(Response::new(v1::HeadResponse {
            request_id: scope.id(),
            length: found.length,
            placement: convert::placement_reply(found.placement),
            crc32c: found.crc32c,
        }))
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> RpcResult<v1::DeleteResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let id = convert::lump_id("id", asked.id.as_ref())?;
        scope.lump(id, LumpOp::Delete);
        let durability = convert::durability(asked.durability, self.durability)?;
        let outcome = scope
            .ask(named, (), |store, ctx, on_done| {
                store.submit_delete(ctx, id, durability, on_done)
            })
            .await?;
        Ok(Response::new(v1::DeleteResponse {
            request_id: scope.id(),
            existed: outcome.existed,
            durability: convert::durability_reply(outcome.durability),
        }))
    }

    async fn delete_range(
        &self,
        request: Request<v1::DeleteRangeRequest>,
    ) -> RpcResult<v1::DeleteRangeResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let start = convert::lump_id("start", asked.start.as_ref())?;
        let end = convert::lump_id("end", asked.end.as_ref())?;
        let durability = convert::durability(asked.durability, self.durability)?;
        let outcome = scope
            .ask(named, (), |store, ctx, on_done| {
                store.submit_delete_range(ctx, start, end, durability, on_done)
            })
            .await?;
        Ok(Response::new(v1::DeleteRangeResponse {
            request_id: scope.id(),
            deleted: outcome.deleted,
            durability: convert::durability_reply(outcome.durability),
        }))
    }

    async fn list(&self, _: Request<v1::ListRequest>) -> RpcResult<v1::ListResponse> {
        served_before()
    }

    async fn usage(&self, request: Request<v1::UsageRequest>) -> RpcResult<v1::UsageResponse> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        scope.wait_as(asked.options.as_ref());
        let named = &self.store(&scope, &asked.store)?;
        let range = convert::range(asked.start.as_ref(), asked.end.as_ref())?;
        let used = scope
            .ask(named, (), |store, ctx, on_done| {
                store.submit_usage(ctx, range, on_done)
            })
            .await?;
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
    ) -> RpcResult<v1::ListStoresResponse> {
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
