//! An explained request as spans.
//!
//! ```text
//! lumpscope.v1.LumpStore/Put          server; child of the client's span
//! ├─ recv ─ sched ─ index             stages
//! ├─ device                           data I/O
//! │  └─ write                         one block request, with the kernel's times
//! ├─ journal
//! │  ├─ write
//! │  └─ flush
//! └─ reply
//! ```
//!
//! The service measures how long a stage took, and knows their order; so the places of stages are
//! derived. Those of block requests are the kernel's and may stick out of their stage by what lies
//! between two clock readings, or by more where one call asks the store for several things.

use std::net::SocketAddr;
use std::time::{Duration, UNIX_EPOCH};

use lumpscope_engine::Machine;
use lumpscope_observer::{
    BlockIo, EndedRequest, SlowRequest, StageTime, TraceContext, TracedRequest, WallClock,
};
use lumpscope_proto::code_name;
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{Array, InstrumentationScope, KeyValue, Value};
use opentelemetry_sdk::trace::{RandomIdGenerator, SpanData, SpanLinks};
use opentelemetry_semantic_conventions::attribute::{
    CLIENT_ADDRESS, CLIENT_PORT, ERROR_TYPE, NETWORK_TRANSPORT, RPC_METHOD,
    RPC_RESPONSE_STATUS_CODE, RPC_SYSTEM_NAME, SERVER_ADDRESS, SERVER_PORT,
};
use tonic::Code;

use super::sampling::is_fault;
use super::{ExporterShared, lock, new_span_id, scope};
use crate::door::Peer;

/// Most links of a span to the spans of other requests; the rest is counted.
const LINKS: usize = 16;

/// Facts about a request that only the service knows.
#[derive(Clone, Debug, PartialEq)]
pub struct About {
    /// Id of the request.
    pub request: u64,
    /// `package.Service/Method`; empty: a method that does not exist.
    pub method: &'static str,
    /// The code it ended with; `None`: forgotten.
    pub code: Option<Code>,
    /// The client's `tracestate`; passed on.
    pub state: TraceState,
    /// The client; `None`: unknown.
    pub client: Option<Peer>,
}

impl About {
    /// Of a request that was chosen so long ago that nothing more is known.
    pub(super) fn unknown(request: u64) -> Self {
        Self {
            request,
            method: "",
            code: None,
            state: TraceState::NONE,
            client: None,
        }
    }
}

/// Where requests are taken.
#[derive(Clone, Debug)]
pub struct Servers {
    grpc: Server,
    s3: Option<Server>,
}

#[derive(Clone, Debug)]
struct Server {
    address: String,
    port: u16,
}

impl Servers {
    /// The addresses that gRPC and S3 listen at.
    #[must_use]
    pub fn new(grpc: SocketAddr, s3: Option<SocketAddr>) -> Self {
        Self {
            grpc: Server::at(grpc),
            s3: s3.map(Server::at),
        }
    }

    /// Names this service among all, whenever it runs.
    pub(crate) fn instance(&self) -> String {
        format!("{}:{}", Machine::this().host, self.grpc.port)
    }
}

impl Server {
    /// The name of this machine where all of its addresses are listened at.
    fn at(socket: SocketAddr) -> Self {
        let host = Some(Machine::this().host);
        let host = host.filter(|host| socket.ip().is_unspecified() && !host.is_empty());
        let address = host.unwrap_or_else(|| socket.ip().to_string());
        Self {
            address,
            port: socket.port(),
        }
    }
}

/// An interval in nanoseconds after the begin of the request.
type Place = (i64, i64);

/// A stage that took time.
struct Stage {
    name: &'static str,
    place: Place,
    /// Attributes.
    parts: Vec<(&'static str, u64)>,
}

/// How many spans [`of`] makes.
pub(super) fn count(explained: &SlowRequest) -> usize {
    let blocks = explained.blocks.iter().filter(|b| place_of(b).is_some());
    1 + stages(explained).len() + blocks.count()
}

/// The spans of a request, its own first.
pub(super) fn of(
    traced: &TracedRequest,
    about: &About,
    shared: &ExporterShared,
    ids: &RandomIdGenerator,
) -> Vec<SpanData> {
    let (explained, trace) = (&traced.request, traced.trace);
    let make = Maker {
        explained,
        trace,
        about,
        shared,
        scope: scope(),
    };
    let mut spans = vec![make.request()];
    let (mut data, mut journal) = (trace.span_id, trace.span_id);
    for stage in around_blocks(explained) {
        let id = new_span_id(ids);
        match stage.name {
            "device" | "submit" => data = id,
            "journal" => journal = id,
            _ => {}
        }
        spans.push(make.stage(&stage, id));
    }
    let mut sharers = traced.sharers.iter();
    for block in &explained.blocks {
        let parent = if is_data(block) { data } else { journal };
        let sharers = sharers.next().map_or(&[][..], |sharers| sharers);
        spans.extend(make.block((block, sharers), parent, new_span_id(ids)));
    }
    spans
}

/// The stages, each as long as to hold its block requests. Their places are derived from lengths, as
/// if they followed each other; where much is done at a time, as for a PutMany, they overlap.
fn around_blocks(explained: &SlowRequest) -> Vec<Stage> {
    let mut stages = stages(explained);
    let total = signed(explained.total_ns);
    for stage in &mut stages {
        let holds = |block: &&BlockIo| match stage.name {
            "device" | "submit" => is_data(block),
            "journal" => !is_data(block),
            _ => false,
        };
        let (mut begin, mut end) = stage.place;
        let took = u64::try_from(end - begin).unwrap_or(0);
        for (from, to) in explained.blocks.iter().filter(holds).filter_map(place_of) {
            (begin, end) = (begin.min(from.max(0)), end.max(to.min(total)));
        }
        stage.place = (begin, end);
        stage.parts.push(("stage", took));
    }
    stages
}

/// A request of which the observer knows nothing.
pub(super) fn without_observer(what: &EndedRequest, trace: TraceContext) -> TracedRequest {
    let stage = |stage: &str, total_ns| StageTime {
        stage: stage.to_owned(),
        total_ns,
    };
    let [recv, .., reply] = what.stages_ns;
    let request = SlowRequest {
        request_id: what.request,
        method: what.method.to_string(),
        bytes: what.bytes,
        ok: what.ok,
        begin_unix_ns: WallClock::now().unix_ns(what.begin_ns),
        total_ns: what.total_ns(),
        stages: vec![stage("recv", recv), stage("reply", reply)],
        ..SlowRequest::default()
    };
    TracedRequest {
        request,
        trace,
        sharers: Vec::new(),
    }
}

/// Data I/O, as opposed to what a commit does.
fn is_data(block: &BlockIo) -> bool {
    !matches!(&*block.purpose, "journal" | "header" | "flush")
}

/// The stages that took time, in their order. Data I/O is one, for submit, queue and device pass in
/// turns; so is the commit, for waits, writes and flushes do.
fn stages(explained: &SlowRequest) -> Vec<Stage> {
    let of = |name: &str| {
        let found = explained.stages.iter().find(|stage| stage.stage == name);
        found.map_or(0, |stage| stage.total_ns)
    };
    let (submit, queue, device) = (of("submit"), of("queue"), of("device"));
    let data = submit.saturating_add(queue).saturating_add(device);
    let (name, parts) = match device {
        0 => ("submit", Vec::new()),
        _ => {
            let parts = [("submit", submit), ("queue", queue), ("device", device)];
            ("device", parts.to_vec())
        }
    };
    let commit_parts: Vec<_> = ["journal", "wait", "write", "flush"]
        .map(|name| (name, of(name)))
        .to_vec();
    let commit = commit_parts.iter().map(|(_, ns)| ns).sum();
    let mut at = 0_u64;
    let mut stages = Vec::new();
    let plain = |name| (name, of(name), Vec::new());
    let order = [
        plain("recv"),
        plain("sched"),
        plain("index"),
        (name, data, parts),
        ("journal", commit, commit_parts),
    ];
    for (name, took, parts) in order {
        let end = at.saturating_add(took);
        if took > 0 {
            let place = (signed(at), signed(end));
            stages.push(Stage { name, place, parts });
        }
        at = end;
    }
    let (reply, total) = (of("reply"), explained.total_ns);
    if reply > 0 {
        stages.push(Stage {
            name: "reply",
            place: (signed(total.saturating_sub(reply)), signed(total)),
            parts: Vec::new(),
        });
    }
    stages
}

/// When a block request was first seen and when it completed; `None`: not known.
fn place_of(block: &BlockIo) -> Option<Place> {
    let done = block.done_at_ns?;
    let first = block.queued_at_ns.or(block.issued_at_ns)?;
    Some((first.min(done), done))
}

fn signed(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX)
}

fn number(key: &'static str, value: u64) -> KeyValue {
    KeyValue::new(key, signed(value))
}

/// Attributes of the other end of a connection.
fn client(peer: Peer) -> Vec<KeyValue> {
    match peer {
        Peer::Tcp(client) => vec![
            KeyValue::new(CLIENT_ADDRESS, client.ip().to_canonical().to_string()),
            KeyValue::new(CLIENT_PORT, i64::from(client.port())),
            KeyValue::new(NETWORK_TRANSPORT, "tcp"),
        ],
        Peer::Unix { .. } => vec![KeyValue::new(NETWORK_TRANSPORT, "unix")],
    }
}

struct Maker<'a> {
    explained: &'a SlowRequest,
    trace: TraceContext,
    about: &'a About,
    shared: &'a ExporterShared,
    scope: InstrumentationScope,
}

impl Maker<'_> {
    /// The span of the request itself.
    fn request(&self) -> SpanData {
        let (what, about) = (self.explained, self.about);
        let method = match about.method {
            "" => "_OTHER",
            method => method,
        };
        let servers = &self.shared.servers;
        let (system, server) = match (method.starts_with("S3/"), &servers.s3) {
            (true, Some(s3)) => ("aws-api", s3),
            (true, None) => ("aws-api", &servers.grpc),
            (false, _) => ("grpc", &servers.grpc),
        };
        let mut attributes = vec![
            KeyValue::new(RPC_SYSTEM_NAME, system),
            KeyValue::new(RPC_METHOD, method),
            KeyValue::new(SERVER_ADDRESS, server.address.clone()),
            KeyValue::new(SERVER_PORT, i64::from(server.port)),
            number("lumpscope.request_id", what.request_id),
            number("lumpscope.bytes", what.bytes),
            number("lumpscope.block_requests", what.block_requests.into()),
        ];
        attributes.extend(about.client.into_iter().flat_map(client));
        let texts = [
            ("lumpscope.store", &what.store),
            ("lumpscope.device", &what.device),
            ("lumpscope.explanation", &what.sentence),
            ("lumpscope.incomplete", &what.incomplete),
        ];
        let said = texts.into_iter().filter(|(_, text)| !text.is_empty());
        attributes.extend(said.map(|(key, text)| KeyValue::new(key, text.clone())));
        if let Some(request) = what.waited_for_request_id {
            attributes.push(number("lumpscope.waited_for_request_id", request));
        }
        if !what.lost.is_empty() {
            attributes.push(number("lumpscope.lost_ns", what.lost_in_all_ns()));
        }
        for lost in &what.lost {
            let key = format!("lumpscope.lost_ns.{}", lost.owner);
            attributes.push(KeyValue::new(key, signed(lost.ns)));
        }
        let mut status = Status::Unset;
        if let Some(code) = about.code {
            let name = code_name(code);
            attributes.push(KeyValue::new(RPC_RESPONSE_STATUS_CODE, name));
            if code != Code::Ok {
                attributes.push(KeyValue::new(ERROR_TYPE, name));
            }
            if is_fault(code) {
                status = Status::error(name);
            }
        }
        let mut span = self.span(
            if about.method.is_empty() {
                "grpc"
            } else {
                about.method
            },
            (0, signed(what.total_ns)),
            self.trace.parent_span_id,
            self.trace.span_id,
        );
        span.span_kind = SpanKind::Server;
        span.parent_span_is_remote = self.trace.parent_span_id != 0;
        span.attributes = attributes;
        span.links = self.links(what.waited_for_request_id.map(|id| ("waited_for", id)));
        span.status = status;
        span
    }

    fn stage(&self, stage: &Stage, id: u64) -> SpanData {
        let mut span = self.span(stage.name, stage.place, self.trace.span_id, id);
        span.attributes = vec![KeyValue::new("lumpscope.stage", stage.name)];
        for (part, ns) in &stage.parts {
            let key = format!("lumpscope.{part}_ns");
            span.attributes.push(KeyValue::new(key, signed(*ns)));
        }
        span
    }

    /// The span of a block request, with all requests that it served if it is shared; `None`: when it happened was
    /// not seen.
    fn block(
        &self,
        (block, sharers): (&BlockIo, &[u64]),
        parent: u64,
        id: u64,
    ) -> Option<SpanData> {
        let mut span = self.span("", place_of(block)?, parent, id);
        span.name = block.operation.clone().into();
        let text = |key, value: &str| KeyValue::new(key, value.to_owned());
        span.attributes = vec![
            text("lumpscope.device", &self.explained.device),
            text("lumpscope.operation", &block.operation),
            text("lumpscope.purpose", &block.purpose),
            number("lumpscope.sector", block.sector),
            number("lumpscope.block_bytes", u64::from(block.sectors) * 512),
            number("lumpscope.own_bytes", block.own_bytes),
            KeyValue::new("lumpscope.shared", block.shared),
        ];
        // Times that were not seen are not said: a flush is in no queue.
        if block.queued_at_ns.and(block.issued_at_ns).is_some() {
            let queue = number("lumpscope.queue_ns", block.queue_ns);
            span.attributes.push(queue);
        }
        if block.issued_at_ns.and(block.done_at_ns).is_some() {
            let device = number("lumpscope.device_ns", block.device_ns);
            span.attributes.push(device);
        }
        if block.uncertain {
            let uncertain = KeyValue::new("lumpscope.uncertain", true);
            span.attributes.push(uncertain);
        }
        if !block.flags.is_empty() {
            let flags = block.flags.iter().map(|flag| flag.clone().into()).collect();
            let flags = Value::Array(Array::String(flags));
            span.attributes
                .push(KeyValue::new("lumpscope.flags", flags));
        }
        if let Some(queue) = block.hardware_queue {
            let queue = number("lumpscope.hardware_queue", queue.into());
            span.attributes.push(queue);
        }
        if let Some(seek) = block.seek_bytes {
            span.attributes
                .push(KeyValue::new("lumpscope.seek_bytes", seek));
        }
        if !block.previous_owner.is_empty() {
            let owner = text("lumpscope.previous_owner", &block.previous_owner);
            span.attributes.push(owner);
        }
        let before = block.previous_owner.strip_prefix("request ");
        let before = before.and_then(|id| Some(("previous_owner", id.parse().ok()?)));
        let sharers = sharers.iter().map(|id| ("shared", *id));
        span.links = self.links(before.into_iter().chain(sharers));
        if block.failed {
            let why = match block.failure.as_str() {
                "" => "the disk said that it failed".to_owned(),
                why => format!("the disk said that it failed: {why}"),
            };
            span.status = Status::error(why);
        }
        Some(span)
    }

    /// Links to those of the requests that are exported too.
    fn links(&self, requests: impl IntoIterator<Item = (&'static str, u64)>) -> SpanLinks {
        let contexts = lock(&self.shared.contexts);
        let others = requests.into_iter();
        let others = others.filter(|(_, id)| *id != self.explained.request_id);
        let mut found = others.filter_map(|(relation, id)| {
            let other = contexts.get(&id)?;
            let context = SpanContext::new(
                TraceId::from(other.trace_id),
                SpanId::from(other.span_id),
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            );
            let relation = KeyValue::new("lumpscope.relation", relation);
            Some(Link::new(context, vec![relation], 0))
        });
        let mut links = SpanLinks::default();
        links.links = found.by_ref().take(LINKS).collect();
        links.dropped_count = u32::try_from(found.count()).unwrap_or(u32::MAX);
        links
    }

    fn span(&self, name: &'static str, place: Place, parent: u64, id: u64) -> SpanData {
        let at = |ns: i64| {
            let unix_ns = self.explained.begin_unix_ns.saturating_add(ns);
            UNIX_EPOCH + Duration::from_nanos(u64::try_from(unix_ns).unwrap_or(0))
        };
        SpanData {
            span_context: SpanContext::new(
                TraceId::from(self.trace.trace_id),
                SpanId::from(id),
                TraceFlags::SAMPLED,
                false,
                self.about.state.clone(),
            ),
            parent_span_id: SpanId::from(parent),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name: name.into(),
            start_time: at(place.0),
            end_time: at(place.1),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: Default::default(),
            links: Default::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}
