//! Random operations, with the store opened again at random points, against a map.

use std::collections::BTreeMap;

use crate::support::sim::SimDisk;
use crate::support::{
    Shape, content, ctx, disk_dir, embedded_if, get, options, store_file, try_put,
};
use lumpscope_engine::{Durability, Error, IoBackendChoice, LumpId, LumpRange, Placement, Store};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum ModelOp {
    Put {
        id: u8,
        len: usize,
        embedded: bool,
        journaled: bool,
    },
    Get {
        id: u8,
    },
    Delete {
        id: u8,
        journaled: bool,
    },
    DeleteRange {
        start: u8,
        end: u8,
    },
    List {
        start: u8,
        limit: usize,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = ModelOp> {
    let id = 0_u8..24;
    prop_oneof![
        12 => (id.clone(), prop_oneof![3 => 0_usize..300, 2 => 0_usize..6000], any::<bool>(), any::<bool>())
            .prop_map(|(id, len, embedded, journaled)| {
                let embedded = embedded && len < 300;
                ModelOp::Put { id, len, embedded, journaled }
            }),
        5 => id.clone().prop_map(|id| ModelOp::Get { id }),
        4 => (id.clone(), any::<bool>()).prop_map(|(id, journaled)| ModelOp::Delete { id, journaled }),
        1 => (id.clone(), id.clone()).prop_map(|(a, b)| ModelOp::DeleteRange { start: a.min(b), end: a.max(b) }),
        1 => (id, 0_usize..10).prop_map(|(start, limit)| ModelOp::List { start, limit }),
        1 => Just(ModelOp::Reopen),
    ]
}

const fn durability(journaled: bool) -> Durability {
    if journaled {
        Durability::Journaled
    } else {
        Durability::Synced
    }
}

type Model = BTreeMap<u128, Vec<u8>>;

fn put(store: &Store, model: &mut Model, op: &ModelOp, version: u64) {
    let ModelOp::Put {
        id,
        len,
        embedded,
        journaled,
    } = *op
    else {
        return;
    };
    let (id, bytes) = (u128::from(id), content(id.into(), version, len));
    let mut buf = store.lump_buf(len as u64).unwrap();
    buf.extend(&bytes).unwrap();
    let placement = embedded_if(embedded);
    match store.put(ctx(), LumpId(id), buf, placement, durability(journaled)) {
        Ok(outcome) => {
            assert_eq!(outcome.created, model.insert(id, bytes).is_none(), "{op:?}");
        }
        Err(Error::StoreFull { .. } | Error::JournalFull { .. }) => {}
        Err(Error::LumpTooLarge { .. }) if embedded => {}
        Err(error) => panic!("{op:?}: {error}"),
    }
}

fn list(store: &Store, model: &Model, start: u8, limit: usize) {
    let range = LumpRange {
        start: LumpId(start.into()),
        end: None,
    };
    let page = store.list(range, limit).unwrap();
    let mut want = model.range(u128::from(start)..).map(|(&id, _)| LumpId(id));
    assert_eq!(page.ids, want.by_ref().take(limit).collect::<Vec<_>>());
    assert_eq!(page.next, want.next());
}

/// Runs the operations; `open` opens the store anew.
fn run(ops: &[ModelOp], open: impl Fn() -> Store) {
    let mut store = open();
    let mut model = Model::new();
    for (version, op) in ops.iter().enumerate() {
        match *op {
            ModelOp::Put { .. } => put(&store, &mut model, op, version as u64),
            ModelOp::Get { id } => {
                assert_eq!(
                    get(&store, id.into()),
                    model.get(&id.into()).cloned(),
                    "{op:?}"
                );
                let head = store
                    .head(ctx(), LumpId(id.into()))
                    .ok()
                    .map(|head| head.length);
                assert_eq!(
                    head,
                    model.get(&id.into()).map(|bytes| bytes.len() as u64),
                    "{op:?}"
                );
            }
            ModelOp::Delete { id, journaled } => {
                let id = u128::from(id);
                let outcome = store
                    .delete(ctx(), LumpId(id), durability(journaled))
                    .unwrap();
                assert_eq!(outcome.existed, model.remove(&id).is_some(), "{op:?}");
            }
            ModelOp::DeleteRange { start, end } => {
                let (start, end) = (u128::from(start), u128::from(end));
                let outcome = store
                    .delete_range(ctx(), LumpId(start), LumpId(end), Durability::Synced)
                    .unwrap();
                let before = model.len();
                model.retain(|id, _| !(start..end).contains(id));
                assert_eq!(outcome.deleted, (before - model.len()) as u64, "{op:?}");
            }
            ModelOp::List { start, limit } => list(&store, &model, start, limit),
            ModelOp::Reopen => {
                store.close().unwrap();
                store = open();
            }
        }
    }
    drop(store);
    let store = open();
    for id in 0..24 {
        let expected = model.get(&id).cloned();
        assert_eq!(get(&store, id), expected, "at the end, lump {id}");
    }
    let expected = model.len() as u64;
    assert_eq!(store.usage(LumpRange::ALL).unwrap().lumps, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_store_in_memory_agrees_with_a_map(
        ops in prop::collection::vec(op(), 1..400),
        block_size in prop::sample::select(vec![512_u16, 1536, 4096]),
        ring_sectors in 8_u64..20,
        shuffle in any::<bool>(),
    ) {
        let ring_blocks = (ring_sectors * 512).div_ceil(block_size.into());
        let shape = Shape { block_size, ring_blocks, data_blocks: 60_000 / u64::from(block_size) };
        let mut disk = SimDisk::new(shape.image());
        disk.shuffle = shuffle.then_some(1);
        run(&ops, || disk.open().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn a_store_in_a_file_agrees_with_a_map(
        ops in prop::collection::vec(op(), 1..150),
        block_size in prop::sample::select(vec![512_u16, 1536, 4096]),
        io_backend in prop::sample::select(vec![IoBackendChoice::Threads, IoBackendChoice::Uring]),
    ) {
        let dir = disk_dir();
        let shape = Shape { block_size, ring_blocks: 12, data_blocks: 40 };
        let path = store_file(&dir, shape);
        run(&ops, || {
            let mut options = options();
            options.io_backend = io_backend;
            Store::open(&path, options).unwrap()
        });
    }
}

#[test]
fn an_id_at_the_end_of_all_ids_works() {
    let disk = SimDisk::new(Shape::new(512, 8, 20).image());
    let store = disk.open().unwrap();
    try_put(&store, u128::MAX, b"last", Placement::Data).unwrap();
    let all = store
        .delete_range(ctx(), LumpId(0), LumpId(u128::MAX), Durability::Synced)
        .unwrap();
    assert_eq!(all.deleted, 0);
    assert_eq!(get(&store, u128::MAX).as_deref(), Some(&b"last"[..]));
}
