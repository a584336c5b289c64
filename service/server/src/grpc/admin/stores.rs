//! Stores that are added, taken out, drained and resumed.
//!
//! A begun operation is completed even if the client goes away: a store half taken out would be
//! useless.

use std::sync::Arc;
use std::time::Duration;

use lumpscope_proto::v1;
use tonic::Status;

use super::{Admin, AdminService};
use crate::config::StoreSpec;
use crate::grpc::describe;
use crate::refusal::Refusal;
use crate::request::Scope;
use crate::stores::{Mode, NamedStore};

/// Longest that a caller can have requests under way waited for, in milliseconds.
const MAX_WAIT_MS: u32 = 600_000;

pub(super) async fn add(
    service: &AdminService,
    scope: &Scope,
    asked: v1::AddStoreRequest,
) -> Result<v1::AddStoreResponse, Status> {
    let admin = Arc::clone(&service.admin);
    // It names a path, which no list of stores covers.
    scope.check_service()?;
    let spec = spec(&asked)?;
    let added = to_its_end(async move {
        let stores = admin.stores.clone();
        let opened = tokio::task::spawn_blocking(move || stores.add(&spec, asked.salvage));
        let named = joined(opened.await)??;
        admin.health.look().await;
        Ok(describe::store(&named, &admin.observer))
    });
    Ok(v1::AddStoreResponse {
        store: Some(added.await?),
        request_id: scope.id(),
    })
}

pub(super) async fn remove(
    service: &AdminService,
    scope: &Scope,
    asked: v1::RemoveStoreRequest,
) -> Result<v1::RemoveStoreResponse, Status> {
    let admin = Arc::clone(&service.admin);
    scope.check_store(&asked.store)?;
    let wait = admin.wait("drain_timeout_ms", asked.drain_timeout_ms)?;
    let name = asked.store;
    let removed = to_its_end(async move {
        let Some(named) = admin.stores.leave(&name)? else {
            admin.health.look().await;
            return Ok(());
        };
        admin.health.look().await;
        let finished = admin.stores.remove(&named, wait).await;
        admin.requests.forget(&name);
        admin.health.look().await;
        if finished? {
            return Ok(());
        }
        Err(Refusal::CutOffOthers { name, waited: wait }.into())
    });
    removed.await?;
    Ok(v1::RemoveStoreResponse {
        request_id: scope.id(),
    })
}

pub(super) async fn drain(
    service: &AdminService,
    scope: &Scope,
    asked: v1::DrainRequest,
) -> Result<v1::DrainResponse, Status> {
    let admin = &service.admin;
    let wait = admin.wait("timeout_ms", asked.timeout_ms)?;
    let stores = admin.chosen(scope, &asked.store)?;
    let frozen = match asked.changes_only {
        true => Some(admin.stores.freeze(&stores)?),
        false => {
            admin.stores.drain(&stores)?;
            None
        }
    };
    let what = if frozen.is_some() {
        "changes"
    } else {
        "requests"
    };
    tracing::info!(store = asked.store, what, "draining");
    admin.health.look().await;
    let under_way = match frozen {
        Some(changes) => admin.stores.wait_settled(&stores, changes, wait).await,
        None => admin.stores.wait_idle(&stores, wait).await,
    };
    if under_way == 0 {
        for named in stores.iter().filter(|named| named.failed().is_empty()) {
            scope.sync(named).await?;
        }
    }
    tracing::info!(store = asked.store, under_way, "drained");
    Ok(v1::DrainResponse {
        request_id: scope.id(),
        under_way,
    })
}

pub(super) async fn resume(
    service: &AdminService,
    scope: &Scope,
    asked: v1::ResumeRequest,
) -> Result<v1::ResumeResponse, Status> {
    let admin = &service.admin;
    let stores = admin.chosen(scope, &asked.store)?;
    admin.stores.resume(&stores)?;
    tracing::info!(store = asked.store, "resumed");
    admin.health.look().await;
    Ok(v1::ResumeResponse {
        request_id: scope.id(),
    })
}

impl Admin {
    /// One open store, or all that are not being taken out.
    fn chosen(&self, scope: &Scope, name: &str) -> Result<Vec<Arc<NamedStore>>, Refusal> {
        if !name.is_empty() {
            scope.check_store(name)?;
            return Ok(vec![self.stores.get(name)?]);
        }
        scope.check_service()?;
        let all = self.stores.all();
        let staying = all.iter().filter(|named| named.mode() != Mode::Leaving);
        Ok(staying.cloned().collect())
    }

    /// The time a caller wants requests under way to be waited for.
    fn wait(&self, field: &'static str, ms: u32) -> Result<Duration, Refusal> {
        match ms {
            0 => Ok(self.drain_timeout),
            1..=MAX_WAIT_MS => Ok(Duration::from_millis(ms.into())),
            got => Err(Refusal::WaitTooLong {
                field,
                got,
                max: MAX_WAIT_MS,
            }),
        }
    }
}

/// Name and path of a store to be added.
fn spec(asked: &v1::AddStoreRequest) -> Result<StoreSpec, Refusal> {
    let unusable = |why| Refusal::StoreUnusable { why };
    let spec: StoreSpec = format!("{}={}", asked.name, asked.path)
        .parse()
        .map_err(unusable)?;
    if spec.name != asked.name || spec.path != *asked.path {
        return Err(unusable(format!("{:?} is no store name", asked.name)));
    }
    if !(spec.path.is_absolute() || spec.uuid.is_some()) || asked.path.contains('\0') {
        return Err(unusable(format!(
            "path {:?}: give the whole path, from the root on, as the service sees it",
            asked.path
        )));
    }
    Ok(spec)
}

/// Runs work that must not stop in the middle when the client goes away.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = Result<T, Status>> + Send + 'static,
) -> Result<T, Status> {
    joined(tokio::spawn(work).await)?
}

fn joined<T>(result: Result<T, tokio::task::JoinError>) -> Result<T, Status> {
    result.map_err(|error| Status::internal(format!("the work was not finished: {error}")))
}
