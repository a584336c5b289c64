//! Metadata that rots: nothing that was acknowledged is lost, no corrupt byte is served, and no
//! check is clean that should not be.

use std::collections::BTreeMap;

use crate::support::sim::{Random, SimDisk};
use crate::support::{Shape, content, delete, disk_dir, embedded_if, get, options, put, try_put};
use lumpscope_engine::device::sim;
use lumpscope_engine::inspect::{CheckReport, Inspector};
use lumpscope_engine::{
    CheckpointUse, Error, Finding, FindingKind, LumpId, LumpRange, Placement, RequestCtx, Store,
};

const SHAPE: Shape = Shape::new(512, 12, 400);
const JOURNAL_HEADER: usize = 512;
const RING: usize = 1024;
const RING_LEN: usize = 12 * 512;
const DATA: usize = RING + RING_LEN;
const UUID: usize = 12;

type Lumps = BTreeMap<u128, Vec<u8>>;

/// A closed store whose ring was gone round, with its head amid the ring and its tail before it.
fn wrapped() -> (Vec<u8>, Lumps) {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    let mut lumps = Lumps::new();
    for version in 0.. {
        let id = if version < 100 { version.into() } else { 1000 };
        put(&store, id, &content(id, version, 300));
        lumps.insert(id, content(id, version, 300));
        let head = ring_head(&disk.bytes());
        let used = store.stats().journal_used_bytes;
        if version > 400 && head > 2000 && used > (RING_LEN - head) as u64 {
            break;
        }
    }
    store.close().unwrap();
    (disk.bytes(), lumps)
}

/// The image with one bit flipped.
fn flipped(image: &[u8], bit: usize) -> Vec<u8> {
    let mut image = image.to_vec();
    image[bit / 8] ^= 1 << (bit % 8);
    image
}

fn ring_head(image: &[u8]) -> usize {
    let field = image[JOURNAL_HEADER..].first_chunk().unwrap();
    u64::from_be_bytes(*field) as usize
}

fn state(store: &Store) -> Lumps {
    let ids = store.list(LumpRange::ALL, 10_000).unwrap();
    let lump = |id: LumpId| Some((id.0, get(store, id.0)?));
    ids.ids.into_iter().filter_map(lump).collect()
}

fn check(image: &[u8]) -> CheckReport {
    let dir = disk_dir();
    let path = dir.path().join("rotted.lusf");
    std::fs::write(&path, image).unwrap();
    Inspector::open(&path).unwrap().check(|_, _| true)
}

/// Rot that the store gets over by itself: it opens with every lump, sealed, the check tells of
/// it, and what is on the disk afterwards is sound.
fn heals(image: &[u8], lumps: &Lumps, what: &str) {
    let found = check(image);
    assert!(!found.clean, "{what}: a clean check");
    let disk = SimDisk::new(image.to_vec());
    let store = disk
        .open()
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    assert!(store.info().sealed, "{what}: no seal");
    assert_eq!(state(&store), *lumps, "{what}");
    let any = *lumps.keys().next().unwrap();
    let lump = store.get(RequestCtx::default(), LumpId(any)).unwrap();
    assert!(lump.verified, "{what}: unverified");
    drop(lump);
    store.close().unwrap();
    let found = check(&disk.bytes());
    assert!(found.clean, "{what}: {:?}", found.findings);
    assert_eq!(found.verified_lumps, lumps.len() as u64, "{what}");
}

#[test]
fn a_ring_head_that_rots_loses_nothing() {
    let (image, lumps) = wrapped();
    assert!(check(&image).clean);
    assert!(ring_head(&image) > 2000);
    for (len, what) in [(8, "the head zeroed"), (512, "its sector zeroed")] {
        let mut rotted = image.clone();
        rotted[JOURNAL_HEADER..JOURNAL_HEADER + len].fill(0);
        heals(&rotted, &lumps, what);
    }
    for bit in (0..64).step_by(3) {
        let rotted = flipped(&image, JOURNAL_HEADER * 8 + bit);
        heals(&rotted, &lumps, &format!("bit {bit} of the ring head"));
    }
}

#[test]
fn a_header_that_rots_loses_nothing() {
    let (image, lumps) = wrapped();
    for bit in (0..44 * 8).step_by(5) {
        heals(
            &flipped(&image, bit),
            &lumps,
            &format!("bit {bit} of the header"),
        );
    }
}

/// Rot in the UUID, or in the seal, and in a lump: the lump is known to be damaged.
#[test]
fn rot_in_uuid_or_seal_does_not_let_damaged_bytes_pass() {
    let (image, _) = wrapped();
    let seal = RING + find(&image[RING..DATA], b"LsSe");
    for at in [UUID, UUID + 15, seal, seal + 4, seal + 20, seal + 31] {
        let mut rotted = image.clone();
        rotted[at] ^= 0x5a;
        // A byte of every block of the data region.
        for block in rotted[DATA..].chunks_mut(512) {
            block[7] ^= 1;
        }
        let disk = SimDisk::new(rotted.clone());
        let store = disk.open().unwrap();
        for id in 0..100 {
            let got = store.get(RequestCtx::default(), LumpId(id));
            assert!(got.is_err(), "byte {at}: lump {id} was served");
        }
        store.close().unwrap();
        assert_eq!(check(&rotted).damaged_lumps, 101, "byte {at}");
    }
}

#[test]
fn a_seal_that_rots_is_known_and_made_good() {
    let (image, lumps) = wrapped();
    let seal = RING + find(&image[RING..DATA], b"LsSe");
    for bit in (0..32 * 8).step_by(5) {
        let rotted = flipped(&image, seal * 8 + bit);
        heals(&rotted, &lumps, &format!("bit {bit} of the seal"));
    }
    let mut rotted = image;
    rotted[seal..seal + 32].fill(0);
    heals(&rotted, &lumps, "the seal zeroed");
}

/// The records between head and tail, and the end: the lump, the ring position, the bytes.
fn records(image: &[u8]) -> Vec<(Option<LumpId>, usize, usize)> {
    let dir = disk_dir();
    let path = dir.path().join("sound.lusf");
    std::fs::write(&path, image).unwrap();
    let mut records = Vec::new();
    Inspector::open(&path).unwrap().records(|record| {
        let at = usize::try_from(record.ring_position).unwrap();
        records.push((record.lump, at, usize::try_from(record.len).unwrap()));
        true
    });
    records
}

/// The place of the newest seal: the one directly behind the last end of records.
fn find(ring: &[u8], magic: &[u8]) -> usize {
    let log_end = |at: usize| u64::from_be_bytes(*ring[at + 12..].first_chunk().unwrap());
    let places = (5..ring.len() - 32).filter(|&at| ring[at..].starts_with(magic));
    places.max_by_key(|&at| log_end(at)).unwrap()
}

/// A record of which a bit has flipped, anywhere between head and tail.
#[test]
fn a_bit_of_a_record_that_flips_loses_nothing() {
    let (image, lumps) = wrapped();
    let mut random = Random(5);
    let records = records(&image).into_iter();
    let places: Vec<usize> = records.flat_map(|(_, at, len)| at..at + len).collect();
    for _ in 0..60 {
        let (at, bit) = (places[random.below(places.len())], random.below(8));
        let rotted = flipped(&image, (RING + at) * 8 + bit);
        heals(&rotted, &lumps, &format!("bit {bit} at ring position {at}"));
    }
}

/// An embedded lump has its only copy in the journal: one bit of it costs that lump, which is known
/// as damaged, and nothing else.
#[test]
fn a_bit_of_an_embedded_lump_costs_that_lump_only() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    for id in 0..20 {
        try_put(&store, id, &content(id, 1, 60), Placement::Embedded).unwrap();
        put(&store, 100 + id, &content(100 + id, 1, 60));
    }
    store.close().unwrap();
    let image = disk.bytes();
    let lump = content(7, 1, 60);
    let at = image.windows(60).position(|bytes| bytes == lump).unwrap();
    for byte in [0, 30, 59] {
        let mut rotted = image.clone();
        rotted[at + byte] ^= 4;
        let found = check(&rotted);
        assert!(!found.clean);
        assert_eq!((found.verified_lumps, found.damaged_lumps), (39, 1));
        let disk = SimDisk::new(rotted);
        let store = disk.open().unwrap();
        assert_eq!(store.info().mended.len(), 1);
        assert_eq!(store.info().mended[0].lump, Some(LumpId(7)));
        let all_but_it = |store: &Store| {
            let got = store.get(RequestCtx::default(), LumpId(7));
            assert!(matches!(got, Err(Error::ChecksumMismatch(_))), "{got:?}");
            for id in (0..7).chain(8..20).chain(100..120) {
                assert_eq!(get(store, id), Some(content(id, 1, 60)));
            }
        };
        all_but_it(&store);
        // The collection moves it, and it stays known as damaged.
        for version in 0..300 {
            put(&store, 500, &content(500, version, 60));
        }
        all_but_it(&store);
        assert_eq!(store.failed().as_deref(), None);
        store.close().unwrap();
        let store = disk.open().unwrap();
        all_but_it(&store);
        // Until it is put anew.
        try_put(&store, 7, &lump, Placement::Embedded).unwrap();
        for version in 0..300 {
            put(&store, 500, &content(500, version, 60));
        }
        store.close().unwrap();
        let found = check(&disk.bytes());
        assert!(found.clean, "{:?}", found.findings);
    }
}

/// Records rot under an open store, or cannot be read: it knows them, and goes on.
#[test]
fn the_collection_writes_rotted_records_anew_from_memory() {
    let mut random = Random(9);
    for round in 0..40_usize {
        let disk = sim::SimDisk::new(&SHAPE.image(), sim::SimOptions::default());
        let store = Store::open_on(disk.device(), options()).unwrap();
        let mut lumps = Lumps::new();
        for id in 0..78 {
            put(&store, id, &content(id, 1, 100));
            lumps.insert(id, content(id, 1, 100));
        }
        for id in (0..78).step_by(2) {
            delete(&store, id);
            lumps.remove(&id);
        }
        let used = store.stats().journal_used_bytes;
        if round % 4 == 3 {
            let sector = RING as u64 + 512 * random.below(used as usize / 512) as u64;
            disk.make_unreadable(sector..sector + 512);
        } else {
            // From a bit up to a stretch of bytes, at the head and elsewhere.
            let at = [0, random.below(used as usize)][round % 2];
            for byte in 0..[1, 8, 200][round % 3] {
                disk.rot((RING + at + byte) as u64, random.below(255) as u8 + 1);
            }
        }
        if round % 5 == 0 {
            // The scrubber reads the journal, too, and has it written anew.
            store.scrub_start(None);
            for _ in 0..10_000 {
                let status = store.scrub_status();
                if status.passes > 0 && store.stats().journal_used_bytes < used {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        } else {
            store.collect().unwrap();
        }
        assert!(store.scrub_status().findings.total > 0, "round {round}");
        assert_eq!(store.failed().as_deref(), None, "round {round}");
        put(&store, 1000, b"goes on");
        lumps.insert(1000, b"goes on".to_vec());
        assert_eq!(state(&store), lumps, "round {round}");
        store.close().unwrap();
        let store = Store::open_on(disk.device(), options()).unwrap();
        assert_eq!(state(&store), lumps, "round {round}");
        assert!(store.info().mended.is_empty(), "round {round}");
    }
}

/// Damage of more than a bit: salvage mode goes on behind it.
#[test]
fn salvage_goes_on_behind_damaged_records() {
    let disk = SimDisk::new(SHAPE.image());
    let store = disk.open().unwrap();
    for id in 0..100 {
        put(&store, id, &content(id, 1, 100));
    }
    store.close().unwrap();
    let image = disk.bytes();
    let places = records(&image);
    let place_of = |id: usize| {
        let lump_id = Some(LumpId(id as u128));
        places.iter().find(|(lump, ..)| *lump == lump_id).unwrap().1
    };
    for records in [vec![0], vec![50], vec![99], vec![3, 4, 60], vec![0, 99]] {
        let mut rotted = image.clone();
        for record in &records {
            rotted[RING + place_of(*record) + 3..][..9].fill(0xa7);
        }
        assert!(SimDisk::new(rotted.clone()).open().is_err());
        for read_only in [true, false] {
            let disk = SimDisk::new(rotted.clone());
            let mut options = options();
            (options.salvage, options.read_only) = (true, read_only);
            let store = Store::open_on(disk.device(), options).unwrap();
            let report = store.info().salvage.clone().unwrap();
            assert!(report.gaps > 0 && report.cut.is_none(), "{report:?}");
            assert_eq!(report.dropped_lumps, 0);
            assert!(store.info().sealed);
            let lumps = state(&store);
            let lost = |id: &usize| !lumps.contains_key(&(*id as u128));
            let all_lost: Vec<usize> = (0..100).filter(lost).collect();
            assert_eq!(all_lost, records);
            store.close().unwrap();
            if !read_only {
                let store = disk.open().unwrap();
                assert_eq!(state(&store), lumps);
                assert!(store.info().sealed);
                store.close().unwrap();
                assert!(check(&disk.bytes()).clean);
            }
        }
    }
}

/// Outcome of one rotted bit.
#[derive(Debug, Default)]
struct Sweep {
    bits: usize,
    /// Damage that the check reports.
    reported: usize,
    /// Bits of embedded data: the lump is known as damaged.
    lumps_damaged: usize,
}

impl Sweep {
    /// One bit of a closed store in a file, anywhere in its metadata: every lump is there (one is
    /// known as damaged if the bit is of its embedded data), whether opened to write or not, in
    /// salvage mode or not; and a check that is clean has missed nothing.
    fn bit(&mut self, sound: &[u8], lumps: &Lumps, bit: usize, dir: &tempfile::TempDir) {
        let rotted = flipped(sound, bit);
        let path = dir.path().join("swept.lusf");
        std::fs::write(&path, &rotted).unwrap();
        let found = Inspector::open(&path).unwrap().check(|_, _| true);
        self.bits += 1;
        self.reported += usize::from(!found.clean);
        let (mut damaged, mut replayed) = (0, false);
        for (read_only, salvage) in [(true, true), (true, false), (false, false)] {
            let mut options = options();
            (options.read_only, options.salvage) = (read_only, salvage);
            let store =
                Store::open(&path, options).unwrap_or_else(|error| panic!("{bit}: {error}"));
            assert!(store.info().sealed, "bit {bit}");
            let is_sound = store.info().mended.is_empty();
            assert!(!found.clean || is_sound, "bit {bit}: a clean check");
            let ids = store.list(LumpRange::ALL, 10_000).unwrap().ids;
            assert_eq!(ids.len(), lumps.len(), "bit {bit}");
            damaged = 0;
            replayed = store.info().replay.checkpoint != CheckpointUse::Used;
            for id in ids {
                match store.get(RequestCtx::default(), id) {
                    Ok(lump) => assert!(lump.verified && lump[..] == lumps[&id.0], "bit {bit}"),
                    Err(Error::ChecksumMismatch(_)) => damaged += 1,
                    Err(error) => panic!("bit {bit}: {error}"),
                }
            }
            assert!(damaged <= 1, "bit {bit}: {damaged} lumps are damaged");
            store.close().unwrap();
        }
        assert!(!found.clean || damaged == 0, "bit {bit}: a clean check");
        self.lumps_damaged += damaged;
        // What was made good is sound now. Checkpoints are written when there is something new, and
        // what one spares the replay the collection meets.
        let found = Inspector::open(&path).unwrap().check(|_, _| true);
        assert_eq!(found.damaged_lumps, damaged as u64, "bit {bit}");
        let mut left = found.findings.list.iter();
        let may_be_left = |finding: &Finding| {
            finding.kind == FindingKind::Checkpoint
                || (finding.kind == FindingKind::Record && (!replayed || damaged > 0))
        };
        assert!(left.all(may_be_left), "bit {bit}: {:?}", found.findings);
    }
}

/// One rotted bit anywhere in header, ring head, copies, seal, records and checkpoint. With
/// `LUMPSCOPE_SOAK` all of them (`./dev soak rot`).
#[test]
fn one_rotted_bit_of_metadata_costs_nothing() {
    let dir = disk_dir();
    let path = dir.path().join("sound.lusf");
    std::fs::write(&path, SHAPE.image()).unwrap();
    let mut with_checkpoint = options();
    with_checkpoint.checkpoint_records = 64;
    let store = Store::open(&path, with_checkpoint).unwrap();
    let mut lumps = Lumps::new();
    for version in 0..300 {
        let id = u128::from(version % 40);
        let placement = embedded_if(version % 5 == 0);
        try_put(&store, id, &content(id, version, 40), placement).unwrap();
        lumps.insert(id, content(id, version, 40));
        if version % 7 == 3 {
            delete(&store, id);
            lumps.remove(&id);
        }
    }
    assert!(store.stats().gc_runs > 0);
    store.close().unwrap();
    let sound = std::fs::read(&path).unwrap();
    assert!(sound.len() > SHAPE.image().len(), "a checkpoint");
    let area = (SHAPE.image().len().next_multiple_of(4096)..sound.len()).filter(|&at| {
        // Of the zeros of a chunk some bytes are enough.
        sound[at] != 0 || at % 4099 == 0
    });
    let bytes = (0..DATA).chain(area);
    let bits: Vec<usize> = bytes.flat_map(|at| at * 8..at * 8 + 8).collect();
    let mut sweep = Sweep::default();
    if std::env::var_os("LUMPSCOPE_SOAK").is_some() {
        for bit in bits {
            sweep.bit(&sound, &lumps, bit, &dir);
        }
    } else {
        let mut random = Random(11);
        // The headers, and the rest.
        for bit in (0..80).map(|_| random.below(1200 * 8)) {
            sweep.bit(&sound, &lumps, bit, &dir);
        }
        for _ in 0..80 {
            sweep.bit(&sound, &lumps, bits[random.below(bits.len())], &dir);
        }
    }
    println!("{sweep:?}");
    assert!(sweep.reported > sweep.bits / 20, "{sweep:?}");
}
