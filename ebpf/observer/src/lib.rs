//! Loads the probes and ties block requests to their owners.
//!
//! The observer knows nothing of lumps. The service declares each I/O with the ids of the
//! requests it is done for, the probes report each block request, and the join of the two by
//! (disk, sectors, operation, time) says which block request belongs to which request.

mod api;
mod observer;
mod report;

pub use api::{
    DeclaredIo, Finding, Flavour, Level, ObjectSource, ObserverOptions, Op, Purpose,
    RequestSummary, STAGES, StoreObservation, Tuning, WatchedStore,
};
pub use observer::Observer;
pub use report::{
    AuditReport, BlockIo, BlockReport, HeatCell, OperationReport, OwnerTotal, SlowRequest,
    StageTime, StoreReport,
};
