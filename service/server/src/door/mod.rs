//! Where connections come in.

mod connection;

pub use connection::Connection;
