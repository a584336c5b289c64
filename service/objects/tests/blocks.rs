//! Blocks of JuiceFS: what is known of them, when a key is one, what readers and lists see, and
//! what they take.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::time::Instant;

use common::{close, content, ctx, disk, etag, get, lumps, open, put, run};
use lumpscope_engine::{Durability, Error, LumpId, LumpRange, Placement, Store};
use lumpscope_objects::id::Kind;
use lumpscope_objects::juicefs::{BlockKey, Layout, MAX_SLICE};
use lumpscope_objects::trailer;
use lumpscope_objects::{
    CommitInfo, Condition, ListAfter, ListEntry, ListQuery, ObjectError, ObjectInfo, Objects,
    PartCommit, PutInfo,
};
use proptest::prelude::*;

const KEY: &str = "vol/chunks/0/1/1234_0_700";

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

fn list(objects: &Objects) -> Vec<ListEntry> {
    let query = ListQuery {
        max: 10_000,
        ..ListQuery::default()
    };
    run(objects.list("bucket", &query)).unwrap().entries
}

/// The keys that are blocks.
fn blocks(objects: &Objects) -> Vec<String> {
    let all = list(objects).into_iter();
    let blocks = all.filter(|entry| entry.etag.is_none());
    blocks.map(|entry| entry.key).collect()
}

fn block_lumps(store: &Store) -> Vec<LumpId> {
    store.list(Kind::Block.range(), 100).unwrap().ids
}

async fn put_with(
    objects: &Objects,
    key: &str,
    len: usize,
    (info, commit): (PutInfo, CommitInfo),
) -> Result<ObjectInfo, ObjectError> {
    let mut writer = objects.begin("bucket", key, info)?;
    writer.write(ctx(), &content(1, len)).await?;
    Ok(writer.commit(ctx(), commit).await?.info)
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
    assert_eq!(
        (put.size, put.crc32c, put.attributes.len()),
        (700, Some(77), 2)
    );
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
    objects
        .complete(ctx(), name, &parts, CommitInfo::default())
        .await
        .unwrap();
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
            assert_eq!(
                get(&objects, "bucket", &key).await.unwrap(),
                content(1, len)
            );
        }
        upload(&objects, "chunks/0/0/7_0_700").await;
        // Longer than a piece; and a copy of a block, which is one again.
        put(
            &objects,
            "bucket",
            "chunks/0/0/8_0_1001",
            (1, 1001),
            Condition::Always,
        )
        .await
        .unwrap();
        for (to, from) in [
            ("chunks/0/0/9_0_700", 0),
            ("elsewhere", 0),
            ("chunks/0/0/99_0_9", 0),
        ] {
            let from = format!("chunks/0/0/{from}_0_700");
            let from = objects.read(ctx(), "bucket", &from).await.unwrap();
            let how = (None, Condition::Always);
            objects
                .copy(ctx(), from, ("bucket", to), how)
                .await
                .unwrap();
            assert_eq!(get(&objects, "bucket", to).await.unwrap(), content(1, 700));
        }
    });
    let found = blocks(&objects);
    let want = [
        "chunks/0/0/0_0_700",
        "chunks/0/0/4_0_700",
        "chunks/0/0/9_0_700",
    ];
    assert_eq!(found, want);
    assert_eq!(list(&objects).len(), 12);
}

#[test]
fn conditions_overwrites_and_deletes_mean_what_they_mean() {
    let disk = disk(100, 1000);
    let (objects, _, store) = open(&disk);
    let put = |version, condition| put(&objects, "bucket", KEY, (version, 700), condition);
    let delete = |condition| objects.delete(ctx(), "bucket", KEY, condition);
    let failed = |result: Result<(), _>| matches!(result, Err(ObjectError::ConditionFailed { .. }));
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        assert!(failed(put(1, Condition::IfPresent).await.map(drop)));
        assert!(failed(put(1, Condition::IfMatch(etag(1))).await.map(drop)));
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
        assert!(matches!(
            objects.head(ctx(), "bucket", KEY).await,
            Err(ObjectError::NoSuchKey { .. })
        ));
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
                put(&objects, bucket, KEY, (round, 700), Condition::IfAbsent)
                    .await
                    .unwrap();
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
            put(&objects, "bucket", &key, (1, 5), Condition::IfAbsent)
                .await
                .unwrap();
        }
    });
    assert_eq!((list(&objects).len(), blocks(&objects).len()), (260, 256));
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    assert_eq!(
        (report.volumes, report.blocks, report.objects),
        (256, 256, 4)
    );
    assert_eq!((list(&objects).len(), blocks(&objects).len()), (260, 256));
}

/// Replaces a lump behind the back of the objects.
fn tamper(store: &Store, id: LumpId, bytes: &[u8]) {
    let mut buf = store.lump_buf(bytes.len() as u64).unwrap();
    buf.extend(bytes).unwrap();
    store
        .put(ctx(), id, buf, Placement::Data, Durability::Synced)
        .unwrap();
}

#[test]
fn a_wrong_trailer_is_never_served() {
    let disk = disk(100, 1000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        put(&objects, "bucket", KEY, (1, 700), Condition::IfAbsent)
            .await
            .unwrap();
    });
    let id = block_lumps(&store)[0];
    let right = store.get(ctx(), id).unwrap().to_vec();
    let damaged = |bytes: &[u8]| {
        tamper(&store, id, bytes);
        run(async {
            let part = objects.read_part(ctx(), "bucket", KEY, |_| Some(0..5));
            let found = [
                objects.head(ctx(), "bucket", KEY).await.map(drop),
                objects.read(ctx(), "bucket", KEY).await.map(drop),
                part.await.map(drop),
                put(
                    &objects,
                    "bucket",
                    KEY,
                    (2, 700),
                    Condition::IfMatch(etag(1)),
                )
                .await
                .map(drop),
            ];
            found
                .iter()
                .all(|it| matches!(it, Err(ObjectError::Damaged { .. })))
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
        put(&objects, "bucket", KEY, (1, 700), Condition::IfAbsent)
            .await
            .unwrap();
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
    let disk = disk(100, 4000);
    let (objects, _, store) = open(&disk);
    let writer = |objects: Objects| async move {
        for version in 1..200_u64 {
            let condition = Condition::Always;
            put(&objects, "bucket", KEY, (version, 700), condition)
                .await
                .unwrap();
            if version % 3 > 0 {
                objects
                    .delete(ctx(), "bucket", KEY, condition)
                    .await
                    .unwrap();
            }
            if version % 50 == 25 {
                // From the catalogue to a block would be by a delete; this stays.
                put(&objects, "bucket", STAYS, (version, 700), condition)
                    .await
                    .unwrap();
            }
        }
    };
    let reader = |objects: Objects, parts: bool| async move {
        let mut found = 0;
        for round in 0..400_u64 {
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
                let mut got = Vec::new();
                while let Some(bytes) = reader.next(ctx()).await {
                    got.extend_from_slice(&bytes.unwrap());
                }
                let version = reader.info().etag.md5[..8].try_into().unwrap();
                let want = content(u64::from_be_bytes(version), 700);
                let range = reader.range();
                let at = |place| usize::try_from(place).unwrap();
                assert_eq!(got, want[at(range.start)..at(range.end)]);
            }
            objects.head(ctx(), "bucket", STAYS).await.unwrap();
        }
        assert!(found > 400);
    };
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        put(&objects, "bucket", STAYS, (0, 700), Condition::Always)
            .await
            .unwrap();
        tokio::join!(
            writer(objects.clone()),
            reader(objects.clone(), false),
            reader(objects.clone(), true),
            lister(objects.clone()),
        );
    });
    store.sync().unwrap();
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    assert_eq!((report.swept_records, report.swept_pieces), (0, 0));
    assert_eq!(list(&objects).len(), 1);
}

fn slice() -> impl Strategy<Value = u64> {
    (1_u32..14, any::<u64>()).prop_map(|(digits, number)| {
        let end = 10_u64.pow(digits).min(MAX_SLICE);
        // Neighbours, too.
        if number.is_multiple_of(3) {
            number % 40
        } else {
            number % end
        }
    })
}

fn some_key() -> impl Strategy<Value = String> {
    let block = (slice(), 0_u16..12, 1_u32..12, any::<bool>(), 0_usize..3);
    let block = block.prop_map(|(slice, index, size, hashed, prefix)| {
        let layout = if hashed {
            Layout::Hashed
        } else {
            Layout::Plain
        };
        let block = BlockKey {
            layout,
            slice,
            index,
            size,
        };
        ["", "v/", "chunks/"][prefix].to_owned() + &block.to_string()
    });
    let other = prop_oneof![
        "chunks/[0-9A-F]{1,2}",
        "v/chunks/[0-9]/[0-9]/",
        "[a-w/]{1,9}"
    ];
    prop_oneof![9 => block, 1 => other]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_in_order(
        keys in prop::collection::btree_set(some_key(), 1..120),
        picks in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..30, any::<(bool, bool)>(), 1_usize..40), 12),
    ) {
        let disk = disk(200, 1000);
        let (objects, _, _store) = open(&disk);
        run(async {
            objects.create_bucket(ctx(), "bucket").await.unwrap();
            for key in &keys {
                let len = common::block_size(key).unwrap_or(0);
                put(&objects, "bucket", key, (1, len), Condition::IfAbsent).await.unwrap();
            }
        });
        let names: Vec<&String> = keys.iter().collect();
        for (pick, cut, (prefixed, grouped), max) in picks {
            let some = pick.get(&names);
            let end = cut.min(some.len());
            let (prefix, after) = match prefixed {
                true => (some[..end].to_owned(), None),
                false => (String::new(), Some(some[..end].to_owned())),
            };
            let mut query = ListQuery {
                prefix: prefix.clone(),
                delimiter: grouped.then(|| "/".to_owned()),
                after: after.clone().map(ListAfter::Key),
                max,
            };
            let (mut found, mut groups) = (Vec::new(), Vec::new());
            loop {
                let page = run(objects.list("bucket", &query)).unwrap();
                prop_assert!(page.entries.len() + page.prefixes.len() <= max);
                found.extend(page.entries.into_iter().map(|it| it.key));
                groups.extend(page.prefixes);
                match page.next {
                    Some(next) => query.after = Some(next),
                    None => break,
                }
            }
            let (mut want, mut want_groups) = (Vec::new(), Vec::new());
            let after = |key: &&String| after.as_ref().is_none_or(|after| *key > after);
            for key in keys.iter().filter(|key| key.starts_with(&prefix)).filter(after) {
                match key[prefix.len()..].find('/').filter(|_| grouped) {
                    Some(end) => want_groups.push(key[..=prefix.len() + end].to_owned()),
                    None => want.push(key.clone()),
                }
            }
            want_groups.dedup();
            prop_assert_eq!((found, groups), (want, want_groups));
        }
    }
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

/// Puts many keys with a few bytes each, and prints what they take.
fn many(kind: &str, layout: Layout, sized: bool) -> BTreeMap<&'static str, u64> {
    const KEYS: u64 = 100_000;
    let disk = disk(50_000, 250_000);
    let (objects, _, store) = open(&disk);
    let put_one = |objects: Objects, number: u64| async move {
        let block = BlockKey {
            layout,
            slice: 990_000 + number / 4,
            index: u16::try_from(number % 4).unwrap(),
            size: 7,
        };
        let info = PutInfo {
            content_type: Some("application/octet-stream".to_owned()),
            metadata: pairs(&[("juicefs-checksum", "1234567890")]),
            attributes: Vec::new(),
            size: sized.then_some(7),
        };
        put_with(
            &objects,
            &format!("vol/{block}"),
            7,
            (info, CommitInfo::default()),
        )
        .await
        .unwrap();
    };
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for first in (0..KEYS).step_by(500) {
            let batch = (first..first + 500).map(|it| tokio::spawn(put_one(objects.clone(), it)));
            for task in batch.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        }
    });
    let journal = store.stats().journal_live_bytes / KEYS;
    close(objects, store);
    // The engine's index is needed by both, and measured with it.
    let before = resident();
    let since = Instant::now();
    let (objects, report, store) = open(&disk);
    let opened = since.elapsed();
    let memory = resident().saturating_sub(before) / KEYS;
    assert_eq!(report.blocks, if sized { KEYS } else { 0 });
    let since = Instant::now();
    let (mut query, mut found, mut last) = (ListQuery::default(), 0, String::new());
    query.max = 1000;
    loop {
        let page = run(objects.list("bucket", &query)).unwrap();
        for entry in &page.entries {
            assert!(entry.key > last);
            last.clone_from(&entry.key);
        }
        found += page.entries.len() as u64;
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(found, KEYS);
    println!(
        "{kind}: {KEYS} keys take {journal} bytes of journal and {memory} of memory each, opened \
         in {opened:?}, {} ms of it for the objects, listed in {:?}",
        report.elapsed_ns / 1_000_000,
        since.elapsed()
    );
    let lumps = store.usage(LumpRange::ALL).unwrap().lumps;
    BTreeMap::from([("journal", journal), ("lumps", lumps)])
}

#[test]
fn a_hundred_thousand_blocks_need_no_records() {
    let catalogue = many("catalogue", Layout::Plain, false);
    let block = many("blocks", Layout::Plain, true);
    let hashed = many("blocks with hashes", Layout::Hashed, true);
    assert_eq!((block["lumps"], hashed["lumps"]), (100_002, 100_002));
    assert_eq!(catalogue["lumps"], 200_001);
    assert!(3 * block["journal"] < catalogue["journal"]);
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

/// Fills the journal with small objects and returns how many it took, and the bytes of each.
async fn fill(objects: &Objects, store: &Store, key: impl Fn(u64) -> String) -> (u64, u64) {
    let empty = store.stats().journal_live_bytes;
    for number in 0.. {
        let key = key(number);
        let len = common::block_size(&key).unwrap_or(10);
        let put = put(objects, "bucket", &key, (2, len), Condition::IfAbsent);
        match put.await {
            Ok(_) => {}
            Err(ObjectError::Engine(Error::JournalFull { .. })) => {
                let live = store.stats().journal_live_bytes - empty;
                return (number, live / number);
            }
            Err(error) => panic!("{key}: {error}"),
        }
    }
    unreachable!("a journal has an end")
}

type KeyOf = fn(u64) -> String;

/// What `docs/objects.md` says of the size of the journal; and that a full one is survived.
#[test]
fn a_full_journal_has_room_for_deletes() {
    const RING: u64 = 512 * 1024;
    let kinds: [(&str, u64, KeyOf); 2] = [
        ("keys of 40 characters", 4000, |it| {
            format!("folder-{:02}/a-rather-common-name-{it:09}", it % 50)
        }),
        ("blocks", 18_000, |it| {
            format!("chunks/0/{}/{it}_0_5", it / 1000)
        }),
    ];
    for (kind, said, key) in kinds {
        let disk = disk(RING / 512, 40_000);
        let (objects, _, store) = open(&disk);
        let (kept, bytes) = run(async {
            objects.create_bucket(ctx(), "bucket").await.unwrap();
            fill(&objects, &store, key).await
        });
        let half = (1 << 19) / bytes;
        println!(
            "{kind}: {bytes} bytes of journal each, {half} in half of 1 MiB; {RING} bytes are full \
             of {kept}"
        );
        assert!((said * 9 / 10..said * 11 / 10).contains(&half));
        close(objects, store);
        let (objects, report, _store) = open(&disk);
        assert_eq!(report.objects + report.blocks, kept);
        run(async {
            let always = Condition::Always;
            for number in 0..kept {
                let done = objects.delete(ctx(), "bucket", &key(number), always).await;
                assert!(done.unwrap().existed);
            }
            for number in 0..kept / 2 {
                put(&objects, "bucket", &key(number), (2, 5), always)
                    .await
                    .unwrap();
            }
        });
        assert_eq!(list(&objects).len() as u64, (kept / 2).min(10_000));
    }
}
