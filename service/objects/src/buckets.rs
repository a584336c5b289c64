//! Buckets.

use std::sync::Arc;

use crate::Objects;
use crate::ctx::Ctx;
use crate::error::{Limited, ObjectError};
use crate::id::LumpKind;
use crate::journal::{Change, delete_lump, put_record};
use crate::record::{BucketRecord, Record};
use crate::state::{BucketEntry, Path, now_ms};
use crate::types::{Bucket, MAX_BUCKET_BYTES};

fn check_name(name: &str) -> Result<(), ObjectError> {
    let invalid = |why| {
        Err(ObjectError::Invalid {
            what: "the name of the bucket",
            why,
        })
    };
    if !(3..=MAX_BUCKET_BYTES).contains(&name.len()) {
        return invalid("it needs 3 to 63 characters");
    }
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let plain_at = |byte: Option<u8>| byte.is_some_and(plain);
    if !name
        .bytes()
        .all(|byte| plain(byte) || byte == b'-' || byte == b'.')
    {
        return invalid("only lower-case letters, digits, - and . are allowed");
    }
    let ends = |label: &str| plain_at(label.bytes().next()) && plain_at(label.bytes().last());
    if !name.split('.').all(ends) {
        return invalid(
            "it, and each part between dots, must begin and end with a letter or digit",
        );
    }
    if name.parse::<std::net::Ipv4Addr>().is_ok() {
        return invalid("it must not look like an IP address");
    }
    Ok(())
}

impl Objects {
    /// The buckets, by name.
    #[must_use]
    pub fn buckets(&self) -> Vec<Bucket> {
        let state = self.inner.state();
        let there = state.buckets.iter().filter(|(_, bucket)| !bucket.going);
        there
            .map(|(name, bucket)| Bucket {
                name: name.clone(),
                created_ms: bucket.created_ms,
            })
            .collect()
    }

    /// One bucket.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`].
    pub fn bucket(&self, name: &str) -> Result<Bucket, ObjectError> {
        let found = self.inner.state().bucket(name)?;
        Ok(Bucket {
            name: name.to_owned(),
            created_ms: found.created_ms,
        })
    }

    /// Creates a bucket.
    ///
    /// # Errors
    /// [`ObjectError::Invalid`] for a name that S3 does not allow, [`ObjectError::BucketExists`],
    /// [`ObjectError::Engine`].
    pub async fn create_bucket(&self, ctx: Ctx<'_>, name: &str) -> Result<Bucket, ObjectError> {
        check_name(name)?;
        let held = self.inner.hold(Path::Bucket(name.to_owned())).await;
        if self.inner.state().buckets.contains_key(name) {
            return Err(ObjectError::BucketExists {
                bucket: name.to_owned(),
            });
        }
        let too_many = |_| ObjectError::TooLarge {
            what: Limited::Bucket,
            got: u64::MAX,
            max: u32::MAX.into(),
        };
        let number = u32::try_from(self.inner.number()).map_err(too_many)?;
        let created_ms = now_ms();
        let bucket = Bucket {
            name: name.to_owned(),
            created_ms,
        };
        let record = Record::Bucket(BucketRecord {
            created_ms,
            name: name.to_owned(),
        });
        let (inner, made) = (Arc::clone(&self.inner), bucket.clone());
        let id = LumpKind::Bucket.id(number.into(), 0);
        put_record(&self.inner, ctx, Change::of(id, &record), move || {
            let entry = BucketEntry {
                number,
                created_ms,
                going: false,
                commits: 0,
            };
            inner.state().buckets.insert(made.name, entry);
            drop(held);
        })?
        .await?;
        Ok(bucket)
    }

    /// Deletes an empty bucket, and the uploads that were begun in it.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::BucketNotEmpty`], [`ObjectError::Engine`].
    pub async fn delete_bucket(&self, ctx: Ctx<'_>, name: &str) -> Result<(), ObjectError> {
        let held = self.inner.hold(Path::Bucket(name.to_owned())).await;
        let not_empty = || ObjectError::BucketNotEmpty {
            bucket: name.to_owned(),
        };
        // Also before it is closed: a bucket in use must not look absent.
        let number = self.inner.state().bucket(name)?.number;
        if self.has_blocks(number).await? {
            return Err(not_empty());
        }
        let number = self.close_bucket(name)?;
        let going = Going {
            objects: self.clone(),
            name: name.to_owned(),
        };
        if self.has_blocks(number).await? {
            return Err(not_empty());
        }
        let id = LumpKind::Bucket.id(number.into(), 0);
        delete_lump(&self.inner, ctx, id, move |result| {
            if result.is_ok() {
                going.objects.inner.state().buckets.remove(&going.name);
                going.objects.drop_uploads(number);
                going.objects.drop_volumes(number);
                going.objects.drop_settings(number);
            }
            drop((going, held));
        })?
        .await
    }

    /// Keeps commits away from a bucket without objects in the catalogue.
    fn close_bucket(&self, name: &str) -> Result<u32, ObjectError> {
        let mut state = self.inner.state();
        let bucket = state.bucket(name)?;
        let mut empty = bucket.commits == 0;
        let any = std::ops::Bound::Unbounded;
        state.catalogue.visit(bucket.number, any, &mut |_, _| {
            empty = false;
            false
        });
        if !empty {
            return Err(ObjectError::BucketNotEmpty {
                bucket: name.to_owned(),
            });
        }
        if let Some(entry) = state.buckets.get_mut(name) {
            entry.going = true;
        }
        Ok(bucket.number)
    }
}

/// A bucket whose delete is on the way; it is open again if that fails.
struct Going {
    objects: Objects,
    name: String,
}

impl Drop for Going {
    fn drop(&mut self) {
        if let Some(entry) = self.objects.inner.state().buckets.get_mut(&self.name) {
            entry.going = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::check_name;

    #[test]
    fn names_are_those_of_s3() {
        for name in ["abc", "a-b.c9", "0ab", &"a".repeat(63)] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        for name in [
            "",
            "ab",
            "Abc",
            "a_b",
            "-ab",
            "ab-",
            "a..b",
            "a.-b",
            "a-.b",
            "1.2.3.4",
            "ab/",
            &"a".repeat(64),
        ] {
            assert!(check_name(name).is_err(), "{name}");
        }
    }
}
