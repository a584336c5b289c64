//! Damage that CannyLS 0.10.0 makes itself.

use lumpscope_engine::LumpId;
use lumpscope_engine::format::record::Record;

use crate::salvage::harness::{RING, SHAPE, State, salvage};
use crate::support::peer::{self, CannylsImage};
use crate::support::sim::{Random, SECTOR};

/// Whether the original opens it as it is on the disk.
fn opens(original: &CannylsImage) -> bool {
    CannylsImage::new(original.image())
        .try_open(&peer::builder())
        .is_ok()
}

#[test]
fn overlaps_that_cannyls_leaves_after_a_range_delete_during_collection() {
    let original = CannylsImage::new(SHAPE.image());
    let mut store = original.open();
    for id in 0..10 {
        store
            .put(&peer::id(id), &peer::plain(&[id as u8; 400]))
            .unwrap();
    }
    store.run_side_job_once().unwrap();
    store.delete_range(peer::id(0)..peer::id(10)).unwrap();
    let mut wanted = State::new();
    for id in 20..30 {
        store
            .put(&peer::id(id), &peer::plain(&[id as u8; 400]))
            .unwrap();
        wanted.insert(id, vec![id as u8; 400]);
    }
    drop(store);
    assert!(!opens(&original), "the original has the defect");
    let (refused, found, lumps) = salvage(&original.image());
    assert!(refused.contains("belongs to lump"), "{refused}");
    for (id, bytes) in &wanted {
        assert_eq!(lumps.get(id), Some(bytes), "lump {id}");
    }
    assert!(found.dropped_lumps > 0);
}

#[test]
fn overlaps_that_cannyls_leaves_after_a_failed_overwrite() {
    let original = CannylsImage::new(SHAPE.image());
    let mut store = original.open();
    store
        .put(&peer::id(1), &peer::plain(&vec![1; 60_000]))
        .unwrap();
    assert!(
        store
            .put(&peer::id(1), &peer::plain(&vec![2; 150_000]))
            .is_err()
    );
    store
        .put(&peer::id(2), &peer::plain(&vec![3; 30_000]))
        .unwrap();
    drop(store);
    assert!(!opens(&original), "the original has the defect");
    let (_, found, lumps) = salvage(&original.image());
    assert_eq!(lumps, State::from([(2, vec![3; 30_000])]));
    assert_eq!(found.findings[0].winner.unwrap().lump, LumpId(2));
}

#[test]
fn a_go_to_front_that_cannyls_leaves_without_an_end() {
    let (mut broken, mut round) = (0, 0);
    for seed in 0..200 {
        let (original, mut random) = (CannylsImage::new(SHAPE.image()), Random(seed));
        let mut store = original.open();
        for _ in 0..200 {
            let (id, value) = (random.below(8) as u128, vec![7; random.below(700)]);
            let refused = store.put(&peer::id(id), &peer::embedded(&value)).is_err();
            store.journal_sync().unwrap();
            if refused && !opens(&original) {
                break;
            }
        }
        drop(store);
        if opens(&original) {
            continue;
        }
        broken += 1;
        let (_, found, served) = salvage(&original.image());
        // The original finds the same when the end stands where the jump does.
        let mut image = original.image();
        let jump = RING + found.cut.unwrap().ring_position as usize;
        assert_eq!(image[jump..jump + 5], Record::GoToFront.to_bytes());
        image[jump..jump + 5].copy_from_slice(&Record::EndOfRecords.to_bytes());
        let mut store = CannylsImage::new(image).open();
        let ids = store.list().into_iter().map(|id| id.as_u128());
        let ids: Vec<u128> = ids.collect();
        assert_eq!(
            served.keys().copied().collect::<Vec<_>>(),
            ids,
            "seed {seed}"
        );
        for id in ids {
            assert_eq!(peer::get(&mut store, id).as_ref(), Some(&served[&id]));
        }
        assert_eq!(found.dropped_lumps, 0);
        round += usize::from(found.findings[0].finding.why.contains("already"));
    }
    assert!(broken > 1 && round > 0, "{broken} {round}");
}

#[test]
fn a_torn_flush_of_cannyls() {
    let original = CannylsImage::new(SHAPE.image());
    let mut builder = peer::builder();
    builder.journal_sync_interval(4096);
    let mut store = original.try_open(&builder).unwrap();
    store.put(&peer::id(7), &peer::embedded(&[7; 40])).unwrap();
    store.journal_sync().unwrap();
    let before = original.image();
    for id in 0..3 {
        store
            .put(&peer::id(id), &peer::embedded(&[9; 300]))
            .unwrap();
    }
    store.journal_sync().unwrap();
    let after = original.image();
    let mut torn = before;
    torn[RING..RING + SECTOR].copy_from_slice(&after[RING..RING + SECTOR]);
    drop(store);
    let (_, found, lumps) = salvage(&torn);
    let kept: Vec<u128> = lumps.into_keys().collect();
    assert_eq!(kept, [0, 7]);
    assert_eq!(found.cut.unwrap().records_kept, 2);
}
