//! A request, whichever protocol it came by: its id, clocks, rights, deadline, memory and trace.
//!
//! gRPC and S3 stand on this side by side. [`Requests`] begins a [`Scope`] for each request; at the
//! end of the scope the [`Sink`] is told what it took.

mod budget;
mod cut_off;
mod deadline;
pub mod methods;
mod readers;
mod replies;
mod scope;
mod trace_context;

pub use budget::{Budget, Reserved};
pub use cut_off::unless_cut_off;
pub use deadline::{Deadline, check_timeout, timeout_of};
pub use readers::{CHUNK, Readers, Reading, is_slow};
pub(crate) use replies::{Replies, ReplyMemory, with_owner};
pub(crate) use scope::payer;
pub use scope::{LOG, RequestOutcome, Requests, Scope, Sink};
pub use trace_context::TraceParent;
