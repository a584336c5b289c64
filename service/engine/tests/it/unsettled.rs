//! An image that a version before 0.3 left with an unsettled batch (FORMAT.md section 8.1): what
//! opening and the check make of it, and that it is written anew.

use crate::support::but;
use crate::support::stepped::{Stepped, bytes, disk_of, options};
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::mutant::{self, Mutant};
use lumpscope_engine::{CommitMode, Error, LumpId, TailOutcome, UnsettledTail};

fn image() -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/0.2/checked.lusf");
    std::fs::read(path).unwrap()
}

/// Opens an image, and reads a lump.
fn open(image: &[u8], id: LumpId) -> (UnsettledTail, Result<Vec<u8>, Error>, Stepped) {
    let mut store = Stepped::open(disk_of(image), options(CommitMode::Runs));
    let told = store.submit_get(id.0);
    let found = store.wait(&told).map(|lump| lump.to_vec());
    let tail = store.store.info().unsettled.clone();
    (tail.expect("an unsettled tail"), found, store)
}

fn has_unsettled_seal(image: &[u8]) -> bool {
    image.windows(4).any(|window| window == b"LsSu")
}

/// The lump that the last batch put, its bytes, and where they lie.
fn last_put() -> (LumpId, Vec<u8>, usize) {
    let mut sectors = (0..image().len()).step_by(512);
    let at = sectors.find(|&at| image()[at..at + 512] == [b'x'; 512]);
    (LumpId(5), vec![b'x'; 20_000], at.unwrap())
}

#[test]
fn it_is_opened_and_written_anew_and_not_by_who_only_reads_it() {
    let (id, right, _) = last_put();
    let read_only = but(options(CommitMode::Runs), |it| it.read_only = true);
    let reader = Stepped::open(disk_of(&image()), read_only);
    assert_eq!(bytes(&reader), image());
    let (tail, found, store) = open(&image(), id);
    assert_eq!((tail.outcome, tail.lumps), (TailOutcome::Whole, vec![]));
    assert_eq!(found.unwrap(), right);
    assert!(has_unsettled_seal(&image()) && !has_unsettled_seal(&bytes(&store)));
    let disk = store.close();
    let again = Stepped::open(disk, options(CommitMode::Ordered));
    assert_eq!(again.store.info().unsettled, None);
}

#[test]
fn a_batch_whose_data_is_torn_never_was() {
    let (id, right, at) = last_put();
    for sector in (0..right.len() - 512).step_by(512) {
        let mut torn = image();
        torn[at + sector..at + sector + 512].fill(0x5a);
        let (tail, found, _) = open(&torn, id);
        assert_eq!(tail.outcome, TailOutcome::Dropped);
        assert_ne!(found.ok(), Some(right.clone()));
        let trusted = mutant::with(Mutant::TrustsData, || open(&torn, id).0);
        let expected = TailOutcome::Whole;
        assert_eq!(trusted.outcome, expected, "the trap was not found");
    }
}

#[test]
fn a_bit_that_rotted_costs_no_lump() {
    let (id, right, at) = last_put();
    for bit in (0..8 * right.len()).step_by(97) {
        let mut rotten = image();
        rotten[at + bit / 8] ^= 1 << (bit % 8);
        let (tail, found, _) = open(&rotten, id);
        assert_eq!(tail.outcome, TailOutcome::Damaged, "bit {bit}");
        assert_eq!(found.unwrap(), right, "bit {bit}");
    }
    let mut rotten = image();
    rotten[at] ^= 1;
    let (_, found, _) = mutant::with(Mutant::LeavesRot, || open(&rotten, id));
    assert!(found.is_err(), "the trap was not found");
    let (tail, ..) = mutant::with(Mutant::CutsRot, || open(&rotten, id));
    assert_eq!(tail.outcome, TailOutcome::Dropped, "the trap was not found");
}

#[test]
fn data_that_cannot_be_read_is_kept() {
    let (id, _, at) = last_put();
    let disk = disk_of(&image());
    disk.make_unreadable(at as u64..at as u64 + 512);
    let mut store = Stepped::open(disk, options(CommitMode::Runs));
    let tail = store.store.info().unsettled.clone().unwrap();
    assert_eq!((tail.outcome, tail.lumps), (TailOutcome::Damaged, vec![id]));
    let told = store.submit_get(id.0);
    let found = store.wait(&told);
    assert!(matches!(found, Err(Error::Unreadable { .. })), "{found:?}");
}

#[test]
fn the_check_sees_what_opening_will_make_of_it() {
    let (_, _, at) = last_put();
    let (mut torn, mut rotten) = (image(), image());
    torn[at..at + 512].fill(0x5a);
    rotten[at] ^= 1;
    let dir = crate::support::disk_dir();
    let path = dir.path().join("image");
    for (image, outcome, damaged) in [
        (image(), "whole", 0),
        (torn, "dropped", 0),
        (rotten, "damaged", 1),
    ] {
        std::fs::write(&path, image).unwrap();
        let inspector = Inspector::open(&path).unwrap();
        let journal = inspector.report().journal.clone().unwrap();
        assert_eq!(journal.unsettled, Some(outcome));
        let report = inspector.check(|_, _| true);
        assert_eq!(report.damaged_lumps, damaged, "{outcome}");
    }
}
