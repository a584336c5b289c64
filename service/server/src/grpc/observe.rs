//! `lumpscope.v1.Observe`: what the observer knows, field by field.

use std::time::Duration;

use lumpscope_observer as obs;
use lumpscope_observer::Observer;
use lumpscope_proto::v1::{self, observe_server::Observe};
use tonic::{Request, Response, Status};

use super::scope::Scope;
use super::status::Refusal;
use crate::stores::Stores;

/// Longest a report waits for what has ended before it was asked for.
const SETTLE: Duration = Duration::from_secs(2);

/// The service; cheap to clone.
#[derive(Clone)]
pub struct ObserveService {
    stores: Stores,
    observer: Observer,
}

impl ObserveService {
    /// A service over open stores.
    #[must_use]
    pub fn new(stores: Stores, observer: Observer) -> Self {
        Self { stores, observer }
    }
}

#[tonic::async_trait]
impl Observe for ObserveService {
    async fn report(
        &self,
        request: Request<v1::ReportRequest>,
    ) -> Result<Response<v1::ReportResponse>, Status> {
        let scope = Scope::of(&request);
        let wanted = request.into_inner().store;
        if !wanted.is_empty() {
            scope.check_store(&wanted)?;
        }
        if !wanted.is_empty() && self.stores.find(&wanted).is_none() {
            return Err(Refusal::UnknownStore {
                name: wanted.chars().take(80).collect(),
                known: self.stores.names(),
            }
            .into());
        }
        let names: Vec<String> = self
            .stores
            .all()
            .iter()
            .filter(|named| wanted.is_empty() || named.name == wanted)
            .filter(|named| scope.may_use(&named.name))
            .map(|named| named.name.clone())
            .collect();
        let observer = self.observer.clone();
        // Settling waits for the observer's own thread; that is no work for this one.
        let reports = tokio::task::spawn_blocking(move || {
            let settled = observer.settle(SETTLE);
            if !settled {
                tracing::warn!("the observer did not settle in time: the report may lag");
            }
            names
                .iter()
                .filter_map(|name| observer.report(name))
                .map(store_report)
                .collect()
        })
        .await
        .map_err(|error| Status::internal(format!("the report was not finished: {error}")))?;
        Ok(Response::new(v1::ReportResponse {
            request_id: scope.id(),
            stores: reports,
        }))
    }

    type TraceStream = BoxStream<v1::TraceResponse>;
    type RecordStream = BoxStream<v1::RecordResponse>;

    async fn explain(
        &self,
        _: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        Err(Status::unimplemented("explain"))
    }

    async fn list_slowest(
        &self,
        _: Request<v1::ListSlowestRequest>,
    ) -> Result<Response<v1::ListSlowestResponse>, Status> {
        Err(Status::unimplemented("list_slowest"))
    }

    async fn trace(
        &self,
        _: Request<v1::TraceRequest>,
    ) -> Result<Response<Self::TraceStream>, Status> {
        Err(Status::unimplemented("trace"))
    }

    async fn record(
        &self,
        _: Request<v1::RecordRequest>,
    ) -> Result<Response<Self::RecordStream>, Status> {
        Err(Status::unimplemented("record"))
    }

    async fn describe_observer(
        &self,
        _: Request<v1::DescribeObserverRequest>,
    ) -> Result<Response<v1::DescribeObserverResponse>, Status> {
        Err(Status::unimplemented("describe_observer"))
    }

    async fn set_events(
        &self,
        _: Request<v1::SetEventsRequest>,
    ) -> Result<Response<v1::SetEventsResponse>, Status> {
        Err(Status::unimplemented("set_events"))
    }
}

type BoxStream<T> =
    std::pin::Pin<Box<dyn tonic::codegen::tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

fn store_report(r: obs::StoreReport) -> v1::StoreReport {
    v1::StoreReport {
        store: r.store,
        device: r.device,
        observed: r.observed,
        not_observed_because: r.not_observed_because,
        operations: r.operations.into_iter().map(operation).collect(),
        block: Some(block(r.block)),
        audit: Some(audit(r.audit)),
        heat: r.heat.into_iter().map(heat).collect(),
        slowest: r.slowest.into_iter().map(slow).collect(),
    }
}

fn operation(o: obs::OperationReport) -> v1::OperationReport {
    v1::OperationReport {
        method: o.method,
        count: o.count,
        errors: o.errors,
        bytes: o.bytes,
        total_ns: o.total_ns,
        p50_ns: o.p50_ns,
        p90_ns: o.p90_ns,
        p95_ns: o.p95_ns,
        p99_ns: o.p99_ns,
        stages: o.stages.into_iter().map(stage).collect(),
        block_requests: o.block_requests,
    }
}

fn stage(s: obs::StageTime) -> v1::StageTime {
    v1::StageTime {
        stage: s.stage,
        total_ns: s.total_ns,
    }
}

fn block(b: obs::BlockReport) -> v1::BlockReport {
    let owner = |o: obs::OwnerTotal| v1::OwnerTotal {
        owner: o.owner,
        operation: o.operation,
        requests: o.requests,
        bytes: o.bytes,
    };
    v1::BlockReport {
        owners: b.owners.into_iter().map(owner).collect(),
        data_requests: b.data_requests,
        sequential: b.sequential,
        seek_median_bytes: b.seek_median_bytes,
        seek_p99_bytes: b.seek_p99_bytes,
        own_bytes: b.own_bytes,
        attributed_bytes: b.attributed_bytes,
        shared_bytes: b.shared_bytes,
        unattributed_bytes: b.unattributed_bytes,
        ..v1::BlockReport::default()
    }
}

fn audit(a: obs::AuditReport) -> v1::AuditReport {
    v1::AuditReport {
        seen_requests: a.seen_requests,
        kernel_requests: a.kernel_requests,
        seen_bytes: a.seen_bytes,
        kernel_bytes: a.kernel_bytes,
        lost_events: a.lost_events,
        unmatched: a.unmatched,
        recursion_misses: a.recursion_misses,
        complete: a.complete,
        finding: a.finding,
        ..v1::AuditReport::default()
    }
}

fn heat(h: obs::HeatCell) -> v1::HeatCell {
    v1::HeatCell {
        owner: h.owner,
        operation: h.operation,
        seek_from_bytes: h.seek_from_bytes,
        seek_to_bytes: h.seek_to_bytes,
        device_from_ns: h.device_from_ns,
        device_to_ns: h.device_to_ns,
        count: h.count,
    }
}

fn slow(s: obs::Explained) -> v1::SlowRequest {
    v1::SlowRequest {
        request_id: s.request_id,
        method: s.method,
        total_ns: s.total_ns,
        stages: s.stages.into_iter().map(stage).collect(),
        block_requests: s.block_requests,
        sentence: s.sentence,
        blocks: s.blocks.into_iter().map(block_io).collect(),
        ..v1::SlowRequest::default()
    }
}

fn block_io(b: obs::BlockIo) -> v1::BlockIo {
    v1::BlockIo {
        operation: b.operation,
        purpose: b.purpose,
        sector: b.sector,
        sectors: b.sectors,
        own_bytes: b.own_bytes,
        shared: b.shared,
        seek_bytes: b.seek_bytes,
        previous_owner: b.previous_owner,
        queue_ns: b.queue_ns,
        device_ns: b.device_ns,
        ..v1::BlockIo::default()
    }
}
