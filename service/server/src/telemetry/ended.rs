//! The end of a request: counted, logged, traced, and handed to the observer.

use std::sync::Arc;
use std::time::Duration;

use lumpscope_observer::{Observer, TraceContext};
use lumpscope_proto::code_name;
use tonic::Code;
use tracing::{debug, warn};

use super::metrics::RequestMetrics;
use super::otlp::{About, Tracing};
use crate::log_rate::LogRate;
use crate::request::{LOG, RequestOutcome, Sink, TraceParent};
use crate::usdt;

/// Reports every request to metrics, log, traces, static probes and observer.
pub(crate) struct Reporter {
    pub(crate) observer: Observer,
    pub(crate) metrics: Arc<RequestMetrics>,
    pub(crate) tracing: Tracing,
    pub(crate) failures: LogRate,
}

impl Sink for Reporter {
    fn begun(&self) {
        self.metrics.begun();
    }

    fn ended(&self, mut ended: RequestOutcome<'_>) {
        let took = took(&ended);
        ended.summary.trace = self.choose(&ended, took);
        tell_tracers(&ended);
        // A series of a store that was taken out would stay for ever.
        let store = ended.store.filter(|named| !named.is_gone());
        let name = store.map(|named| named.name.as_str());
        log(&self.failures, name, &ended);
        let (method, summary) = (ended.method.text, ended.summary);
        let exemplar = summary.trace.map(|trace| trace.trace_id);
        self.metrics.ended(name, method, ended.code, took, exemplar);
        if store.is_some() {
            self.observer.request_done(summary);
        } else if summary.trace.is_some() {
            self.tracing.alone(&summary);
        }
    }
}

impl Reporter {
    /// The place of the request in its trace; `None`: it is not exported.
    fn choose(&self, ended: &RequestOutcome<'_>, took: Duration) -> Option<TraceContext> {
        // A request without a store has no disk to judge it by.
        let has_arm = ended.store.is_none_or(|named| !named.armless);
        let trace = self
            .tracing
            .choose(ended.parent, (took, has_arm), ended.code)?;
        let state = ended.parent.map(TraceParent::state);
        let about = About {
            request: ended.summary.request,
            method: ended.method.full,
            code: Some(ended.code),
            state: state.cloned().unwrap_or_default(),
            client: ended.client,
        };
        self.tracing.chosen(about, trace);
        Some(trace)
    }
}

fn took(ended: &RequestOutcome<'_>) -> Duration {
    Duration::from_nanos(ended.summary.total_ns())
}

/// For those who listen with bpftrace.
fn tell_tracers(ended: &RequestOutcome<'_>) {
    let what = &ended.summary;
    let [recv, sched, index, data, journal, reply] = what.stages_ns;
    let [wait, write, flush] = what.commit_ns;
    let stages = [recv, sched, index, data, journal, wait, write, flush, reply];
    for (stage, ns) in usdt::STAGES.into_iter().zip(stages) {
        let behind = what.waited_for.filter(|_| stage == c"wait");
        usdt::request_stage(what.request, stage, ns, behind.unwrap_or(0));
    }
    let store = ended.store.map_or(c"", |named| named.c_name.as_c_str());
    let (method, ns) = (ended.method.c, what.total_ns());
    usdt::request_done(what.request, method, store, what.bytes, ns, what.ok);
}

/// One line a request: loud where the operator has to do something, not where the client has, and
/// not louder because clients repeat it.
fn log(failures: &LogRate, store: Option<&str>, ended: &RequestOutcome<'_>) {
    let (what, message) = (&ended.summary, ended.message);
    let us = what.total_ns() / 1000;
    let trace_id = ended.parent.map(TraceParent::as_str);
    let (request_id, method, bytes) = (what.request, ended.method.text, what.bytes);
    let code_name = code_name(ended.code);
    let is_loud = matches!(
        ended.code,
        Code::Internal | Code::DataLoss | Code::FailedPrecondition | Code::Unknown
    );
    if is_loud && let Some(not_logged) = failures.allows() {
        warn!(
            target: LOG, request_id, trace_id, method, store, bytes, us, not_logged,
            code = code_name, "failed: {message}"
        );
        return;
    }
    match ended.code {
        Code::Ok => debug!(
            target: LOG, request_id, trace_id, method, store, bytes, us, "done"
        ),
        _ => debug!(
            target: LOG, request_id, trace_id, method, store, bytes, us,
            code = code_name, "refused: {message}"
        ),
    }
}
