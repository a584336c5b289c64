//! Abuse of a service by strangers and broken clients, over real sockets. After each abuse the
//! service answers, holds nothing, has not grown, and its store has exactly the lumps that it
//! acknowledged.

mod bodies;
mod floods;
pub(crate) mod harness;
mod idle;
mod random;
mod resets;
mod unreadable;
pub(crate) mod wire;
