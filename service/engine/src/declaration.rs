//! Disk I/Os as the engine announces them, each with its purpose and the requests it serves.
//!
//! [`IoSink`] is the engine's only link to whoever observes the disk: the engine knows nothing of
//! probes.

/// Identifies one request from the caller's side through to the disk's. 0 means "none": the
/// store itself (recovery, journal garbage collection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// Purpose of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoPurpose {
    /// Payload of a lump in the data region, or of an embedded one that is read.
    LumpData,
    /// Records in the journal's ring.
    Journal,
    /// The journal's header block.
    JournalHeader,
    /// Lumps, read by the scrubber.
    Scrub,
    /// A flush of the device's volatile cache.
    Flush,
    /// The checkpoint of the index behind the image.
    Checkpoint,
    /// Reading the store at open.
    Recovery,
}

/// Kind of an I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// Device to memory.
    Read,
    /// Memory to device.
    Write,
    /// Volatile cache to stable storage.
    Flush,
}

/// One disk I/O, announced before the kernel can see it.
#[derive(Clone, Copy, Debug)]
pub struct IoDeclaration<'a> {
    /// Names this I/O until `completed`; unique within the store's life.
    pub token: u64,
    /// The requests it is done for; empty: for the store itself.
    pub requests: &'a [RequestId],
    /// Purpose of the I/O.
    pub purpose: IoPurpose,
    /// Read, write or flush.
    pub op: IoOp,
    /// First byte in the device or file, the layout's base offset included. 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// Time of the declaration, `CLOCK_MONOTONIC` nanoseconds.
    pub begin_ns: u64,
}

/// Receives a declaration of every disk I/O the store does. Called on engine threads: it must be
/// quick and must not call back into the store.
pub trait IoSink: Send + Sync {
    /// Called immediately before the I/O is handed to the kernel.
    fn submitted(&self, io: &IoDeclaration<'_>);
    /// Called after the I/O returned: `end_ns` on the monotonic clock, `error` is the errno.
    fn completed(&self, token: u64, end_ns: u64, error: Option<i32>);
    /// Called by the thread that is about to do a declared I/O in system calls of its own, right
    /// before the first of them. Whatever this thread does in the kernel until [`IoSink::left`] is
    /// for this I/O.
    fn entering(&self, token: u64) {
        let _ = token;
    }
    /// Called by the thread that is about to hand declared I/Os to an io_uring, or to wait for
    /// them. The user data of each entry is the I/O's token; `u64::MAX`, which is never a token,
    /// marks an entry that is no I/O of the store. Valid until [`IoSink::left`].
    fn drives_ring(&self) {}
    /// Called by the same thread when its system call has returned.
    fn left(&self) {}
}
