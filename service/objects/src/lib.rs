//! Objects with names over one lump store: buckets and keys, objects cut into lumps, a catalogue
//! in the same journal, atomic commits with conditions, listing, multipart uploads. No HTTP.
//!
//! An object is written through a [`Writer`], which keeps one or two pieces in memory, and is
//! there from the moment its record is in the journal: one put of one embedded lump. A block of
//! JuiceFS is one lump whose id is its key ([`juicefs`]), without a record. A
//! [`Reader`] reads the version it began with to its end, unaffected by later commits. How
//! records and pieces lie in the store, and why a crash at any moment leaves every object old or
//! new, is in `docs/objects.md`.
//!
//! The futures may be dropped at any time: a commit that has been handed to the engine is carried
//! out all the same. Waiting for memory needs a tokio runtime with time.

mod block_keys;
mod blocks;
mod buckets;
mod bytes;
pub mod catalogue;
mod commit;
mod copy;
mod ctx;
mod ending;
mod error;
pub mod id;
mod journal;
pub mod juicefs;
mod list;
mod open;
mod options;
mod parts;
mod read;
pub mod record;
mod settings;
mod state;
pub mod trailer;
mod types;
mod uploads;
mod write;

use std::sync::Arc;

pub use ctx::{Ctx, Times};
pub use error::{Limited, ObjectError};
pub use options::{MAX_PIECE_BYTES, ObjectOptions, OpenReport};
pub use parts::PartWriter;
pub use read::Reader;
pub use types::{
    Bucket, BucketSetting, CommitInfo, Committed, Condition, Deleted, ETag, ListAfter, ListEntry,
    ListPage, ListQuery, MAX_ATTRIBUTE_BYTES, MAX_BUCKET_BYTES, MAX_KEY_BYTES, MAX_LIST,
    MAX_METADATA_BYTES, MAX_OBJECT_BYTES, MAX_PART_NUMBER, ObjectInfo, Pairs, ParseETagError,
    PartCommit, PartInfo, PartPage, PutInfo, TAG, UploadAfter, UploadInfo, UploadPage,
};
pub use write::Writer;

use state::ObjectsShared;

/// The objects of one store: a cheap handle, to be cloned.
///
/// Only one may be open for a store, and no other client may change lumps whose ids begin with
/// [`id::MARK`] meanwhile.
#[derive(Clone)]
pub struct Objects {
    inner: Arc<ObjectsShared>,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects")
            .field("store", &self.inner.store)
            .finish_non_exhaustive()
    }
}
