//! The gRPC services: `LumpStore` and `Observe` of lumpscope.v1, standard health and reflection.

mod admin;
mod auth;
pub mod convert;
mod describe;
mod direct;
mod get;
mod health;
mod intake;
mod lump_store;
mod many;
mod observe;
mod put;
mod request_id;
mod small;
mod source;
mod status;
pub mod wire;

pub use admin::{Admin, AdminService};
pub use auth::Auth;
pub use direct::Direct;
pub use health::Health;
pub use intake::Intake;
pub(crate) use intake::MESSAGES;
pub use lump_store::LumpStoreService;
pub use observe::ObserveService;
pub use request_id::Traced;
pub use small::SMALL;
