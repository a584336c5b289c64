//! The gRPC services: `LumpStore` and `Observe` of lumpscope.v1, standard health and reflection.

mod admin;
mod auth;
pub mod convert;
mod describe;
mod get;
mod health;
mod lump_store;
mod memory;
pub mod methods;
mod observe;
mod put;
mod request_id;
mod scope;
pub mod status;

pub use admin::{Admin, AdminService};
pub use auth::Auth;
pub use get::{CHUNK as GET_CHUNK, GetStream};
pub use health::Health;
pub use lump_store::LumpStoreService;
pub use memory::{Memory, Reservation};
pub use observe::ObserveService;
pub use request_id::Traced;
pub use scope::{Recorder, Scope};
