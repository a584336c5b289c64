//! The original engine opens a store with objects, reads all its lumps, collects its journal, and
//! puts and deletes lumps of its own: every object is there afterwards as it was.

#[path = "../../../engine/tests/it/support/peer.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::cast_possible_truncation,
    reason = "shared with the tests of the engine, which use more of it"
)]
mod peer;

use std::collections::BTreeMap;

use crate::common::{close, content, ctx, engine_ctx, etag, get, open, run, stored};
use lumpscope_engine::device::sim::{Random, SimDisk, SimOptions};
use lumpscope_engine::{LumpId, LumpRange, Store};
use lumpscope_objects::{
    CommitInfo, Condition, ETag, ListEntry, ListQuery, ObjectInfo, Objects, PartCommit, PutInfo,
};
use peer::{Canny, CannylsImage};

const ROUNDS: u64 = 6;
/// Ids of its own lumps are below; all fit one 1/5 of the ring together with the records.
const FOREIGN: u64 = 24;

/// Every lump with its bytes.
fn lumps(store: &Store) -> BTreeMap<u128, Vec<u8>> {
    let ids = store.list(LumpRange::ALL, 10_000).unwrap().ids;
    let get = |id: LumpId| (id.0, store.get(engine_ctx(), id).unwrap().to_vec());
    ids.into_iter().map(get).collect()
}

/// Listed objects, their metadata, and their bytes.
fn all(objects: &Objects) -> Vec<(ListEntry, ObjectInfo, Vec<u8>)> {
    let query = ListQuery {
        max: 1000,
        ..ListQuery::default()
    };
    let page = run(objects.list("bucket", &query)).unwrap();
    let of = |entry: ListEntry| {
        let info = run(objects.head(ctx(), "bucket", &entry.key)).unwrap();
        let bytes = run(get(objects, "bucket", &entry.key)).unwrap();
        (entry, info, bytes)
    };
    page.entries.into_iter().map(of).collect()
}

async fn change(objects: &Objects, random: &mut Random, round: u64) {
    let keys = [
        "a",
        "b/c",
        "ü",
        "empty",
        "large",
        "vol/chunks/0/0/1_0_900",
        "vol/chunks/0/0/2_0_1",
        "chunks/07/0/7_0_333",
    ];
    for _ in 0..12 {
        let key = keys[random.index(keys.len())];
        let len = match crate::common::block_size(key) {
            Some(size) if random.index(4) > 0 => size,
            _ => [0, 10, 1000, 4321][random.index(4)],
        };
        let always = Condition::Always;
        if random.index(4) == 0 || crate::common::block_size(key) == Some(len) {
            objects.delete(ctx(), "bucket", key, always).await.unwrap();
        }
        if random.index(6) > 0 {
            stored(objects, key, (round, len)).await;
        }
    }
}

/// The original reads everything, and leaves everything of ours alone.
fn turn(peer: &CannylsImage, ours: &BTreeMap<u128, Vec<u8>>, random: &mut Random) {
    let mut store = peer.open();
    let check = |store: &mut Canny| {
        let ids: Vec<u128> = store.list().iter().map(|id| id.as_u128()).collect();
        let is_ours = |id: &&u128| **id >= u128::from(FOREIGN);
        let mine = ids.iter().filter(is_ours);
        assert!(mine.eq(ours.keys().filter(is_ours)));
        for (&id, bytes) in ours.iter().filter(|(id, _)| is_ours(id)) {
            assert!(peer::get(store, id).as_ref() == Some(bytes), "lump {id:x}");
        }
    };
    check(&mut store);
    store.journal_gc().unwrap();
    for version in 0..60 {
        let number = random.below(FOREIGN);
        match random.index(4) {
            0 => drop(store.delete(&peer::id(number.into())).unwrap()),
            1 => {
                let data = peer::embedded(&content(version, 20));
                store.put(&peer::id(number.into()), &data).unwrap();
            }
            _ => {
                let data = peer::plain(&content(version, random.index(2000)));
                store.put(&peer::id(number.into()), &data).unwrap();
            }
        }
        if version % 8 == 7 {
            store.journal_gc().unwrap();
        }
    }
    store.journal_gc().unwrap();
    check(&mut store);
}

#[test]
fn objects_survive_the_original_engine() {
    let mut disk = crate::common::disk(80, 2000);
    let mut random = Random::new(1);
    let upload = {
        let (objects, _, store) = open(&disk);
        let upload = run(async {
            objects.create_bucket(ctx(), "bucket").await.unwrap();
            let begun = objects.create_upload(ctx(), "bucket", "large", PutInfo::default());
            let upload = begun.await.unwrap();
            let part = objects.upload_part("bucket", "large", &upload, 1, None);
            let mut part = part.unwrap();
            part.write(ctx(), &content(5, 2500)).await.unwrap();
            part.commit(ctx(), PartCommit::default()).await.unwrap();
            upload
        });
        close(objects, store);
        upload
    };
    let (mut blocks, mut entries) = (0, 0);
    for round in 1..=ROUNDS {
        let (objects, _, store) = open(&disk);
        run(change(&objects, &mut random, round));
        store.sync().unwrap();
        let (before, ours) = (all(&objects), lumps(&store));
        close(objects, store);

        let peer = CannylsImage::new(disk.bytes(0..disk.size()));
        turn(&peer, &ours, &mut random);

        disk = SimDisk::new(&peer.image(), SimOptions::default());
        let (objects, report, store) = open(&disk);
        let swept = (report.unreadable, report.swept_records, report.swept_pieces);
        assert_eq!(swept, (0, 0, 0));
        assert_eq!((report.uploads, report.parts), (1, 1));
        assert!(all(&objects) == before, "round {round}");
        (blocks, entries) = (blocks + report.blocks, entries + report.objects);
        close(objects, store);
    }
    println!("{blocks} blocks and {entries} other objects were there in {ROUNDS} rounds");
    assert!(blocks > 5 && entries > 5);
    let (objects, _, _store) = open(&disk);
    let commit = CommitInfo {
        etag: etag(7),
        ..CommitInfo::default()
    };
    let name = ("bucket", "large", upload.as_str());
    run(objects.complete(ctx(), name, &[(1, ETag::default())], commit)).unwrap();
    let got = run(get(&objects, "bucket", "large")).unwrap();
    assert_eq!(got, content(5, 2500));
}
