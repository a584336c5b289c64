//! Client of the Lumpscope service: `lumpscope.v1` with retries, deadlines and checksums.
//!
//! - **Retries**: a call that was refused with UNAVAILABLE, or whose connection broke, is repeated with exponential
//!   backoff and jitter, not before the service says it can help, and never past its deadline. Only calls that can be
//!   repeated without harm; a put "if absent" whose fate is unknown ends with [`Error::Ambiguous`].
//! - **Deadline**: [`Options::timeout`] covers a call with all its repetitions. The service learns the remaining time.
//! - **Checksums**: CRC-32C, end to end. A put announces it, or compares it with the service's reply; a get compares
//!   the received bytes with the service's checksum.
//! - **Connections**: `http://`, `https://` with a CA and, where the service asks for one, a client certificate, and
//!   `unix:PATH`. A bearer token is never printed, and not sent unencrypted to another machine.
//!
//! ```no_run
//! use lumpscope_client::{Body, Client, LumpId, Options, PutOptions};
//!
//! # async fn example() -> Result<(), lumpscope_client::Error> {
//! let client = Client::connect(Options::new("http://127.0.0.1:50051")).await?;
//! let id = LumpId(0xff);
//! let stored = client.put("fast", id, Body::from("hello"), &PutOptions::default()).await?;
//! println!("created: {}, request {}", stored.created, stored.request_id);
//! let lump = client.get("fast", id, None).await?;
//! assert_eq!(&lump.bytes[..], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Messages and enums of the protocol are in [`v1`]. All calls take `&self`; a [`Client`] is cheap to clone, and
//! all clones share its connections: one, and as many as [`Options::connections`] while several calls are in flight.
//! One that breaks is made again.

mod admin;
mod body;
mod call;
mod connect;
mod error;
mod get;
mod id;
mod list;
mod live;
mod many;
mod options;
mod pool;
mod put;
mod store;
mod sum;
mod uncopied;

pub use body::{Body, BoxRead};
pub use call::Client;
pub use error::{Error, Refusal};
pub use get::Lump;
pub use id::{IdError, LumpId};
pub use list::Listing;
pub use live::Live;
pub use lumpscope_proto::v1;
pub use many::GetMany;
pub use options::{Options, Retry, Tls, Token};
pub use pool::Connections;
pub use put::PutOptions;
pub use tonic::Code;

/// Bytes of a chunk of a put: with its framing it fits into two HTTP/2 frames as the service has them by default.
pub const CHUNK: usize = (1 << 20) - 64;

/// Most bytes that [`Client::put_small`] and [`Client::get_small`] carry.
pub const SMALL: usize = 1 << 20;

/// Most ids of one [`Client::get_many`] or [`Client::delete_many`].
pub const MANY: usize = 16_384;
