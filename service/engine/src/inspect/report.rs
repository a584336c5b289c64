//! Results of an inspection and a check: plain values, with stable names in JSON.

use std::path::PathBuf;

use serde::Serialize;

use crate::finding::{Blocks, Findings};
use crate::format::Record;
use crate::lump::LumpId;

/// The device or file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetInfo {
    /// Its path, as given.
    pub path: PathBuf,
    /// `"file"` or `"block device"`.
    pub kind: &'static str,
    /// Bytes it has.
    pub size_bytes: u64,
    /// Smallest unit of I/O in bytes.
    pub unit_bytes: u64,
    /// True: it was read past the page cache, from the medium itself.
    pub direct_io: bool,
}

/// The minfs around an image. Shown as it stands; the engine does not rely on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MinfsInfo {
    /// Name of the one file.
    pub file_name: Option<String>,
    /// Size of the file as its inode says: modulo 2^32 bytes.
    pub file_size_mod_4g: Option<u32>,
}

/// Values of the lusf header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ImageInfo {
    /// `"lusf"` (at byte 0) or `"minfs"` (at byte 61,440).
    pub layout: &'static str,
    /// Version of the format, as `"1.1"`.
    pub version: String,
    /// Instance UUID.
    pub uuid: String,
    /// Name of the store.
    pub name: Option<String>,
    /// First byte of the image in the device or file.
    pub base_offset: u64,
    /// Block size in bytes.
    pub block_size: u16,
    /// Bytes of the journal region: header block and ring.
    pub journal_region_bytes: u64,
    /// First byte of the data region in the device or file.
    pub data_offset: u64,
    /// Bytes of the data region.
    pub data_region_bytes: u64,
    /// First byte after the image in the device or file.
    pub end_offset: u64,
    /// Largest lump this engine writes there, in bytes.
    pub max_lump_bytes: u64,
}

/// Records that replay reads, by type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RecordCounts {
    /// Lumps put into the data region.
    pub put: u64,
    /// Lumps embedded in the journal.
    pub embed: u64,
    /// Single lumps deleted.
    pub delete: u64,
    /// Ranges deleted; empty ranges, which have no effect, are not among them.
    pub delete_range: u64,
    /// Records without effect.
    pub no_op: u64,
    /// Jumps from the end of the ring to its front: 0 or 1.
    pub go_to_front: u64,
}

impl RecordCounts {
    /// Counts a record; the end mark not.
    pub(super) fn add(&mut self, record: &Record<'_>) {
        match record {
            Record::EndOfRecords => {}
            Record::GoToFront => self.go_to_front += 1,
            Record::Put { .. } => self.put += 1,
            Record::Embed { .. } => self.embed += 1,
            Record::Delete { .. } => self.delete += 1,
            Record::DeleteRange { start, end } if start == end => self.no_op += 1,
            Record::DeleteRange { .. } => self.delete_range += 1,
        }
    }

    /// All records, the end mark not counted.
    #[must_use]
    pub fn total(&self) -> u64 {
        let Self {
            put,
            embed,
            delete,
            delete_range,
            no_op,
            go_to_front,
        } = self;
        put + embed + delete + delete_range + no_op + go_to_front
    }
}

/// The journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JournalInfo {
    /// Bytes of the ring.
    pub ring_bytes: u64,
    /// Ring position of the first record.
    pub head: u64,
    /// Ring position of the end mark; `null`: replay does not reach it.
    pub tail: Option<u64>,
    /// Bytes from the head to the tail, or as far as replay comes.
    pub used_bytes: u64,
    /// Bytes of them in records that are the newest of their lump.
    pub live_bytes: u64,
    /// The other used bytes: what the garbage collection can reclaim.
    pub garbage_bytes: u64,
    /// Records by type.
    pub records: RecordCounts,
    /// The seal behind the end mark; `null`: another engine wrote the end, or it is not reached.
    pub seal: Option<SealInfo>,
    /// What opening will make of the last batch, `whole`, `dropped` or `damaged`, if it was not
    /// settled (FORMAT.md section 8.1). One that is dropped is not part of this report.
    pub unsettled: Option<&'static str>,
}

/// Knowledge of the journal's end by the engine that wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SealInfo {
    /// The unbroken run of appends by this engine, in hexadecimal.
    pub epoch: String,
    /// Bytes of the ring ever passed.
    pub log_end: u64,
    /// Records before this point of the log may come from another engine.
    pub foreign_end: u64,
}

/// A checkpoint of the index behind the image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointInfo {
    /// First byte of its slot in the device or file.
    pub offset: u64,
    /// Number of the checkpoint: the larger is the newer.
    pub sequence: u64,
    /// Lumps it knows.
    pub lumps: u64,
    /// Point of the log from which on records must be replayed.
    pub log_begin: u64,
    /// Point of the log that the journal must reach.
    pub log_end: u64,
    /// Epoch of the journal when it was written, in hexadecimal.
    pub epoch: String,
    /// True: the journal is still of this epoch, without which it is not used.
    pub of_this_epoch: bool,
}

/// One class of sizes: more than the class before, at most `up_to_bytes`, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// Largest size of the class in bytes.
    pub up_to_bytes: u64,
    /// How many there are.
    pub count: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// One lump.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LumpInfo {
    /// Its id.
    pub id: LumpId,
    /// `"data"` or `"embedded"`.
    pub placement: &'static str,
    /// Bytes of disk it takes: whole blocks, or its exact size when it is embedded.
    pub stored_bytes: u64,
    /// First byte of its portion or record in the device or file.
    pub offset: u64,
    /// Its blocks; `null` when it is embedded.
    pub portion: Option<Blocks>,
    /// Ring position of its newest record.
    pub ring_position: u64,
}

/// The lumps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LumpsInfo {
    /// How many there are.
    pub count: u64,
    /// Those in the data region.
    pub in_data: u64,
    /// Those embedded in the journal.
    pub embedded: u64,
    /// Bytes of disk they take.
    pub stored_bytes: u64,
    /// By the bytes of disk each takes; empty classes are left out.
    pub sizes: Vec<SizeClass>,
    /// The largest ones, at most ten, the largest first.
    pub largest: Vec<LumpInfo>,
}

/// Free space of the data region.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FreeInfo {
    /// Free bytes.
    pub bytes: u64,
    /// Free extents.
    pub extents: u64,
    /// Bytes of the largest one: no larger lump fits.
    pub largest_bytes: u64,
    /// 0: all free space is one extent; towards 1: it is scattered
    /// (1 - largest extent / free bytes).
    pub fragmentation: f64,
    /// By the size of the extent; empty classes are left out.
    pub sizes: Vec<SizeClass>,
}

/// A record of the journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordInfo {
    /// Its position in the ring.
    pub ring_position: u64,
    /// Its bytes.
    pub len: u64,
    /// `"put"`, `"embed"`, `"delete"`, `"delete_range"`, `"go_to_front"` or `"end_of_records"`.
    pub record: &'static str,
    /// The lump it is about; of a range the first id.
    pub lump: Option<LumpId>,
    /// First id after a deleted range.
    pub end: Option<LumpId>,
    /// The blocks of a put.
    pub portion: Option<Blocks>,
    /// Bytes of an embedded lump.
    pub data_bytes: Option<u64>,
    /// True: it is the newest record of its lump.
    pub live: bool,
}

/// All that is known without reading lumps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InspectReport {
    /// The device or file.
    pub target: TargetInfo,
    /// The minfs; `null` when the image is not in one.
    pub minfs: Option<MinfsInfo>,
    /// The header; `null`: it cannot be used.
    pub image: Option<ImageInfo>,
    /// The journal; `null`: its beginning is not known.
    pub journal: Option<JournalInfo>,
    /// The lumps that replay finds, as far as it comes.
    pub lumps: Option<LumpsInfo>,
    /// Checkpoints of the index, the newest first; at most two.
    pub checkpoints: Vec<CheckpointInfo>,
    /// Space that these lumps leave free.
    pub free: Option<FreeInfo>,
    /// Damage that shows without reading lumps.
    pub findings: Findings,
}

/// The result of a deep check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckReport {
    /// True: every lump was read, and nothing is wrong.
    pub clean: bool,
    /// False: the check was ended before it had read every lump.
    pub complete: bool,
    /// Lumps whose bytes were compared with a checksum and fit.
    pub verified_lumps: u64,
    /// Lumps without a checksum: an engine that stores none wrote them.
    pub unverified_lumps: u64,
    /// Lumps that are damaged or cannot be read.
    pub damaged_lumps: u64,
    /// Bytes of lumps read.
    pub read_bytes: u64,
    /// Wall time in nanoseconds.
    pub elapsed_ns: u64,
    /// Result of the inspection; its findings are among those below.
    pub inspect: InspectReport,
    /// Everything that is wrong.
    pub findings: Findings,
}
