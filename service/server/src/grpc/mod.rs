//! The gRPC services: `LumpStore` and `Observe` of lumpscope.v1, standard health and reflection.

mod admin;
mod auth;
pub mod convert;
mod deadline;
mod describe;
mod direct;
mod get;
mod health;
mod lump_store;
mod many;
mod memory;
pub mod methods;
mod observe;
mod put;
mod readers;
mod request_id;
mod scope;
mod small;
mod source;
pub mod status;
mod trace_context;
pub mod wire;

pub use admin::{Admin, AdminService};
pub use auth::Auth;
#[doc(hidden)]
pub use deadline::timeout_of;
pub use direct::Direct;
pub use get::CHUNK as GET_CHUNK;
pub use health::Health;
pub use lump_store::LumpStoreService;
pub use memory::{Memory, Reservation};
pub use observe::ObserveService;
pub(crate) use observe::asking::{Asking, DEFAULT_SLOWEST};
pub(crate) use observe::convert as observed;
pub use observe::live;
pub(crate) use readers::{Readers, Reading, is_slow};
pub use request_id::Traced;
pub(crate) use request_id::unless_cut_off;
pub use scope::{Recorder, Scope};
pub use small::SMALL;
pub use trace_context::TraceParent;
