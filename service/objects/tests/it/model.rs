//! Random operations, with the store opened again at random points, against a map; many at once;
//! and many keys.
use std::collections::BTreeMap;
use std::time::Instant;

use crate::common::{
    block_size, close, content, ctx, disk, etag, get, lumps, open, put, removed, rest_of, run,
    stored, volumes,
};
use lumpscope_engine::Store;
use lumpscope_objects::{
    CommitInfo, Condition, ListAfter, ListEntry, ListQuery, ObjectError, Objects, PutInfo,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum ModelOp {
    Put {
        key: u8,
        len: usize,
        condition: u8,
    },
    Get {
        key: u8,
        from: usize,
        len: usize,
    },
    Delete {
        key: u8,
    },
    Copy {
        from: u8,
        to: u8,
    },
    List {
        prefix: usize,
        max: usize,
        grouped: bool,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = ModelOp> {
    let key = 0_u8..24;
    prop_oneof![
        8 => (key.clone(), 0_usize..4000, 0_u8..8).prop_map(|(key, len, condition)| ModelOp::Put { key, len, condition }),
        4 => (key.clone(), 0_usize..4000, 1_usize..4000).prop_map(|(key, from, len)| ModelOp::Get { key, from, len }),
        3 => key.clone().prop_map(|key| ModelOp::Delete { key }),
        1 => (key.clone(), key).prop_map(|(from, to)| ModelOp::Copy { from, to }),
        2 => (0..PREFIXES.len(), 1_usize..5, any::<bool>()).prop_map(|(prefix, max, grouped)| ModelOp::List { prefix, max, grouped }),
        1 => Just(ModelOp::Reopen),
    ]
}

/// Keys of blocks, in no order; some are larger than a piece.
const BLOCKS: [&str; 12] = [
    "chunks/0/0/9_0_1000",
    "chunks/0/0/10_0_1",
    "chunks/0/0/10_10_700",
    "chunks/0/0/10_2_700",
    "chunks/0/10/10000_0_5",
    "chunks/0/9/9999_0_5",
    "chunks/10/10000/10000000_0_6",
    "chunks/9/9000/9000000_0_6",
    "chunks/9/9000/9000000_0_1500",
    "a/b/chunks/0A/0/10_0_300",
    "a/b/chunks/0A/0/266_0_300",
    "a/b/chunks/FF/1/1000191_0_300",
];

const PREFIXES: [&str; 8] = [
    "",
    "a/",
    "a/b",
    "ü",
    "chunks/",
    "chunks/0/",
    "a/b/chunks/",
    "c",
];

fn name(key: u8) -> String {
    if let Some(block) = BLOCKS.get(usize::from(key).wrapping_sub(12)) {
        return (*block).to_owned();
    }
    // Some look like folders, some are no ASCII.
    ["a/", "a/b/", "ü", ""][usize::from(key % 4)].to_owned() + &format!("k{}", key / 4)
}

type Model = BTreeMap<String, (u64, usize)>;

async fn try_put(objects: &Objects, model: &mut Model, op: &ModelOp, version: u64) {
    let ModelOp::Put {
        key,
        len,
        condition,
    } = *op
    else {
        return;
    };
    let key = name(key);
    // Most of those that may be blocks have the size that their keys say.
    let len = block_size(&key).filter(|_| len % 8 > 0).unwrap_or(len);
    let now = model.get(&key).map(|&(version, _)| etag(version));
    let (condition, holds) = match condition {
        0 => (Condition::IfAbsent, now.is_none()),
        1 => (Condition::IfPresent, now.is_some()),
        2 => (Condition::IfMatch(now.unwrap_or_default()), now.is_some()),
        3 => (Condition::IfMatch(etag(u64::MAX)), false),
        4 => (
            Condition::UnlessMatch(now.unwrap_or_default()),
            now.is_none(),
        ),
        5 => (Condition::UnlessMatch(etag(u64::MAX)), true),
        _ => (Condition::Always, true),
    };
    match put(objects, "bucket", &key, (version, len), condition).await {
        Ok(done) => {
            assert!(holds, "{op:?}");
            assert_eq!(done.replaced, model.insert(key, (version, len)).is_some());
        }
        Err(ObjectError::ConditionFailed { .. }) => assert!(!holds && now.is_some(), "{op:?}"),
        Err(ObjectError::NoSuchKey { .. }) => assert!(!holds && now.is_none(), "{op:?}"),
        Err(error) => panic!("{op:?}: {error}"),
    }
}

async fn try_get(objects: &Objects, model: &Model, key: &str, (from, len): (usize, usize)) {
    let Some(&(version, size)) = model.get(key) else {
        let none = objects.read(ctx(), "bucket", key).await;
        return assert!(matches!(none, Err(ObjectError::NoSuchKey { .. })));
    };
    let part = |size: u64| {
        let (from, to) = (from as u64, (from + len) as u64);
        (from < size && len % 2 == 0).then_some(from..to.min(size))
    };
    let mut reader = objects.read_part(ctx(), "bucket", key, part).await.unwrap();
    assert_eq!(reader.info().etag, etag(version));
    let head = objects.head(ctx(), "bucket", key).await.unwrap();
    assert_eq!(head, *reader.info());
    let selected = reader.select(from as u64..(from + len) as u64);
    assert_eq!(selected.is_ok(), from < size);
    if selected.is_ok() {
        let got = rest_of(&mut reader).await;
        assert_eq!(got, content(version, size)[from..(from + len).min(size)]);
    }
}

fn try_list(objects: &Objects, model: &Model, (prefix, grouped): (&str, bool), max: usize) {
    let mut query = ListQuery {
        prefix: prefix.to_owned(),
        delimiter: grouped.then(|| "/".to_owned()),
        max,
        ..ListQuery::default()
    };
    let (mut found, mut groups) = (Vec::new(), Vec::new());
    loop {
        let page = run(objects.list("bucket", &query)).unwrap();
        assert!(page.entries.len() + page.prefixes.len() <= max);
        groups.extend(page.prefixes);
        let entries = page.entries.into_iter();
        found.extend(entries.map(|entry| (entry.key, entry.size)));
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    let (mut want, mut want_groups) = (Vec::new(), Vec::new());
    for (key, &(_, len)) in model.iter().filter(|(key, _)| key.starts_with(prefix)) {
        match key[prefix.len()..].find('/').filter(|_| grouped) {
            Some(end) => want_groups.push(key[..=prefix.len() + end].to_owned()),
            None => want.push((key.clone(), len as u64)),
        }
    }
    want_groups.dedup();
    assert_eq!((found, groups), (want, want_groups));
}

/// Lumps of the objects that a list shows, and of their pieces.
fn named(objects: &Objects) -> u64 {
    let all = ListQuery {
        max: 1000,
        ..ListQuery::default()
    };
    let listed = run(objects.list("bucket", &all)).unwrap().entries;
    let of = |entry: &ListEntry| match entry.etag {
        Some(_) => 1 + entry.size.div_ceil(1000),
        None => 1,
    };
    listed.iter().map(of).sum()
}

/// Lumps beside those of the bucket and of volumes, once there are `want`: what a refused put has
/// written is freed a moment after the refusal was told.
fn settled(store: &Store, want: u64) -> u64 {
    let now = || {
        store.sync().unwrap();
        lumps(store) - 1 - volumes(store)
    };
    for _ in 0..1000 {
        if now() == want {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    now()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn objects_agree_with_a_map(ops in prop::collection::vec(op(), 1..60)) {
        let disk = disk(40, 400);
        let (mut objects, _, mut store) = open(&disk);
        let mut model = Model::new();
        run(objects.create_bucket(ctx(), "bucket")).unwrap();
        for (version, op) in ops.iter().enumerate() {
            let version = version as u64;
            match op {
                ModelOp::Put { .. } => run(try_put(&objects, &mut model, op, version)),
                ModelOp::Get { key, from, len } => run(try_get(&objects, &model, &name(*key), (*from, *len))),
                ModelOp::Delete { key } => {
                    let key = name(*key);
                    let done = run(objects.delete(ctx(), "bucket", &key, Condition::Always));
                    prop_assert_eq!(done.unwrap().existed, model.remove(&key).is_some());
                }
                ModelOp::Copy { from, to } => {
                    let (from, to) = (name(*from), name(*to));
                    if let Some(value) = model.get(&from).copied() {
                        let reader = run(objects.read(ctx(), "bucket", &from)).unwrap();
                        let how = (None, Condition::Always);
                        run(objects.copy(ctx(), reader, ("bucket", &to), how)).unwrap();
                        model.insert(to, value);
                    }
                }
                ModelOp::List { prefix, max, grouped } => try_list(&objects, &model, (PREFIXES[*prefix], *grouped), *max),
                ModelOp::Reopen => {
                    let want = named(&objects);
                    prop_assert_eq!(settled(&store, want), want);
                    close(objects, store);
                    let report;
                    (objects, report, store) = open(&disk);
                    prop_assert_eq!(report.objects + report.blocks, model.len() as u64);
                    prop_assert_eq!((report.swept_records, report.swept_pieces), (0, 0));
                }
            }
        }
        let want = named(&objects);
        prop_assert_eq!(settled(&store, want), want);
    }
}

#[test]
fn many_at_once_see_old_or_new() {
    let disk = disk(100, 4000);
    let (objects, _, store) = open(&disk);
    let one = |objects: Objects, worker: u64| async move {
        for round in 0..30_u64 {
            let version = 2 * (worker * 1000 + round);
            match worker % 3 {
                0 => {
                    let len = usize::try_from(round * 100).unwrap();
                    stored(&objects, "key", (version, len)).await;
                }
                1 => {
                    let mut reader = objects.read(ctx(), "bucket", "key").await.unwrap();
                    let mut got = Vec::new();
                    while let Some(bytes) = reader.next(ctx()).await {
                        got.extend_from_slice(&bytes.unwrap());
                        tokio::task::yield_now().await;
                    }
                    let version = reader.info().etag.md5[..8].try_into().unwrap();
                    assert_eq!(got, content(u64::from_be_bytes(version), got.len()));
                    assert_eq!(got.len() as u64, reader.info().size);
                }
                // A commit whose client has gone away.
                _ => {
                    let mut writer = objects.begin("bucket", "key", PutInfo::default()).unwrap();
                    writer.write(ctx(), &content(version, 1500)).await.unwrap();
                    let commit = CommitInfo {
                        etag: etag(version),
                        ..CommitInfo::default()
                    };
                    let patience = std::time::Duration::from_micros(round * 20);
                    let _ = tokio::time::timeout(patience, writer.commit(ctx(), commit)).await;
                }
            }
        }
    };
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, "key", (0, 10)).await;
        tokio::join!(
            one(objects.clone(), 0),
            one(objects.clone(), 1),
            one(objects.clone(), 2),
            one(objects.clone(), 3),
            one(objects.clone(), 4),
            one(objects.clone(), 5),
        );
    });
    let size = run(objects.head(ctx(), "bucket", "key")).unwrap().size;
    close(objects, store);
    let (objects, report, store) = open(&disk);
    assert_eq!((report.objects, report.swept_records), (1, 0));
    assert_eq!(lumps(&store), 2 + size.div_ceil(1000));
    let got = run(get(&objects, "bucket", "key")).unwrap();
    assert_eq!(got.len() as u64, size);
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    let kib: u64 = kib.parse().unwrap();
    kib * 1024
}

/// Commits objects without bytes, so that the catalogue is all there is; many share a flush.
async fn fill(objects: &Objects, keys: std::ops::Range<u64>) {
    for first in keys.clone().step_by(500) {
        let batch = (first..keys.end.min(first + 500)).map(|number| {
            let objects = objects.clone();
            tokio::spawn(async move {
                let folder = number % 50;
                let key = format!("folder-{folder:02}/a-rather-common-name-{number:08}");
                let writer = objects.begin("bucket", &key, PutInfo::default());
                let commit = writer.unwrap().commit(ctx(), CommitInfo::default());
                commit.await.unwrap();
            })
        });
        for task in batch.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    }
}

/// Keys and pages of a list of everything, a thousand at a time.
fn list_all(objects: &Objects) -> (u64, u64) {
    let mut query = ListQuery {
        max: 1000,
        ..ListQuery::default()
    };
    let (mut keys, mut last, mut pages) = (0, String::new(), 0);
    loop {
        let page = run(objects.list("bucket", &query)).unwrap();
        for entry in &page.entries {
            assert!(entry.key > last);
            last.clone_from(&entry.key);
        }
        keys += page.entries.len() as u64;
        pages += 1;
        match page.next {
            Some(next) => query.after = Some(next),
            None => return (keys, pages),
        }
    }
}

#[test]
fn a_hundred_thousand_keys_are_listed() {
    const KEYS: u64 = 100_000;
    let disk = disk(50_000, 100);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        fill(&objects, 0..KEYS).await;
    });
    let live = store.stats().journal_live_bytes;
    println!("{} bytes of journal a key", live / KEYS);
    close(objects, store);
    let before = resident();
    let since = Instant::now();
    let (objects, report, _store) = open(&disk);
    assert_eq!(report.objects, KEYS);
    let memory = resident().saturating_sub(before) / KEYS;
    let took = since.elapsed();
    println!("opened in {took:?}, {memory} bytes of memory a key");
    let since = Instant::now();
    assert_eq!(list_all(&objects), (KEYS, 100));
    println!("listed in {:?}", since.elapsed());
    let query = ListQuery {
        delimiter: Some("/".to_owned()),
        max: 1000,
        ..ListQuery::default()
    };
    let page = run(objects.list("bucket", &query)).unwrap();
    let counts = (page.prefixes.len(), page.entries.len(), page.next);
    assert_eq!(counts, (50, 0, None));
    let late = ListQuery {
        after: Some(ListAfter::Prefix("folder-48/".to_owned())),
        ..query
    };
    let page = run(objects.list("bucket", &late)).unwrap();
    assert_eq!(page.prefixes, ["folder-49/"]);
}

/// A ring half full of live records, and every key overwritten five times, is gone round again
/// and again.
#[test]
fn the_collection_moves_the_catalogue_and_loses_nothing() {
    const KEYS: u64 = 10_000;
    let disk = disk(4000, 100);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for _ in 0..6 {
            fill(&objects, 0..KEYS).await;
        }
    });
    let stats = store.stats();
    let (live, ring) = (stats.journal_live_bytes, stats.journal_capacity_bytes);
    println!(
        "{live} of {ring} bytes live; {} records committed, {} of them moved; {} bytes read",
        stats.commit_records, stats.gc_relocated, stats.gc_read_bytes
    );
    assert!(stats.header_writes > 0 && stats.gc_relocated > 0);
    assert_eq!(list_all(&objects), (KEYS, 10));
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    let swept = (report.swept_records, report.swept_pieces);
    assert_eq!((report.objects, swept), (KEYS, (0, 0)));
    assert_eq!(list_all(&objects), (KEYS, 10));
}

#[test]
fn a_full_journal_refuses_and_loses_nothing() {
    let disk = disk(40, 400);
    let (objects, _, store) = open(&disk);
    let (kept, error) = run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let mut kept = 0_usize;
        loop {
            let key = format!("key-{kept:05}");
            match put(&objects, "bucket", &key, (1, 0), Condition::Always).await {
                Ok(_) => kept += 1,
                Err(error) => return (kept, error),
            }
        }
    });
    let full = lumpscope_engine::Error::JournalFull {
        needed: 0,
        used: 0,
        capacity: 0,
    };
    let same = matches!(&error, ObjectError::Engine(error) if std::mem::discriminant(error) == std::mem::discriminant(&full));
    assert!(same && kept > 100, "{kept}: {error}");
    close(objects, store);
    let (objects, report, _store) = open(&disk);
    assert_eq!(report.objects, kept as u64);
    // A delete has room, and makes room.
    run(async {
        removed(&objects, "key-00000").await;
        removed(&objects, "key-00001").await;
        stored(&objects, "new", (1, 0)).await;
    });
}
