//! The index against a `BTreeMap`.

use std::ops::Bound;

use proptest::prelude::*;

use super::*;
use crate::format::Portion;
use crate::format::header::Header;
use crate::units::{BlockCount, BlockIndex, ByteLen, ByteOffset, RingPosition};

const RING: u64 = 1 << 20;
const BLOCKS: u64 = 1 << 20;

fn geometry() -> Geometry {
    let header = Header {
        minor: 1,
        block_size: BlockSize::DEFAULT,
        uuid: [7; 16],
        journal_len: ByteLen(RING + 4096),
        data_len: ByteLen(BLOCKS * 4096),
    };
    Geometry::new(ByteOffset(0), &header)
}

fn entry(n: u64) -> IndexEntry {
    let record = RingPosition(n % RING);
    let len = u16::try_from(n % 60_000).unwrap();
    if n.is_multiple_of(5) {
        return IndexEntry::embedded(record, len);
    }
    let portion = Portion::new(BlockIndex(n * 7 % BLOCKS), BlockCount(len + 1)).unwrap();
    let padding = (!n.is_multiple_of(3)).then_some(len % 8192);
    IndexEntry::data(record, portion, padding)
}

/// The expected content of the index.
#[derive(Default)]
struct Model(BTreeMap<u128, IndexEntry>);

impl Model {
    fn range(&self, range: LumpRange) -> Vec<(LumpId, IndexEntry)> {
        let end = range.end.map_or(Bound::Unbounded, |end| {
            Bound::Excluded(end.0.max(range.start.0))
        });
        let found = self.0.range((Bound::Included(range.start.0), end));
        found.map(|(&id, &entry)| (LumpId(id), entry)).collect()
    }

    fn remove_range(&mut self, start: u128, end: u128) -> Vec<IndexEntry> {
        let range = LumpRange {
            start: LumpId(start),
            end: Some(LumpId(end)),
        };
        let found = self.range(range);
        for (id, _) in &found {
            self.0.remove(&id.0);
        }
        found.into_iter().map(|(_, entry)| entry).collect()
    }
}

/// Everything the index can be asked, and its invariants.
fn check(index: &Index, model: &Model) {
    let all = model.range(LumpRange::ALL);
    assert_eq!(index.range(LumpRange::ALL).collect::<Vec<_>>(), all);
    let stored = all.iter().map(|(_, e)| e.stored_bytes(index.block_size));
    let usage = UsageOutcome {
        lumps: all.len() as u64,
        stored_bytes: stored.sum(),
        ..UsageOutcome::default()
    };
    assert_eq!(index.usage(LumpRange::ALL), usage);
    assert_eq!(index.len(), usage.lumps);
    let records: u64 = all.iter().map(|(_, entry)| entry.record_len()).sum();
    assert_eq!(index.record_bytes(), records);
    let buffers: usize = index.leaves.values().map(Leaf::capacity).sum();
    assert_eq!(index.buffer_bytes, buffers);
    assert!(index.leaves.keys().next().is_none_or(|&first| first == 0));
    let mut after = None;
    for (&key, leaf) in &index.leaves {
        assert!((1..=MAX_ROWS).contains(&leaf.len()));
        assert!(after.is_none_or(|last| last < key) && key <= leaf.id(0));
        after = Some(leaf.id(leaf.len() - 1));
    }
}

/// Ids that share leading bits in every possible number, and the two ends.
fn ids() -> impl Strategy<Value = u128> {
    let base = 0x0123_4567_89ab_cdef_1122_3344_5566_7788_u128;
    prop_oneof![
        Just(0),
        Just(u128::MAX),
        any::<u128>(),
        (0_u32..128, any::<u128>()).prop_map(move |(bits, noise)| base ^ (noise >> bits)),
        (0_u128..600).prop_map(move |n| base + n),
        (0_u128..600).prop_map(|n| n),
        (0_u128..600).prop_map(|n| u128::MAX - n),
    ]
}

#[derive(Clone, Debug)]
enum IndexStep {
    Insert(u128, u64),
    /// Ids one after the other, upwards or downwards.
    Run(u128, u16, bool, u64),
    Remove(u128),
    RemoveNearest(u128),
    RemoveRange(u128, u128),
    Move(u128, u64),
}

fn steps() -> impl Strategy<Value = Vec<IndexStep>> {
    let step = prop_oneof![
        8 => (ids(), any::<u32>()).prop_map(|(id, n)| IndexStep::Insert(id, n.into())),
        3 => (ids(), 1_u16..700, any::<bool>(), any::<u32>())
            .prop_map(|(id, len, up, n)| IndexStep::Run(id, len, up, n.into())),
        2 => ids().prop_map(IndexStep::Remove),
        6 => ids().prop_map(IndexStep::RemoveNearest),
        1 => (ids(), ids()).prop_map(|(a, b)| IndexStep::RemoveRange(a, b)),
        2 => (ids(), 0..RING).prop_map(|(id, to)| IndexStep::Move(id, to)),
    ];
    prop::collection::vec(step, 1..120)
}

fn run(index: &mut Index, model: &mut Model, step: &IndexStep) {
    let insert = |index: &mut Index, model: &mut Model, id: u128, n: u64| {
        let old = index.insert(LumpId(id), entry(n));
        assert_eq!(old, model.0.insert(id, entry(n)));
    };
    let remove = |index: &mut Index, model: &mut Model, id: u128| {
        assert_eq!(index.remove(LumpId(id)), model.0.remove(&id));
    };
    match *step {
        IndexStep::Insert(id, n) => insert(index, model, id, n),
        IndexStep::Run(id, len, up, n) => {
            for k in 0..u64::from(len) {
                let id = match up {
                    true => id.wrapping_add(k.into()),
                    false => id.wrapping_sub(k.into()),
                };
                insert(index, model, id, n + k);
            }
        }
        IndexStep::Remove(id) => remove(index, model, id),
        IndexStep::RemoveNearest(id) => {
            if let Some((&id, _)) = model.0.range(id..).next() {
                remove(index, model, id);
            }
        }
        IndexStep::RemoveRange(start, end) => {
            let mut removed = Vec::new();
            let count = index.remove_range(LumpId(start), LumpId(end), |e| removed.push(e));
            assert_eq!(count, removed.len() as u64);
            assert_eq!(removed, model.remove_range(start, end));
        }
        IndexStep::Move(id, to) => {
            index.update(LumpId(id), |entry| entry.moved_to(RingPosition(to), false));
            let to = RingPosition(to);
            model
                .0
                .entry(id)
                .and_modify(|entry| *entry = entry.moved_to(to, false));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_index_is_an_ordered_map(
        steps in steps(),
        ranges in prop::collection::vec((ids(), prop::option::of(ids())), 8),
    ) {
        let mut index = Index::new(&geometry());
        let mut model = Model::default();
        for step in &steps {
            run(&mut index, &mut model, step);
        }
        check(&index, &model);
        for (start, end) in ranges {
            prop_assert_eq!(index.get(LumpId(start)), model.0.get(&start).copied());
            let range = LumpRange { start: LumpId(start), end: end.map(LumpId) };
            prop_assert_eq!(index.range(range).collect::<Vec<_>>(), model.range(range));
        }
        let mut filler = Filler::new(Index::new(&geometry()));
        for (id, entry) in model.range(LumpRange::ALL) {
            prop_assert!(filler.push(id, entry));
            prop_assert!(!filler.push(id, entry));
        }
        check(&filler.finish(), &model);
    }
}

/// Numbers without order, the same in every run.
fn scattered(n: u64) -> u128 {
    let half = |n: u64| {
        let mixed = (n ^ n >> 31).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    };
    u128::from(half(n + 1)) << 64 | u128::from(half(!n))
}

#[test]
fn a_lump_costs_at_most_32_bytes() {
    const LUMPS: u64 = 200_000;
    let geometry = geometry();
    let mut random = Index::new(&geometry);
    let mut ascending = Index::new(&geometry);
    let mut descending = Index::new(&geometry);
    for n in 0..LUMPS {
        random.insert(LumpId(scattered(n)), entry(n));
        ascending.insert(LumpId(n.into()), entry(n));
        descending.insert(LumpId((LUMPS - n).into()), entry(n));
    }
    for index in [&random, &ascending, &descending] {
        assert_eq!(index.len(), LUMPS);
        let each = index.memory_bytes().div_ceil(LUMPS);
        assert!(each <= 32, "{each} bytes a lump");
    }
    // Deleting most of it gives most of the memory back.
    for n in 0..LUMPS * 9 / 10 {
        assert_eq!(random.remove(LumpId(scattered(n))), Some(entry(n)));
    }
    let each = random.memory_bytes().div_ceil(random.len());
    assert!(each <= 40, "{each} bytes a lump after deletes");
    assert_eq!(
        random.remove_range(LumpId(0), LumpId::MAX, |_| {}),
        LUMPS / 10
    );
    assert_eq!(random.memory_bytes(), 0);
}

#[test]
fn runs_between_others_do_not_leave_leaves_of_one_row() {
    let mut index = Index::new(&geometry());
    for n in 0..MAX_ROWS as u128 {
        index.insert(LumpId(n), entry(1));
    }
    // Each is larger than all of the full first leaf and smaller than what came last.
    for n in (1000..21_000).rev() {
        index.insert(LumpId(n), entry(2));
    }
    assert!(index.leaves.len() < 110, "{} leaves", index.leaves.len());
}

#[test]
fn totals_follow_the_entries() {
    let mut index = Index::new(&geometry());
    let portion = Portion::new(BlockIndex(3), BlockCount(2)).unwrap();
    index.insert(LumpId(1), IndexEntry::embedded(RingPosition(0), 10));
    index.insert(LumpId(1), IndexEntry::data(RingPosition(40), portion, None));
    index.insert(LumpId::MAX, IndexEntry::embedded(RingPosition(70), 7));
    let usage = |lumps, stored_bytes| UsageOutcome {
        lumps,
        stored_bytes,
        ..UsageOutcome::default()
    };
    assert_eq!(index.usage(LumpRange::ALL), usage(2, 8199));
    assert_eq!(index.record_bytes(), 28 + 30);
    assert_eq!(index.remove_range(LumpId(0), LumpId::MAX, |_| {}), 1);
    assert_eq!(index.usage(LumpRange::ALL), usage(1, 7));
}

proptest! {
    #[test]
    fn many_changes_at_a_time_are_the_same_as_one_by_one(
        changes in prop::collection::vec((0_u8..9, 0_u128..40, 0_u128..40, any::<u32>()), 0..300),
    ) {
        let (mut index, mut batched) = (Index::new(&geometry()), Batched::default());
        let mut model = Model::default();
        for (kind, id, other, n) in changes {
            match kind {
                0 => {
                    batched.remove_range(&mut index, LumpId(id), LumpId(other));
                    model.remove_range(id, other);
                }
                1..4 => {
                    batched.set(&mut index, LumpId(id), None);
                    model.0.remove(&id);
                }
                _ => {
                    batched.set(&mut index, LumpId(id), Some(entry(n.into())));
                    model.0.insert(id, entry(n.into()));
                }
            }
        }
        batched.apply(&mut index);
        check(&index, &model);
    }
}
