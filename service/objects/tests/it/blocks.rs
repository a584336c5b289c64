//! Blocks of JuiceFS: what is known of them, when a key is one, and what readers see.
use crate::common::{
    close, content, ctx, disk, engine_ctx, etag, get, list, lumps, open, pairs, put, put_with,
    rest_of, run, stored,
};
use lumpscope_engine::{Durability, LumpId, Placement, Store};
use lumpscope_objects::id::LumpKind;
use lumpscope_objects::juicefs::BlockKey;
use lumpscope_objects::trailer;
use lumpscope_objects::{
    CommitInfo, Condition, ListEntry, ListQuery, ObjectError, ObjectInfo, Objects, PartCommit,
    PutInfo,
};

const KEY: &str = "vol/chunks/0/1/1234_0_700";

/// The keys that are blocks.
fn blocks(objects: &Objects) -> Vec<String> {
    let all = list(objects).into_iter();
    let blocks = all.filter(|entry| entry.etag.is_none());
    blocks.map(|entry| entry.key).collect()
}

fn block_lumps(store: &Store) -> Vec<LumpId> {
    store.list(LumpKind::Block.range(), 100).unwrap().ids
}

#[test]
fn what_is_known_of_a_block_comes_back() {
    let disk = disk(40, 400);
    let (objects, _, store) = open(&disk);
    run(objects.create_bucket(ctx(), "bucket")).unwrap();
    let info = PutInfo {
        content_type: Some("application/octet-stream".to_owned()),
        metadata: pairs(&[("juicefs-checksum", "1234567890"), ("ü", "")]),
        attributes: pairs(&[("cache-control", "none")]),
        size: Some(700),
    };
    let commit = CommitInfo {
        etag: etag(9),
        crc32c: Some(77),
        attributes: pairs(&[("x-amz-checksum-sha256", &"x".repeat(44))]),
        condition: Condition::IfAbsent,
    };
    let put = run(put_with(&objects, KEY, 700, (info, commit))).unwrap();
    assert_eq!(put.size, 700);
    assert_eq!(put.crc32c, Some(77));
    assert_eq!(put.attributes.len(), 2);
    // The bucket, the volume, the block.
    assert_eq!((lumps(&store), block_lumps(&store).len()), (3, 1));
    close(objects, store);
    let (objects, report, store) = open(&disk);
    let counts = (report.objects, report.volumes, report.blocks);
    assert_eq!(counts, (0, 1, 1));
    assert_eq!((report.swept_records, report.swept_pieces), (0, 0));
    run(async {
        let head = objects.head(ctx(), "bucket", KEY).await.unwrap();
        assert_eq!(head, put);
        assert_eq!(get(&objects, "bucket", KEY).await.unwrap(), content(1, 700));
        for range in [0..700, 0..1, 699..700, 100..300, 5..5] {
            let part = |size| (size == 700).then(|| range.clone());
            let read = objects.read_part(ctx(), "bucket", KEY, part).await;
            let mut reader = read.unwrap();
            reader.select(range.clone()).unwrap();
            assert_eq!(*reader.info(), put);
            let got = reader.next(ctx()).await.unwrap().unwrap();
            let at = |place| usize::try_from(place).unwrap();
            assert_eq!(got, content(1, 700)[at(range.start)..at(range.end)]);
            assert!(reader.next(ctx()).await.is_none());
        }
        // Other bytes than were read.
        let read = objects.read_part(ctx(), "bucket", KEY, |_| Some(0..10));
        let mut reader = read.await.unwrap();
        reader.select(5..11).unwrap();
        let refused = reader.next(ctx()).await.unwrap();
        assert!(matches!(refused, Err(ObjectError::Invalid { .. })));
    });
    let entry = ListEntry {
        key: KEY.to_owned(),
        size: 700,
        etag: None,
        modified_ms: put.modified_ms - put.modified_ms % 60_000,
    };
    assert_eq!(list(&objects), [entry]);
    assert_eq!(lumps(&store), 3);
}

/// An object of 700 bytes by an upload of one part.
async fn upload(objects: &Objects, key: &str) {
    let upload = objects.create_upload(ctx(), "bucket", key, PutInfo::default());
    let upload = upload.await.unwrap();
    let part = objects.upload_part("bucket", key, &upload, 1, Some(700));
    let mut part = part.unwrap();
    part.write(ctx(), &content(1, 700)).await.unwrap();
    part.commit(ctx(), PartCommit::default()).await.unwrap();
    let name = ("bucket", key, upload.as_str());
    let parts = [(1, Default::default())];
    let done = objects.complete(ctx(), name, &parts, CommitInfo::default());
    done.await.unwrap();
}

#[test]
fn what_does_not_fit_is_an_object_of_the_catalogue() {
    let disk = disk(100, 1000);
    let (objects, _, _store) = open(&disk);
    let sized = |size| PutInfo {
        size,
        ..PutInfo::default()
    };
    let large = |len: usize| PutInfo {
        metadata: pairs(&[("name", &"x".repeat(len))]),
        ..sized(Some(700))
    };
    let late = CommitInfo {
        attributes: pairs(&[("late", &"x".repeat(300))]),
        ..CommitInfo::default()
    };
    let at_once = CommitInfo::default;
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for (slice, len, info, commit) in [
            (0, 700, sized(Some(700)), at_once()),
            (1, 700, sized(None), at_once()),
            (2, 699, sized(Some(699)), at_once()),
            (3, 701, sized(Some(701)), at_once()),
            (4, 700, large(600), at_once()),
            (5, 700, large(1500), at_once()),
            (6, 700, sized(Some(700)), late),
        ] {
            let key = format!("chunks/0/0/{slice}_0_700");
            put_with(&objects, &key, len, (info, commit)).await.unwrap();
            let expected = content(1, len);
            assert_eq!(get(&objects, "bucket", &key).await.unwrap(), expected);
        }
        upload(&objects, "chunks/0/0/7_0_700").await;
        // Longer than a piece; and a copy of a block, which is one again.
        stored(&objects, "chunks/0/0/8_0_1001", (1, 1001)).await;
        for to in ["chunks/0/0/9_0_700", "elsewhere", "chunks/0/0/99_0_9"] {
            let from = objects.read(ctx(), "bucket", "chunks/0/0/0_0_700").await;
            let how = (None, Condition::Always);
            let copy = objects.copy(ctx(), from.unwrap(), ("bucket", to), how);
            copy.await.unwrap();
            assert_eq!(get(&objects, "bucket", to).await.unwrap(), content(1, 700));
        }
    });
    let found = blocks(&objects);
    assert_eq!(
        found,
        [0, 4, 9].map(|slice| format!("chunks/0/0/{slice}_0_700"))
    );
    assert_eq!(list(&objects).len(), 12);
}

#[test]
fn conditions_overwrites_and_deletes_mean_what_they_mean() {
    let disk = disk(100, 1000);
    let (objects, _, store) = open(&disk);
    let put = |version, condition| put(&objects, "bucket", KEY, (version, 700), condition);
    let delete = |condition| objects.delete(ctx(), "bucket", KEY, condition);
    let failed = |result: Result<(), _>| matches!(result, Err(ObjectError::ConditionFailed { .. }));
    let missing = |result: Result<(), _>| matches!(result, Err(ObjectError::NoSuchKey { .. }));
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        assert!(missing(put(1, Condition::IfPresent).await.map(drop)));
        assert!(missing(put(1, Condition::IfMatch(etag(1))).await.map(drop)));
        assert!(!put(1, Condition::IfAbsent).await.unwrap().replaced);
        assert_eq!(block_lumps(&store).len(), 1);
        assert!(failed(put(2, Condition::IfAbsent).await.map(drop)));
        assert!(failed(put(2, Condition::IfMatch(etag(2))).await.map(drop)));
        assert!(failed(delete(Condition::IfMatch(etag(2))).await.map(drop)));
        assert_eq!(get(&objects, "bucket", KEY).await.unwrap(), content(1, 700));
        let before = objects.read(ctx(), "bucket", KEY).await.unwrap();
        // From a block to the catalogue.
        assert!(put(2, Condition::IfMatch(etag(1))).await.unwrap().replaced);
        assert_eq!(block_lumps(&store).len(), 0);
        assert_eq!(get(&objects, "bucket", KEY).await.unwrap(), content(2, 700));
        assert!(put(3, Condition::IfPresent).await.unwrap().replaced);
        assert!(delete(Condition::IfMatch(etag(3))).await.unwrap().existed);
        assert!(!delete(Condition::Always).await.unwrap().existed);
        let found = objects.head(ctx(), "bucket", KEY).await;
        assert!(matches!(found, Err(ObjectError::NoSuchKey { .. })));
        // And anew, in the same minute: who began before reads what there was then.
        assert!(!put(4, Condition::IfAbsent).await.unwrap().replaced);
        assert_eq!(block_lumps(&store).len(), 1);
        let mut before = before;
        let bytes = before.next(ctx()).await.unwrap().unwrap();
        assert_eq!(bytes, content(1, 700));
        assert!(delete(Condition::IfMatch(etag(4))).await.unwrap().existed);
    });
    assert_eq!(list(&objects), []);
}

#[test]
fn a_bucket_with_blocks_is_not_empty() {
    let disk = disk(100, 1000);
    let (objects, _, store) = open(&disk);
    run(async {
        for round in 0..3 {
            objects.create_bucket(ctx(), "bucket").await.unwrap();
            objects.create_bucket(ctx(), "other").await.unwrap();
            for bucket in ["bucket", "other"] {
                let done = put(&objects, bucket, KEY, (round, 700), Condition::IfAbsent).await;
                done.unwrap();
            }
            let refused = objects.delete_bucket(ctx(), "bucket").await;
            assert!(matches!(refused, Err(ObjectError::BucketNotEmpty { .. })));
            for bucket in ["bucket", "other"] {
                let condition = Condition::IfMatch(etag(round));
                objects.delete(ctx(), bucket, KEY, condition).await.unwrap();
                objects.delete_bucket(ctx(), bucket).await.unwrap();
            }
        }
    });
    store.sync().unwrap();
    assert_eq!(lumps(&store), 0);
}

#[test]
fn a_store_has_256_volumes_and_then_the_catalogue() {
    let disk = disk(400, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for number in 0..260 {
            let key = format!("{number}/chunks/0/0/1_0_5");
            let done = put(&objects, "bucket", &key, (1, 5), Condition::IfAbsent).await;
            done.unwrap();
        }
    });
    assert_eq!((list(&objects).len(), blocks(&objects).len()), (260, 256));
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    assert_eq!(report.volumes, 256);
    assert_eq!(report.blocks, 256);
    assert_eq!(report.objects, 4);
    assert_eq!((list(&objects).len(), blocks(&objects).len()), (260, 256));
}

/// Replaces a lump behind the back of the objects.
fn tamper(store: &Store, id: LumpId, bytes: &[u8]) {
    let mut buf = store.lump_buf(bytes.len() as u64).unwrap();
    buf.extend(bytes).unwrap();
    let put = store.put(engine_ctx(), id, buf, Placement::Data, Durability::Synced);
    put.unwrap();
}

#[test]
fn a_wrong_trailer_is_never_served() {
    let disk = disk(100, 1000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let done = put(&objects, "bucket", KEY, (1, 700), Condition::IfAbsent).await;
        done.unwrap();
    });
    let id = block_lumps(&store)[0];
    let right = store.get(engine_ctx(), id).unwrap().to_vec();
    let damaged = |bytes: &[u8]| {
        tamper(&store, id, bytes);
        run(async {
            let part = objects.read_part(ctx(), "bucket", KEY, |_| Some(0..5));
            let over = put(
                &objects,
                "bucket",
                KEY,
                (2, 700),
                Condition::IfMatch(etag(1)),
            );
            let found = [
                objects.head(ctx(), "bucket", KEY).await.map(drop),
                objects.read(ctx(), "bucket", KEY).await.map(drop),
                part.await.map(drop),
                over.await.map(drop),
            ];
            let is_damaged = |it: &Result<(), _>| matches!(it, Err(ObjectError::Damaged { .. }));
            found.iter().all(is_damaged)
        })
    };
    for at in 700..right.len() {
        let mut wrong = right.clone();
        wrong[at] ^= 1 << (at % 8);
        assert!(damaged(&wrong), "byte {at}");
    }
    // None, one that is cut short, one that is too long, and that of another block.
    assert!(damaged(&right[..700]));
    assert!(damaged(&right[..right.len() - 1]));
    assert!(damaged(&[&right[..], &[0; 2000]].concat()));
    let info = run(async { trailer::decode(id, &right[700..]) }).unwrap();
    let other = trailer::encode(LumpId(id.0 + 1), &info, 256).unwrap();
    assert!(damaged(&[&right[..700], &other[..]].concat()));
    // It is listed, and can be deleted and replaced.
    assert_eq!(blocks(&objects), [KEY]);
    tamper(&store, id, &right);
    assert_eq!(run(get(&objects, "bucket", KEY)).unwrap(), content(1, 700));
    tamper(&store, id, &[0; 10]);
    run(put(&objects, "bucket", KEY, (3, 700), Condition::Always)).unwrap();
    assert_eq!(run(get(&objects, "bucket", KEY)).unwrap(), content(3, 700));
    assert_eq!(block_lumps(&store), []);
}

#[test]
fn blocks_of_no_volume_are_swept() {
    let disk = disk(100, 1000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let done = put(&objects, "bucket", KEY, (1, 700), Condition::IfAbsent).await;
        done.unwrap();
    });
    let (_, block) = BlockKey::parse(KEY).unwrap();
    tamper(&store, block.id(7, 0), &[0; 10]);
    close(objects, store);
    let (objects, report, store) = open(&disk);
    assert_eq!((report.blocks, report.swept_pieces), (1, 1));
    assert_eq!((lumps(&store), blocks(&objects).len()), (3, 1));
}

const STAYS: &str = "vol/chunks/0/1/1235_0_700";

async fn lister(objects: Objects) {
    for _ in 0..300 {
        let query = ListQuery {
            max: 10,
            ..ListQuery::default()
        };
        let page = objects.list("bucket", &query).await.unwrap();
        let keys: Vec<_> = page.entries.iter().map(|it| it.key.as_str()).collect();
        assert!(keys == [STAYS] || keys == [KEY, STAYS], "{keys:?}");
        tokio::task::yield_now().await;
    }
}

/// Puts, overwrites and deletes of one block key while others read and list it: nobody sees a mix
/// of two versions, and what is always there is always found, exactly once.
#[test]
fn many_at_once_see_one_version() {
    /// Stays until all have ended, so that every reader finds the key at some time.
    const LAST: u64 = 199;
    let disk = disk(100, 4000);
    let (objects, _, store) = open(&disk);
    let writer = |objects: Objects| async move {
        for version in 1..=LAST {
            let condition = Condition::Always;
            let done = put(&objects, "bucket", KEY, (version, 700), condition).await;
            done.unwrap();
            if version % 3 > 0 && version < LAST {
                objects
                    .delete(ctx(), "bucket", KEY, condition)
                    .await
                    .unwrap();
            }
            if version % 50 == 25 {
                // From the catalogue to a block would be by a delete; this stays.
                let done = put(&objects, "bucket", STAYS, (version, 700), condition).await;
                done.unwrap();
            }
        }
    };
    let reader = |objects: Objects, parts: bool| async move {
        let (mut found, mut rounds) = (0, 0);
        while rounds < 400 || found == rounds {
            let round = rounds % 400;
            rounds += 1;
            let part = |_| parts.then(|| round..round + 300);
            for key in [KEY, STAYS] {
                let mut reader = match objects.read_part(ctx(), "bucket", key, part).await {
                    Ok(reader) => reader,
                    Err(ObjectError::NoSuchKey { .. }) if key == KEY => continue,
                    Err(error) => panic!("{key}: {error}"),
                };
                found += 1;
                if parts {
                    reader.select(round..round + 300).unwrap();
                }
                let got = rest_of(&mut reader).await;
                let version = reader.info().etag.md5[..8].try_into().unwrap();
                let want = content(u64::from_be_bytes(version), 700);
                let range = reader.range();
                let at = |place| usize::try_from(place).unwrap();
                assert_eq!(got, want[at(range.start)..at(range.end)]);
            }
            objects.head(ctx(), "bucket", STAYS).await.unwrap();
        }
    };
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, STAYS, (0, 700)).await;
        tokio::join!(
            writer(objects.clone()),
            reader(objects.clone(), false),
            reader(objects.clone(), true),
            lister(objects.clone()),
        );
        let deleted = objects.delete(ctx(), "bucket", KEY, Condition::Always);
        deleted.await.unwrap();
    });
    store.sync().unwrap();
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    assert_eq!((report.swept_records, report.swept_pieces), (0, 0));
    assert_eq!(list(&objects).len(), 1);
}

#[test]
fn trailers_are_those_of_their_blocks() {
    let (_, block) = BlockKey::parse(KEY).unwrap();
    let info = ObjectInfo {
        size: 700,
        ..ObjectInfo::default()
    };
    let id = block.id(1, 0);
    let bytes = trailer::encode(id, &info, 256).unwrap();
    assert_eq!(trailer::decode(id, &bytes).unwrap(), info);
    assert_eq!(trailer::encode(id, &info, 10), None);
    assert_eq!(trailer::encode(id, &info, 4096), None);
    let other = ObjectInfo { size: 699, ..info };
    let bytes = trailer::encode(id, &other, 256).unwrap();
    assert!(trailer::decode(id, &bytes).is_err());
}
