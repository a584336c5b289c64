//! Settings of buckets: one record each, whose text means nothing here.

use std::sync::Arc;

use crate::Objects;
use crate::ctx::Ctx;
use crate::ending::one;
use crate::error::ObjectError;
use crate::id::LumpKind;
use crate::journal::{Change, delete_lump, put_record};
use crate::record::{Record, SettingRecord};
use crate::state::Path;
use crate::types::BucketSetting;

impl Objects {
    /// A setting of a bucket; `None`: nobody has made it.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`].
    pub fn setting(
        &self,
        bucket: &str,
        setting: BucketSetting,
    ) -> Result<Option<Arc<str>>, ObjectError> {
        let state = self.inner.state();
        let number = state.bucket(bucket)?.number;
        Ok(state.settings.get(&(number, setting)).cloned())
    }

    /// Makes a setting of a bucket, or removes it. It goes with its bucket.
    ///
    /// # Errors
    /// [`ObjectError::NoSuchBucket`], [`ObjectError::TooLarge`] for a text that no record can hold,
    /// [`ObjectError::Engine`].
    pub async fn set(
        &self,
        ctx: Ctx<'_>,
        bucket: &str,
        (setting, text): (BucketSetting, Option<Arc<str>>),
    ) -> Result<(), ObjectError> {
        let held = self.inner.hold(Path::Bucket(bucket.to_owned())).await;
        let entry = self.inner.state().bucket(bucket)?;
        let place = (entry.number, setting);
        let id = LumpKind::Setting.id(entry.number.into(), setting.code().into());
        let inner = Arc::clone(&self.inner);
        let Some(text) = text else {
            return delete_lump(&self.inner, ctx, id, move |result| {
                if result.is_ok() {
                    inner.state().settings.remove(&place);
                }
                drop(held);
            })?
            .await;
        };
        let record = Record::Setting(SettingRecord {
            created_ms: entry.created_ms,
            text: text.as_ref().to_owned(),
        });
        put_record(&self.inner, ctx, Change::of(id, &record), move || {
            inner.state().settings.insert(place, text);
            drop(held);
        })?
        .await
    }

    /// A bucket is gone: so are its settings.
    pub(crate) fn drop_settings(&self, bucket: u32) {
        for setting in BucketSetting::ALL {
            let found = self.inner.state().settings.remove(&(bucket, setting));
            if found.is_some() {
                let id = LumpKind::Setting.id(bucket.into(), setting.code().into());
                self.inner.free([one(id)]);
            }
        }
    }
}
