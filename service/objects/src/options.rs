//! Options for opening objects, and the findings of opening.

use std::time::Duration;

use lumpscope_engine::Durability;

use crate::catalogue::{Catalogue, InMemory};

/// Most bytes of a piece.
pub const MAX_PIECE_BYTES: u32 = 4 << 20;

/// How to open the objects of a store.
#[derive(Clone, Debug)]
pub struct ObjectOptions {
    /// Meaning of "committed".
    pub durability: Durability,
    /// Objects are cut into lumps of so many bytes, 1 to [`MAX_PIECE_BYTES`]. Those that are
    /// there keep theirs.
    pub piece_bytes: u32,
    /// Least bytes of every part of an upload but the last.
    pub min_part_bytes: u64,
    /// How long a writer waits for memory before it fails with
    /// [`Error::BuffersExhausted`](lumpscope_engine::Error::BuffersExhausted).
    pub memory_wait: Duration,
    /// Makes the map of the objects.
    pub catalogue: fn() -> Box<dyn Catalogue>,
}

impl Default for ObjectOptions {
    /// On stable storage, pieces of 4 MiB, parts of 5 MiB, 30 s for memory, a map in memory.
    fn default() -> Self {
        Self {
            durability: Durability::Synced,
            piece_bytes: MAX_PIECE_BYTES,
            min_part_bytes: 5 << 20,
            memory_wait: Duration::from_secs(30),
            catalogue: || Box::<InMemory>::default(),
        }
    }
}

/// Findings of opening the objects of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// Buckets in the catalogue, empty ones too.
    pub buckets: u64,
    /// Objects with a record.
    pub objects: u64,
    /// Volumes of JuiceFS that have or had blocks.
    pub volumes: u64,
    /// Their blocks, which have no record.
    pub blocks: u64,
    /// Uploads that were begun.
    pub uploads: u64,
    /// Parts that these uploads have received.
    pub parts: u64,
    /// Records that cannot be read, of a later version perhaps. They are left as they are, and
    /// then nothing is swept: they may need it.
    pub unreadable: u64,
    /// Records that a crash had left behind, deleted now: older ones of a key, those of uploads
    /// and buckets that are gone.
    pub swept_records: u64,
    /// Lumps that no record needs, deleted now: written before a crash and not committed,
    /// or not yet deleted.
    pub swept_pieces: u64,
    /// Time it took, in nanoseconds.
    pub elapsed_ns: u64,
}
