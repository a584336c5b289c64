//! The gRPC services: `LumpStore` and `Observe` of lumpscope.v1, standard health and reflection; over
//! HTTP/2, and as gRPC-Web over HTTP/1.1.

mod admin;
mod auth;
pub mod convert;
mod describe;
mod direct;
mod get;
mod health;
mod intake;
mod list;
mod lump_store;
mod many;
mod observe;
mod put;
mod request_id;
mod small;
mod status;
mod web;
mod wire;

use std::convert::Infallible;
use std::pin::Pin;

use tonic::body::Body;
use tonic::codegen::http::Response;

pub use admin::AdminService;
pub use auth::Auth;
pub use direct::Direct;
pub use health::Health;
pub use intake::Intake;
pub(crate) use intake::MESSAGES;
pub(crate) use list::LISTS;
pub use lump_store::LumpStoreService;
pub use observe::ObserveService;
pub use request_id::RequestIdService;
pub use small::SMALL;
pub use web::Web;

/// Answer of a layer around the services.
type ReplyFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Answer of a method of a generated service.
type RpcResult<T> = Result<tonic::Response<T>, tonic::Status>;
