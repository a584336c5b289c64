//! The original: CannyLS 0.10.0 on an image in memory.

use std::io::{Read, Seek, SeekFrom};

use cannyls::block::BlockSize;
use cannyls::lump::{LumpData, LumpId};
use cannyls::nvm::SharedMemoryNvm;
use cannyls::storage::{Storage, StorageBuilder};

pub type Canny = Storage<SharedMemoryNvm>;

/// An image that CannyLS works on.
#[derive(Clone, Debug)]
pub struct CannylsImage {
    nvm: SharedMemoryNvm,
    len: usize,
}

/// Every change is synced, as its users must set it.
pub fn builder() -> StorageBuilder {
    let mut builder = StorageBuilder::new();
    builder.journal_sync_interval(0);
    builder
}

impl CannylsImage {
    pub fn new(image: Vec<u8>) -> Self {
        let len = image.len();
        Self {
            nvm: SharedMemoryNvm::new(image),
            len,
        }
    }

    /// An empty store made by CannyLS, where `len` bytes of old content lay.
    pub fn create(len: usize, block_size: u16, journal_ratio: f64) -> Self {
        let peer = Self::new((0..len).map(|at| (at % 249) as u8).collect());
        let mut builder = builder();
        builder.journal_region_ratio(journal_ratio);
        builder.block_size(BlockSize::new(block_size).unwrap());
        drop(builder.create(peer.nvm.clone()).unwrap());
        peer
    }

    pub fn open(&self) -> Canny {
        builder().open(self.nvm.clone()).unwrap()
    }

    pub fn try_open(&self, builder: &StorageBuilder) -> cannyls::Result<Canny> {
        builder.open(self.nvm.clone())
    }

    /// The bytes as they are now, on the disk.
    pub fn image(&self) -> Vec<u8> {
        let mut nvm = self.nvm.clone();
        let mut image = vec![0; self.len];
        nvm.seek(SeekFrom::Start(0)).unwrap();
        nvm.read_exact(&mut image).unwrap();
        image
    }
}

pub fn id(id: u128) -> LumpId {
    LumpId::new(id)
}

pub fn embedded(bytes: &[u8]) -> LumpData {
    LumpData::new_embedded(bytes.to_vec()).unwrap()
}

/// In memory that CannyLS allocates and does not clear.
pub fn aligned(store: &Canny, bytes: &[u8]) -> LumpData {
    store.allocate_lump_data_with_bytes(bytes).unwrap()
}

pub fn plain(bytes: &[u8]) -> LumpData {
    LumpData::new(bytes.to_vec()).unwrap()
}

pub fn get(store: &mut Canny, number: u128) -> Option<Vec<u8>> {
    store.get(&id(number)).unwrap().map(LumpData::into_bytes)
}
