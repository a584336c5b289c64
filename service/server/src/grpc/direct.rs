//! Serves the calls that carry bodies in front of the generated service, and passes the others on.
//!
//! The generated service gathers each message before it is decoded and each reply before it is
//! sent; see [`super::wire`] for what is done here instead.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use lumpscope_proto::frame::{self, PREFIX_LEN, WireError};
use prost::Message;
use tokio_stream::Stream;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http::{HeaderValue, Request, Response, header};
use tonic::server::NamedService;

use super::get::{LumpFrames, ReplyShape};
use super::intake::FIELDS;
use super::lump_store::LumpStoreService;
use super::wire::Messages;
use super::{ReplyFuture, get, list, many, put, small};
use crate::door::Connection;
use crate::refusal::Refusal;
use crate::request::Scope;

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
                let asked = asked(&scope, body).await?;
                let fetched = get::get(lumps, &scope, &asked).await?;
                let connection = connection.as_ref();
                let frames = LumpFrames::new(lumps, &scope, connection, ReplyShape::Get, fetched);
                Ok(reply(frames, &scope))
            }
            Self::GetSmall => {
                let asked = asked(&scope, body).await?;
                let fetched = small::get_small(lumps, &scope, asked).await?;
                let connection = connection.as_ref();
                let frames = LumpFrames::new(lumps, &scope, connection, ReplyShape::Small, fetched);
                Ok(reply(frames, &scope))
            }
            Self::GetMany => {
                let asked = asked(&scope, body).await?;
                let frames = many::get_many(lumps, &scope, connection, &asked)?;
                Ok(reply(frames, &scope))
            }
            Self::List => {
                let asked = asked(&scope, body).await?;
                let page = list::list(lumps, &scope, connection.as_ref(), asked).await?;
                Ok(reply(tokio_stream::once(Ok(page)), &scope))
            }
        }
    }
}

/// The only message of a call, which the [intake](super::intake) has gathered.
async fn asked<M: Message + Default>(scope: &Scope, body: Body) -> Result<M, Status> {
    let mut message = body.collect().await?.to_bytes();
    scope.all_received();
    message.advance(PREFIX_LEN.min(message.len()));
    let unreadable = |_| Refusal::from(WireError::Malformed(FIELDS)).into();
    M::decode(message).map_err(unreadable)
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
