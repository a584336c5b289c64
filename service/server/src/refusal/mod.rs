//! Why a request is refused: the one table from everything that can go wrong to codes and messages.
//!
//! A new error of the engine does not compile until its code and its advice to the client stand
//! here. The codes are those of gRPC; S3 has its own words for them.

mod engine;
mod table;

use std::time::Duration;

use lumpscope_engine::Error;
use lumpscope_proto::frame::WireError;

use self::engine::told;
use crate::door::Denied;
use crate::error::ServerError;

/// Why a request is refused.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum Refusal {
    /// A `LumpId` without any of its forms, or no `LumpId` at all.
    #[error("field {field} is missing: set its `raw` (16 bytes) or its `text` (hexadecimal)")]
    IdMissing { field: &'static str },
    /// `raw` of the wrong length.
    #[error("field {field}: `raw` has {got} bytes: send exactly 16, most significant first")]
    IdLength {
        field: &'static str,
        /// Bytes that came.
        got: usize,
    },
    /// `text` that is no hexadecimal number.
    #[error("field {field}: `text` is {got:?}: send 1 to 32 hexadecimal digits")]
    IdText { field: &'static str, got: String },
    /// No such store.
    #[error("there is no store {name:?}: this service has {known}")]
    UnknownStore { name: String, known: String },
    /// A request that nothing is known of, or nothing that this caller may know.
    #[error(
        "nothing is known of request {id}: it has not ended, it ended too long ago and was not \
         among the slowest, or it was made to a store that you may not use"
    )]
    UnknownRequest { id: u64 },
    /// A word that stands for nothing.
    #[error("field {field} is {got:?}: send one of {known}, or nothing for all")]
    UnknownWord {
        field: &'static str,
        got: String,
        known: String,
    },
    /// A message without what it is about.
    #[error("field {field} is missing")]
    FieldMissing { field: &'static str },
    /// As many calls watch as may.
    #[error("{max} calls of Trace and Record are under way, which is the most: end one first")]
    TooManyWatches { max: usize },
    /// A caller who is not known.
    #[error("{0}")]
    Denied(#[from] Denied),
    /// A caller who is known and lacks a right.
    #[error(
        "{caller:?} may not call {method}: it lacks the scope {right:?}; add it in the file of \
         tokens, or use another token"
    )]
    RightMissing {
        /// Name of the token or certificate.
        caller: String,
        /// The right, as the file of tokens names it under `scopes`.
        right: &'static str,
        method: &'static str,
    },
    /// A caller who may use other stores.
    #[error(
        "{caller:?} may not use store {store:?}: add it to its stores in the file of tokens, or use \
         another token"
    )]
    StoreForbidden {
        /// Name of the token or certificate.
        caller: String,
        store: String,
    },
    /// A caller who may use some stores, for what concerns all.
    #[error(
        "{caller:?} may use some stores only, and this concerns the whole service: use a token \
         without a list of stores"
    )]
    ServiceForbidden {
        /// Name of the token or certificate.
        caller: String,
    },
    /// New certificates or tokens that cannot be used.
    #[error("{0}")]
    NotReloaded(Box<ServerError>),
    /// The first message of a put is no header.
    #[error("the first message of a put must be its header: send store, id and length first")]
    HeaderMissing,
    /// A second header inside a put.
    #[error("a put has one header: send only chunks after it, and a new call for the next lump")]
    SecondHeader,
    /// A message of a put that is neither header nor chunk.
    #[error("a message of the put is empty: set `header` in the first and `chunk` in the others")]
    EmptyMessage,
    /// The stream ended early.
    #[error(
        "the stream ended after {got} of {announced} bytes: nothing was stored; send all bytes, \
         or announce the length that comes"
    )]
    StreamShort {
        /// Length in the header.
        announced: u64,
        /// Bytes that came.
        got: u64,
    },
    /// The stream goes on after its announced length.
    #[error(
        "the stream has more than the {announced} bytes announced: nothing was stored; announce \
         the length that comes"
    )]
    StreamLong {
        /// Length in the header.
        announced: u64,
    },
    /// The client fell silent inside a put.
    #[error(
        "nothing came for {} s after {got} of {announced} bytes: nothing was stored; put again",
        silence.as_secs()
    )]
    StreamStalled {
        /// Length in the header.
        announced: u64,
        /// Bytes that came.
        got: u64,
        /// How long nothing came.
        silence: Duration,
    },
    /// The body of a put comes too slowly.
    #[error(
        "{got} of {announced} bytes came in {} s, which is less than {min_rate} bytes a second: \
         nothing was stored; put again over a faster connection, or a smaller lump",
        elapsed.as_secs()
    )]
    StreamSlow {
        /// Length in the header.
        announced: u64,
        /// Bytes that came.
        got: u64,
        /// Since the first of them was waited for.
        elapsed: Duration,
        /// Bytes a second that are asked for.
        min_rate: u64,
    },
    /// The bytes that came are not those that were sent.
    #[error(
        "the body has the CRC-32C {got:#010x}, but its header announced {announced:#010x}: it was \
         damaged on its way, and nothing was stored; put again"
    )]
    ChecksumDiffers {
        /// Checksum in the header.
        announced: u32,
        /// That of the bytes that came.
        got: u32,
    },
    /// A length in the header of a small put that is not that of its body.
    #[error("the header says {announced} bytes and the body has {got}: send the same, or 0")]
    LengthDiffers {
        /// Length in the header.
        announced: u64,
        got: u64,
    },
    /// More than goes into one message.
    #[error("{len} bytes are too many for one message: at most {max}; use {instead}")]
    TooLongForOne {
        len: u64,
        /// Most bytes.
        max: u64,
        instead: &'static str,
    },
    /// A message longer than its method takes.
    #[error("the message has {len} bytes: this method takes at most {max}")]
    MessageTooLarge {
        len: u64,
        /// Most bytes.
        max: u64,
    },
    /// The one message of a call did not come whole in time.
    #[error("the message did not come whole within {} s: call again", waited.as_secs())]
    MessageSlow {
        /// How long it was waited for.
        waited: Duration,
    },
    /// No memory for a message came free in time.
    #[error("no memory for the message came free within {} s: call again later", waited.as_secs())]
    NoMemory {
        /// How long it was waited for.
        waited: Duration,
    },
    /// Too many questions wait for the observer.
    #[error("too many callers wait for answers of the observer: ask again later")]
    ObserverBusy,
    /// Callers who have not logged in have too many calls under way.
    #[error("too many calls without a login are under way: log in, or call again later")]
    Crowded,
    /// A `grpc-timeout` of another form.
    #[error("grpc-timeout cannot be read: send 1 to 8 digits and one of H, M, S, m, u, n, once")]
    TimeoutInvalid,
    /// The time of the call is over.
    #[error("the time of the call is over; allow more time or send less at once")]
    TimeOver,
    /// Bytes that cannot be read.
    #[error("{error}{}", wire_addendum(error))]
    Wire { error: WireError },
    /// A page size out of bounds.
    #[error("page_size is {got}: ask for 1 to {max} ids, or 0 for {default}")]
    PageSize {
        got: u32,
        /// Largest page.
        max: u32,
        /// Page when 0 is asked for.
        default: u32,
    },
    /// A page token this service did not make, or made for another range.
    #[error(
        "page_token is not one this service returned for this range: send next_page_token of the \
         page before unchanged, or nothing for the first page"
    )]
    PageToken,
    /// A value of an enum that this version does not know.
    #[error("field {field} has the value {got}, which this version does not know: see the .proto")]
    EnumValue { field: &'static str, got: i32 },
    /// The store takes no new requests for now.
    #[error("store {name:?} is draining and takes no new requests: try again when it is resumed")]
    StoreDraining { name: String },
    /// The store is being taken out.
    #[error("store {name:?} is being taken out and takes no new requests")]
    StoreLeaving { name: String },
    /// The store is known and is not open.
    #[error(
        "store {name:?} is not served: {why}; Admin.AddStore with its name and path tries again"
    )]
    StoreNotOpen {
        name: String,
        /// Why it could not be opened.
        why: String,
    },
    /// A store of this name works.
    #[error("there is a store {name:?} already: choose another name, or take it out first")]
    StoreExists { name: String },
    /// A name or path that no store can be opened with.
    #[error("{why}")]
    StoreUnusable { why: String },
    /// Something that cannot be done in the state things are in.
    #[error("{why}")]
    NotNow { why: String },
    /// A time to wait that is out of bounds.
    #[error("field {field} is {got} ms: ask for 1 to {max} ms, or 0 for the service's own")]
    WaitTooLong {
        field: &'static str,
        got: u32,
        /// Longest.
        max: u32,
    },
    /// Requests were under way longer than the caller wanted to wait for them.
    #[error(
        "store {name:?} was taken out, but requests were still under way after {} ms: they were \
         cut off", waited.as_millis()
    )]
    CutOffOthers {
        name: String,
        /// How long they were waited for.
        waited: Duration,
    },
    /// This request was under way too long after its store, or the service, began to stop.
    #[error(
        "cut off: the store is being taken out or the service stops, and the time for requests \
         under way is over; whether a change was made is not known"
    )]
    CutOff,
    /// The service is going down.
    #[error("the service is shutting down: try again when it is back")]
    ShuttingDown,
    /// Error of the engine.
    #[error("store {store:?}: {error}{}", told(error).note)]
    Engine { store: String, error: Error },
}

impl From<WireError> for Refusal {
    fn from(error: WireError) -> Self {
        Self::Wire { error }
    }
}

/// Addition that the decoder cannot know: a way to send less at once.
fn wire_addendum(error: &WireError) -> String {
    match error {
        WireError::TooLarge { max, .. } => format!(
            "; send chunks of at most {} bytes, any number of them",
            max.saturating_sub(CHUNK_OVERHEAD)
        ),
        WireError::Compressed
        | WireError::Flag { .. }
        | WireError::HeaderTooLarge { .. }
        | WireError::TwoParts
        | WireError::Malformed(_)
        | WireError::Truncated => String::new(),
    }
}

/// Most bytes a chunk's tag and length take in front of it.
const CHUNK_OVERHEAD: u64 = 16;
