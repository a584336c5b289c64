//! Loads the probes and ties block requests to their owners.
//!
//! The observer knows nothing of lumps. The service declares each I/O with the ids of the
//! requests it is done for, the probes report each block request, and the join of the two by
//! (disk, sectors, operation, time) says which block request belongs to which request.
//!
//! [`Observer`] is the whole thing; [`Correlator`] is its pure part, which also replays
//! recordings. [`BlockTap`] keeps the block requests alone, unexplained.

mod api;
mod audit;
mod btf;
mod cgroup;
mod clock;
mod correlate;
mod device;
mod disk_stat;
mod doctor;
mod event;
mod extents;
mod failure;
mod fiemap;
mod guard;
mod heat;
mod kernel;
mod late;
mod live;
mod name;
mod observer;
mod pins;
mod places;
mod probes;
mod replay;
mod report;
mod shared_map;
mod slots;
mod submission;
mod tap;
mod tracefs;

pub use api::{
    EVERY_EVENT, EventPolicy, Finding, Flavour, FlightOptions, GuardPolicy, Level, ObjectSource,
    ObserverOptions, Op, PuntedIos, Purpose, STAGES, StoreObservation, TraceContext, TraceRequest,
    Tuning, WatchedStore,
};
pub use clock::WallClock;
pub use correlate::{Correlator, Declared, EndedRequest, Input, Limits, OWNERS};
pub use event::{BlockOp, Class, Event, OPERATIONS, Submission};
pub use extents::{Extent, Placement};
pub use failure::Failure;
pub use live::{Room, Watch};
pub use name::ThreadName;
pub use observer::Observer;
pub use places::Places;
pub use probes::{number_in, program_statistics};
pub use replay::{MAX_LINE, Replay, ReplayError};
pub use report::{
    AuditReport, BlockIo, BlockLine, BlockReport, BlockShape, Bucket, DiskTime, FailureTotal,
    GuardReport, GuardedOpen, HeadMove, HeatCell, InFlightReport, LostTime, OperationReport,
    OwnerTotal, ProbeProgram, ProcessTotal, SeekTime, SlowRequest, StageTime, Step, StoreReport,
    TracedRequest,
};
pub use tap::{BlockTap, MAX_TAPPED, TapError, TappedDisk, TappedRequest};
