//! Checked commit: what a put costs, and what opening makes of the last batch (FORMAT.md section
//! 8.1). Each trap is also shown to be found when its safeguard is taken away.

use std::ops::Range;

use crate::support::stepped::{Stepped, bytes, disk_of, options, put, steady};
use lumpscope_engine::device::WriteCache;
use lumpscope_engine::device::sim::{SimDisk, SimOptions, blank_image};
use lumpscope_engine::format::trailer::LumpShape;
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::mutant::{self, Mutant};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{
    CommitMode, Error, LumpId, Placement, StoreOptions, TailOutcome, UnsettledTail,
};

const RING_BLOCKS: u64 = 24;
/// First byte of the data region.
const DATA: usize = (2 + RING_BLOCKS as usize) * 512;
/// A lump of three blocks.
const LEN: usize = 1200;

/// A store that commits checked, with room for `blocks` blocks of data.
fn checked(blocks: u64) -> Stepped {
    let image = blank_image(BlockSize::MIN, RING_BLOCKS, blocks, [7; 16]);
    Stepped::open(disk_of(&image), options(CommitMode::Checked))
}

/// The image of a store after the power failed when its last put was not flushed: these bytes are
/// what they were.
fn cut(before: &[u8], after: &[u8], lost: &[Range<usize>]) -> Vec<u8> {
    let mut image = after.to_vec();
    for lost in lost {
        image[lost.clone()].copy_from_slice(&before[lost.clone()]);
    }
    image
}

/// Opens an image, and reads a lump.
fn open(image: &[u8], id: u128) -> (Option<UnsettledTail>, Result<Vec<u8>, Error>) {
    read(
        Stepped::open(disk_of(image), options(CommitMode::Ordered)),
        id,
    )
}

fn read(mut store: Stepped, id: u128) -> (Option<UnsettledTail>, Result<Vec<u8>, Error>) {
    let told = store.submit_get(id);
    let found = store.wait(&told).map(|lump| lump.to_vec());
    (store.store.info().unsettled.clone(), found)
}

fn outcome(tail: Option<&UnsettledTail>) -> Option<TailOutcome> {
    tail.map(|tail| tail.outcome)
}

fn sectors(range: Range<usize>) -> Vec<Range<usize>> {
    range.step_by(512).map(|at| at..at + 512).collect()
}

#[test]
fn a_put_alone_costs_one_flush() {
    for (commit, cache, fua, expected) in [
        (CommitMode::Ordered, WriteCache::Back, false, (2, 0, 2)),
        (CommitMode::Checked, WriteCache::Back, false, (2, 0, 1)),
        (CommitMode::Ordered, WriteCache::Back, true, (2, 1, 1)),
        (CommitMode::Checked, WriteCache::Back, true, (2, 0, 1)),
        (CommitMode::Ordered, WriteCache::Through, false, (2, 0, 0)),
        (CommitMode::Checked, WriteCache::Through, false, (2, 0, 0)),
    ] {
        let sim = SimOptions {
            unit: 4096,
            cache,
            fua,
            latency: steady(1000, 1000),
            ..SimOptions::default()
        };
        let block_size = BlockSize::new(4096).unwrap();
        let image = blank_image(block_size, 16, 64, [7; 16]);
        let mut store = Stepped::open(SimDisk::new(&image, sim), options(commit));
        assert_eq!(store.store.info().commit, commit);
        // Header and ring head get their copies.
        put(&mut store, 0, &[1; 1000]);
        store.settle();
        for id in 1..9 {
            let before = store.store.stats();
            put(&mut store, id, &[1; 1000]);
            let after = store.store.stats();
            let cost = (
                after.writes - before.writes,
                after.writes_forced - before.writes_forced,
                after.flushes - before.flushes,
            );
            assert_eq!(cost, expected, "{commit:?}, {cache:?}, FUA {fua}, put {id}");
        }
    }
}

/// Over many puts: only where a batch crosses into the next logical block a second flush is needed.
#[test]
fn a_put_costs_two_flushes_where_its_record_crosses_a_block() {
    for (unit, most) in [(512, 120), (4096, 103)] {
        let sim = SimOptions {
            unit,
            latency: steady(1000, 1000),
            ..SimOptions::default()
        };
        let block_size = BlockSize::new(4096).unwrap();
        let image = blank_image(block_size, 64, 400, [7; 16]);
        let mut store = Stepped::open(SimDisk::new(&image, sim), options(CommitMode::Checked));
        put(&mut store, 0, &[1; 1000]);
        store.settle();
        let before = store.store.stats();
        for id in 1..=100 {
            put(&mut store, id, &[1; 1000]);
        }
        let flushes = store.store.stats().flushes - before.flushes;
        assert!((100..=most).contains(&flushes), "{flushes} with {unit}");
    }
}

#[test]
fn an_idle_store_settles_and_a_closed_one_has() {
    let mut store = checked(64);
    let magics = |image: &[u8]| {
        let count = |magic: &[u8]| {
            let ring = &image[1024..DATA];
            ring.windows(4).filter(|window| window == &magic).count()
        };
        (count(b"LsSe"), count(b"LsSu"))
    };
    store.put(1, LEN, Placement::Data);
    // Header and ring head get their copies.
    store.settle();
    assert_eq!(magics(&bytes(&store)), (0, 1));
    let writes = store.store.stats().writes;
    let due_ns = store.driver.due_ns().expect("the seal is to be settled");
    assert!(due_ns > store.disk.now_ns() + 5_000_000);
    store.disk.advance_to(due_ns);
    store.settle();
    assert_eq!(magics(&bytes(&store)), (1, 0));
    assert_eq!(store.store.stats().writes, writes + 1);
    assert_eq!(store.driver.due_ns(), None, "an idle store does no I/O");
    store.put(2, LEN, Placement::Data);
    let disk = store.close();
    let image = disk.bytes(0..disk.size());
    assert_eq!(magics(&image), (1, 0));
    // All of it is durable, too.
    assert_eq!(disk.uncertain_writes(), 0);
    // An image that lost power is settled when it is opened, and not by who only reads it.
    let mut store = Stepped::open(disk, options(CommitMode::Checked));
    store.put(3, LEN, Placement::Data);
    let image = bytes(&store);
    assert_eq!(magics(&image).1, 1);
    let read_only = StoreOptions {
        read_only: true,
        ..options(CommitMode::Checked)
    };
    let reader = Stepped::open(disk_of(&image), read_only);
    assert_eq!(bytes(&reader), image);
    let again = Stepped::open(disk_of(&image), options(CommitMode::Ordered));
    let tail = again.store.info().unsettled.as_ref();
    assert_eq!(outcome(tail), Some(TailOutcome::Whole));
    assert_eq!(magics(&bytes(&again)), (1, 0));
    assert_eq!(again.disk.uncertain_writes(), 0);
}

/// Any of its sectors may be lost: the batch is dropped, and what it would have replaced is there.
#[test]
fn a_put_whose_data_is_torn_never_was() {
    let mut store = checked(64);
    store.put(1, LEN, Placement::Data);
    let old = store.model[&1].clone();
    let before = bytes(&store);
    store.put(1, LEN, Placement::Data);
    let after = bytes(&store);
    let data: Vec<Range<usize>> = sectors(DATA..before.len())
        .into_iter()
        .filter(|sector| before[sector.clone()] != after[sector.clone()])
        .collect();
    assert_eq!(data.len(), 3);
    let lost_ways = |mutant| {
        (1_u32..8).all(|ways| {
            let lost: Vec<Range<usize>> = (0..3)
                .filter(|at| ways >> at & 1 == 1)
                .map(|at| data[at].clone())
                .collect();
            let image = cut(&before, &after, &lost);
            let (tail, found) = mutant::with(mutant, || open(&image, 1));
            outcome(tail.as_ref()) == Some(TailOutcome::Dropped)
                && found.is_ok_and(|found| found == old)
        })
    };
    assert!(lost_ways(Mutant::Sound));
    assert!(!lost_ways(Mutant::TrustsData), "the trap was not found");
    let (tail, found) = open(&after, 1);
    assert_eq!(outcome(tail.as_ref()), Some(TailOutcome::Whole));
    assert_eq!(found.unwrap(), store.model[&1]);
}

/// A batch that was dropped is dropped for good: the store goes on from the end before it.
#[test]
fn a_store_goes_on_after_a_dropped_batch() {
    let mut store = checked(64);
    store.put(1, LEN, Placement::Data);
    let kept = store.model[&1].clone();
    let before = bytes(&store);
    store.put(2, LEN, Placement::Data);
    let after = bytes(&store);
    let image = cut(&before, &after, &sectors(DATA..before.len()));
    let mut store = Stepped::open(disk_of(&image), options(CommitMode::Checked));
    let tail = store.store.info().unsettled.clone().unwrap();
    assert_eq!((tail.outcome, tail.puts), (TailOutcome::Dropped, 1));
    assert_eq!(tail.lumps, [LumpId(2)]);
    assert!(store.store.info().sealed);
    for id in 3..40 {
        store.put(id, 100, Placement::Data);
        store.delete(id);
    }
    let disk = store.close();
    let mut store = Stepped::open(disk, options(CommitMode::Checked));
    assert_eq!(store.store.info().unsettled, None);
    let told = store.submit_get(2);
    assert!(matches!(store.wait(&told), Err(Error::NotFound { .. })));
    let told = store.submit_get(1);
    assert!(store.wait(&told).is_ok_and(|found| found[..] == kept));
}

/// The check of an image that nobody has opened since tells of no damage where opening finds none.
#[test]
fn a_look_at_an_image_sees_what_opening_will_make_of_it() {
    let dir = crate::support::disk_dir();
    let path = dir.path().join("image");
    let mut store = checked(64);
    store.put(1, LEN, Placement::Data);
    let before = bytes(&store);
    store.put(1, LEN + 700, Placement::Data);
    let after = bytes(&store);
    let torn = cut(&before, &after, &sectors(DATA..before.len()));
    let mut rotten = after.clone();
    let data = (DATA..after.len()).find(|&at| before[at] != after[at]);
    rotten[data.unwrap() + 40] ^= 4;
    for (image, outcome, damaged) in [
        (&before, "whole", 0),
        (&after, "whole", 0),
        (&torn, "dropped", 0),
        (&rotten, "damaged", 1),
    ] {
        std::fs::write(&path, image).unwrap();
        let inspector = Inspector::open(&path).unwrap();
        let journal = inspector.report().journal.clone().unwrap();
        assert_eq!(journal.unsettled, Some(outcome));
        assert!(journal.seal.is_some());
        let stored = inspector.lumps(LumpId(0)).map(|lump| lump.stored_bytes);
        let blocks = if *image == before || *image == torn {
            3
        } else {
            4
        };
        assert_eq!(stored.collect::<Vec<_>>(), [blocks * 512]);
        let report = inspector.check(|_, _| true);
        assert_eq!(
            (report.clean, report.damaged_lumps),
            (damaged == 0, damaged)
        );
    }
}

/// An older version of the lump lies whole in these blocks, with its trailer.
#[test]
fn an_older_lump_in_the_same_place_does_not_count() {
    // Room for one lump only, so the blocks are the same ones.
    let mut store = checked(3);
    store.put(1, LEN, Placement::Data);
    store.delete(1);
    let before = bytes(&store);
    store.put(1, LEN, Placement::Data);
    let after = bytes(&store);
    let image = cut(&before, &after, &sectors(DATA..before.len()));
    let (tail, found) = open(&image, 1);
    assert_eq!(outcome(tail.as_ref()), Some(TailOutcome::Dropped));
    assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
    let (_, found) = mutant::with(Mutant::ForgetsNonces, || open(&image, 1));
    assert!(found.is_ok(), "the trap was not found");
}

/// A client puts bytes that look like a lump of another id, where that is put later.
#[test]
fn bytes_made_up_by_a_client_do_not_count() {
    for nonce in [None, Some(0), Some(0x1234_5678_9abc_def0)] {
        let mut store = checked(4);
        let shape = LumpShape::new(LEN as u64, BlockSize::MIN).unwrap();
        let payload = [0x66; LEN];
        let mut sums = lumpscope_engine::format::sums::PayloadSums::new(LEN as u64);
        sums.update(&payload);
        let mut forged = vec![0; usize::try_from(shape.total_len()).unwrap()];
        forged[..LEN].copy_from_slice(&payload);
        shape.write_tail(LumpId(7), (1, nonce), sums, &mut forged[LEN..]);
        put(&mut store, 66, &forged);
        store.delete(66);
        let before = bytes(&store);
        assert_eq!(before[DATA..DATA + forged.len()], forged);
        store.put(7, LEN, Placement::Data);
        let after = bytes(&store);
        let image = cut(&before, &after, &sectors(DATA..before.len()));
        let (tail, found) = open(&image, 7);
        assert_eq!(outcome(tail.as_ref()), Some(TailOutcome::Dropped));
        assert!(matches!(found, Err(Error::NotFound { .. })), "{found:?}");
        let (_, found) = mutant::with(Mutant::ForgetsNonces, || open(&image, 7));
        assert_eq!(found.unwrap(), payload, "the trap was not found");
    }
}

/// A bit of an acknowledged put flips before its seal is settled: it is never dropped.
#[test]
fn a_bit_that_rots_before_it_is_settled_costs_no_other_lump() {
    let mut store = checked(64);
    store.put(1, LEN, Placement::Data);
    let before = bytes(&store);
    store.put(1, LEN, Placement::Data);
    let (after, right) = (bytes(&store), store.model[&1].clone());
    let data = sectors(DATA..before.len())
        .into_iter()
        .find(|sector| before[sector.clone()] != after[sector.clone()])
        .unwrap();
    let (mut damaged, mut whole) = (0, 0);
    for bit in (0..3 * 512 * 8)
        .step_by(5)
        .chain(3 * 512 * 8 - 700..3 * 512 * 8)
    {
        let mut image = after.clone();
        image[data.start + bit / 8] ^= 1 << (bit % 8);
        let (tail, found) = open(&image, 1);
        match (outcome(tail.as_ref()), found) {
            (Some(TailOutcome::Damaged), Ok(found)) if found == right => {
                assert_eq!(tail.unwrap().lumps, [LumpId(1)]);
                damaged += 1;
            }
            (Some(TailOutcome::Whole), Ok(found)) if found == right => whole += 1,
            other => panic!("bit {bit}: {other:?}"),
        }
        if bit == 800 {
            let (_, found) = mutant::with(Mutant::CutsRot, || open(&image, 1));
            assert_ne!(found.unwrap(), right, "the trap was not found");
        }
    }
    // Nobody reads the nonce any more, nor the zeros before it.
    assert!(damaged > 1900 && whole > 50, "{damaged} and {whole}");
}

/// The sector that is lost was almost as the new one: nothing tells that from rot. The new lump is
/// there, or the one before it.
#[test]
fn a_lost_sector_that_differs_in_one_bit_costs_no_lump() {
    let mut store = checked(6);
    let versions = [[1; LEN], [2; LEN], {
        let mut almost = [1; LEN];
        almost[700] ^= 8;
        almost
    }];
    put(&mut store, 1, &versions[0]);
    put(&mut store, 1, &versions[1]);
    let before = bytes(&store);
    put(&mut store, 1, &versions[2]);
    let after = bytes(&store);
    let lost = DATA + 512..DATA + 1024;
    let differing = lost.clone().filter(|&at| before[at] != after[at]);
    assert_eq!(differing.collect::<Vec<_>>(), [DATA + 700]);
    let image = cut(&before, &after, &[lost]);
    let (tail, found) = open(&image, 1);
    assert_eq!(outcome(tail.as_ref()), Some(TailOutcome::Damaged));
    assert_eq!(found.unwrap(), versions[2]);
    let (_, found) = mutant::with(Mutant::LeavesRot, || open(&image, 1));
    assert!(found.is_err(), "the trap was not found");
}

/// A bit of the batch itself flips: records, EndOfRecords, seal.
#[test]
fn a_bit_of_an_unsettled_batch_that_rots_is_made_good() {
    let mut store = checked(64);
    store.put(1, LEN, Placement::Data);
    let before = bytes(&store);
    store.put(2, LEN, Placement::Data);
    let (after, right) = (bytes(&store), store.model[&2].clone());
    let first = (1024..DATA).find(|&at| before[at] != after[at]).unwrap();
    let last = (1024..DATA).rfind(|&at| before[at] != after[at]).unwrap();
    assert!(last - first > 60);
    let (mut whole, mut dropped) = (0, 0);
    let torn = cut(&before, &after, &sectors(DATA..before.len()));
    for bit in first * 8..=last * 8 + 7 {
        for (image, is_torn) in [(&after, false), (&torn, true)] {
            let mut image = image.clone();
            image[bit / 8] ^= 1 << (bit % 8);
            let (tail, found) = open(&image, 2);
            match (outcome(tail.as_ref()), found) {
                (Some(TailOutcome::Whole), Ok(found)) if !is_torn && found == right => whole += 1,
                (Some(TailOutcome::Dropped), Err(Error::NotFound { .. })) if is_torn => {
                    dropped += 1;
                }
                other => panic!("bit {bit}, torn {is_torn}: {other:?}"),
            }
        }
    }
    assert_eq!(whole, dropped);
}

/// Sectors that cannot be read say nothing: the put may have been acknowledged.
#[test]
fn a_put_that_cannot_be_read_is_kept() {
    let mut store = checked(64);
    store.put(1, LEN, Placement::Data);
    let after = bytes(&store);
    for sector in 0..3 {
        let disk = disk_of(&after);
        let at = (DATA + sector * 512) as u64;
        disk.make_unreadable(at..at + 512);
        let store = Stepped::open(disk, options(CommitMode::Checked));
        let (tail, found) = read(store, 1);
        assert_eq!(outcome(tail.as_ref()), Some(TailOutcome::Damaged));
        assert!(matches!(found, Err(Error::Unreadable { .. })), "{found:?}");
    }
}
