//! Defects of CannyLS 0.10.0, one a test: each shows that the original still loses or breaks
//! something, so the test is known to bite, and that it cannot happen here.
//!
//! Two more have tests of their own: deletes on a full store (`journal_ring.rs`), and a store
//! that goes on after a failed flush (`faults.rs`).

use std::collections::BTreeMap;

use crate::support::peer::{self, CannylsImage};
use crate::support::sim::{DiskEvent, Random, SECTOR, SimDisk};
use crate::support::{Shape, content, ctx, delete, get, put, try_put};
use lumpscope_engine::{CommitMode, Durability, Error, LumpId, LumpRange, Placement, Store};

const SHAPE: Shape = Shape::new(512, 12, 200);

type State = BTreeMap<u128, Vec<u8>>;

fn peer() -> CannylsImage {
    CannylsImage::new(SHAPE.image())
}

/// Syncs only when it is told to, as by default.
fn lazy(peer: &CannylsImage) -> peer::Canny {
    let mut builder = peer::builder();
    builder.journal_sync_interval(4096);
    peer.try_open(&builder).unwrap()
}

fn opens(image: Vec<u8>) -> bool {
    CannylsImage::new(image).try_open(&peer::builder()).is_ok()
}

fn delete_range(store: &Store, ids: std::ops::Range<u128>) -> u64 {
    let (start, end) = (LumpId(ids.start), LumpId(ids.end));
    let outcome = store.delete_range(ctx(), start, end, Durability::Synced);
    outcome.unwrap().deleted
}

fn state(store: &Store) -> State {
    let ids = store.list(LumpRange::ALL, 10_000).unwrap().ids;
    let lump = |id: LumpId| (id.0, get(store, id.0).unwrap());
    ids.into_iter().map(lump).collect()
}

/// One change after the other, and what the disk saw.
struct History {
    disk: SimDisk,
    store: Store,
    start: Vec<u8>,
    /// How many events there were when a change was acknowledged, and the state then.
    states: Vec<(usize, State)>,
}

impl History {
    fn new(shape: Shape) -> Self {
        let start = shape.image();
        let disk = SimDisk::recording(start.clone());
        let store = disk.open_as(CommitMode::Ordered).unwrap();
        Self {
            disk,
            store,
            start,
            states: vec![(0, State::new())],
        }
    }

    fn acknowledged(&mut self, change: impl FnOnce(&mut State)) {
        let mut state = self.states.last().unwrap().1.clone();
        change(&mut state);
        let events = self.disk.events().len();
        self.states.push((events, state));
    }

    fn put(&mut self, id: u128, bytes: &[u8], placement: Placement) {
        try_put(&self.store, id, bytes, placement).unwrap();
        self.acknowledged(|state| drop(state.insert(id, bytes.to_vec())));
    }

    fn delete(&mut self, id: u128) {
        delete(&self.store, id);
        self.acknowledged(|state| drop(state.remove(&id)));
    }

    /// Cuts it after every write and flush: the process dies, or the power fails and of what was
    /// not flushed nothing or any sectors are there. What remains is the last state that was
    /// acknowledged, or the next.
    fn cut_everywhere(self) -> usize {
        self.store.close().unwrap();
        let events = self.disk.events();
        let mut random = Random(1);
        let (mut all, mut durable) = (self.start.clone(), self.start);
        let mut unflushed: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut cuts = 0;
        for (number, event) in (1..).zip(&events) {
            match event {
                DiskEvent::Write { offset, bytes } => {
                    all[*offset..offset + bytes.len()].copy_from_slice(bytes);
                    unflushed.push((*offset, bytes.clone()));
                }
                DiskEvent::Flush => {
                    durable.clone_from(&all);
                    unflushed.clear();
                }
            }
            let mut torn = durable.clone();
            for (offset, bytes) in &unflushed {
                for (at, sector) in (*offset..).step_by(SECTOR).zip(bytes.chunks(SECTOR)) {
                    if random.below(2) == 0 {
                        torn[at..at + SECTOR].copy_from_slice(sector);
                    }
                }
            }
            let at = self.states.partition_point(|(events, _)| *events <= number);
            let allowed = &self.states[at - 1..(at + 1).min(self.states.len())];
            for image in [all.clone(), durable.clone(), torn] {
                let found = state(&SimDisk::new(image).open().unwrap());
                let known = allowed.iter().any(|(_, state)| *state == found);
                assert!(known, "event {number}: {:?}", found.keys());
                cuts += 1;
            }
        }
        cuts
    }
}

#[test]
fn c_a_range_delete_during_collection_brings_nothing_back() {
    let original = peer();
    let mut store = original.open();
    for id in 0..10 {
        store.put(&peer::id(id), &peer::plain(b"old")).unwrap();
    }
    store.run_side_job_once().unwrap();
    let found = store.delete_range(peer::id(0)..peer::id(10)).unwrap().len();
    assert_eq!(found, 10);
    drop(store);
    assert_ne!(
        original.open().list().len(),
        0,
        "the original has the defect"
    );

    let disk = SimDisk::new(SHAPE.image());
    let mut store = disk.open().unwrap();
    for round in 0..300_u64 {
        for id in 0..10 {
            put(&store, id, &content(id, round, 300));
        }
        // The collection is somewhere in the middle of them.
        for version in 0..round % 23 {
            put(&store, 50, &content(50, version, 100));
        }
        assert_eq!(delete_range(&store, 0..10), 10);
        put(&store, 60, &content(60, round, 3000));
        if round % 3 == 0 {
            store.close().unwrap();
            store = disk.open().unwrap();
        }
        assert!((0..10).all(|id| get(&store, id).is_none()), "round {round}");
        assert_eq!(get(&store, 60), Some(content(60, round, 3000)));
    }
    assert!(store.stats().lumps <= 2);
}

#[test]
fn e_a_failed_overwrite_leaves_the_old_lump() {
    let whole = vec![1; 60_000];
    let original = peer();
    let mut store = original.open();
    store.put(&peer::id(1), &peer::plain(&whole)).unwrap();
    let larger = vec![2; 150_000];
    assert!(store.put(&peer::id(1), &peer::plain(&larger)).is_err());
    assert!(
        peer::get(&mut store, 1).is_none(),
        "the original has the defect"
    );

    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    put(&store, 1, &whole);
    let refused = try_put(&store, 1, &larger, Placement::Data).unwrap_err();
    assert!(matches!(
        refused,
        Error::LumpTooLarge { .. } | Error::StoreFull { .. }
    ));
    assert_eq!(get(&store, 1), Some(whole.clone()));
    put(&store, 2, &[3; 30_000]);
    store.close().unwrap();
    assert_eq!(get(&disk.open().unwrap(), 1), Some(whole));
}

#[test]
fn f_overwrites_of_the_same_size_never_fill_the_journal() {
    let original = peer();
    let mut store = original.open();
    let mut random = Random(1);
    let failed = (0..5000).any(|_| {
        let id = random.below(50) as u128;
        store
            .put(&peer::id(id), &peer::plain(b"same size"))
            .is_err()
    });
    assert!(failed, "the original has the defect");

    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    for version in 0..8000 {
        let id = random.below(50) as u128;
        put(&store, id, &content(id, version, 9));
    }
    assert!(store.stats().gc_dropped > 5000);
}

#[test]
fn d_a_put_survives_the_collection_that_it_starts() {
    // An embedded lump of `phase` bytes, then puts and deletes: all garbage, and half of the ring.
    const PAIRS: usize = 61;
    let lost = (0..60).any(|phase| {
        let original = peer();
        let mut store = original.open();
        let odd = peer::embedded(&vec![3; phase]);
        store.put(&peer::id(3), &odd).unwrap();
        store.delete(&peer::id(3)).unwrap();
        for _ in 0..PAIRS {
            store.put(&peer::id(1), &peer::plain(b"x")).unwrap();
            store.delete(&peer::id(1)).unwrap();
        }
        store.put(&peer::id(2), &peer::plain(b"last")).unwrap();
        store.put(&peer::id(1), &peer::plain(b"x")).unwrap();
        drop(store);
        peer::get(&mut original.open(), 2).is_none()
    });
    assert!(lost, "the original has the defect");

    for phase in 0..60 {
        let disk = SimDisk::new(SHAPE.image());
        let store = disk.open().unwrap();
        try_put(&store, 3, &vec![3; phase], Placement::Embedded).unwrap();
        delete(&store, 3);
        for _ in 0..PAIRS {
            put(&store, 1, b"x");
            delete(&store, 1);
        }
        put(&store, 2, b"last");
        store.close().unwrap();
        assert_eq!(get(&disk.open().unwrap(), 2).as_deref(), Some(&b"last"[..]));
    }
}

#[test]
fn g_a_refused_embed_near_the_end_of_the_ring_does_no_harm() {
    let change = |random: &mut Random| (random.below(8) as u128, vec![7; random.below(700)]);
    let broken = (0..100).any(|seed| {
        let (original, mut random) = (peer(), Random(seed));
        let mut store = original.open();
        (0..200).any(|_| {
            let (id, value) = change(&mut random);
            let refused = store.put(&peer::id(id), &peer::embedded(&value)).is_err();
            refused && store.journal_sync().is_ok() && !opens(original.image())
        })
    });
    assert!(broken, "the original has the defect");

    let mut refusals = 0;
    for seed in 0..60 {
        let (disk, mut random) = (SimDisk::new(SHAPE.image()), Random(seed));
        let store = disk.open().unwrap();
        let mut lumps = State::new();
        for step in 0..300 {
            let (id, value) = change(&mut random);
            // Now and then one more that stays, until there is no room.
            let id = if step % 9 == 0 { 100 + step } else { id };
            match try_put(&store, id, &value, Placement::Embedded) {
                Ok(_) => drop(lumps.insert(id, value)),
                Err(Error::JournalFull { .. }) => refusals += 1,
                Err(error) => panic!("{error}"),
            }
        }
        store.close().unwrap();
        assert_eq!(state(&disk.open().unwrap()), lumps);
    }
    assert!(refusals > 1000, "{refusals}");
}

#[test]
fn b_the_head_moves_only_when_relocated_records_are_durable() {
    let original = peer();
    let mut store = lazy(&original);
    for id in 0..32 {
        store.put(&peer::id(id), &peer::plain(b"synced")).unwrap();
    }
    store.journal_sync().unwrap();
    store.journal_gc().unwrap();
    let killed = CannylsImage::new(original.image());
    assert_eq!(killed.open().list().len(), 0, "the original has the defect");

    let mut history = History::new(SHAPE);
    for id in 0..32 {
        history.put(id, b"synced", Placement::Data);
    }
    for version in 0..400_u32 {
        history.put(99, &version.to_be_bytes(), Placement::Data);
    }
    let stats = history.store.stats();
    assert!(stats.header_writes > 1, "{stats:?}");
    assert!(stats.gc_relocated > 32, "{stats:?}");
    history.cut_everywhere();
}

#[test]
fn h_blocks_are_reused_only_when_their_release_is_durable() {
    let original = peer();
    let mut store = lazy(&original);
    store.put(&peer::id(1), &peer::plain(&[1; 600])).unwrap();
    store.journal_sync().unwrap();
    store.delete(&peer::id(1)).unwrap();
    store.put(&peer::id(2), &peer::plain(&[2; 600])).unwrap();
    let killed = CannylsImage::new(original.image());
    let found = peer::get(&mut killed.open(), 1);
    assert_eq!(found, Some(vec![2; 600]), "the original has the defect");

    // Blocks for two lumps of three: every put needs the blocks of a delete.
    let mut history = History::new(Shape {
        data_blocks: 6,
        ..SHAPE
    });
    for version in 0..60 {
        let id = u128::from(version % 3);
        history.put(id, &content(id, version, 600), Placement::Data);
        history.put(10 + id, &content(10 + id, version, 600), Placement::Data);
        history.delete(id);
        history.delete(10 + id);
    }
    assert!(history.cut_everywhere() > 500);
}

#[test]
fn overwriting_never_mixes_old_and_new_bytes() {
    let original = peer();
    let mut store = original.open();
    store.put(&peer::id(1), &peer::plain(&[1; 2000])).unwrap();
    let before = original.image();
    store.put(&peer::id(1), &peer::plain(&[2; 2000])).unwrap();
    let after = original.image();
    // Cut when half of the data is written and no record is.
    let data = SECTOR * 14;
    let mut cut = before.clone();
    cut[data..data + 1024].copy_from_slice(&after[data..data + 1024]);
    let found = peer::get(&mut CannylsImage::new(cut).open(), 1).unwrap();
    assert!(found[0] == 2, "the original has the defect");
    assert!(found[1999] == 1, "the original has the defect");

    let mut history = History::new(SHAPE);
    for version in 0..80 {
        history.put(1, &content(1, version, 2000), Placement::Data);
    }
    history.cut_everywhere();
}

#[test]
fn n_a_torn_write_of_the_journal_leaves_its_old_end() {
    let original = peer();
    let mut store = lazy(&original);
    store.journal_sync().unwrap();
    let before = original.image();
    for id in 0..3 {
        store
            .put(&peer::id(id), &peer::embedded(&[9; 300]))
            .unwrap();
    }
    store.journal_sync().unwrap();
    let mut torn = before;
    let ring = 2 * SECTOR;
    let after = original.image();
    torn[ring..ring + SECTOR].copy_from_slice(&after[ring..ring + SECTOR]);
    assert!(!opens(torn), "the original has the defect");

    let mut history = History::new(SHAPE);
    for version in 0..150 {
        let len = 40 + (version as usize * 37) % 500;
        history.put(
            u128::from(version % 4),
            &content(1, version, len),
            Placement::Embedded,
        );
    }
    assert!(history.cut_everywhere() > 1000);
}

#[test]
fn a_what_is_acknowledged_as_synced_was_flushed() {
    let mut history = History::new(SHAPE);
    for version in 0..40 {
        history.put(1, &content(1, version, 900), Placement::Data);
        history.put(2, &content(2, version, 90), Placement::Embedded);
        history.delete(2);
    }
    assert!(history.cut_everywhere() > 500);
}

#[test]
fn a_reversed_range_is_refused_and_nothing_else_happens() {
    let original = peer();
    let panicked = std::panic::catch_unwind(move || {
        let mut store = original.open();
        store.put(&peer::id(5), &peer::plain(b"x")).unwrap();
        drop(store.delete_range(peer::id(9)..peer::id(1)));
    });
    assert!(panicked.is_err(), "the original has the defect");

    let store = SimDisk::new(SHAPE.image()).open().unwrap();
    put(&store, 5, b"x");
    let refused = store.delete_range(ctx(), LumpId(9), LumpId(1), Durability::Synced);
    assert!(matches!(refused, Err(Error::ReversedRange { .. })));
    let range = LumpRange {
        start: LumpId(9),
        end: Some(LumpId(1)),
    };
    assert!(matches!(
        store.list(range, 9),
        Err(Error::ReversedRange { .. })
    ));
    assert!(matches!(
        store.usage(range),
        Err(Error::ReversedRange { .. })
    ));
    assert_eq!(get(&store, 5).as_deref(), Some(&b"x"[..]));
}

/// Records carry no number of their lap: valid ones of the lap before lie behind the end, exactly
/// where the next ones go.
#[test]
fn records_of_the_lap_before_are_never_replayed() {
    let mut history = History::new(Shape {
        ring_blocks: 6,
        ..SHAPE
    });
    for version in 0..500_u64 {
        let id = u128::from(version % 5);
        // All records have one length, so that those of all laps begin at the same places.
        history.put(id, &content(id, version, 100), Placement::Data);
    }
    assert!(history.store.stats().header_writes > 10);
    history.cut_everywhere();
}
