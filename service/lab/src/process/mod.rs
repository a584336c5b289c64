//! Processes of a measurement: they end in time, with us, and on a signal.

mod child;
mod children;
mod interrupt;
mod server;

pub use child::tie_to_parent;
pub(crate) use child::{ChildGuard, in_path};
pub(crate) use children::Children;
pub(crate) use interrupt::Interrupt;
pub(crate) use server::{
    SERVICE, STORE, Server, TICKS_PER_SECOND, cpu_seconds, format, serve, serve_one,
};
