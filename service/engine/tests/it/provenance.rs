//! Provenance of lumps: lumps of this engine must carry their trailer, those of another are served
//! as they are, and that stays so however often records are relocated and the store is reopened.

use crate::support::peer::{self, CannylsImage};
use crate::support::sim::{Random, SimDisk};
use crate::support::{Shape, content, ctx, delete, put, try_put};
use lumpscope_engine::format::verify::Damage;
use lumpscope_engine::{Error, LumpId, Placement, Store};

const BLOCK: usize = 512;

fn shape(ring_blocks: u64) -> Shape {
    Shape {
        block_size: 512,
        ring_blocks,
        data_blocks: 2000,
    }
}

fn image(disk: &SimDisk) -> Vec<u8> {
    disk.bytes()
}

/// A store that CannyLS has put up to `lumps` lumps into, and how many.
fn foreign(ring_blocks: u64, lumps: u128) -> (SimDisk, u128) {
    let peer = CannylsImage::new(shape(ring_blocks).image());
    let mut store = peer.open();
    let put = |id: &u128| {
        let bytes = content(*id, 0, 100);
        store.put(&peer::id(*id), &peer::plain(&bytes)).is_ok()
    };
    let count = (0..lumps).take_while(put).count() as u128;
    drop(store);
    (SimDisk::new(peer.image()), count)
}

fn check(store: &Store, id: u128, version: u64, len: usize, verified: bool) {
    let got = store.get(ctx(), LumpId(id)).unwrap();
    assert!(got[..] == content(id, version, len)[..], "lump {id}");
    assert_eq!(got.verified, verified, "lump {id}");
}

/// The first byte of the last block of the only lump that has these bytes.
fn last_block_of(image: &[u8], bytes: &[u8]) -> usize {
    let at = image
        .windows(bytes.len())
        .position(|window| window == bytes)
        .unwrap();
    (at + bytes.len()) / BLOCK * BLOCK
}

#[test]
fn foreign_lumps_stay_foreign_and_own_lumps_strict_round_after_round() {
    for ring_blocks in [9, 12, 40] {
        let (disk, _) = foreign(ring_blocks, 40);
        let mut store = disk.open().unwrap();
        assert!(!store.info().sealed);
        let mut random = Random(ring_blocks);
        let (mut relocated, mut version) = (0, 0);
        while relocated < 2000 {
            for _ in 0..60 {
                version += 1;
                let id = 100 + random.below(5) as u128;
                put(&store, id, &content(id, version, 700));
                if random.below(8) == 0 {
                    let bytes = content(200, version, 90);
                    try_put(&store, 200, &bytes, Placement::Embedded).unwrap();
                }
            }
            relocated += store.stats().gc_relocated;
            store.close().unwrap();
            store = disk.open().unwrap();
            assert!(store.info().sealed);
            for id in 0..40 {
                check(&store, id, 0, 100, false);
            }
        }
        // The last block of an own lump is lost. In the smallest ring there is no room for marks,
        // so all may count as foreign there.
        let bytes = content(77, 1, 700);
        put(&store, 77, &bytes);
        store.close().unwrap();
        let mut damaged = image(&disk);
        let last = last_block_of(&damaged, &bytes);
        damaged[last + BLOCK - 24..last + BLOCK].fill(0);
        damaged[last + BLOCK - 1] = 200;
        let store = SimDisk::new(damaged).open().unwrap();
        match store.get(ctx(), LumpId(77)) {
            Err(Error::ChecksumMismatch(found)) => {
                assert_eq!(found.damage, Damage::TrailerMissing);
                assert_eq!((found.offset, found.len), (last as u64, 512));
                assert_eq!(found.id, LumpId(77));
                assert_eq!(found.portion.unwrap().len().0, 2);
            }
            other => panic!("{other:?}"),
        }
        assert!(store.head(ctx(), LumpId(77)).is_err());
        assert_eq!(store.stats().checksum_failures, 2);
    }
}

#[test]
fn a_journal_that_cannyls_has_filled_takes_deletes() {
    for ring_blocks in [16, 24, 100, 200] {
        let (disk, lumps) = foreign(ring_blocks, u128::MAX);
        assert!(lumps * 28 > u128::from(ring_blocks) * 512 / 2);
        let store = disk.open().unwrap();
        for id in 0..lumps {
            check(&store, id, 0, 100, false);
            assert!(delete(&store, id), "lump {id} of {lumps}");
            assert!(!delete(&store, id));
        }
        put(&store, 1, b"again");
        store.close().unwrap();
        let store = disk.open().unwrap();
        check_bytes(&store, 1, b"again");
    }
}

fn check_bytes(store: &Store, id: u128, bytes: &[u8]) {
    assert!(store.get(ctx(), LumpId(id)).unwrap()[..] == bytes[..]);
}

/// CannyLS does not clear its padding: the trailer of an older lump at the same place stays.
#[test]
fn stale_trailers_in_the_padding_of_cannyls_are_no_damage() {
    let disk = SimDisk::new(shape(24).image());
    let store = disk.open().unwrap();
    for id in 0..8 {
        put(&store, id, &content(id, 1, 400));
    }
    store.close().unwrap();
    let peer = CannylsImage::new(image(&disk));
    let mut canny = peer.open();
    for id in 0..8_u128 {
        let bytes = content(id, 2, 400);
        canny.put(&peer::id(id), &peer::plain(&bytes)).unwrap();
    }
    drop(canny);
    // Whatever its memory held: here it is exactly the trailer of the lump before, of the same id
    // and size, or of another id.
    let before = image(&disk);
    let mut after = peer.image();
    for id in 0..8_u128 {
        let at = |image: &[u8], version| last_block_of(image, &content(id, version, 400)[..380]);
        let (old, new) = (at(&before, 1), at(&after, 2));
        let end = if id % 2 == 0 { old } else { at(&before, 1) };
        after[new + 400..new + BLOCK].copy_from_slice(&before[end + 400..end + BLOCK]);
    }
    let disk = SimDisk::new(after);
    let store = disk.open().unwrap();
    for id in 0..8 {
        check(&store, id, 2, 400, false);
        assert_eq!(store.head(ctx(), LumpId(id)).unwrap().length, 400);
    }
    // A put through this engine makes them verified again.
    put(&store, 3, &content(3, 3, 400));
    check(&store, 3, 3, 400, true);
    assert_eq!(store.stats().checksum_failures, 0);
}
