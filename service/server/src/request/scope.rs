//! One request from its arrival to the last byte of its reply: id, clock readings, outcome.
//!
//! The protocol makes the scope before any byte of the request is read. It ends when the transport has taken the end of the reply, or when the client is gone. The
//! handler fills in what only it knows: the store, the bytes, and the engine's times.

use std::hash::{Hash as _, Hasher as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use http::{Extensions, Request};
use lumpscope_engine::clock::monotonic_ns;
use lumpscope_engine::{EngineTimes, Error, LumpId, Payer, RequestCtx, RequestId, Store};
use lumpscope_objects::{Ctx, Times};
use lumpscope_observer::EndedRequest;
use lumpscope_proto::v1;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tracing::{Span, debug_span};

use super::deadline::Deadline;
use super::methods::Name;
use super::trace_context::TraceParent;
use crate::door::{Caller, Connection, Peer};
use crate::refusal::Refusal;
use crate::stores::{NamedStore, UnderWay};
use crate::usdt::{self, LumpOp};

/// Told of the begin and the end of every request, on a thread of the runtime: it must not block.
pub trait Sink: Send + Sync {
    /// A request has begun.
    fn begun(&self);

    /// A request has ended.
    fn ended(&self, ended: RequestOutcome<'_>);
}

/// A request that has ended.
pub struct RequestOutcome<'a> {
    /// Its times, without a trace; see [`EndedRequest`] for what its stages add up to.
    pub summary: EndedRequest,
    /// For metrics, probes and spans.
    pub method: Name,
    /// Its store, which may have been taken out since; `None`: it named none that exists.
    pub store: Option<&'a NamedStore>,
    /// The status of its reply.
    pub code: Code,
    /// Message to the client; empty: only the code.
    pub message: &'a str,
    /// Its place in the client's trace.
    pub parent: Option<&'a TraceParent>,
    /// The other end of its connection; `None`: it came by no socket of the door.
    pub client: Option<Peer>,
}

/// Begins requests, and gives each its id.
pub struct Requests {
    next_id: AtomicU64,
    sink: Arc<dyn Sink>,
}

impl Requests {
    /// Requests whose ids start at 1: 0 stands for "no request".
    #[must_use]
    pub fn new(sink: Arc<dyn Sink>) -> Self {
        Self {
            next_id: AtomicU64::new(1),
            sink,
        }
    }

    /// Begins a request. `None`: what it asks for is not known yet, see [`Scope::set_method`].
    #[must_use]
    pub fn begin<B>(self: &Arc<Self>, method: Option<Name>, request: &Request<B>) -> Arc<Scope> {
        self.sink.begun();
        let headers = request.headers();
        let (deadline, trace) = (Deadline::of(headers), TraceParent::of(headers));
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let span = debug_span!(
            target: LOG,
            "request",
            request_id = id,
            trace_id = trace.as_ref().map(TraceParent::as_str),
            method = method.map(|method| method.text),
            store = tracing::field::Empty,
        );
        Arc::new(Scope {
            id,
            method: method.map_or_else(OnceLock::new, OnceLock::from),
            begin_ns: monotonic_ns(),
            deadline,
            trace,
            client: Connection::of(request.extensions()).map(Connection::peer),
            span,
            requests: Arc::clone(self),
            caller: OnceLock::new(),
            payer: OnceLock::new(),
            times: OnceLock::new(),
            state: Mutex::new(ScopeState::default()),
        })
    }
}

/// The payer of this name; `connection`: one of several by which it asks, with a share of its own.
pub(crate) fn payer(login: &str, connection: Option<&Connection>) -> Payer {
    let mut hasher = std::hash::DefaultHasher::new();
    login.hash(&mut hasher);
    Payer {
        login: half_of(hasher.finish()),
        connection: connection.map_or(0, Connection::number),
    }
}

fn half_of(hash: u64) -> u32 {
    let [a, b, c, d, ..] = hash.to_ne_bytes();
    u32::from_ne_bytes([a, b, c, d])
}

/// Where requests are logged.
pub const LOG: &str = "lumpscope::request";

/// One request.
pub struct Scope {
    id: u64,
    method: OnceLock<Name>,
    begin_ns: u64,
    deadline: Option<Deadline>,
    trace: Option<TraceParent>,
    client: Option<Peer>,
    span: Span,
    requests: Arc<Requests>,
    /// Caller; set before anything else sees the scope.
    caller: OnceLock<Caller>,
    /// Who pays for its memory: its login, or its connection where there is none.
    payer: OnceLock<Payer>,
    /// The engine's times of calls that the objects made; unset: there were none.
    times: OnceLock<Arc<Times>>,
    state: Mutex<ScopeState>,
}

#[derive(Default)]
struct ScopeState {
    store: Option<Arc<NamedStore>>,
    /// Keeps the request counted as under way in its stores.
    under_way: Vec<UnderWay>,
    /// How the engine is to treat it.
    waits: RequestCtx,
    bytes: u64,
    /// When the engine got the last of what this request asked of it.
    handed_ns: Option<u64>,
    /// Engine times used before that.
    before: EngineTimes,
    /// Engine times used in all.
    engine: EngineTimes,
    /// What the engine was asked and has not answered.
    unanswered: u32,
    /// How long receiving the body took, where the engine works while it comes.
    received_ns: Option<u64>,
    ended: bool,
}

impl Scope {
    /// The request's id, unique for the life of the process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The trace of the client that the request belongs to, as 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> Option<&str> {
        self.trace.as_ref().map(TraceParent::as_str)
    }

    /// The span of the request, for what is logged while it is dealt with.
    #[must_use]
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Says what it asks for, unless that was known; before it enters a store.
    pub fn set_method(&self, method: Name) {
        if self.method.set(method).is_ok() {
            self.span.record("method", method.text);
        }
    }

    fn method(&self) -> Name {
        self.method.get().copied().unwrap_or(Name::UNKNOWN)
    }

    /// How long the request has been here.
    #[must_use]
    pub fn age(&self) -> Duration {
        Duration::from_nanos(monotonic_ns().saturating_sub(self.begin_ns))
    }

    /// Says how long receiving the body took: the engine was at work while it came, so that cannot
    /// be seen from when it was asked last.
    pub fn received(&self, ns: u64) {
        self.state().received_ns = Some(ns);
    }

    /// Says that all of the request has come: whatever the engine is asked from now on, and
    /// however often, is no part of its arrival.
    pub fn all_received(&self) {
        self.received(monotonic_ns().saturating_sub(self.begin_ns));
    }

    /// When the client stops waiting; `None`: never.
    #[must_use]
    pub fn deadline(&self) -> Option<Deadline> {
        self.deadline
    }

    /// Says how the request waits for its turn.
    pub fn wait_as(&self, options: Option<&v1::RequestOptions>) {
        let asked = options.copied().unwrap_or_default();
        self.state().waits = RequestCtx {
            id: RequestId(self.id),
            deadline: self.deadline.map(|deadline| deadline.ns),
            drop_when_late: !asked.keep_when_late,
            prioritized: asked.prioritized,
            max_queue_len: asked.max_queue_length,
            ..RequestCtx::default()
        };
    }

    /// The scope of a request with these extensions, where its protocol has put it.
    ///
    /// # Panics
    /// When it has not: every service is wrapped before it is served.
    #[must_use]
    pub fn of(extensions: &Extensions) -> Arc<Self> {
        let scope = extensions.get::<Arc<Self>>();
        Arc::clone(scope.expect("every service gives its requests a scope"))
    }

    /// Says who asks, and by which connection; only the first call counts.
    pub fn set_caller(&self, caller: Caller, connection: Option<&Connection>) {
        match connection {
            Some(connection) if !caller.has_login() => {
                self.set_payer(&format!("{} {}", caller.name(), connection.peer()), None);
            }
            connection => self.set_payer(caller.name(), connection),
        }
        // A request has one caller.
        let _ = self.caller.set(caller);
    }

    /// Says who pays for its memory, where it has no [`Caller`]; only the first call counts.
    pub fn set_payer(&self, login: &str, connection: Option<&Connection>) {
        // A request has one payer.
        let _ = self.payer.set(payer(login, connection));
    }

    /// Who pays for the memory of its message, its body and its reply.
    #[must_use]
    pub fn payer(&self) -> Payer {
        self.payer.get().copied().unwrap_or_default()
    }

    /// True: the caller's rights hold for this store, whether it exists or not.
    #[must_use]
    pub fn may_use(&self, store: &str) -> bool {
        let caller = self.caller.get();
        caller.is_some_and(|caller| caller.may_use(store))
    }

    /// Refuses a caller whose rights do not hold for this store.
    ///
    /// # Errors
    /// [`Refusal::StoreForbidden`].
    pub fn check_store(&self, store: &str) -> Result<(), Refusal> {
        if self.may_use(store) {
            return Ok(());
        }
        Err(Refusal::StoreForbidden {
            caller: self.caller_name(),
            store: store.chars().take(80).collect(),
        })
    }

    /// Refuses a caller whose rights hold for some stores only.
    ///
    /// # Errors
    /// [`Refusal::ServiceForbidden`].
    pub fn check_service(&self) -> Result<(), Refusal> {
        let caller = self.caller.get();
        if caller.is_some_and(|caller| !caller.is_restricted()) {
            return Ok(());
        }
        Err(Refusal::ServiceForbidden {
            caller: self.caller_name(),
        })
    }

    fn caller_name(&self) -> String {
        let caller = self.caller.get();
        caller.map_or_else(String::new, |caller| caller.name().to_owned())
    }

    /// Says which store the request is about.
    pub fn set_store(&self, named: &Arc<NamedStore>) {
        self.in_store(self.state(), named);
    }

    /// Enters a store with a request on data, which counts there as under way until its end.
    ///
    /// # Errors
    /// As [`NamedStore::enter`], unless the request is inside already.
    pub fn enter(&self, named: &Arc<NamedStore>) -> Result<(), Refusal> {
        let mut state = self.state();
        let inside = |held: &UnderWay| Arc::ptr_eq(held.store(), named);
        if !state.under_way.iter().any(inside) {
            state.under_way.push(named.enter()?);
        }
        self.in_store(state, named);
        Ok(())
    }

    /// Its store is known now.
    fn in_store(&self, mut state: MutexGuard<'_, ScopeState>, named: &Arc<NamedStore>) {
        let before = state.store.replace(Arc::clone(named));
        drop(state);
        self.span.record("store", &*named.name);
        if before.is_none() {
            usdt::request_start(self.id, self.method().c, &named.c_name, self.begin_ns);
        }
    }

    /// Says what the request does to which lump; to many: each.
    pub fn lump(&self, lump: LumpId, op: LumpOp) {
        usdt::lump(self.id, lump, op);
    }

    /// Ends when the store that the request is in cuts it off; `None`: it is in none yet.
    #[must_use]
    pub fn cut_off(&self) -> Option<CancellationToken> {
        let state = self.state();
        let held = state.under_way.first()?;
        Some(held.store().cut_off().clone())
    }

    /// Counts body bytes.
    pub fn add_bytes(&self, bytes: u64) {
        let mut state = self.state();
        state.bytes = state.bytes.saturating_add(bytes);
    }

    /// Asks a store and waits without holding a thread. `submit` gets what the engine wants beside the
    /// operands. `hold` lives until the engine is done, even if the client is gone.
    ///
    /// # Errors
    /// What the engine says; [`Error::Closed`] when it went away.
    pub async fn ask<T, H, F>(&self, named: &NamedStore, hold: H, submit: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        H: Send + 'static,
        F: FnOnce(&Store, RequestCtx, lumpscope_engine::OnDone<T>) -> Result<(), Error>,
    {
        let (done, result) = oneshot::channel();
        let ctx = self.with_payer(self.handed());
        let on_done = move |outcome, times| {
            drop(hold);
            // The receiver is gone when the client is: nobody wants the answer then.
            let _ = done.send((outcome, times));
        };
        let asked = async {
            submit(&named.store, ctx, Box::new(on_done))?;
            result.await.map_err(|_| Error::Closed)
        };
        // A client that gives up drops it here.
        let asked = asked.await;
        let (outcome, times) = asked.unwrap_or_else(|error| (Err(error), EngineTimes::default()));
        self.answered(times);
        outcome.map_err(|error| named.refusal(error))
    }

    /// Waits until all that a store has acknowledged is on stable storage.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub async fn sync(&self, named: &NamedStore) -> Result<(), Refusal> {
        self.ask(named, (), |store, _, on_done| store.submit_sync(on_done))
            .await
    }

    /// How the engine is to treat what it is asked for this request.
    #[must_use]
    pub fn waits(&self) -> RequestCtx {
        self.with_payer(self.state().waits)
    }

    fn with_payer(&self, waits: RequestCtx) -> RequestCtx {
        RequestCtx {
            id: RequestId(self.id),
            payer: self.payer(),
            ..waits
        }
    }

    fn handed(&self) -> RequestCtx {
        let mut state = self.state();
        state.handed_ns = Some(monotonic_ns());
        state.before = state.engine;
        state.unanswered += 1;
        state.waits
    }

    fn answered(&self, times: EngineTimes) {
        let mut state = self.state();
        state.engine += times;
        state.unanswered -= 1;
    }

    /// The request has waited so long for an answer of the engine, which took these times; the rest
    /// of them passed while bytes were sent.
    pub fn waited(&self, times: EngineTimes, ns: u64) {
        self.state().engine += times.within(ns);
    }

    /// Ends the request; only the first end counts.
    pub fn end(&self, code: Code) {
        self.end_as(code, "");
    }

    /// Ends the request, with the message that its client gets; only the first end counts.
    pub fn end_as(&self, code: Code, message: &str) {
        let end_ns = monotonic_ns();
        let mut state = self.state();
        if std::mem::replace(&mut state.ended, true) {
            return;
        }
        if let Some(times) = self.times.get() {
            state.engine += times.sum();
        }
        let summary = self.summary(&state, end_ns, code);
        let store = state.store.take();
        let inside = std::mem::take(&mut state.under_way);
        drop(state);
        self.requests.sink.ended(RequestOutcome {
            summary,
            method: self.method(),
            store: store.as_deref(),
            code,
            message,
            parent: self.trace.as_ref(),
            client: self.client,
        });
        drop(inside);
    }

    /// Splits the request's time so that the stages add up to the whole. What passed since the engine was
    /// asked what it has not answered is in none: it alone knows what it did.
    fn summary(&self, state: &ScopeState, end_ns: u64, code: Code) -> EndedRequest {
        let total = end_ns.saturating_sub(self.begin_ns);
        // An engine question that came before the last one is no part of the body's arrival.
        let handed = |handed: u64| {
            let until = handed.saturating_sub(self.begin_ns);
            until.saturating_sub(state.before.total_ns())
        };
        let received = state.received_ns.or_else(|| state.handed_ns.map(handed));
        let recv_ns = received.map_or(total, |ns| ns.min(total));
        let engine = state.engine.within(total - recv_ns);
        let rest_ns = total.saturating_sub(recv_ns + engine.total_ns());
        let reply_ns = if state.unanswered == 0 { rest_ns } else { 0 };
        EndedRequest {
            request: self.id,
            store: state.store.as_ref().map_or(0, |named| named.index),
            method: self.method().text.into(),
            bytes: state.bytes,
            begin_ns: self.begin_ns,
            end_ns,
            ok: code == Code::Ok,
            control: self.method().is_control(),
            stages_ns: [
                recv_ns,
                engine.sched_ns,
                engine.index_ns,
                engine.data_ns,
                engine.journal_ns,
                reply_ns,
            ],
            commit_ns: [engine.wait_ns, engine.write_ns, engine.flush_ns],
            waited_for: engine.longest_wait.map(|wait| wait.behind.0),
            trace: None,
        }
    }

    /// The context with which its objects are asked; the engine's times come back through it.
    #[must_use]
    pub fn context(&self) -> Ctx<'_> {
        Ctx::new(self.waits(), self.times.get_or_init(Arc::default))
    }

    fn state(&self) -> MutexGuard<'_, ScopeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Whoever held the request dropped it without an end: the client has gone away.
        self.end(Code::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoSink;

    impl Sink for NoSink {
        fn begun(&self) {}

        fn ended(&self, _: RequestOutcome<'_>) {}
    }

    /// Its stages when it ends so long after its beginning.
    fn stages(scope: &Scope, after_ns: u64) -> [u64; 6] {
        let end_ns = scope.begin_ns + after_ns;
        scope
            .summary(&scope.state(), end_ns, Code::Cancelled)
            .stages_ns
    }

    #[test]
    fn the_engine_s_time_is_no_reply_when_nobody_waited_for_its_answer() {
        let requests = Arc::new(Requests::new(Arc::new(NoSink)));
        let scope = requests.begin(None, &Request::new(()));
        scope.received(30);
        scope.handed();
        scope.handed();
        assert_eq!(stages(&scope, 1000), [30, 0, 0, 0, 0, 0]);
        let times = EngineTimes {
            data_ns: 100,
            ..EngineTimes::default()
        };
        scope.answered(times);
        assert_eq!(stages(&scope, 1000), [30, 0, 0, 100, 0, 0]);
        scope.answered(times);
        assert_eq!(stages(&scope, 1000), [30, 0, 0, 200, 0, 770]);
    }
}
