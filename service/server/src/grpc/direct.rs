//! Serves the calls that carry bodies in front of the generated service, and passes the others on.
//!
//! The generated service gathers each message before it is decoded and each reply before it is
//! sent; see [`super::wire`] for what is done here instead.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use lumpscope_proto::frame;
use prost::Message;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderValue, Request, Response, header};
use tonic::server::NamedService;

use super::get::{LumpFrames, ReplyShape};
use super::lump_store::LumpStoreService;
use super::source::PatientBody;
use super::wire::{Messages, read_message};
use super::{ReplyFuture, get, list, many, put, small};
use crate::door::Connection;
use crate::request::Scope;

/// Most bytes of the request of a Get, a GetSmall or a List.
const MAX_GET: usize = 16 << 10;
/// Most bytes of a GetMany request: 16,384 ids in the longest form.
const MAX_GET_MANY: usize = 1 << 20;

/// A service whose bodies are not copied on their way.
#[derive(Clone)]
pub struct Direct<S> {
    inner: S,
    lumps: LumpStoreService,
}

impl<S> Direct<S> {
    /// Serves the bodies of `lumps`, and passes on to `inner` what carries none.
    #[must_use]
    pub fn new(lumps: LumpStoreService, inner: S) -> Self {
        Self { inner, lumps }
    }
}

impl<S: NamedService> NamedService for Direct<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Direct<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ReplyFuture;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> ReplyFuture {
        let serve = match request.uri().path() {
            "/lumpscope.v1.LumpStore/Put" => DirectMethod::Put,
            "/lumpscope.v1.LumpStore/PutMany" => DirectMethod::PutMany,
            "/lumpscope.v1.LumpStore/Get" => DirectMethod::Get,
            "/lumpscope.v1.LumpStore/GetSmall" => DirectMethod::GetSmall,
            "/lumpscope.v1.LumpStore/GetMany" => DirectMethod::GetMany,
            "/lumpscope.v1.LumpStore/List" => DirectMethod::List,
            _ => return Box::pin(self.inner.call(request)),
        };
        let lumps = self.lumps.clone();
        Box::pin(async move {
            let served = serve.run(&lumps, request).await;
            Ok(served.unwrap_or_else(Status::into_http))
        })
    }
}

/// A call that is served here.
#[derive(Clone, Copy)]
enum DirectMethod {
    Put,
    PutMany,
    Get,
    GetSmall,
    GetMany,
    List,
}

impl DirectMethod {
    async fn run(
        self,
        lumps: &LumpStoreService,
        request: Request<Body>,
    ) -> Result<Response<Body>, Status> {
        let (head, body) = request.into_parts();
        let scope = Scope::of(&head.extensions);
        let connection = head.extensions.get::<Connection>().cloned();
        match self {
            Self::Put => {
                let stored = put::put(lumps, &scope, body).await?;
                let only = tokio_stream::once(Ok(frame::message(&stored)));
                Ok(reply(only, &scope))
            }
            Self::PutMany => {
                let replies = many::put_many(lumps, &scope, connection, body);
                Ok(reply(replies, &scope))
            }
            Self::Get => {
                let asked = asked(lumps, &scope, body, MAX_GET).await?;
                let fetched = get::get(lumps, &scope, &asked).await?;
                let connection = connection.as_ref();
                let frames = LumpFrames::new(lumps, &scope, connection, ReplyShape::Get, fetched);
                Ok(reply(frames, &scope))
            }
            Self::GetSmall => {
                let asked = asked(lumps, &scope, body, MAX_GET).await?;
                let fetched = small::get_small(lumps, &scope, asked).await?;
                let connection = connection.as_ref();
                let frames = LumpFrames::new(lumps, &scope, connection, ReplyShape::Small, fetched);
                Ok(reply(frames, &scope))
            }
            Self::GetMany => {
                let asked = asked(lumps, &scope, body, MAX_GET_MANY).await?;
                let frames = many::get_many(lumps, &scope, connection, &asked)?;
                Ok(reply(frames, &scope))
            }
            Self::List => {
                let asked = asked(lumps, &scope, body, MAX_GET).await?;
                let page = list::list(lumps, &scope, connection.as_ref(), asked).await?;
                Ok(reply(tokio_stream::once(Ok(page)), &scope))
            }
        }
    }
}

/// The only message of a call, of at most `max` bytes.
async fn asked<M: Message + Default>(
    lumps: &LumpStoreService,
    scope: &Scope,
    body: Body,
    max: usize,
) -> Result<M, Status> {
    let mut source = PatientBody::new(body, lumps.body_timeout);
    let asked = read_message(&mut source, max).await?;
    scope.all_received();
    Ok(asked)
}

fn reply(
    frames: impl Stream<Item = Result<Bytes, Status>> + Unpin + Send + 'static,
    scope: &Arc<Scope>,
) -> Response<Body> {
    let deadline = scope.deadline().map(|deadline| deadline.ns);
    let mut response = Response::new(Body::new(Messages::new(frames, deadline)));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(header::CONTENT_TYPE, grpc);
    response
}
