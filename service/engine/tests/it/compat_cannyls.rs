//! One store, two engines: CannyLS 0.10.0 and this one take turns on the same image, and each
//! finds everything that the other has left.
//!
//! CannyLS is used so that it does not run into its own defects (`cannyls_defects.rs` does that):
//! every change is synced, there is room, and its collection is called before it starts by itself.

use std::collections::BTreeMap;

use crate::support::peer::{self, Canny, CannylsImage};
use crate::support::sim::{Random, SimDisk};
use crate::support::{Shape, content, ctx, delete, embedded_if, try_put};
use lumpscope_engine::crc32c;
use lumpscope_engine::format::minfs;
use lumpscope_engine::{CommitMode, Durability, LumpId, LumpRange, Placement, Store};

/// A kind of store, and what is put into it.
#[derive(Clone, Copy, Debug)]
struct StoreKind {
    shape: Shape,
    unit: u32,
    max_embedded: usize,
    max_len: usize,
    /// Inside a minfs, at byte 61440 of the disk.
    minfs: bool,
}

const KINDS: [StoreKind; 4] = [
    StoreKind::new(Shape::new(512, 48, 700), 512, 300, 9000),
    StoreKind::new(Shape::new(1536, 15, 500), 512, 300, 20_000),
    StoreKind {
        minfs: true,
        ..StoreKind::new(Shape::new(4096, 7, 900), 4096, 500, 150_000)
    },
    StoreKind::new(Shape::new(4096, 300, 4000), 512, 65_535, 1_500_000),
];

impl StoreKind {
    const fn new(shape: Shape, unit: u32, max_embedded: usize, max_len: usize) -> Self {
        Self {
            shape,
            unit,
            max_embedded,
            max_len,
            minfs: false,
        }
    }
}

#[derive(Clone, Debug)]
struct ModelLump {
    bytes: Vec<u8>,
    placement: Placement,
    /// True: put by this engine since the other one has last written.
    own: bool,
}

/// Expected content of the store, and the choices of a history.
struct World {
    kind: StoreKind,
    image: Vec<u8>,
    lumps: BTreeMap<u128, ModelLump>,
    random: Random,
    version: u64,
}

impl World {
    fn new(kind: StoreKind, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut image = kind.shape.image();
        if random.below(2) == 0 {
            // Made by the original. Its ratio is that of the wanted journal.
            let block = u64::from(kind.shape.block_size);
            let available = (kind.shape.ring_blocks + 1 + kind.shape.data_blocks) * block;
            let ratio = ((kind.shape.ring_blocks + 1) * block) as f64 / available as f64;
            image = CannylsImage::create(image.len(), kind.shape.block_size, ratio).image();
        }
        Self {
            kind,
            image,
            lumps: BTreeMap::new(),
            random,
            version: 0,
        }
    }

    fn some_id(&mut self) -> u128 {
        match self.random.below(16) {
            0 => u128::MAX,
            1 => 1 << 127,
            number => (number - 2) as u128,
        }
    }

    /// Sizes around every boundary there is, and any other.
    fn some_len(&mut self, placement: Placement) -> usize {
        let block = usize::from(self.kind.shape.block_size);
        let max = match placement {
            Placement::Embedded => self.kind.max_embedded,
            Placement::Data => self.kind.max_len,
        };
        let len = match self.random.below(5) {
            0 => 0,
            1 => (1 + self.random.below(4)) * block - self.random.below(30),
            2 => self.random.below(block),
            3 => max - self.random.below(max.min(20)),
            _ => self.random.below(max),
        };
        len.min(max)
    }

    /// A lump to put: of another size, or of the size it has.
    fn some_lump(&mut self, id: u128, own: bool) -> ModelLump {
        self.version += 1;
        let (placement, len) = match self.lumps.get(&id) {
            Some(old) if self.random.below(2) == 0 => (old.placement, old.bytes.len()),
            _ => {
                let placement = embedded_if(self.random.below(3) == 0);
                (placement, self.some_len(placement))
            }
        };
        ModelLump {
            bytes: content(id, self.version, len),
            placement,
            own,
        }
    }

    fn canny(&mut self, changes: usize) {
        let peer = CannylsImage::new(std::mem::take(&mut self.image));
        let mut store = peer.open();
        self.check_canny(&mut store);
        for _ in 0..changes {
            self.change_canny(&mut store);
            let snapshot = store.journal_snapshot().unwrap();
            let (head, tail) = (snapshot.unreleased_head, snapshot.tail);
            let ring = self.kind.shape.ring_blocks * u64::from(self.kind.shape.block_size);
            if (tail + ring - head) % ring > ring / 5 {
                store.journal_gc().unwrap();
            }
        }
        self.check_canny(&mut store);
        drop(store);
        self.image = peer.image();
        for lump in self.lumps.values_mut() {
            lump.own = false;
        }
    }

    fn change_canny(&mut self, store: &mut Canny) {
        let id = self.some_id();
        match self.random.below(8) {
            0 => {
                let existed = store.delete(&peer::id(id)).unwrap();
                assert_eq!(existed, self.lumps.remove(&id).is_some());
            }
            1 => {
                store.journal_gc().unwrap();
                let end = id.saturating_add(self.random.below(4) as u128);
                let gone = store.delete_range(peer::id(id)..peer::id(end)).unwrap();
                let before = self.lumps.len();
                self.lumps.retain(|other, _| !(id..end).contains(other));
                assert_eq!(gone.len(), before - self.lumps.len());
            }
            how => {
                // What it has read stays in the memory that it allocates next.
                for _ in 0..2 {
                    let read = self.some_id();
                    drop(store.get(&peer::id(read)).unwrap());
                }
                let lump = self.some_lump(id, false);
                let data = match lump.placement {
                    Placement::Embedded => peer::embedded(&lump.bytes),
                    Placement::Data if how % 2 == 0 => peer::plain(&lump.bytes),
                    Placement::Data => peer::aligned(store, &lump.bytes),
                };
                let created = store.put(&peer::id(id), &data).unwrap();
                assert_eq!(created, self.lumps.insert(id, lump).is_none());
            }
        }
    }

    fn check_canny(&self, store: &mut Canny) {
        let block = u32::from(self.kind.shape.block_size);
        let ids: Vec<u128> = store.list().iter().map(|id| id.as_u128()).collect();
        assert_eq!(ids, self.lumps.keys().copied().collect::<Vec<_>>());
        for (&id, lump) in &self.lumps {
            let found = peer::get(store, id);
            assert!(found.as_ref() == Some(&lump.bytes), "lump {id:x}");
            let about = store.head(&peer::id(id)).unwrap().approximate_data_size;
            let len = lump.bytes.len() as u32;
            match lump.placement {
                Placement::Embedded => assert_eq!(about, len),
                Placement::Data => {
                    assert!(len < about, "{about} {len}");
                    assert!(about < len + 2 * block + 472, "{about} {len}");
                }
            }
        }
    }

    fn ours(&mut self, changes: usize, seed: u64) {
        let base = usize::try_from(minfs::FILE_OFFSET).unwrap();
        let mut disk = if self.kind.minfs {
            let mut bytes = minfs::encode_metadata(self.image.len() as u64);
            bytes.resize(base, 0);
            bytes.append(&mut self.image);
            SimDisk::new(bytes)
        } else {
            SimDisk::new(std::mem::take(&mut self.image))
        };
        disk.unit = self.kind.unit;
        disk.shuffle = (seed.is_multiple_of(2)).then_some(seed);
        let commits = [CommitMode::Ordered, CommitMode::Runs];
        let first = usize::try_from(seed).unwrap();
        let commits = commits.into_iter().cycle().skip(first);
        let mut opened = commits.map(|commit| disk.open_as(commit).unwrap());
        let mut store = opened.next().unwrap();
        self.check_ours(&store);
        for _ in 0..changes {
            self.change_ours(&store);
            if self.random.below(12) == 0 {
                store.close().unwrap();
                store = opened.next().unwrap();
                let changed = self.lumps.values().any(|lump| lump.own);
                assert!(store.info().sealed || !changed);
            }
        }
        self.check_ours(&store);
        store.close().unwrap();
        let bytes = disk.bytes();
        self.image = bytes[if self.kind.minfs { base } else { 0 }..].to_vec();
    }

    fn change_ours(&mut self, store: &Store) {
        let id = self.some_id();
        match self.random.below(8) {
            0 => assert_eq!(delete(store, id), self.lumps.remove(&id).is_some()),
            1 => {
                let end = id.saturating_add(self.random.below(4) as u128);
                let (from, to) = (LumpId(id), LumpId(end));
                let gone = store.delete_range(ctx(), from, to, Durability::Synced);
                let before = self.lumps.len();
                self.lumps.retain(|other, _| !(id..end).contains(other));
                let gone = usize::try_from(gone.unwrap().deleted).unwrap();
                assert_eq!(gone, before - self.lumps.len());
            }
            _ => {
                let lump = self.some_lump(id, true);
                let outcome = try_put(store, id, &lump.bytes, lump.placement).unwrap();
                assert_eq!(outcome.created, self.lumps.insert(id, lump).is_none());
            }
        }
    }

    fn check_ours(&self, store: &Store) {
        let ids = store.list(LumpRange::ALL, 1000).unwrap().ids;
        let want: Vec<LumpId> = self.lumps.keys().map(|id| LumpId(*id)).collect();
        assert_eq!(ids, want);
        let block = u64::from(self.kind.shape.block_size);
        let (mut least, mut most) = (0, 0);
        for (&id, lump) in &self.lumps {
            let got = store.get(ctx(), LumpId(id)).unwrap();
            assert!(got[..] == lump.bytes[..], "lump {id:x}");
            if lump.own || lump.placement == Placement::Embedded {
                assert!(got.verified, "lump {id:x}");
            }
            assert_eq!(got.crc32c(), crc32c::of(&lump.bytes));
            let head = store.head(ctx(), LumpId(id)).unwrap();
            let len = lump.bytes.len() as u64;
            assert_eq!((head.length, head.placement), (len, lump.placement));
            let blocks = (len + 2).div_ceil(block);
            match lump.placement {
                Placement::Embedded => (least, most) = (least + len, most + len),
                Placement::Data => {
                    (least, most) = (least + blocks * block, most + (blocks + 1) * block);
                }
            }
        }
        let usage = store.usage(LumpRange::ALL).unwrap();
        assert_eq!(usage.lumps, self.lumps.len() as u64);
        assert!((least..=most).contains(&usage.stored_bytes), "{usage:?}");
        assert_eq!(store.stats().checksum_failures, 0);
    }
}

#[test]
fn the_engines_take_turns() {
    for (number, kind) in KINDS.into_iter().enumerate() {
        let is_large = kind.max_len > 1_000_000;
        let (seeds, rounds) = if is_large { (1, 8) } else { (6, 14) };
        for seed in 0..seeds {
            let seed = seed + 100 * number as u64;
            let mut world = World::new(kind, seed);
            for _ in 0..rounds {
                let changes = world.random.below(30);
                world.canny(changes);
                let changes = world.random.below(60);
                world.ours(changes, seed);
            }
        }
    }
}
