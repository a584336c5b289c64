//! The door with real sockets, real TLS and real clients: who is let in, what each may do, and what
//! a client can take from the others.

pub(crate) mod harness;
mod limits;
mod logins;
mod metrics;
mod observing;
mod page;
pub(crate) mod reload;
mod tls;
mod unix;
