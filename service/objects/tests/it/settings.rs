//! Settings of buckets, tags of objects, and deletes that look first.
use crate::common::{close, content, ctx, disk, get, lumps, open, rest_of, run, stored};
use lumpscope_objects::{BucketSetting, Condition, ObjectError, Pairs, PutInfo, TAG};

fn tags(given: &[(&str, &str)]) -> Pairs {
    let tags = given.iter();
    let pairs = tags.map(|(name, value)| (format!("{TAG}{name}"), (*value).to_owned()));
    pairs.collect()
}

#[test]
fn settings_last_as_long_as_their_bucket() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        for bucket in ["one", "two"] {
            objects.create_bucket(ctx(), bucket).await.unwrap();
            for setting in BucketSetting::ALL {
                assert_eq!(objects.setting(bucket, setting).unwrap(), None);
                let text = format!("{bucket} {setting:?}");
                let set = objects.set(ctx(), bucket, (setting, Some(text.into())));
                set.await.unwrap();
            }
        }
        let new = Some("new".into());
        let done = objects.set(ctx(), "one", (BucketSetting::Cors, new)).await;
        done.unwrap();
        let none = objects.set(ctx(), "two", (BucketSetting::Cors, None));
        none.await.unwrap();
        let long = Some("x".repeat(65_500).into());
        let long = objects
            .set(ctx(), "one", (BucketSetting::Lifecycle, long))
            .await;
        assert!(
            matches!(long, Err(ObjectError::TooLarge { .. })),
            "{long:?}"
        );
        let unknown = objects
            .set(ctx(), "nobody", (BucketSetting::Cors, None))
            .await;
        assert!(matches!(unknown, Err(ObjectError::NoSuchBucket { .. })));
    });
    close(objects, store);
    let (objects, report, store) = open(&disk);
    assert_eq!((report.swept_records, report.unreadable), (0, 0));
    let told = |bucket| BucketSetting::ALL.map(|it| objects.setting(bucket, it).unwrap());
    assert_eq!(
        told("one"),
        [Some("new".into()), Some("one Lifecycle".into())]
    );
    assert_eq!(told("two"), [None, Some("two Lifecycle".into())]);
    run(async {
        objects.delete_bucket(ctx(), "one").await.unwrap();
        objects.create_bucket(ctx(), "one").await.unwrap();
    });
    assert_eq!(told("one"), [None, None]);
    store.sync().unwrap();
    // Two buckets and the setting of one.
    assert_eq!(lumps(&store), 3);
    close(objects, store);
    let (objects, ..) = open(&disk);
    let found = objects.setting("one", BucketSetting::Lifecycle);
    assert_eq!(found.unwrap(), None);
}

#[test]
fn tags_change_and_nothing_else_does() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, "key", (1, 3100)).await;
        let before = objects.head(ctx(), "bucket", "key").await.unwrap();
        let mut reader = objects.read(ctx(), "bucket", "key").await.unwrap();
        for given in [tags(&[("a", "1"), ("b", "2")]), tags(&[("c", "")])] {
            let place = ("bucket", "key");
            objects.retag(ctx(), place, given.clone()).await.unwrap();
            let mut after = objects.head(ctx(), "bucket", "key").await.unwrap();
            after.attributes.retain(|pair| !given.contains(pair));
            assert_eq!(after, before);
        }
        let got = rest_of(&mut reader).await;
        assert_eq!(got, content(1, 3100));
        let missing = objects.retag(ctx(), ("bucket", "none"), Vec::new()).await;
        assert!(matches!(missing, Err(ObjectError::NoSuchKey { .. })));
        let long = tags(&[("a", &"x".repeat(9000))]);
        let long = objects.retag(ctx(), ("bucket", "key"), long).await;
        assert!(matches!(long, Err(ObjectError::TooLarge { .. })));
    });
    close(objects, store);
    let (objects, _, store) = open(&disk);
    run(async {
        let info = objects.head(ctx(), "bucket", "key").await.unwrap();
        assert!(info.attributes.ends_with(&tags(&[("c", "")])));
        let expected = content(1, 3100);
        assert_eq!(get(&objects, "bucket", "key").await.unwrap(), expected);
        let always = Condition::Always;
        let done = objects.delete(ctx(), "bucket", "key", always).await;
        done.unwrap();
    });
    drop(objects);
    store.sync().unwrap();
    assert_eq!(lumps(&store), 1);
}

#[test]
fn what_has_tags_has_a_record() {
    let disk = disk(200, 2000);
    let (objects, _, store) = open(&disk);
    let key = "chunks/0/0/7_0_700";
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        stored(&objects, key, (1, 700)).await;
        let tag = tags(&[("a", "1")]);
        let refused = objects.retag(ctx(), ("bucket", key), tag.clone()).await;
        assert!(
            matches!(refused, Err(ObjectError::Invalid { .. })),
            "{refused:?}"
        );
        let other = "chunks/0/0/8_0_700";
        let info = PutInfo {
            attributes: tag.clone(),
            size: Some(700),
            ..PutInfo::default()
        };
        let mut writer = objects.begin("bucket", other, info).unwrap();
        writer.write(ctx(), &content(2, 700)).await.unwrap();
        writer.commit(ctx(), Default::default()).await.unwrap();
        let done = objects.retag(ctx(), ("bucket", other), Vec::new()).await;
        done.unwrap();
        let info = objects.head(ctx(), "bucket", other).await.unwrap();
        assert!(info.attributes.is_empty());
    });
    close(objects, store);
}

#[test]
fn a_delete_that_looks_first_takes_only_what_it_means() {
    let disk = disk(200, 2000);
    let (objects, ..) = open(&disk);
    run(async {
        objects.create_bucket(ctx(), "bucket").await.unwrap();
        for key in ["key", "chunks/0/0/7_0_700"] {
            stored(&objects, key, (1, 700)).await;
            let before = objects.head(ctx(), "bucket", key).await.unwrap();
            let modified = before.modified_ms;
            for is_meant in [false, true] {
                let deleted = objects.delete_if(ctx(), ("bucket", key), |info| {
                    assert_eq!((info.size, info.modified_ms), (700, modified));
                    is_meant
                });
                assert_eq!(deleted.await.unwrap().existed, is_meant);
                let there = objects.head(ctx(), "bucket", key).await;
                assert_eq!(there.is_ok(), !is_meant);
            }
            let gone = objects.delete_if(ctx(), ("bucket", key), |_| true).await;
            assert!(!gone.unwrap().existed);
        }
    });
}
