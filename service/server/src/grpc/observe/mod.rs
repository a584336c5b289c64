//! `lumpscope.v1.Observe`: what the observer knows, and what it is told to do.

mod live;

use std::sync::Arc;

use lumpscope_observer::{OPERATIONS, OWNERS, Observer};
use lumpscope_proto::v1::{self, observe_server::Observe};
use prost::Message;
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use self::live::{BLOCKS_WAITING, Batch, BoxStream, Doubts, LINES_WAITING, LiveReplies};
use super::RpcResult;
use crate::door::Connection;
use crate::observed::{
    Asking, SharedAnswers, UNPACKED, Unanswered, WatchKind, Watches, bytes_of_explained,
    bytes_of_reports, convert, slowest_limit,
};
use crate::refusal::Refusal;
use crate::request::{ReplyMemory, Scope};
use crate::stores::Stores;

/// Block requests in one reply.
const BLOCKS_A_REPLY: usize = 512;
/// Bytes of a recording in one reply; a line more than that goes alone.
const BYTES_A_REPLY: usize = 256 << 10;
/// Reports by the stores that they are of, and whether they are without heat.
type Reports = SharedAnswers<(Vec<String>, bool), Vec<v1::StoreReport>>;

/// The service; cheap to clone.
#[derive(Clone)]
pub struct ObserveService {
    asking: Asking,
    reports: Arc<Reports>,
    watches: Arc<Watches>,
    stopped: watch::Receiver<bool>,
}

impl ObserveService {
    /// A service over open stores. Whoever watches is counted in `watches`, until `stopped`. Must be
    /// called within a runtime.
    #[must_use]
    pub fn new(
        stores: Stores,
        observer: Observer,
        watches: Arc<Watches>,
        stopped: watch::Receiver<bool>,
    ) -> Self {
        Self {
            reports: Arc::new(SharedAnswers::new(watches.turns.clone())),
            asking: Asking {
                stores,
                observer,
                turns: watches.turns.clone(),
            },
            watches,
            stopped,
        }
    }

    /// Memory for an answer of at most `bytes`.
    async fn memory(
        &self,
        scope: &Scope,
        connection: Option<&Connection>,
        bytes: u64,
    ) -> Result<Arc<ReplyMemory>, Refusal> {
        let answers = &self.watches.answers;
        answers.reserve(scope.payer(), connection, bytes).await
    }

    /// The stores that are meant by a name, or by none, and that the caller may use.
    fn meant(&self, scope: &Scope, wanted: &str) -> Result<Vec<String>, Refusal> {
        if !wanted.is_empty() {
            scope.check_store(wanted)?;
            if self.asking.stores.find(wanted).is_none() {
                return Err(Refusal::UnknownStore {
                    name: wanted.chars().take(80).collect(),
                    known: self.asking.stores.names(),
                });
            }
        }
        let all = self.asking.stores.all();
        let names = all.iter().map(|named| &named.name);
        Ok(names
            .filter(|name| wanted.is_empty() || *name == wanted)
            .filter(|name| scope.may_use(name))
            .cloned()
            .collect())
    }
}

/// The question was not answered.
fn unanswered(error: Unanswered) -> Status {
    match error {
        Unanswered::Busy => Refusal::ObserverBusy.into(),
        Unanswered::Lost(_) => Status::internal(error.to_string()),
    }
}

/// The scope of a request, and the connection by which it came.
fn of<T>(request: &Request<T>) -> (Arc<Scope>, Option<Connection>) {
    let extensions = request.extensions();
    (
        Scope::of(extensions),
        extensions.get::<Connection>().cloned(),
    )
}

/// A reply that takes its memory along.
fn with<T: Message>(kept: Arc<ReplyMemory>, answer: T) -> Response<T> {
    kept.shrink(answer.encoded_len() * UNPACKED);
    let mut response = Response::new(answer);
    response.extensions_mut().insert(kept);
    response
}

#[tonic::async_trait]
impl Observe for ObserveService {
    async fn report(&self, request: Request<v1::ReportRequest>) -> RpcResult<v1::ReportResponse> {
        let (scope, connection) = of(&request);
        let asked = request.into_inner();
        let names = self.meant(&scope, &asked.store)?;
        let bytes = bytes_of_reports(names.len());
        let kept = self.memory(&scope, connection.as_ref(), bytes).await?;
        let report = move |r| convert::store_report(r, !asked.without_heat);
        let key = (names.clone(), asked.without_heat);
        let question = self.asking.question(move |observer| {
            let reports = names.iter().filter_map(|name| observer.report(name));
            reports.map(report).collect()
        });
        let stores = self.reports.ask(key, question);
        let answer = v1::ReportResponse {
            stores: stores.await.map_err(unanswered)?,
            request_id: scope.id(),
        };
        Ok(with(kept, answer))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> RpcResult<v1::ExplainResponse> {
        let (scope, connection) = of(&request);
        let bytes = bytes_of_explained(1);
        let kept = self.memory(&scope, connection.as_ref(), bytes).await?;
        let id = request.into_inner().request_id;
        let may_use = |store: &str| scope.may_use(store);
        let known = self.asking.explain(id, may_use).await.map_err(unanswered)?;
        let answer = v1::ExplainResponse {
            request: Some(known.ok_or(Refusal::UnknownRequest { id })?),
            request_id: scope.id(),
        };
        Ok(with(kept, answer))
    }

    async fn list_slowest(
        &self,
        request: Request<v1::ListSlowestRequest>,
    ) -> RpcResult<v1::ListSlowestResponse> {
        let (scope, connection) = of(&request);
        let asked = request.into_inner();
        let names = self.meant(&scope, &asked.store)?;
        let limit = slowest_limit(&asked);
        let bytes = bytes_of_explained(limit);
        let kept = self.memory(&scope, connection.as_ref(), bytes).await?;
        let within = match asked.within_seconds {
            0 => u32::MAX,
            seconds => seconds,
        };
        let slowest = self.asking.slowest((names, asked.failed), within, limit);
        let answer = v1::ListSlowestResponse {
            requests: slowest.await.map_err(unanswered)?,
            request_id: scope.id(),
        };
        Ok(with(kept, answer))
    }

    type TraceStream = BoxStream<v1::TraceResponse>;

    async fn trace(&self, request: Request<v1::TraceRequest>) -> RpcResult<Self::TraceStream> {
        let scope = Scope::of(request.extensions());
        let asked = request.into_inner();
        let stores = self.meant(&scope, &asked.store)?;
        check(&asked)?;
        let live = LiveReplies {
            watching: self.watches.begin(WatchKind::Trace)?,
            watch: self
                .asking
                .observer
                .watch_blocks(asked, BLOCKS_WAITING)
                .within(&self.watches.blocks),
            stopped: self.stopped.clone(),
            doubts: Some(Doubts {
                observer: self.asking.observer.clone(),
                stores,
            }),
        };
        let replies = live.stream(move |batch| trace_replies(batch, &|name| scope.may_use(name)));
        Ok(Response::new(replies))
    }

    type RecordStream = BoxStream<v1::RecordResponse>;

    async fn record(&self, request: Request<v1::RecordRequest>) -> RpcResult<Self::RecordStream> {
        let scope = Scope::of(request.extensions());
        scope.check_service()?;
        let live = LiveReplies {
            watching: self.watches.begin(WatchKind::Record)?,
            watch: self
                .asking
                .observer
                .watch_inputs(LINES_WAITING)
                .within(&self.watches.lines),
            stopped: self.stopped.clone(),
            doubts: None,
        };
        Ok(Response::new(live.stream(record_replies)))
    }

    async fn describe_observer(
        &self,
        request: Request<v1::DescribeObserverRequest>,
    ) -> RpcResult<v1::DescribeObserverResponse> {
        let scope = Scope::of(request.extensions());
        let names = self.meant(&scope, "")?;
        let request_id = scope.id();
        let described = self.asking.describe(names);
        Ok(Response::new(v1::DescribeObserverResponse {
            request_id,
            ..described.await.map_err(unanswered)?
        }))
    }

    async fn set_events(
        &self,
        request: Request<v1::SetEventsRequest>,
    ) -> RpcResult<v1::SetEventsResponse> {
        let scope = Scope::of(request.extensions());
        scope.check_service()?;
        // Nothing said is not "no events at all".
        let wanted = request.into_inner().events;
        let wanted = wanted.ok_or(Refusal::FieldMissing { field: "events" })?;
        let set = self.asking.ask(move |observer| {
            let set = observer.set_events(wanted);
            set.map(|()| observer.events())
        });
        let now = set
            .await
            .map_err(unanswered)?
            .map_err(|why| Refusal::NotNow { why })?;
        tracing::info!(
            one_in = now.one_in,
            slower_than_ns = now.slower_than_ns,
            "the event policy was changed"
        );
        Ok(Response::new(v1::SetEventsResponse {
            events: Some(now),
            request_id: scope.id(),
        }))
    }
}

/// Refuses a filter that nothing can ever match.
fn check(asked: &v1::TraceRequest) -> Result<(), Refusal> {
    known("owner", &asked.owner, &OWNERS)?;
    known("operation", &asked.operation, &OPERATIONS)
}

/// Refuses a word that nothing can ever match.
fn known(field: &'static str, word: &str, words: &[&str]) -> Result<(), Refusal> {
    if word.is_empty() || words.contains(&word) {
        return Ok(());
    }
    Err(Refusal::UnknownWord {
        field,
        got: word.chars().take(80).collect(),
        known: words.join(", "),
    })
}

/// The block requests that a caller may see, in replies of bounded size.
fn trace_replies(
    batch: Batch<'_, v1::BlockLine>,
    may_use: &dyn Fn(&str) -> bool,
) -> Vec<v1::TraceResponse> {
    let reply = |blocks| v1::TraceResponse {
        blocks,
        dropped: batch.dropped,
        incomplete: batch.doubts.to_owned(),
    };
    let mut replies = Vec::new();
    let mut blocks = Vec::new();
    let seen = batch.things.into_iter();
    for line in seen.filter_map(|line| visible(line, may_use)) {
        blocks.push(line);
        if blocks.len() == BLOCKS_A_REPLY {
            replies.push(reply(std::mem::take(&mut blocks)));
        }
    }
    if !blocks.is_empty() || (replies.is_empty() && batch.heartbeat) {
        replies.push(reply(blocks));
    }
    replies
}

/// A block request as a caller may see it; `None`: it was made for stores that are not the caller's.
fn visible(mut line: v1::BlockLine, may_use: &dyn Fn(&str) -> bool) -> Option<v1::BlockLine> {
    let all = line.stores.len();
    line.stores.retain(|name| may_use(name));
    if line.stores.is_empty() {
        return None;
    }
    // Which of the requests are the caller's is not known then.
    if line.stores.len() < all {
        line.request_ids.clear();
    }
    Some(line)
}

/// Whole lines, in replies of bounded size.
fn record_replies(batch: Batch<'_, String>) -> Vec<v1::RecordResponse> {
    let reply = |lines: Vec<u8>| v1::RecordResponse {
        lines: lines.into(),
        dropped: batch.dropped,
    };
    let mut replies = Vec::new();
    let mut lines = Vec::new();
    for line in batch.things {
        if !lines.is_empty() && lines.len() + line.len() >= BYTES_A_REPLY {
            replies.push(reply(std::mem::take(&mut lines)));
        }
        lines.extend_from_slice(line.trim_end().as_bytes());
        lines.push(b'\n');
    }
    if !lines.is_empty() || (replies.is_empty() && batch.heartbeat) {
        replies.push(reply(lines));
    }
    replies
}

#[cfg(test)]
mod tests;
