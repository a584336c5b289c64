//! Buckets, writing, reading, deleting, conditions, listing: on a simulated disk.
use crate::common::{
    close, content, ctx, disk, engine_ctx, etag, get, lumps, open, put, removed, rest_of, run,
    stored,
};
use lumpscope_engine::{Durability, Error, LumpId, Placement, Store, StoreOptions};
use lumpscope_objects::id::LumpKind;
use lumpscope_objects::{
    CommitInfo, Condition, ListAfter, ListQuery, ObjectError, Objects, PutInfo,
};

#[test]
fn objects_come_back_after_a_restart() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    let sizes = [0, 1, 999, 1000, 1001, 3000, 12_345];
    run(async {
        objects.create_bucket(ctx(), "photos").await.unwrap();
        for (version, len) in sizes.into_iter().enumerate() {
            let version = version as u64;
            let key = format!("k/{len}");
            let put = put(&objects, "photos", &key, (version, len), Condition::Always).await;
            assert!(!put.unwrap().replaced);
        }
    });
    let before = lumps(&store);
    close(objects, store);
    let (objects, report, store) = open(&disk);
    assert_eq!((report.buckets, report.objects), (1, sizes.len() as u64));
    assert_eq!((report.swept_records, report.swept_pieces), (0, 0));
    assert_eq!(lumps(&store), before);
    run(async {
        for (version, len) in sizes.into_iter().enumerate() {
            let key = format!("k/{len}");
            let got = get(&objects, "photos", &key).await.unwrap();
            assert_eq!(got, content(version as u64, len));
            let head = objects.head(ctx(), "photos", &key).await.unwrap();
            assert_eq!(head.etag, etag(version as u64));
        }
    });
}

#[test]
fn ranges_are_cut_out_of_the_pieces() {
    let disk = disk(200, 2000);
    let (objects, _, _store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, "key", (4, 4321)).await;
        let all = content(4, 4321);
        for range in [0..1, 999..1001, 1000..2000, 4320..9999, 1..4321, 2500..2501] {
            let mut reader = objects.read(ctx(), "bucket", "key").await.unwrap();
            reader.select(range.clone()).unwrap();
            let got = rest_of(&mut reader).await;
            let end = usize::try_from(range.end).unwrap().min(all.len());
            let expected = &all[usize::try_from(range.start).unwrap()..end];
            assert_eq!(got, expected, "{range:?}");
        }
        let mut reader = objects.read(ctx(), "bucket", "key").await.unwrap();
        let behind = reader.select(4321..4322);
        assert!(matches!(
            behind,
            Err(ObjectError::RangeOutside { size: 4321, .. })
        ));
    });
}

#[test]
fn a_reader_outlives_overwrites_and_deletes() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, "key", (1, 5000)).await;
        let mut first = objects.read(ctx(), "bucket", "key").await.unwrap();
        stored(&objects, "key", (2, 5000)).await;
        let mut second = objects.read(ctx(), "bucket", "key").await.unwrap();
        removed(&objects, "key").await;
        let found = objects.read(ctx(), "bucket", "key").await;
        assert!(matches!(found, Err(ObjectError::NoSuchKey { .. })));
        for (reader, version) in [(&mut first, 1), (&mut second, 2)] {
            let got = rest_of(reader).await;
            assert_eq!(got, content(version, 5000));
        }
    });
    drop(objects);
    // What the readers kept goes behind their backs.
    until_one_is_left(&store);
}

/// Waits until the record of the bucket is the only lump.
fn until_one_is_left(store: &Store) {
    for _ in 0..10_000 {
        if lumps(store) == 1 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{} lumps are left", lumps(store));
}

#[test]
fn what_is_abandoned_leaves_nothing() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for _ in 0..10 {
            let mut writer = objects.begin("bucket", "key", PutInfo::default()).unwrap();
            writer.write(ctx(), &content(1, 7777)).await.unwrap();
        }
        let known = PutInfo {
            size: Some(10),
            ..PutInfo::default()
        };
        let mut writer = objects.begin("bucket", "key", known).unwrap();
        writer.write(ctx(), &[1; 9]).await.unwrap();
        let short = writer.commit(ctx(), CommitInfo::default()).await;
        assert!(matches!(
            short,
            Err(ObjectError::LengthMismatch {
                announced: 10,
                got: 9
            })
        ));
    });
    // A piece that was under way goes when it has landed.
    until_one_is_left(&store);
}

#[test]
fn conditions_are_decided_at_the_commit() {
    let disk = disk(200, 2000);
    let (objects, _, _store) = open(&disk);
    let failed = |result: Result<_, _>| matches!(result, Err(ObjectError::ConditionFailed { .. }));
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let put = |version, condition| put(&objects, "bucket", "key", (version, 10), condition);
        for condition in [Condition::IfPresent, Condition::IfMatch(etag(1))] {
            let missing = put(1, condition).await;
            assert!(matches!(missing, Err(ObjectError::NoSuchKey { .. })));
        }
        // Two at once: exactly one is the first.
        let (one, two) = tokio::join!(put(1, Condition::IfAbsent), put(2, Condition::IfAbsent));
        assert!(one.is_ok() != two.is_ok());
        let now = objects.head(ctx(), "bucket", "key").await.unwrap().etag;
        assert!(failed(put(3, Condition::IfMatch(etag(99))).await));
        put(4, Condition::IfMatch(now)).await.unwrap();
        assert!(failed(put(5, Condition::IfMatch(now)).await));
        let delete = |condition| objects.delete(ctx(), "bucket", "key", condition);
        let found = delete(Condition::IfMatch(now)).await;
        assert!(matches!(found, Err(ObjectError::ConditionFailed { .. })));
        assert!(delete(Condition::IfMatch(etag(4))).await.unwrap().existed);
        assert!(!delete(Condition::Always).await.unwrap().existed);
        let missing = delete(Condition::IfPresent).await;
        assert!(matches!(missing, Err(ObjectError::NoSuchKey { .. })));
    });
}

#[test]
fn buckets_are_deleted_when_empty() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        let none = objects.begin("bucket", "key", PutInfo::default());
        assert!(matches!(none, Err(ObjectError::NoSuchBucket { .. })));
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let again = objects.create_bucket(ctx(), "bucket").await;
        assert!(matches!(again, Err(ObjectError::BucketExists { .. })));
        stored(&objects, "key", (1, 10)).await;
        let full = objects.delete_bucket(ctx(), "bucket").await;
        assert!(matches!(full, Err(ObjectError::BucketNotEmpty { .. })));
        removed(&objects, "key").await;
        let writer = objects.begin("bucket", "key", PutInfo::default()).unwrap();
        objects.delete_bucket(ctx(), "bucket").await.unwrap();
        assert!(objects.buckets().is_empty());
        // The writer began in another bucket than this one of the same name.
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let late = writer.commit(ctx(), CommitInfo::default()).await;
        assert!(matches!(late, Err(ObjectError::NoSuchBucket { .. })));
    });
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    assert_eq!((report.buckets, objects.buckets().len()), (1, 1));
}

/// All keys and groups, by pages of `max`.
fn pages(objects: &Objects, query: &ListQuery) -> Vec<String> {
    let mut query = query.clone();
    let mut all = Vec::new();
    loop {
        let page = run(objects.list("bucket", &query)).unwrap();
        assert!(page.entries.len() + page.prefixes.len() <= query.max);
        all.extend(page.entries.into_iter().map(|entry| entry.key));
        all.extend(page.prefixes.into_iter().map(|prefix| format!("{prefix}*")));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    all.sort();
    all
}

#[test]
fn lists_have_pages_prefixes_and_groups() {
    let disk = disk(400, 2000);
    let (objects, _, _store) = open(&disk);
    let keys = [
        "a", "a/", "a/1", "a/2/x", "a/2/y", "a0", "b//c", "ä/1", "ä/2", "z\u{1}",
    ];
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for key in keys {
            stored(&objects, key, (1, 1)).await;
        }
    });
    let query = |prefix: &str, delimiter: &str, max| ListQuery {
        prefix: prefix.to_owned(),
        delimiter: Some(delimiter.to_owned()),
        after: None,
        max,
    };
    for max in 1..12 {
        let mut all = keys.map(str::to_owned).to_vec();
        all.sort();
        assert_eq!(pages(&objects, &query("", "", max)), all);
        let top = ["a", "a/*", "a0", "b/*", "z\u{1}", "ä/*"];
        assert_eq!(pages(&objects, &query("", "/", max)), top);
        let expected = ["a/", "a/1", "a/2/*"];
        assert_eq!(pages(&objects, &query("a/", "/", max)), expected);
        assert_eq!(pages(&objects, &query("ä", "/", max)), ["ä/*"]);
        assert!(pages(&objects, &query("q", "/", max)).is_empty());
    }
    let after = |key: &str| ListQuery {
        after: Some(ListAfter::Key(key.to_owned())),
        max: 100,
        ..ListQuery::default()
    };
    assert_eq!(pages(&objects, &after("b//c")), ["z\u{1}", "ä/1", "ä/2"]);
    let nothing = ListQuery::default();
    let page = run(objects.list("bucket", &nothing)).unwrap();
    assert!(page.next.is_none());
}

#[test]
fn a_read_only_store_is_read_and_left_as_it_is() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, "key", (1, 3000)).await;
    });
    // Data that no record names.
    let mut orphan = store.lump_buf(1).unwrap();
    orphan.extend(&[1]).unwrap();
    let id = LumpId(LumpKind::Piece.range().start.0 + (77 << 40));
    let durability = Durability::Synced;
    let done = store.put(engine_ctx(), id, orphan, Placement::Data, durability);
    done.unwrap();
    let before = lumps(&store);
    close(objects, store);
    let options = StoreOptions {
        read_only: true,
        ..StoreOptions::new("sim")
    };
    let store = Store::open_on(disk.device(), options).unwrap();
    let (objects, report) = Objects::open(store.clone(), crate::common::options()).unwrap();
    assert_eq!((report.objects, report.swept_pieces), (1, 0));
    let expected = content(1, 3000);
    assert_eq!(run(get(&objects, "bucket", "key")).unwrap(), expected);
    let refused = run(put(&objects, "bucket", "key", (2, 1), Condition::Always));
    assert!(matches!(
        refused,
        Err(ObjectError::Engine(Error::ReadOnly { .. }))
    ));
    assert_eq!(lumps(&store), before);
    close(objects, store);
    let (_, report, _) = open(&disk);
    assert_eq!(report.swept_pieces, 1);
}
