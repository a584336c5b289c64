//! The lump store as a library.

pub mod buffer;
pub mod clock;
pub mod create;
pub mod device;
mod error;
pub mod format;
pub mod guard;
pub mod layout;
pub mod lump;
mod options;
mod payload;
mod request;
mod scheduler;
mod stats;
mod storage;
mod store;
pub mod units;

pub use error::Error;
pub use lump::LumpId;
pub use options::{
    IoBackendChoice, IoBackendKind, Layout, ReplaySummary, StoreInfo, StoreOptions, StoreStats,
};
pub use payload::{LumpBuf, LumpData};
pub use request::{
    DeleteOutcome, DeleteRangeOutcome, Durability, EngineTimes, HeadOutcome, IoDeclaration, IoOp,
    IoPurpose, IoSink, ListOutcome, LumpRange, Placement, PutOutcome, RequestCtx, RequestId,
    UsageOutcome,
};
pub use store::{OnDone, Store};
