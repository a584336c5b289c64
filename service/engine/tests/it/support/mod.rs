//! Shared by the tests: images made from the format module, a disk in memory, lump contents.

pub mod disks;
pub mod peer;
pub mod sim;
pub mod stepped;
pub mod timed;
pub mod turns;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lumpscope_engine::format::header::Header;
use lumpscope_engine::format::journal_header::JournalHeader;
use lumpscope_engine::format::record::Record;
use lumpscope_engine::units::{BlockSize, ByteLen, RingPosition};
use lumpscope_engine::{
    Durability, Error, LumpBuf, LumpId, Placement, PutOutcome, RequestCtx, RequestId, Store,
    StoreOptions, StoreState,
};

/// Sizes of a store for a test.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub block_size: u16,
    pub ring_blocks: u64,
    pub data_blocks: u64,
}

impl Shape {
    /// Block size in bytes; blocks of the ring and of the data region.
    pub const fn new(block_size: u16, ring_blocks: u64, data_blocks: u64) -> Self {
        Self {
            block_size,
            ring_blocks,
            data_blocks,
        }
    }

    /// First byte of the data region.
    pub fn data(self) -> u64 {
        (2 + self.ring_blocks) * u64::from(self.block_size)
    }

    pub fn header(self) -> Header {
        let block_size = BlockSize::new(self.block_size).unwrap();
        Header {
            minor: 1,
            block_size,
            uuid: [7; 16],
            journal_len: ByteLen((1 + self.ring_blocks) * block_size.bytes()),
            data_len: ByteLen(self.data_blocks * block_size.bytes()),
        }
    }

    /// An empty store. Old bytes lie where nothing was written yet, as on a used disk.
    pub fn image(self) -> Vec<u8> {
        let block = usize::from(self.block_size);
        let total = usize::try_from(2 + self.ring_blocks + self.data_blocks).unwrap() * block;
        let mut image: Vec<u8> = (0..total).map(|at| (at % 251) as u8).collect();
        image[..2 * block].fill(0);
        let header = self.header().encode();
        image[..header.len()].copy_from_slice(&header);
        let head = JournalHeader {
            ring_head: RingPosition(0),
        }
        .encode();
        image[block..block + head.len()].copy_from_slice(&head);
        let end = Record::EndOfRecords.to_bytes();
        image[2 * block..2 * block + end.len()].copy_from_slice(&end);
        image
    }
}

pub fn disk_dir() -> turns::DiskDir {
    turns::DiskDir::new()
}

/// An image written by CannyLS, or what it holds.
pub fn testdata(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata/lusf")
        .join(name)
}

/// A file that holds an empty store.
pub fn store_file(dir: &tempfile::TempDir, shape: Shape) -> PathBuf {
    let path = dir.path().join("store.lusf");
    std::fs::write(&path, shape.image()).unwrap();
    path
}

pub fn options() -> StoreOptions {
    StoreOptions::new("test")
}

/// These options, but for one.
pub fn but<T>(mut options: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut options);
    options
}

pub fn ctx() -> RequestCtx {
    ctx_of(1)
}

/// Of the request with this number.
pub fn ctx_of(id: u64) -> RequestCtx {
    RequestCtx {
        id: RequestId(id),
        ..RequestCtx::default()
    }
}

/// Reproducible bytes that depend on every argument.
pub fn content(id: u128, version: u64, len: usize) -> Vec<u8> {
    let mut x = (id as u64) ^ ((id >> 64) as u64) ^ version.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..len)
        .map(|_| {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as u8
        })
        .collect()
}

pub fn embedded_if(embedded: bool) -> Placement {
    if embedded {
        Placement::Embedded
    } else {
        Placement::Data
    }
}

/// A buffer of the store that holds these bytes.
pub fn buf(store: &Store, bytes: &[u8]) -> LumpBuf {
    let mut buf = store.lump_buf(bytes.len() as u64).unwrap();
    buf.extend(bytes).unwrap();
    buf
}

pub fn try_put(
    store: &Store,
    id: u128,
    bytes: &[u8],
    placement: Placement,
) -> Result<PutOutcome, Error> {
    let mut buf = store.lump_buf(bytes.len() as u64)?;
    buf.extend(bytes)?;
    store.put(ctx(), LumpId(id), buf, placement, Durability::Synced)
}

pub fn put(store: &Store, id: u128, bytes: &[u8]) -> PutOutcome {
    try_put(store, id, bytes, Placement::Data).unwrap()
}

/// The lump's bytes; `None`: there is no such lump.
pub fn get(store: &Store, id: u128) -> Option<Vec<u8>> {
    match store.get(ctx(), LumpId(id)) {
        Ok(lump) => Some(lump.to_vec()),
        Err(Error::NotFound { .. }) => None,
        Err(error) => panic!("get {id:x}: {error}"),
    }
}

pub fn delete(store: &Store, id: u128) -> bool {
    store
        .delete(ctx(), LumpId(id), Durability::Synced)
        .unwrap()
        .existed
}

/// Waits for what must come at some time.
pub fn until(store: &Store, state: StoreState) {
    until_true(store, || store.health().state == state);
}

/// Waits until this holds.
pub fn until_true(store: &Store, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        let (health, stats) = (store.health(), store.stats());
        assert!(
            begun.elapsed() < Duration::from_mins(2),
            "{health:?} {stats:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}
