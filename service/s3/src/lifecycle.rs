//! Objects and uploads that expire by the rules of their bucket. The rules are judged again for
//! each object when nobody else may change it: one that was put again meanwhile stays.

use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use lumpscope_objects::{
    Ctx, Deleted, ListEntry, ListQuery, ObjectError, ObjectInfo, Objects, Pairs, TAG, UploadAfter,
};
use s3s::dto::{
    BucketLifecycleConfiguration, ExpirationStatus, LifecycleExpiration, LifecycleRule,
    LifecycleRuleFilter, Tag,
};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::attributes;
use super::attributes::timestamp;

/// Most rules of a bucket, and characters of the name of one, as in S3.
pub(super) const MOST: (usize, usize) = (1000, 255);
/// Keys of a page that is looked at.
const PAGE: usize = 1000;
/// Deletes at a time: they share flushes.
const AT_ONCE: usize = 32;
/// Rest after each page, and after each so many deletes.
pub(super) const REST: Duration = Duration::from_millis(50);
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// When an object has expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expires {
    /// At the first midnight so many days after it was put.
    Days(u64),
    /// At this time, in milliseconds since 1970.
    At(u64),
}

/// The first midnight so many days after a time.
const fn midnight(since_ms: u64, days: u64) -> u64 {
    let at = since_ms.saturating_add(days.saturating_mul(DAY_MS));
    at.div_ceil(DAY_MS).saturating_mul(DAY_MS)
}

/// A rule in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    id: String,
    prefix: String,
    /// Tags that an object must have, as attributes.
    tags: Pairs,
    /// Its bytes are more than this, and less than that.
    more: Option<u64>,
    less: Option<u64>,
    expires: Option<Expires>,
    /// Uploads are given up after so many days.
    uploads: Option<u64>,
}

impl Rule {
    fn has_room(&self, size: u64) -> bool {
        self.more.is_none_or(|more| size > more) && self.less.is_none_or(|less| size < less)
    }

    fn time(&self, modified_ms: u64) -> Option<u64> {
        Some(match self.expires? {
            Expires::Days(days) => midnight(modified_ms, days),
            Expires::At(time) => time,
        })
    }

    /// When an object expires by this rule; `None`: never.
    fn of(&self, key: &str, info: &ObjectInfo) -> Option<u64> {
        let mut tags = self.tags.iter();
        let meant = key.starts_with(&self.prefix)
            && self.has_room(info.size)
            && tags.all(|tag| info.attributes.contains(tag));
        self.time(info.modified_ms).filter(|_| meant)
    }

    /// False: what a list tells of it is enough to leave it alone. Blocks, of which a list tells no
    /// entity tag, have no tags either.
    fn may_mean(&self, entry: &ListEntry, now_ms: u64) -> bool {
        let time = self.time(entry.modified_ms);
        time.is_some_and(|time| time <= now_ms)
            && self.has_room(entry.size)
            && (self.tags.is_empty() || entry.etag.is_some())
    }
}

fn refused(code: S3ErrorCode, why: impl Into<String>) -> S3Error {
    S3Error::with_message(code, why.into())
}

fn malformed(why: &str) -> S3Error {
    refused(S3ErrorCode::MalformedXML, why)
}

fn argument(why: impl Into<String>) -> S3Error {
    refused(S3ErrorCode::InvalidArgument, why)
}

/// A count of days, from 1.
fn days(count: i32) -> S3Result<u64> {
    let days = u64::try_from(count).ok().filter(|days| *days > 0);
    days.ok_or_else(|| argument("days are counted from 1"))
}

fn size(bytes: Option<i64>) -> S3Result<Option<u64>> {
    let size = bytes.map(u64::try_from).transpose();
    size.map_err(|_| argument("a size is 0 or more"))
}

fn attribute(tag: &Tag) -> (String, String) {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    (TAG.to_owned() + &text(&tag.key), text(&tag.value))
}

/// Which objects a rule means.
fn filtered(given: &LifecycleRule) -> S3Result<Rule> {
    let (prefix, filter) = match (&given.prefix, &given.filter) {
        (Some(prefix), None) => (Some(prefix), &LifecycleRuleFilter::default()),
        (None, Some(filter)) => (filter.prefix.as_ref(), filter),
        _ => return Err(malformed("a rule has a Filter, or a Prefix")),
    };
    let LifecycleRuleFilter {
        and,
        object_size_greater_than: more,
        object_size_less_than: less,
        tag,
        ..
    } = filter;
    let alone = [
        prefix.is_some(),
        more.is_some(),
        less.is_some(),
        tag.is_some(),
        and.is_some(),
    ];
    if alone.into_iter().filter(|given| *given).count() > 1 {
        return Err(malformed(
            "a Filter has one condition: several stand in an And",
        ));
    }
    let Some(and) = and else {
        return Ok(Rule {
            prefix: prefix.cloned().unwrap_or_default(),
            tags: tag.iter().map(attribute).collect(),
            more: size(*more)?,
            less: size(*less)?,
            ..Rule::default()
        });
    };
    Ok(Rule {
        prefix: and.prefix.clone().unwrap_or_default(),
        tags: and.tags.iter().flatten().map(attribute).collect(),
        more: size(and.object_size_greater_than)?,
        less: size(and.object_size_less_than)?,
        ..Rule::default()
    })
}

fn expires(given: &LifecycleExpiration) -> S3Result<Option<Expires>> {
    let marker = given.expired_object_delete_marker;
    match (given.days, &given.date, marker) {
        (Some(count), None, None) => days(count).map(|days| Some(Expires::Days(days))),
        (None, Some(date), None) => {
            let time = time::OffsetDateTime::from(date.clone());
            let ms = u64::try_from(time.unix_timestamp_nanos() / 1_000_000).ok();
            let ms = ms.filter(|ms| ms.is_multiple_of(DAY_MS));
            let ms = ms.ok_or_else(|| argument("Date is a midnight of UTC"))?;
            Ok(Some(Expires::At(ms)))
        }
        // There are no such markers: no version is ever deleted by one.
        (None, None, Some(_)) => Ok(None),
        _ => Err(malformed(
            "an Expiration has Days, Date or ExpiredObjectDeleteMarker",
        )),
    }
}

/// One rule, whether it is in force or not.
fn rule(given: &LifecycleRule) -> S3Result<Rule> {
    if given.transitions.is_some() || given.noncurrent_version_transitions.is_some() {
        let why = "a rule with a Transition is not offered: there is one storage class";
        return Err(refused(S3ErrorCode::NotImplemented, why));
    }
    let uploads = given.abort_incomplete_multipart_upload.as_ref();
    // Versions that are not current are none.
    let noncurrent = given.noncurrent_version_expiration.is_some();
    if given.expiration.is_none() && uploads.is_none() && !noncurrent {
        return Err(malformed(
            "a rule has an action: Expiration, or one on uploads",
        ));
    }
    let rule = filtered(given)?;
    let id = given.id.clone().unwrap_or_default();
    let (_, most) = MOST;
    if id.chars().count() > most {
        return Err(argument(format!(
            "the ID of a rule has at most {most} characters"
        )));
    }
    let is_filtered = !rule.tags.is_empty() || rule.more.is_some() || rule.less.is_some();
    if uploads.is_some() && is_filtered {
        let why = "uploads have neither tags nor a size: a rule on them has a prefix only";
        return Err(refused(S3ErrorCode::InvalidRequest, why));
    }
    let after = uploads.and_then(|uploads| uploads.days_after_initiation);
    if uploads.is_some() && after.is_none() {
        return Err(malformed(
            "AbortIncompleteMultipartUpload has DaysAfterInitiation",
        ));
    }
    let expiration = given.expiration.as_ref().map(expires).transpose()?;
    Ok(Rule {
        id,
        expires: expiration.flatten(),
        uploads: after.map(days).transpose()?,
        ..rule
    })
}

/// The rules of a bucket that are in force.
///
/// # Errors
/// `InvalidArgument`, `InvalidRequest`, `MalformedXML`, `NotImplemented`: of any rule.
pub(super) fn rules(given: &BucketLifecycleConfiguration) -> S3Result<Vec<Rule>> {
    let (most, _) = MOST;
    if !(1..=most).contains(&given.rules.len()) {
        return Err(malformed("a bucket has 1 to 1,000 rules"));
    }
    let mut rules = Vec::new();
    for (at, each) in given.rules.iter().enumerate() {
        let same = |other: &LifecycleRule| each.id.is_some() && other.id == each.id;
        if given.rules[..at].iter().any(same) {
            return Err(argument("two rules have one ID"));
        }
        let read = rule(each)?;
        match each.status.as_str() {
            ExpirationStatus::ENABLED => rules.push(read),
            ExpirationStatus::DISABLED => {}
            _ => return Err(malformed("Status is Enabled or Disabled")),
        }
    }
    Ok(rules)
}

/// Gives rules without a name one that no other has.
pub(super) fn name(rules: &mut [LifecycleRule]) {
    for at in 0..rules.len() {
        if rules[at].id.as_ref().is_none_or(String::is_empty) {
            let mut names = (at + 1..).map(|number| format!("rule-{number}"));
            let is_free = |name: &String| rules.iter().all(|rule| rule.id.as_ref() != Some(name));
            rules[at].id = names.find(is_free);
        }
    }
}

/// The end of an object as a client is told it: its date, and the rule; of several the first.
pub(super) fn told(rules: &[Rule], key: &str, info: &ObjectInfo) -> Option<String> {
    let ends = rules
        .iter()
        .filter_map(|rule| Some((rule.of(key, info)?, &rule.id)));
    let (time, id) = ends.min_by_key(|(time, _)| *time)?;
    let date = attributes::date(Some(&timestamp(time)))?;
    let id: String = percent_encoding::utf8_percent_encode(id, super::xml::PLAIN).to_string();
    Some(format!("expiry-date=\"{date}\", rule-id=\"{id}\""))
}

/// How much a sweep has deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    pub(super) objects: u64,
    pub(super) uploads: u64,
}

/// Deletes what has expired in a bucket by now.
///
/// # Errors
/// Those of the store; the next sweep goes on.
pub(super) async fn sweep(
    objects: &Objects,
    (bucket, rules): (&str, &[Rule]),
    now_ms: u64,
) -> Result<Swept, ObjectError> {
    let mut swept = Swept::default();
    for rule in rules {
        if rule.expires.is_some() {
            swept.objects += sweep_objects(objects, (bucket, rule), now_ms).await?;
        }
        if let Some(days) = rule.uploads {
            let place = (bucket, &*rule.prefix);
            swept.uploads += sweep_uploads(objects, place, (days, now_ms)).await?;
        }
    }
    Ok(swept)
}

async fn sweep_objects(
    objects: &Objects,
    (bucket, rule): (&str, &Rule),
    now_ms: u64,
) -> Result<u64, ObjectError> {
    let mut query = ListQuery {
        prefix: rule.prefix.clone(),
        max: PAGE,
        ..ListQuery::default()
    };
    let mut count = 0;
    loop {
        let page = objects.list(bucket, &query).await?;
        let old: Vec<_> = page
            .entries
            .into_iter()
            .filter(|it| rule.may_mean(it, now_ms))
            .collect();
        for some in old.chunks(AT_ONCE) {
            let mut deletes = FuturesUnordered::new();
            for entry in some {
                deletes.push(end(objects, (bucket, rule), &entry.key, now_ms));
            }
            while let Some(deleted) = deletes.next().await {
                count += u64::from(deleted?.existed);
            }
            tokio::time::sleep(REST).await;
        }
        query.after = page.next;
        if query.after.is_none() {
            return Ok(count);
        }
        tokio::time::sleep(REST).await;
    }
}

/// Deletes an object if it has expired.
async fn end(
    objects: &Objects,
    (bucket, rule): (&str, &Rule),
    key: &str,
    now_ms: u64,
) -> Result<Deleted, ObjectError> {
    let ends = |info: &ObjectInfo| rule.of(key, info).is_some_and(|at| at <= now_ms);
    let place = (bucket, key);
    objects.delete_if(Ctx::default(), place, ends).await
}

async fn sweep_uploads(
    objects: &Objects,
    (bucket, prefix): (&str, &str),
    (days, now_ms): (u64, u64),
) -> Result<u64, ObjectError> {
    let (mut after, mut count) = (None::<UploadAfter>, 0);
    loop {
        let page = objects.uploads(bucket, prefix, (after.as_ref(), PAGE))?;
        let old = page.uploads.iter();
        for upload in old.filter(|upload| midnight(upload.created_ms, days) <= now_ms) {
            let ended = objects.abort(Ctx::default(), bucket, &upload.key, &upload.id);
            match ended.await {
                Ok(()) => count += 1,
                Err(error @ ObjectError::Engine(_)) => return Err(error),
                // Somebody else has ended it.
                Err(_) => {}
            }
        }
        after = page.next;
        if after.is_none() {
            return Ok(count);
        }
        tokio::time::sleep(REST).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lumpscope_engine::device::sim::{SimDisk, SimOptions, blank_image};
    use lumpscope_engine::units::BlockSize;
    use lumpscope_engine::{Store, StoreOptions};
    use lumpscope_objects::{CommitInfo, ObjectOptions, PutInfo};
    use s3s::xml::{Deserialize as _, Deserializer};

    fn read(rules: &str) -> S3Result<Vec<Rule>> {
        let text = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
        let mut document = Deserializer::new(text.as_bytes());
        super::rules(&BucketLifecycleConfiguration::deserialize(&mut document).unwrap())
    }

    fn one(inside: &str) -> String {
        format!("<Rule><Status>Enabled</Status>{inside}</Rule>")
    }

    #[test]
    fn days_end_at_midnight() {
        assert_eq!(midnight(0, 1), DAY_MS);
        assert_eq!(midnight(1, 1), 2 * DAY_MS);
        assert_eq!(midnight(DAY_MS, 0), DAY_MS);
        assert!(midnight(u64::MAX, u64::MAX) > u64::MAX - DAY_MS);
    }

    #[test]
    fn rules_are_what_s3_takes() {
        let days = "<Expiration><Days>1</Days></Expiration>";
        for (rules, code) in [
            (one(days), "MalformedXML"),
            (one("<Prefix/>"), "MalformedXML"),
            (one("<Prefix/><Expiration/>"), "MalformedXML"),
            (
                one("<Prefix/><Expiration><Days>0</Days></Expiration>"),
                "InvalidArgument",
            ),
            (
                one("<Prefix/><Expiration><Days>-1</Days></Expiration>"),
                "InvalidArgument",
            ),
            (
                one("<Prefix/><Expiration><Date>2030-01-01T01:00:00Z</Date></Expiration>"),
                "InvalidArgument",
            ),
            (
                one("<Prefix/><AbortIncompleteMultipartUpload/>"),
                "MalformedXML",
            ),
            (
                one(
                    "<Filter><ObjectSizeLessThan>9</ObjectSizeLessThan></Filter>\
                     <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
                     </AbortIncompleteMultipartUpload>",
                ),
                "InvalidRequest",
            ),
            (
                one(&format!("<ID>a</ID><Prefix/>{days}")).repeat(2),
                "InvalidArgument",
            ),
            (
                one(&format!("<ID>{}</ID><Prefix/>{days}", "a".repeat(256))),
                "InvalidArgument",
            ),
            (
                format!("<Rule><Status>enabled</Status><Prefix/>{days}</Rule>"),
                "MalformedXML",
            ),
        ] {
            let refused = read(&rules).unwrap_err();
            assert_eq!(refused.code().as_str(), code, "{rules}");
        }
        let disabled = format!("<Rule><Status>Disabled</Status><Prefix/>{days}</Rule>");
        assert_eq!(read(&disabled).unwrap(), []);
        let read = read(&one(&format!(
            "<Filter><And><Prefix>p</Prefix><Tag><Key>a</Key>\
            <Value>1</Value></Tag><ObjectSizeGreaterThan>5</ObjectSizeGreaterThan></And></Filter>{days}"
        )));
        let rule = &read.unwrap()[0];
        assert_eq!((&*rule.prefix, rule.more, rule.less), ("p", Some(5), None));
        assert_eq!(rule.tags, [(format!("{TAG}a"), "1".to_owned())]);
    }

    fn objects() -> Objects {
        let image = blank_image(BlockSize::MIN, 200, 2000, [7; 16]);
        let disk = SimDisk::new(&image, SimOptions::default());
        let store = Store::open_on(disk.device(), StoreOptions::new("sim")).unwrap();
        Objects::open(store, ObjectOptions::default()).unwrap().0
    }

    async fn put(objects: &Objects, key: &str, len: usize, tags: &str) {
        let info = PutInfo {
            attributes: crate::tags::of_header(Some(tags)).unwrap(),
            size: Some(len as u64),
            ..PutInfo::default()
        };
        let mut writer = objects.begin("bucket", key, info).unwrap();
        writer.write(Ctx::default(), &vec![1; len]).await.unwrap();
        let commit = CommitInfo::default();
        writer.commit(Ctx::default(), commit).await.unwrap();
    }

    async fn keys(objects: &Objects) -> Vec<String> {
        let all = ListQuery {
            max: PAGE,
            ..ListQuery::default()
        };
        let page = objects.list("bucket", &all).await.unwrap();
        page.entries.into_iter().map(|entry| entry.key).collect()
    }

    #[tokio::test]
    async fn a_sweep_deletes_what_has_expired_by_its_clock() {
        let objects = objects();
        let ctx = Ctx::default();
        objects.create_bucket(ctx, "bucket").await.unwrap();
        for (key, len, tags) in [
            ("a/1", 1, ""),
            ("a/2", 1, "keep=no"),
            ("b/large", 100, ""),
            ("b/small", 10, ""),
            ("b/tagged", 100, "keep=no"),
            ("c", 1, "keep=no"),
            ("chunks/0/0/7_0_3", 3, ""),
        ] {
            put(&objects, key, len, tags).await;
        }
        let info = PutInfo::default();
        objects
            .create_upload(ctx, "bucket", "a/up", info)
            .await
            .unwrap();
        let rules = read(&[
            one("<Prefix>a/</Prefix><Expiration><Days>2</Days></Expiration>\
                 <AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation>\
                 </AbortIncompleteMultipartUpload>"),
            one("<Filter><And><Prefix>b/</Prefix><Tag><Key>keep</Key><Value>no</Value></Tag>\
                 <ObjectSizeGreaterThan>50</ObjectSizeGreaterThan></And></Filter>\
                 <Expiration><Days>1</Days></Expiration>"),
            one("<Filter><Prefix>chunks/</Prefix></Filter><Expiration><Days>3</Days></Expiration>"),
        ]
        .concat())
        .unwrap();
        let first = objects.head(ctx, "bucket", "a/1").await.unwrap();
        let begun = first.modified_ms;
        let day = |days: u64| midnight(begun, days) + DAY_MS / 2;
        let mut all = keys(&objects).await;
        for (now_ms, objects_gone, uploads_gone, gone) in [
            (begun, 0, 0, vec![]),
            (day(1), 1, 1, vec!["b/tagged"]),
            (day(2), 2, 0, vec!["a/1", "a/2"]),
            (day(2), 0, 0, vec![]),
            (day(3), 1, 0, vec!["chunks/0/0/7_0_3"]),
            (u64::MAX, 0, 0, vec![]),
        ] {
            let swept = sweep(&objects, ("bucket", &rules), now_ms).await.unwrap();
            let wanted = Swept {
                objects: objects_gone,
                uploads: uploads_gone,
            };
            assert_eq!(swept, wanted, "{gone:?}");
            all.retain(|key| !gone.contains(&&**key));
            assert_eq!(keys(&objects).await, all);
        }
        assert_eq!(all, ["b/large", "b/small", "c"]);
    }

    #[test]
    fn the_first_end_is_told() {
        let rules = read(
            &[
                one("<ID>late one</ID><Prefix/><Expiration><Days>9</Days></Expiration>"),
                one("<ID>a b</ID><Prefix/><Expiration><Days>1</Days></Expiration>"),
                one("<ID>other</ID><Prefix>x</Prefix><Expiration><Days>1</Days></Expiration>"),
            ]
            .concat(),
        )
        .unwrap();
        let info = ObjectInfo::default();
        let told = told(&rules, "k", &info).unwrap();
        let wanted = "expiry-date=\"Fri, 02 Jan 1970 00:00:00 GMT\", rule-id=\"a%20b\"";
        assert_eq!(told, wanted);
        assert_eq!(super::told(&rules[2..], "k", &info), None);
    }
}
