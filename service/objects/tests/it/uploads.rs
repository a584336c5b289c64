//! Multipart uploads and copies: on a simulated disk.
use std::time::Duration;

use crate::common::{close, content, ctx, disk, etag, get, lumps, open, rest_of, run, stored};
use lumpscope_objects::{
    CommitInfo, Condition, ETag, ObjectError, ObjectInfo, Objects, PartCommit, PutInfo, UploadAfter,
};

async fn part(objects: &Objects, upload: &str, number: u16, (version, len): (u64, usize)) -> ETag {
    let size = version.is_multiple_of(2).then_some(len as u64);
    let writer = objects.upload_part("bucket", "key", upload, number, size);
    let mut writer = writer.unwrap();
    writer.write(ctx(), &content(version, len)).await.unwrap();
    let commit = PartCommit {
        md5: etag(version).md5,
        ..PartCommit::default()
    };
    writer.commit(ctx(), commit).await.unwrap().etag
}

fn of_parts(parts: u16) -> CommitInfo {
    let etag = ETag {
        md5: [9; 16],
        parts,
    };
    CommitInfo {
        etag,
        ..CommitInfo::default()
    }
}

/// An upload of four parts over an object; part 2 comes twice.
async fn four_parts(objects: &Objects) -> (String, Vec<(u16, ETag)>) {
    objects.create_bucket(ctx(), "bucket").await.unwrap();
    stored(objects, "key", (77, 2500)).await;
    let put = PutInfo {
        content_type: Some("text/plain".to_owned()),
        metadata: vec![("a".to_owned(), "b".to_owned())],
        ..PutInfo::default()
    };
    let upload = objects.create_upload(ctx(), "bucket", "key", put);
    let upload = upload.await.unwrap();
    let mut tags = Vec::new();
    part(objects, &upload, 2, (1, 1111)).await;
    for number in 1..=4 {
        let bytes = (u64::from(number) + 10, 2000 + usize::from(number));
        tags.push((number, part(objects, &upload, number, bytes).await));
    }
    (upload, tags)
}

/// An upload that cannot be completed stays as it was.
async fn refused(objects: &Objects, upload: &str, tags: &[(u16, ETag)]) {
    let complete = async |parts: &[(u16, ETag)], commit| {
        let name = ("bucket", "key", upload);
        objects.complete(ctx(), name, parts, commit).await
    };
    let wrong = complete(&[(1, etag(99))], of_parts(1)).await;
    assert!(matches!(
        wrong,
        Err(ObjectError::InvalidPart { part: 1, .. })
    ));
    let order = complete(&[tags[1], tags[0]], of_parts(2)).await;
    assert!(matches!(order, Err(ObjectError::InvalidPartOrder { .. })));
    let absent = CommitInfo {
        condition: Condition::IfAbsent,
        ..of_parts(3)
    };
    let failed = complete(&tags[..3], absent).await;
    assert!(matches!(failed, Err(ObjectError::ConditionFailed { .. })));
}

#[test]
fn parts_become_an_object() {
    let disk = disk(400, 4000);
    let (objects, _, store) = open(&disk);
    let (upload, tags) = run(four_parts(&objects));
    close(objects, store);
    let (objects, report, store) = open(&disk);
    assert_eq!(report.uploads, 1);
    assert_eq!(report.parts, 4);
    assert_eq!(report.swept_pieces, 0);
    let page = objects.parts("bucket", "key", &upload, (1, 2)).unwrap();
    let numbers: Vec<u16> = page.parts.iter().map(|part| part.number).collect();
    assert_eq!((numbers, page.next), (vec![2, 3], Some(3)));
    let all = [(11, 2001), (12, 2002), (13, 2003)];
    let all = all.map(|(version, len)| content(version, len)).concat();
    run(async {
        refused(&objects, &upload, &tags).await;
        let name = ("bucket", "key", upload.as_str());
        let done = objects.complete(ctx(), name, &tags[..3], of_parts(3)).await;
        assert!(done.unwrap().replaced);
        let again = objects.complete(ctx(), name, &tags[..3], of_parts(3)).await;
        assert!(matches!(again, Err(ObjectError::NoSuchUpload { .. })));
        assert_eq!(get(&objects, "bucket", "key").await.unwrap(), all);
        let mut reader = objects.read(ctx(), "bucket", "key").await.unwrap();
        assert_eq!(reader.info().content_type.as_deref(), Some("text/plain"));
        reader.select(1999..4005).unwrap();
        let got = rest_of(&mut reader).await;
        assert_eq!(got, all[1999..4005]);
        let reader = objects.read(ctx(), "bucket", "key").await.unwrap();
        let how = (None, Condition::IfAbsent);
        let copied = objects.copy(ctx(), reader, ("bucket", "copy"), how);
        copied.await.unwrap();
        assert_eq!(get(&objects, "bucket", "copy").await.unwrap(), all);
    });
    let head = |key| ObjectInfo {
        modified_ms: 0,
        ..run(objects.head(ctx(), "bucket", key)).unwrap()
    };
    assert_eq!(head("copy"), head("key"));
    store.sync().unwrap();
    // Bucket, two objects, three pieces of each part, seven of the copy.
    assert_eq!(lumps(&store), 3 + 9 + 7);
    close(objects, store);
    let (_, report, _) = open(&disk);
    let swept = (report.swept_records, report.swept_pieces);
    assert_eq!((report.uploads, swept), (0, (0, 0)));
}

#[test]
fn uploads_are_listed_aborted_and_expire() {
    let disk = disk(400, 4000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        let mut ids = Vec::new();
        for key in ["key", "a", "key", "b"] {
            let upload = objects.create_upload(ctx(), "bucket", key, PutInfo::default());
            ids.push(upload.await.unwrap());
        }
        part(&objects, &ids[0], 1, (1, 3000)).await;
        part(&objects, &ids[2], 9, (2, 3000)).await;
        let mut after = None;
        let mut keys = Vec::new();
        loop {
            let page = objects.uploads("bucket", "", (after.as_ref(), 1)).unwrap();
            keys.extend(page.uploads.into_iter().map(|upload| upload.key));
            match page.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        assert_eq!(keys, ["a", "b", "key", "key"]);
        let behind = UploadAfter {
            key: "b".to_owned(),
            id: None,
        };
        let found = objects.uploads("bucket", "k", (Some(&behind), 9)).unwrap();
        assert_eq!(found.uploads.len(), 2);
        let other = objects.abort(ctx(), "bucket", "other", &ids[0]).await;
        assert!(matches!(other, Err(ObjectError::NoSuchUpload { .. })));
        let own = objects.abort(ctx(), "bucket", "key", &ids[0]).await;
        own.unwrap();
        let gone = objects.upload_part("bucket", "key", &ids[0], 1, None);
        assert!(matches!(gone, Err(ObjectError::NoSuchUpload { .. })));
        let expired = objects.expire(ctx(), Duration::from_secs(3600)).await;
        assert_eq!(expired.unwrap(), 0);
        std::thread::sleep(Duration::from_millis(5));
        let expired = objects.expire(ctx(), Duration::from_millis(1)).await;
        assert_eq!(expired.unwrap(), 3);
    });
    store.sync().unwrap();
    assert_eq!(lumps(&store), 1);
}
