//! Stores and the service, described.

use std::collections::HashMap;

use lumpscope_proto::v1;
use tonic::Status;

use super::AdminService;
use crate::grpc::describe;
use crate::privileges;
use crate::request::Scope;
use crate::telemetry::{names, store_stats};

pub(super) fn store(
    service: &AdminService,
    scope: &Scope,
    name: &str,
) -> Result<v1::DescribeStoreResponse, Status> {
    let admin = &service.admin;
    scope.check_store(name)?;
    if let Some(failed) = admin.stores.find_failed(name) {
        let key = short(names::STORE_FAILED.name).to_owned();
        return Ok(v1::DescribeStoreResponse {
            request_id: scope.id(),
            info: Some(describe::failed_store(&failed)),
            numbers: HashMap::from([(key, 1.0)]),
            ..v1::DescribeStoreResponse::default()
        });
    }
    let named = service.store(scope, name)?;
    let numbers = store_stats::numbers(&named);
    let known = named.store.info();
    Ok(v1::DescribeStoreResponse {
        request_id: scope.id(),
        info: Some(describe::store(&named, &admin.observer)),
        io_backend: known.backend.name().to_owned(),
        disk: known
            .disk
            .map(|facts| facts.to_string())
            .unwrap_or_default(),
        durability: format!("{}; commit {}", known.durable_by, known.commit.name()),
        lumps: named.store.stats().lumps,
        numbers: numbers
            .map(|(metric, value)| (short(metric.name).to_owned(), value))
            .collect(),
    })
}

/// A metric of one store without the prefix that all of them have.
fn short(metric: &'static str) -> &'static str {
    metric.strip_prefix(store_stats::PREFIX).unwrap_or(metric)
}

fn privileges() -> v1::Privileges {
    let held = privileges::held();
    v1::Privileges {
        uid: held.uid,
        gid: held.gid,
        capabilities: held.capabilities,
        no_new_privileges: held.no_new_privs,
    }
}

pub(super) fn service(service: &AdminService, scope: &Scope) -> v1::DescribeServiceResponse {
    let admin = &service.admin;
    v1::DescribeServiceResponse {
        request_id: scope.id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_seconds: admin.started.elapsed().as_secs(),
        settings: admin.settings.clone(),
        privileges: Some(privileges()),
        connections: u32::try_from(admin.door.metrics.connections()).unwrap_or(u32::MAX),
        under_way: admin.stores.under_way(),
    }
}
