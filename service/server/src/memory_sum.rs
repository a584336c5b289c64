//! The sum of memory that clients can make the service hold.

use crate::config::ServeConfig;
use crate::connection_memory;
use crate::grpc::{LISTS, MESSAGES};
use crate::observed::{ANSWERS, WATCHED};
use crate::request::Bodies;

/// Program, runtime, observer and the state of stores that hold little.
const SELF: u64 = 128 << 20;
/// Free buffers that a store keeps.
const KEPT: u64 = 128 << 20;
/// Documents of S3 in XML, as they are read.
pub const S3_XML: u64 = 64 << 20;
/// A connection of HTTP/1, with TLS.
const HTTP: u64 = 256 << 10;

/// Most bytes that the service holds whatever its clients do, beside the index of its stores.
#[must_use]
pub fn memory_sum(config: &ServeConfig) -> u64 {
    let put = config.put_memory().0;
    let stores = config.stores.len() as u64 * (Bodies::most(config.get_memory().0) + KEPT);
    let most = config.max_connections as u64;
    let entrances = 1 + u64::from(config.unix_socket.is_some());
    let connections = connection_memory::most(config, entrances * most);
    let s3 = if config.s3_listen.is_some() {
        most * HTTP + Bodies::most(S3_XML)
    } else {
        0
    };
    let replies = Bodies::most(LISTS) + Bodies::most(ANSWERS) + WATCHED;
    SELF + Bodies::most(put) + stores + MESSAGES + replies + connections + s3 + 128 * HTTP
}
