//! The settings of buckets, read once for each.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use lumpscope_objects::{BucketSetting, Objects};
use s3s::dto::CORSConfiguration;
use s3s::xml::{Deserialize, Deserializer};

use super::lifecycle;

/// The document that was kept so.
pub(super) fn read<'text, T: Deserialize<'text>>(text: &'text str) -> Option<T> {
    T::deserialize(&mut Deserializer::new(text.as_bytes())).ok()
}

/// What settings say, read once for each bucket.
#[derive(Debug)]
pub(super) struct Read<T> {
    setting: BucketSetting,
    /// By bucket: the text, and what it says.
    read: Mutex<HashMap<String, Said<T>>>,
}

type Said<T> = (Arc<str>, Arc<T>);

impl<T> Read<T> {
    fn new(setting: BucketSetting) -> Self {
        Self {
            setting,
            read: Mutex::default(),
        }
    }

    fn get(
        &self,
        objects: &Objects,
        bucket: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Arc<T>> {
        let text = objects.setting(bucket, self.setting).ok().flatten();
        let mut all = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(text) = text else {
            all.remove(bucket);
            return None;
        };
        if let Some((before, said)) = all.get(bucket)
            && Arc::ptr_eq(before, &text)
        {
            return Some(Arc::clone(said));
        }
        let said = Arc::new(read(&text)?);
        all.insert(bucket.to_owned(), (text, Arc::clone(&said)));
        Some(said)
    }
}

/// The settings that are looked at for every request.
#[derive(Debug)]
pub(super) struct Settings {
    cors: Read<CORSConfiguration>,
    lifecycle: Read<Vec<lifecycle::Rule>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            cors: Read::new(BucketSetting::Cors),
            lifecycle: Read::new(BucketSetting::Lifecycle),
        }
    }
}

impl Settings {
    /// Which pages of the web may ask; `None`: none.
    pub(super) fn cors(&self, objects: &Objects, bucket: &str) -> Option<Arc<CORSConfiguration>> {
        self.cors.get(objects, bucket, |text| read(text))
    }

    /// The rules in force by which objects of a bucket expire; `None`: none.
    pub(super) fn lifecycle(
        &self,
        objects: &Objects,
        bucket: &str,
    ) -> Option<Arc<Vec<lifecycle::Rule>>> {
        let rules = |text: &str| lifecycle::rules(&read(text)?).ok();
        self.lifecycle.get(objects, bucket, rules)
    }
}
