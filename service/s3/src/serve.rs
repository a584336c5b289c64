//! Serves S3 on connections that the door has let in, and gives every request its id and its times.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONNECTION, EXPECT, ORIGIN};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use percent_encoding::percent_decode_str;
use s3s::dto::CORSConfiguration;
use s3s::service::S3Service;
use s3s::{HttpError, S3Error};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::codegen::Service;
use tonic::transport::server::Connected as _;
use tracing::Instrument as _;

use super::body::{Flow, Patience, Patient, ScopedBody};
use super::form;
use super::reply::{self, Answer};
use super::route::{Routed, Router};
use super::{cors, error, hosts, operations, signed, slow};
use lumpscope_server::door::{self, Admitted, Connection, Entrance, HttpLimits, Leave, Listener};
use lumpscope_server::refusal::Refusal;
use lumpscope_server::request::{Readers, Requests, Scope, unless_cut_off};

/// Most bytes of framing for each byte of a chunk: chunks of one byte are the worst.
const FRAMING: u64 = 2;
/// The id of a request, in its reply.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Names the source of a copy.
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// State shared by the requests on all connections.
#[derive(Clone)]
pub(super) struct ServeState {
    pub(super) s3: S3Service,
    pub(super) router: Router,
    pub(super) requests: Arc<Requests>,
    pub(super) readers: Readers,
    pub(super) patience: Patience,
    pub(super) max_header_bytes: u32,
}

/// Serves until `stopped` says so.
pub(super) async fn serve(
    listener: TcpListener,
    entrance: Arc<Entrance>,
    limits: HttpLimits,
    serving: ServeState,
    stopped: watch::Receiver<bool>,
) {
    let serve = move |admitted, leave| one(serving.clone(), limits, admitted, leave);
    door::accept(Listener::Tcp(listener), entrance, stopped, serve).await;
}

/// Serves one connection until it has ended.
async fn one(serving: ServeState, limits: HttpLimits, admitted: Admitted, leave: Leave) {
    let connection = admitted.connect_info();
    let service = On {
        serving,
        connection,
    };
    door::serve_http(service, limits, admitted, leave).await;
}

/// S3 on one connection.
#[derive(Clone)]
struct On {
    serving: ServeState,
    connection: Connection,
}

type Reply = Pin<Box<dyn Future<Output = Result<Response<ScopedBody>, HttpError>> + Send>>;

impl<B> Service<Request<B>> for On
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
{
    type Response = Response<ScopedBody>;
    type Error = HttpError;
    type Future = Reply;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<B>) -> Reply {
        let call = self.connection.call();
        let on = self.clone();
        request.extensions_mut().insert(self.connection.clone());
        let scope = on.serving.requests.begin(None, &request);
        let span = scope.span().clone();
        let reply = async move {
            let reply = on.answer(scope, request).await;
            drop(call);
            reply
        };
        Box::pin(reply.instrument(span))
    }
}

impl On {
    async fn answer<B>(
        &self,
        scope: Arc<Scope>,
        request: Request<B>,
    ) -> Result<Response<ScopedBody>, HttpError>
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    {
        let is_head = request.method() == Method::HEAD;
        let expects = request.headers().contains_key(EXPECT);
        let expects_nothing = expects && request.body().is_end_stream();
        let (mut parts, body) = request.into_parts();
        let mut patience = self.serving.patience;
        patience.max = patience.max.saturating_mul(FRAMING);
        let (body, flow) = Patient::new(
            body,
            (patience, expects),
            self.serving.router.endpoint.put_memory.clone(),
        );
        parts.extensions.insert(Arc::clone(&scope));
        parts.extensions.insert(Arc::clone(&flow));
        let mut request = Request::from_parts(parts, s3s::Body::http_body_unsync(body));
        let misnamed = hosts::settle(&mut request).err();
        let misnamed = misnamed.map(|refused| error::answer(&refused, scope.id()));
        let pages = self.pages(&request);
        let is_preflight = request.method() == Method::OPTIONS;
        let told = pages.as_deref().filter(|_| !is_preflight);
        let told = told.map(|pages| {
            let (method, headers) = (request.method().as_str(), request.headers());
            cors::headers(pages, method, headers)
        });
        let told = told.unwrap_or_default();
        let at_once = || self.at_once(&mut request, pages.as_deref(), &scope);
        if let Some(response) = misnamed.or_else(at_once) {
            let mut response = self.traced(&scope, &flow, response, is_head);
            response.headers_mut().extend(told);
            return Ok(response);
        }
        let is_copy = request.headers().contains_key(COPY_SOURCE);
        let mut work = Box::pin(work(&self.serving, request, (&scope, &flow)));
        let response = match is_copy {
            false => work.await?,
            true => match tokio::time::timeout(slow::BEAT, &mut work).await {
                Ok(response) => response?,
                Err(_) => slow::response(Box::pin(late(work, Arc::clone(&scope))), slow::BEAT),
            },
        };
        let mut response = self.traced(&scope, &flow, response, is_head);
        response.headers_mut().extend(told);
        if expects_nothing {
            // Nobody said "100 Continue", for nothing was to come. botocore reads the next answer
            // on such a connection wrongly, so there is none.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        Ok(response)
    }

    /// The rules of the bucket for pages of the web, if one asks.
    fn pages(&self, request: &Request<s3s::Body>) -> Option<Arc<CORSConfiguration>> {
        request.headers().get(ORIGIN)?;
        let endpoint = &self.serving.router.endpoint;
        let host = endpoint.bucket_of_host(request.headers()).ok()?;
        let path = percent_decode_str(request.uri().path()).decode_utf8();
        let path = path.ok()?;
        let bucket = match &host {
            Some(bucket) => bucket,
            None => path.strip_prefix('/')?.split('/').next()?,
        };
        let inside = endpoint.place(bucket).ok()?;
        endpoint.settings.cors(&inside.objects, bucket)
    }

    /// The answer to what is refused before its signature is looked at, or needs none.
    fn at_once(
        &self,
        request: &mut Request<s3s::Body>,
        pages: Option<&CORSConfiguration>,
        scope: &Scope,
    ) -> Option<Answer> {
        let refused = |error: S3Error| error::answer(&error, scope.id());
        if let Some(error) = self.too_long(request) {
            return Some(refused(error));
        }
        if form::is_form(request.method(), request.headers()) {
            return None;
        }
        if *request.method() != Method::OPTIONS {
            return signed::check(request).err().map(refused);
        }
        scope.set_method(operations::PREFLIGHT);
        Some(match cors::preflight(pages, request.headers()) {
            Err(error) => refused(error),
            Ok(headers) => {
                let mut answer = reply::empty(StatusCode::OK);
                *answer.headers_mut() = headers;
                answer
            }
        })
    }

    /// Refuses headers that are longer than the service takes, but not too long for the buffer.
    fn too_long(&self, request: &Request<s3s::Body>) -> Option<S3Error> {
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| name.as_str().len() + value.len());
        let address = request.uri().path_and_query();
        let bytes = headers.sum::<usize>() + address.map_or(0, |address| address.as_str().len());
        let most = self.serving.max_header_bytes;
        (bytes as u64 > most.into()).then(|| error::long_headers(bytes, most))
    }

    /// The reply with its id, whose end is the end of the request.
    fn traced(
        &self,
        scope: &Arc<Scope>,
        flow: &Flow,
        mut response: Answer,
        is_head: bool,
    ) -> Response<ScopedBody> {
        scope.set_method(operations::UNKNOWN);
        scope.received(flow.received_ns());
        let status = response.status();
        let code = error::code(status);
        let headers = response.headers_mut();
        if !flow.is_over() {
            // The rest of the body stands before the next request.
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        headers.insert(REQUEST_ID, HeaderValue::from(scope.id()));
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let retry = headers.entry(http::header::RETRY_AFTER);
            retry.or_insert(HeaderValue::from_static("1"));
        }
        let none = is_head || status == StatusCode::NOT_MODIFIED;
        let left = if none {
            Some(0)
        } else {
            response.body().size_hint().exact()
        };
        let reading = left.filter(|&bytes| bytes > 0);
        let reading = reading.map(|bytes| {
            let connection = Some(&self.connection);
            self.serving.readers.watch(connection, bytes)
        });
        let scope = Arc::clone(scope);
        response.map(|body| ScopedBody::new(body, scope, code, left, reading))
    }
}

/// What becomes of a request.
fn work(
    serving: &ServeState,
    request: Request<s3s::Body>,
    (scope, flow): (&Arc<Scope>, &Arc<Flow>),
) -> impl Future<Output = Result<Answer, HttpError>> + Send + use<> {
    let (scope, flow) = (Arc::clone(scope), Arc::clone(flow));
    let (s3, router) = (serving.s3.clone(), serving.router.clone());
    async move {
        let refused = |error| error::answer(&error, scope.id());
        let call = async {
            if form::is_form(request.method(), request.headers()) {
                return Ok(router.form(request).await.unwrap_or_else(refused));
            }
            let answer = s3.call(request).await?;
            Ok(match answer.extensions().get::<Routed>() {
                Some(Routed) => answer,
                None => refused(error::of_s3s(&answer)),
            })
        };
        match unless_cut_off(&scope, call).await {
            None => Ok(refused(error::refused(&Refusal::CutOff))),
            Some(answer) => match flow.fault() {
                Some(fault) => Ok(refused(error::fault(fault))),
                None => answer,
            },
        }
    }
}

/// The document of an answer whose status has been sent: if it tells an error, the request has
/// ended with that.
async fn late(
    work: impl Future<Output = Result<Answer, HttpError>> + Send,
    scope: Arc<Scope>,
) -> Result<Bytes, s3s::StdError> {
    let response = work.await.map_err(s3s::StdError::from)?;
    if !response.status().is_success() {
        scope.end(error::code(response.status()));
    }
    let document = response.body().bytes();
    Ok(document.ok_or("an answer to a copy is a document")?)
}
