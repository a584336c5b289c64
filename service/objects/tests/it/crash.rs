//! The power is cut at every I/O of many histories: what was acknowledged is there in whole, every
//! other key is old or new, and nothing leaks.
use std::collections::BTreeMap;

use crate::common::{
    block_size, close, content, ctx, disk, etag, get, lumps, open, options, put, run, store_options,
};
use lumpscope_engine::Store;
use lumpscope_engine::device::sim::{Random, SimDisk, Survivors};
use lumpscope_objects::{
    CommitInfo, Condition, ETag, ListQuery, ObjectError, Objects, PartCommit, PutInfo, TAG,
};

/// Version and bytes of an object; `None`: there is none.
type Value = Option<(u64, usize)>;

/// Allowed values of a key after a crash: the last is the value without one.
type Model = BTreeMap<String, Vec<Value>>;

const HISTORIES: u64 = 6;
const STEPS: u64 = 14;

fn key(random: &mut Random) -> String {
    let keys = [
        "key-0",
        "key-1",
        "v/chunks/0/0/7_0_1000",
        "v/chunks/0/0/7_0_700",
        "chunks/07/0/7_0_10",
    ];
    keys[random.index(keys.len())].to_owned()
}

/// An upload of two parts, one of them twice; the object it becomes.
async fn upload(objects: &Objects, key: &str, version: u64) -> Result<(), ObjectError> {
    let id = objects
        .create_upload(ctx(), "bucket", key, PutInfo::default())
        .await?;
    let all = content(version, 4000);
    let parts: [(u16, &[u8]); 3] = [(2, &all[..77]), (1, &all[..2500]), (2, &all[2500..])];
    for (part, bytes) in parts {
        let mut writer = objects.upload_part("bucket", key, &id, part, None)?;
        writer.write(ctx(), bytes).await?;
        writer.commit(ctx(), PartCommit::default()).await?;
    }
    if version.is_multiple_of(3) {
        return objects.abort(ctx(), "bucket", key, &id).await;
    }
    let commit = CommitInfo {
        etag: etag(version),
        ..CommitInfo::default()
    };
    let parts = [(1, ETag::default()), (2, ETag::default())];
    objects
        .complete(ctx(), ("bucket", key, &id), &parts, commit)
        .await?;
    Ok(())
}

/// One step; the key it is about and what that holds afterwards.
async fn step(
    objects: &Objects,
    random: &mut Random,
    version: u64,
) -> (String, Value, Result<(), ObjectError>) {
    let key = key(random);
    match random.index(8) {
        0 => {
            let done = objects
                .delete(ctx(), "bucket", &key, Condition::Always)
                .await;
            (key, None, done.map(drop))
        }
        1 => {
            let done = upload(objects, &key, version).await;
            let value = (!version.is_multiple_of(3)).then_some((version, 4000));
            match value {
                Some(_) => (key, value, done),
                // Aborted: no key is touched.
                None => ("none".to_owned(), None, done),
            }
        }
        2 => {
            let mut writer = objects.begin("bucket", &key, PutInfo::default()).unwrap();
            let done = writer.write(ctx(), &content(version, 3100)).await;
            ("none".to_owned(), None, done)
        }
        3 => {
            let tags = vec![(format!("{TAG}version"), version.to_string())];
            let done = match objects.retag(ctx(), ("bucket", &key), tags).await {
                Err(ObjectError::NoSuchKey { .. } | ObjectError::Invalid { .. }) => Ok(()),
                done => done,
            };
            // Neither the bytes of the key nor their version change.
            ("none".to_owned(), None, done)
        }
        _ => {
            let mut len = [0, 10, 1000, 1700, 3500][random.index(5)];
            // Half of those that may be blocks are.
            if let Some(size) = block_size(&key).filter(|_| random.index(2) == 0) {
                len = size;
            }
            let done = put(objects, "bucket", &key, (version, len), Condition::Always).await;
            (key, Some((version, len)), done.map(drop))
        }
    }
}

/// Runs a history until it ends or the disk fails; what each key may hold.
fn history(disk: &SimDisk, seed: u64) -> Option<Model> {
    let store = Store::open_on(disk.device(), store_options()).ok()?;
    let (objects, _) = Objects::open(store, options()).ok()?;
    let mut random = Random::derive(seed, &[1]);
    let mut model = Model::new();
    run(async {
        for version in 1..=STEPS {
            let (key, value, done) = step(&objects, &mut random, version).await;
            let may = model.entry(key).or_insert_with(|| vec![None]);
            match done {
                Ok(()) => *may = vec![value],
                Err(ObjectError::Engine(_)) => {
                    may.push(value);
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    });
    Some(model)
}

fn check(disk: &SimDisk, model: &Model) -> u64 {
    let (objects, report, store) = open(disk);
    assert_eq!(report.unreadable, 0);
    assert_eq!((report.buckets, objects.buckets().len()), (1, 1));
    let query = ListQuery {
        max: 100,
        ..ListQuery::default()
    };
    let listed = run(objects.list("bucket", &query)).unwrap().entries;
    let is_block = |key: &str| {
        let mut listed = listed.iter();
        listed.any(|entry| entry.key == *key && entry.etag.is_none())
    };
    let (mut pieces, mut blocks) = (0, 0);
    for (key, may) in model {
        let got = match run(get(&objects, "bucket", key)) {
            Ok(bytes) => Some(bytes),
            Err(ObjectError::NoSuchKey { .. }) => None,
            Err(error) => panic!("{key}: {error}"),
        };
        let tag = run(objects.head(ctx(), "bucket", key))
            .ok()
            .map(|info| info.etag);
        let fits = |value: &&Value| {
            value.map(|(version, len)| content(version, len)) == got
                && value.map(|(version, _)| etag(version)) == tag
        };
        let found = may
            .iter()
            .find(fits)
            .unwrap_or_else(|| panic!("{key} holds none of {may:?}"));
        let expected = found.is_some();
        assert_eq!(listed.iter().any(|entry| entry.key == *key), expected);
        if is_block(key) {
            blocks += 1;
            continue;
        }
        // Parts of 2,500 and 1,500 bytes are cut by themselves.
        pieces += found.map_or(
            0,
            |(_, len)| if len == 4000 { 5 } else { len.div_ceil(1000) },
        );
    }
    let parts: u64 = listed_parts(&objects);
    let records = 1 + report.volumes + report.objects + report.uploads + report.parts;
    let data = parts + pieces as u64 + report.blocks;
    assert_eq!(report.blocks, blocks);
    assert_eq!(lumps(&store), records + data, "{report:?}");
    close(objects, store);
    let (objects, again, store) = open(disk);
    assert_eq!((again.swept_records, again.swept_pieces), (0, 0));
    close(objects, store);
    report.swept_pieces + report.swept_records
}

/// Pieces of the parts of all uploads.
fn listed_parts(objects: &Objects) -> u64 {
    let uploads = objects.uploads("bucket", "", (None, 100)).unwrap().uploads;
    let parts = uploads.iter().flat_map(|upload| {
        let page = objects.parts("bucket", &upload.key, &upload.id, (0, 100));
        page.unwrap().parts
    });
    parts.map(|part| part.size.div_ceil(1000)).sum()
}

fn prepared() -> SimDisk {
    // The ring is so small that its collection has to work.
    let disk = disk(40, 400);
    let (objects, _, store) = open(&disk);
    run(objects.create_bucket(ctx(), "bucket")).unwrap();
    close(objects, store);
    disk
}

#[test]
fn old_or_new_at_every_cut() {
    let (mut cuts, mut swept, mut uncertain) = (0, 0, 0);
    for seed in 0..HISTORIES {
        let whole = prepared();
        let before = whole.submitted();
        let model = history(&whole, seed).unwrap();
        check(
            &whole.power_cut(Survivors::None, &mut Random::new(seed)),
            &model,
        );
        let ios = whole.submitted() - before;
        for io in 0..ios {
            let disk = prepared();
            disk.die_after(io);
            let mut random = Random::derive(seed, &[2, io]);
            let model = history(&disk, seed).unwrap_or_default();
            uncertain += model.values().filter(|may| may.len() > 1).count();
            let survivors = Survivors::ALL[random.index(Survivors::ALL.len())];
            swept += check(&disk.power_cut(survivors, &mut random), &model);
            cuts += 1;
        }
    }
    println!("{cuts} cuts, {uncertain} uncertain keys, {swept} lumps swept");
    // What was never reached was not checked.
    assert!(cuts > 300, "{cuts} {uncertain} {swept}");
    assert!(uncertain > 100, "{cuts} {uncertain} {swept}");
    assert!(swept > 100, "{cuts} {uncertain} {swept}");
}
