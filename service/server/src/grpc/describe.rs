//! Description of a store: its properties and its condition.

use lumpscope_observer::Observer;
use lumpscope_proto::v1;

use crate::stores::{FailedStore, NamedStore, Stores};

/// Every store; those that could not be opened come last.
pub(super) fn all(stores: &Stores, observer: &Observer) -> Vec<v1::StoreInfo> {
    let open = stores.all();
    let failed = stores.failed();
    let open = open.iter().map(|named| store(named, observer));
    open.chain(failed.iter().map(failed_store)).collect()
}

pub(super) fn store(named: &NamedStore, observer: &Observer) -> v1::StoreInfo {
    let info = named.store.info();
    let seen = observer.store_status(&named.name).unwrap_or_default();
    let (state, reason) = named.state();
    v1::StoreInfo {
        name: named.name.clone(),
        path: info.path.display().to_string(),
        layout: info.layout.name().to_owned(),
        block_size: u32::from(info.block_size),
        max_lump_bytes: info.max_lump_bytes,
        uuid: info.uuid.to_string(),
        device: seen.device.unwrap_or_default(),
        observed: seen.observed,
        not_observed_because: seen.why_not,
        failed: named.failed(),
        state: state.into(),
        state_reason: reason.to_string(),
    }
}

/// A store that could not be opened.
pub(super) fn failed_store(failed: &FailedStore) -> v1::StoreInfo {
    v1::StoreInfo {
        name: failed.name.clone(),
        path: failed.path.display().to_string(),
        not_observed_because: "the store is not open".to_owned(),
        failed: failed.why.clone(),
        state: v1::StoreState::Unavailable.into(),
        state_reason: failed.why.clone(),
        ..v1::StoreInfo::default()
    }
}
