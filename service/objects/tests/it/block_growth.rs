//! Many blocks of JuiceFS: how lists order them, and what they take beside keys of the catalogue.
use std::collections::BTreeMap;
use std::time::Instant;

use crate::common::{close, ctx, disk, list, open, pairs, put, put_with, run};
use lumpscope_engine::{Error, LumpRange, Store};
use lumpscope_objects::juicefs::{BlockKey, Layout, MAX_SLICE};
use lumpscope_objects::{
    CommitInfo, Condition, ListAfter, ListQuery, ObjectError, Objects, PutInfo,
};
use proptest::prelude::*;

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
                let len = crate::common::block_size(key).unwrap_or(0);
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

/// Fills the journal with small objects and returns how many it took, and the bytes of each.
async fn fill(objects: &Objects, store: &Store, key: impl Fn(u64) -> String) -> (u64, u64) {
    let empty = store.stats().journal_live_bytes;
    for number in 0.. {
        let key = key(number);
        let len = crate::common::block_size(&key).unwrap_or(10);
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

/// The size of the journal is as `docs/objects.md` states, and a full one is survived.
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
                let done = put(&objects, "bucket", &key(number), (2, 5), always).await;
                done.unwrap();
            }
        });
        assert_eq!(list(&objects).len() as u64, (kept / 2).min(10_000));
    }
}
