//! The lump store as a library: lumps by 128-bit id on a raw block device or in one file.
//!
//! Layers: `Store` (handle, any thread) → `owner` (one thread at a time) → `storage` (index,
//! journal, allocator: plain values) → [`device`] (`O_DIRECT`; io_uring or threads), beside them
//! [`format`](mod@format) (bytes ↔ values). The engine knows no async runtime, no network and no
//! probes; it tells an [`IoSink`] about every disk I/O before the kernel sees it.
//!
//! # I/Os of an operation
//!
//! | operation | reads | writes | flushes |
//! |---|---|---|---|
//! | get | 1: the whole portion, or the units of the ring with the record | | |
//! | get range | 1 or 2: the chunks that hold it, and the last block | | |
//! | head | 0; 1 block if the lump was put before the store was opened, once | | |
//! | put | | 1 data, and a share of 1 or 2 journal writes | a share of 2 or 3 |
//! | put, embedded | | a share of 1 or 2 journal writes | a share of 1 or 2 |
//! | put group (data, embedded, deletes) | | as a put; without data as a put, embedded | the same |
//! | embedded lumps in bulk | 1 for each MiB of the journal in use | | |
//! | put if absent | | as a put if there is none; nothing if there is one already | |
//! | delete, delete range, delete of many | | a share of 1 or 2 journal writes | a share of 1 or 2 |
//! | list, usage | | | |
//!
//! "A share": all requests that are ready at the same time go into one batch of the journal, and
//! every flush serves all data written before it began. A batch that crosses a boundary of the
//! device's logical blocks takes the second write and flush, which make it safe against tearing.
//! A device that writes through gets no flush at all, and one with FUA none after a record that
//! no data waits beside ([`device::DeviceFacts`], [`StoreInfo::durable_by`]).
//! Reclaiming the journal adds, for each 256 KiB of it, 1 read, 1 header write and journal writes
//! for what is still needed.
//!
//! # Order and overload
//!
//! Requests are let in as long as fewer than [`StoreOptions::queue_limit`] wait. Gets, puts and
//! heads that read wait for one of [`StoreOptions::queue_depth`] slots at the disk, in the order
//! of the [`QueuePolicy`] and of the deadlines in their [`RequestCtx`]; nothing else waits for
//! slots, and no read waits for a flush. `submit_*` refuses with [`Error::Busy`] when the queue is
//! full, when the store has been overloaded for a while ([`StoreOptions::overload_threshold`]) and
//! the request is not prioritized, or when more wait than the request wants; the error says when
//! to come back. The waiting verbs wait for room instead. Memory for lumps is bounded
//! ([`Store::lump_buf`]).
//!
//! # Examples
//!
//! ```no_run
//! use std::path::Path;
//!
//! use lumpscope_engine::create::{CreateOptions, format};
//! use lumpscope_engine::{Durability, LumpId, Placement, RequestCtx, Store, StoreOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let path = Path::new("/var/lib/lumps/a.lusf");
//! format(path, &CreateOptions { capacity: Some(64 << 20), ..CreateOptions::default() })?;
//!
//! let store = Store::open(path, StoreOptions::new("a"))?;
//! let mut lump = store.lump_buf(5)?;
//! lump.extend(b"hello")?;
//! let (ctx, id) = (RequestCtx::default(), LumpId(1));
//! store.put(ctx, id, lump, Placement::Data, Durability::Synced)?;
//! assert_eq!(&store.get(ctx, id)?[..], b"hello");
//! store.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! A put that must not replace, within a time, and a delete of many:
//!
//! ```no_run
//! # use std::path::Path;
//! use std::time::Duration;
//!
//! use lumpscope_engine::{Durability, Error, LumpId, PutCondition, PutOptions, RequestCtx};
//! # use lumpscope_engine::{Store, StoreOptions};
//!
//! # fn main() -> Result<(), Error> {
//! # let store = Store::open(Path::new("/var/lib/lumps/a.lusf"), StoreOptions::new("a"))?;
//! let mut lump = store.lump_buf_waiting(5)?;
//! lump.extend(b"first")?;
//! let hurry = RequestCtx { drop_when_late: true, ..RequestCtx::default() };
//! let how = PutOptions { condition: PutCondition::IfAbsent, ..PutOptions::default() };
//! match store.put_with(hurry.within(Duration::from_secs(1)), LumpId(7), lump, how) {
//!     Ok(_) => println!("stored"),
//!     Err(Error::AlreadyExists { id }) => println!("{id} is there, and stays as it is"),
//!     Err(Error::DeadlineExceeded { .. }) => println!("too late, nothing was done"),
//!     Err(error) => return Err(error),
//! }
//! let ids = vec![LumpId(7), LumpId(8)];
//! let gone = store.delete_many(RequestCtx::default(), ids, Durability::Synced)?;
//! println!("{} of them were there", gone.existed.iter().filter(|was| **was).count());
//! # Ok(())
//! # }
//! ```

pub mod buffer;
pub mod clock;
mod closed;
pub mod crc32c;
pub mod create;
mod declaration;
pub mod device;
mod error;
mod facts;
mod finding;
pub mod format;
pub mod grow;
pub mod guard;
mod health;
pub mod inspect;
pub mod layout;
mod loops;
pub mod lump;
mod machine;
#[doc(hidden)]
pub mod measure;
mod medium;
#[doc(hidden)]
pub mod mutant;
mod open;
mod opened;
mod options;
mod owner;
mod payload;
mod random;
mod rename;
mod request;
mod scrub;
mod signature;
mod stats;
mod storage;
mod store;
mod sysfs;
mod times;
pub mod units;
mod waker;

pub use buffer::Payer;
pub use declaration::{IoDeclaration, IoOp, IoPurpose, IoSink, RequestId};
pub use error::{Error, LumpDamage};
pub use finding::salvage::{LogCut, SalvageAction, SalvageFinding, SalvageReport};
pub use finding::{Blocks, Finding, FindingKind, Findings};
pub use health::{FROZEN, Health, StoreState};
pub use inspect::salvage;
pub use lump::LumpId;
pub use machine::Machine;
pub use options::{
    Admission, CheckpointUse, CommitMode, ImageIdentity, IoBackendChoice, IoBackendKind, Layout,
    QueuePolicy, ReplaySummary, StoreInfo, StoreOptions, TailOutcome, UnsettledTail,
};
pub use owner::Driver;
pub use payload::{LumpBuf, LumpData};
pub use rename::rename;
pub use request::{
    CollectOutcome, DeleteManyOutcome, DeleteOutcome, DeleteRangeOutcome, Durability, EmbeddedPage,
    HeadOutcome, ListOutcome, LumpRange, Placement, PutCondition, PutGroup, PutOptions, PutOutcome,
    RangeOutcome, RequestCtx, UsageOutcome,
};
pub use scrub::{ScrubPass, ScrubStatus};
pub use stats::StoreStats;
pub use store::{LIVE_SHARE, Opened, Piece, Rest, Store};
pub use times::{BatchWait, EngineTimes, OnDone};
