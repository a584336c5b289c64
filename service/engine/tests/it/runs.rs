//! Puts in runs: what they cost, and what opening makes of a run that was not closed (FORMAT.md
//! section 8.2). Each trap is also shown to be found when its safeguard is taken away.

use crate::support::but;
use std::collections::BTreeMap;

use crate::support::stepped::{Stepped, bytes, disk_of, options, put};
use lumpscope_engine::device::sim::{Fault, FaultKind, Random, Survivors, blank_image};
use lumpscope_engine::format::run::Link;
use lumpscope_engine::format::sums::PayloadSums;
use lumpscope_engine::format::trailer::LumpShape;
use lumpscope_engine::inspect::Inspector;
use lumpscope_engine::mutant::{self, Mutant};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{
    CommitMode, Error, IoOp, LumpId, Placement, Store, StoreState, TailOutcome,
};

const SECOND_NS: u64 = 1_000_000_000;
const RING_BLOCKS: u64 = 24;
/// First byte of the data region.
const DATA: usize = (2 + RING_BLOCKS as usize) * 512;
/// A lump of three blocks.
const LEN: usize = 1200;
const BLOCKS: usize = 3 * 512;

fn reopen(image: &[u8], commit: CommitMode) -> Stepped {
    Stepped::open(disk_of(image), options(commit))
}

/// Opens an image, in which these lumps must be, and nothing but these changes.
fn holds(image: &[u8], commit: CommitMode, lumps: &BTreeMap<u128, Vec<u8>>) -> Stepped {
    let mut store = reopen(image, commit);
    store.model.clone_from(lumps);
    store.check_all();
    store
}

/// Time goes on by so much, and all that is due by then is done.
fn later(store: &mut Stepped, ns: u64) {
    store.disk.advance_to(store.disk.now_ns() + ns);
    store.settle();
}

/// A store with room for `blocks` blocks of data, in which a run is open: lump 0 is in front of it.
fn running(blocks: u64) -> Stepped {
    let image = blank_image(BlockSize::MIN, RING_BLOCKS, blocks, [7; 16]);
    let mut store = reopen(&image, CommitMode::Runs);
    store.put(0, LEN, Placement::Data);
    store.settle();
    store
}

fn get(store: &mut Stepped, id: u128) -> Result<Vec<u8>, Error> {
    let told = store.submit_get(id);
    store.wait(&told).map(|lump| lump.to_vec())
}

fn outcome(store: &Stepped) -> Option<TailOutcome> {
    store.store.info().unsettled.as_ref().map(|it| it.outcome)
}

/// Opens an image and reads a lump: outcome, puts that were found, bytes.
fn open(image: &[u8], id: u128) -> (Option<TailOutcome>, u64, Result<Vec<u8>, Error>) {
    let mut store = reopen(image, CommitMode::Ordered);
    let unsettled = store.store.info().unsettled.as_ref();
    let puts = unsettled.map_or(0, |it| it.puts);
    let found = get(&mut store, id);
    (outcome(&store), puts, found)
}

fn is_missing(found: &Result<Vec<u8>, Error>) -> bool {
    matches!(found, Err(Error::NotFound { .. }))
}

/// Seals of each form in the ring: settled, with a run.
fn magics(image: &[u8]) -> (usize, usize) {
    let ring = &image[1024..DATA];
    let count = |magic: &[u8]| ring.windows(4).filter(|window| *window == magic).count();
    (count(b"LsSe"), count(b"LsSt"))
}

/// A record that is written to a disk that is gone fails, and the store takes no changes any more,
/// though all it has acknowledged is there.
#[test]
fn records_wait_for_a_disk_that_is_gone() {
    let mut store = running(400);
    let used = |store: &Stepped| store.store.stats().journal_used_bytes;
    let before = used(&store);
    for id in 1..5 {
        store.put(id, LEN, Placement::Data);
    }
    assert_eq!(used(&store), before);
    for op in [IoOp::Read, IoOp::Write, IoOp::Flush] {
        let gone = FaultKind::Errno(libc::ENXIO);
        store.disk.inject(Fault::always(op, gone));
    }
    assert!(get(&mut store, 1).is_err());
    for _ in 0..5 {
        later(&mut store, SECOND_NS);
        assert_eq!(store.store.health().state, StoreState::Gone);
    }
    store.disk.heal();
    store.until(|it| it.store.health().state == StoreState::Serving);
    store.until(|it| used(it) > before);
    store.check_all();
    store.close();
}

/// Blocks of the journal that have never been written, on a file system that is full: what needs them
/// is refused, what was acknowledged is there after a power cut, and the store goes on with the space.
#[test]
fn records_wait_for_space_and_only_what_needs_it_is_refused() {
    let mut store = running(400);
    let no_space = Fault {
        within: 512 * 3..DATA as u64,
        ..Fault::always(IoOp::Write, FaultKind::Errno(libc::ENOSPC))
    };
    store.disk.inject(no_space);
    let before = store.store.stats().commits;
    // Their records are more than the rest of the block that is there.
    for id in 1..60 {
        store.put(id, 400, Placement::Data);
    }
    let tried = store.store.stats().io_errors;
    for _ in 0..5 {
        later(&mut store, SECOND_NS);
    }
    let tried = store.store.stats().io_errors - tried;
    assert!((1..40).contains(&tried), "{tried} times in five seconds");
    let answer = store.submit_put(100, 300, Placement::Embedded);
    let refused = store.wait(&answer).unwrap_err();
    assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
    store.model.remove(&100);
    store.put(60, 400, Placement::Data);
    assert_eq!(store.store.stats().commits, before, "no batch was written");
    let health = store.store.health().state;
    assert_eq!((store.store.failed(), health), (None, StoreState::Serving));
    store.check_all();
    // The power goes.
    let mut cut = holds(&bytes(&store), CommitMode::Ordered, &store.model);
    assert!(is_missing(&get(&mut cut, 100)));
    // There is space again.
    store.disk.heal();
    later(&mut store, 2 * SECOND_NS);
    assert!(store.store.stats().commits > before, "the records followed");
    store.put(100, 300, Placement::Embedded);
    store.put(101, LEN, Placement::Data);
    let model = store.model.clone();
    let disk = store.close();
    let store = holds(&disk.bytes(0..disk.size()), CommitMode::Runs, &model);
    assert_eq!(store.store.info().unsettled, None);
}

#[test]
fn a_put_costs_one_write_and_one_flush_and_lies_behind_the_one_before() {
    let mut store = running(400);
    let before = bytes(&store);
    for id in 1..20 {
        let stats = store.store.stats();
        store.put(id, LEN, Placement::Data);
        let after = store.store.stats();
        let cost = (after.writes - stats.writes, after.flushes - stats.flushes);
        assert_eq!(cost, (1, 1), "put {id}");
        assert_eq!(after.commits, stats.commits);
    }
    let image = bytes(&store);
    assert_eq!(image[..DATA], before[..DATA], "the journal is as it was");
    for id in 1..20_usize {
        let at = DATA + id * BLOCKS;
        assert_eq!(image[at..at + LEN], store.model[&(id as u128)], "put {id}");
    }
    store.check_all();
}

#[test]
fn records_follow_after_a_second_and_a_closed_store_has_them_all() {
    let mut store = running(400);
    assert_eq!(magics(&bytes(&store)), (0, 1));
    assert_eq!(store.driver.due_ns(), None, "an idle store does no I/O");
    for id in 1..5 {
        store.put(id, LEN, Placement::Data);
    }
    let due_ns = store.driver.due_ns().expect("records are to be written");
    assert!(due_ns > store.disk.now_ns() + 900_000_000);
    let commits = store.store.stats().commits;
    store.disk.advance_to(due_ns);
    store.settle();
    assert_eq!(store.store.stats().commits, commits + 1);
    let due_ns = store.driver.due_ns();
    store
        .disk
        .advance_to(due_ns.expect("the copies are to name this end"));
    store.settle();
    assert_eq!(store.driver.due_ns(), None, "an idle store does no I/O");
    let (found, puts, lump) = open(&bytes(&store), 4);
    assert_eq!((found, puts), (Some(TailOutcome::Whole), 0));
    assert_eq!(lump.unwrap(), store.model[&4]);
    // The run goes on behind them.
    let flushes = store.store.stats().flushes;
    store.put(5, LEN, Placement::Data);
    assert_eq!(store.store.stats().flushes, flushes + 1);
    let model = store.model.clone();
    let disk = store.close();
    let image = disk.bytes(0..disk.size());
    assert_eq!(magics(&image), (1, 0));
    assert_eq!(disk.uncertain_writes(), 0);
    let store = holds(&image, CommitMode::Ordered, &model);
    assert_eq!(store.store.info().unsettled, None);
}

#[test]
fn opening_writes_the_records_and_a_reader_writes_nothing() {
    let mut store = running(400);
    for id in 1..9 {
        store.put(id, LEN, Placement::Data);
    }
    let (image, model) = (bytes(&store), store.model.clone());
    let read_only = but(options(CommitMode::Runs), |it| it.read_only = true);
    let mut reader = Stepped::open(disk_of(&image), read_only);
    reader.model = model.clone();
    reader.check_all();
    assert_eq!(bytes(&reader), image);
    for commit in [CommitMode::Ordered, CommitMode::Runs] {
        let mut store = reopen(&image, commit);
        let found = store.store.info().unsettled.clone().unwrap();
        assert_eq!((found.outcome, found.puts), (TailOutcome::Whole, 8));
        assert_eq!(magics(&bytes(&store)), (1, 0));
        assert_eq!(store.disk.uncertain_writes(), 0);
        store.model = model.clone();
        store.check_all();
        for id in 3..30 {
            store.put(id, LEN, Placement::Data);
            store.delete(id - 2);
        }
        let model = store.model.clone();
        let mut store = Stepped::open(store.close(), options(commit));
        assert_eq!(store.store.info().unsettled, None);
        store.model = model;
        store.check_all();
    }
}

#[test]
fn deletes_overwrites_and_embedded_lumps_come_in_the_order_of_their_answers() {
    let mut store = running(400);
    for id in 1..7 {
        store.put(id, LEN, Placement::Data);
    }
    store.delete(3);
    store.put(4, 700, Placement::Data);
    store.put(5, 100, Placement::Embedded);
    store.put(5, 800, Placement::Data);
    store.put(6, 100, Placement::Embedded);
    store.put(3, 900, Placement::Data);
    store.delete(2);
    store.put(1, 901, Placement::Data);
    for image in [bytes(&store), {
        later(&mut store, 2 * SECOND_NS);
        bytes(&store)
    }] {
        let mut again = holds(&image, CommitMode::Ordered, &store.model);
        assert!(is_missing(&get(&mut again, 2)));
    }
}

/// Any of its sectors may be lost: it never was, and what it would have replaced is there.
#[test]
fn a_put_whose_data_is_torn_never_was() {
    let mut store = running(400);
    store.put(1, LEN, Placement::Data);
    let old = store.model[&1].clone();
    let before = bytes(&store);
    store.put(1, LEN, Placement::Data);
    let after = bytes(&store);
    let at = DATA + 2 * BLOCKS;
    assert_ne!(before[at..at + BLOCKS], after[at..at + BLOCKS]);
    let lost_ways = |mutant| {
        (1_u32..8).all(|ways| {
            let mut image = after.clone();
            for sector in (0..3).filter(|sector| ways >> sector & 1 == 1) {
                let sector = at + sector * 512..at + (sector + 1) * 512;
                image[sector.clone()].copy_from_slice(&before[sector]);
            }
            let (_, puts, found) = mutant::with(mutant, || open(&image, 1));
            puts == 1 && found.is_ok_and(|found| found == old)
        })
    };
    assert!(lost_ways(Mutant::Sound));
    assert!(!lost_ways(Mutant::TrustsData), "the trap was not found");
    assert_eq!(open(&after, 1).2.unwrap(), store.model[&1]);
}

/// Blocks 6 to 9 of the image hold what the links of another run, or of a client, say is lump 7;
/// the put that was to go there is lost.
fn leftovers(first: impl FnOnce(&mut Stepped)) -> Vec<u8> {
    let mut store = running(400);
    first(&mut store);
    let mut store = Stepped::open(store.close(), options(CommitMode::Runs));
    for id in [1, 7, 66] {
        store.delete(id);
    }
    // The first lump of the run that is open then.
    put(&mut store, 2, &[2; LEN]);
    let before = bytes(&store);
    put(&mut store, 3, &[3; LEN]);
    let after = bytes(&store);
    let at = DATA + 2 * BLOCKS;
    assert_eq!(after[at..at + LEN], [3; LEN]);
    assert_eq!(before[..DATA], after[..DATA]);
    before
}

#[test]
fn a_lump_of_an_older_run_in_the_same_place_does_not_count() {
    let image = leftovers(|store| {
        store.put(1, LEN, Placement::Data);
        store.put(7, LEN, Placement::Data);
    });
    assert!(is_missing(&open(&image, 7).2));
    let (_, _, found) = mutant::with(Mutant::ForgetsKeys, || open(&image, 7));
    assert!(found.is_ok(), "the trap was not found");
}

#[test]
fn bytes_made_up_by_a_client_do_not_count() {
    for key in [0, 0x1234_5678_9abc_def0] {
        let shape = LumpShape::new(LEN as u64, BlockSize::MIN).unwrap();
        let payload = [0x66; LEN];
        let mut sums = PayloadSums::new(LEN as u64);
        sums.update(&payload);
        // Another lump's blocks up to the begin of the run that is to come, then the forged one.
        let mut forged = vec![0; 2 * BLOCKS];
        forged[BLOCKS..BLOCKS + LEN].copy_from_slice(&payload);
        shape.write_tail(LumpId(7), 1, sums, &mut forged[BLOCKS + LEN..]);
        let link = Link {
            key,
            id: LumpId(7),
            blocks: 3,
            number: 0,
            durable: 0,
            log_end: 0,
            samples: lumpscope_engine::format::proof::samples(0, &payload),
            annexed: false,
        };
        let bytes = link.encode();
        let end = 2 * BLOCKS - 24 - bytes.len();
        forged[end..end + bytes.len()].copy_from_slice(&bytes);
        let image = leftovers(|store| put(store, 66, &forged));
        let at = DATA + BLOCKS;
        assert_eq!(image[at + BLOCKS..at + 2 * BLOCKS], forged[BLOCKS..]);
        assert!(is_missing(&open(&image, 7).2));
        let (_, _, found) = mutant::with(Mutant::ForgetsKeys, || open(&image, 7));
        assert_eq!(found.unwrap(), payload, "the trap was not found");
    }
}

/// What a later put knows to be durable is never taken for torn, however much of it has rotted.
#[test]
fn rot_of_a_put_that_was_answered_costs_no_other_lump() {
    let mut store = running(400);
    store.put(1, LEN, Placement::Data);
    later(&mut store, 2 * SECOND_NS);
    for id in [1, 2, 3] {
        store.put(id, LEN, Placement::Data);
    }
    let image = bytes(&store);
    let at = DATA + 2 * BLOCKS;
    assert_eq!(image[at..at + LEN], store.model[&1]);
    let right = |image: &[u8], id| open(image, id).2.is_ok_and(|it| it == store.model[&id]);
    assert!((1..4).all(|id| right(&image, id)));
    // Any bytes of it, but not its link: a read of it fails.
    for byte in (0..LEN).step_by(97).chain(BLOCKS - 20..BLOCKS - 2) {
        let mut image = image.clone();
        image[at + byte] ^= 0x5a;
        let (found, puts, lump) = open(&image, 1);
        assert_eq!(found, Some(TailOutcome::Damaged), "byte {byte}");
        assert_eq!(puts, 3, "byte {byte}");
        assert!(matches!(lump, Err(Error::ChecksumMismatch(_))), "{lump:?}");
        assert!(right(&image, 2) && right(&image, 3));
        let (_, puts, _) = mutant::with(Mutant::CutsRot, || open(&image, 1));
        assert_eq!(puts, 0, "the trap was not found");
    }
    // Its link: which lump it was is not known, and the others are there.
    let link = BLOCKS - 24 - Link::default().encode().len();
    let mut image = image.clone();
    image[at + link + 3] ^= 0x5a;
    let (found, puts, _) = open(&image, 1);
    assert_eq!((found, puts), (Some(TailOutcome::Damaged), 2));
    assert!(right(&image, 2) && right(&image, 3));
}

/// Bits of a run with one put, and every one of the end of the journal that names it.
#[test]
fn one_bit_that_rots_costs_nothing() {
    let mut store = running(400);
    let before = bytes(&store);
    store.put(1, LEN, Placement::Data);
    let (image, right) = (bytes(&store), store.model[&1].clone());
    let seal = (1024..DATA)
        .find(|&at| image[at..].starts_with(b"LsSt"))
        .unwrap();
    let at = DATA + BLOCKS;
    assert_eq!(before[..at], image[..at]);
    let bits = (at * 8..(at + LEN) * 8).step_by(13);
    let bits = bits.chain(((at + LEN) * 8..(at + BLOCKS) * 8).step_by(3));
    for bit in bits.chain((seal - 5) * 8..(seal + 50) * 8) {
        let mut image = image.clone();
        image[bit / 8] ^= 1 << (bit % 8);
        let (_, _, found) = open(&image, 1);
        assert_eq!(found.unwrap(), right, "bit {} of byte {}", bit % 8, bit / 8);
    }
}

/// The power fails again while the store is opened, at each I/O of that.
#[test]
fn a_second_cut_loses_nothing() {
    let mut store = running(400);
    for id in 1..6 {
        store.put(id, LEN, Placement::Data);
    }
    let (image, model) = (bytes(&store), store.model.clone());
    let loses = |mutant, survivors| {
        let mut random = Random::derive(1, &[1]);
        (0..60).any(|ios| {
            let disk = disk_of(&image);
            disk.die_after(ios);
            let _ = mutant::with(mutant, || {
                Store::open_stepped(disk.device(), options(CommitMode::Runs))
            });
            let disk = disk.power_cut(survivors, &mut random);
            let mut store = Stepped::open(disk, options(CommitMode::Ordered));
            model
                .iter()
                .any(|(&id, bytes)| !get(&mut store, id).is_ok_and(|it| it == *bytes))
        })
    };
    for survivors in Survivors::ALL {
        assert!(!loses(Mutant::Sound, survivors), "{survivors:?}");
    }
    let trapped = loses(Mutant::ClosesEarly, Survivors::ALL[0]);
    assert!(trapped, "the trap was not found");
}

/// A full store gives its runs up, and lets go of what they keep.
#[test]
fn a_full_store_uses_every_block() {
    let mut store = running(60);
    for id in 1..20 {
        store.put(id, LEN, Placement::Data);
    }
    let told = store.submit_put(20, LEN, Placement::Data);
    assert!(matches!(store.wait(&told), Err(Error::StoreFull { .. })));
    store.model.remove(&20);
    store.check_all();
    for id in 1..20 {
        store.delete(id);
        store.put(id + 100, LEN, Placement::Data);
    }
    holds(&bytes(&store), CommitMode::Runs, &store.model);
}

/// The device refuses a place of a run: what was put behind it, and what is put elsewhere, is there.
#[test]
fn a_run_ends_where_the_device_refuses_to_write() {
    let mut store = running(400);
    store.put(1, LEN, Placement::Data);
    let at = (DATA + 2 * BLOCKS) as u64;
    store.disk.inject(Fault {
        within: at..at + BLOCKS as u64,
        ..Fault::always(IoOp::Write, FaultKind::Errno(libc::EIO))
    });
    let told: Vec<_> = (2..6)
        .map(|id| store.submit_put(id, LEN, Placement::Data))
        .collect();
    for told in told {
        store.wait(&told).unwrap();
        let mut again = reopen(&bytes(&store), CommitMode::Ordered);
        let answered = get(&mut again, 1).unwrap();
        assert_eq!(answered, store.model[&1]);
    }
    store.check_all();
    holds(&bytes(&store), CommitMode::Ordered, &store.model);
}

/// However much is put, what opening has to read of a run is bounded.
#[test]
fn a_run_has_at_most_32_mib() {
    let block_size = BlockSize::new(4096).unwrap();
    let image = blank_image(block_size, 16, 40_000, [7; 16]);
    let mut store = reopen(&image, CommitMode::Runs);
    let ring = 8192..8192 + 16 * 4096;
    let (mut named, mut largest, payload) = (0, 0, vec![5; 1 << 20]);
    for id in 0..100 {
        put(&mut store, id, &payload);
        let ring = store.disk.bytes(ring.clone());
        for at in (0..ring.len() - 50).filter(|&at| ring[at..].starts_with(b"LsSt")) {
            let blocks = u16::from_be_bytes([ring[at + 44], ring[at + 45]]);
            largest = largest.max(u64::from(blocks) * 4096);
            named += 1;
        }
    }
    assert!(named > 90 && largest > 20 << 20, "{named}, {largest}");
    assert!(largest <= 32 << 20, "{largest}");
    let stats = store.store.stats();
    assert!(stats.commits < 12, "{stats:?}");
}

/// The check of an image that nobody has opened since tells of no damage where opening finds none.
#[test]
fn a_look_at_an_image_sees_what_opening_will_make_of_it() {
    let dir = crate::support::disk_dir();
    let path = dir.path().join("image");
    let mut store = running(400);
    store.put(1, LEN, Placement::Data);
    let before = bytes(&store);
    store.put(2, LEN, Placement::Data);
    let whole = bytes(&store);
    let at = DATA + 2 * BLOCKS;
    let mut torn = whole.clone();
    torn[at..at + 512].copy_from_slice(&before[at..at + 512]);
    let mut rotten = whole.clone();
    rotten[at + 40] ^= 4;
    for (image, outcome, lumps, damaged) in [
        (&whole, "whole", 3, 0),
        (&torn, "dropped", 2, 0),
        (&rotten, "damaged", 3, 1),
    ] {
        std::fs::write(&path, image).unwrap();
        let inspector = Inspector::open(&path).unwrap();
        let journal = inspector.report().journal.clone().unwrap();
        assert_eq!(journal.unsettled, Some(outcome));
        assert!(journal.seal.is_some());
        assert_eq!(inspector.lumps(LumpId(0)).count(), lumps);
        let report = inspector.check(|_, _| true);
        assert_eq!(report.clean, damaged == 0);
        assert_eq!(report.damaged_lumps, damaged);
    }
}
