//! Shared by the tests: a store on a simulated disk, and objects with known bytes.

use lumpscope_engine::device::sim::{Latency, SimDisk, SimOptions, blank_image};
use lumpscope_engine::units::BlockSize;
use lumpscope_engine::{LumpId, LumpRange, RequestCtx, RequestId, Store, StoreOptions};
use lumpscope_objects::juicefs::BlockKey;
use lumpscope_objects::{
    CommitInfo, Committed, Condition, Ctx, ETag, ListEntry, ListQuery, ObjectError, ObjectInfo,
    ObjectOptions, Objects, OpenReport, PutInfo, Reader,
};

/// Small, so that objects of a few KiB have several.
pub(crate) const PIECE: u32 = 1000;

pub(crate) fn disk(ring_blocks: u64, data_blocks: u64) -> SimDisk {
    let image = blank_image(BlockSize::MIN, ring_blocks, data_blocks, [7; 16]);
    let options = SimOptions {
        latency: Latency {
            one_at_a_time: true,
            ..Latency::any_order()
        },
        ..SimOptions::default()
    };
    SimDisk::new(&image, options)
}

pub(crate) fn options() -> ObjectOptions {
    ObjectOptions {
        piece_bytes: PIECE,
        min_part_bytes: 1,
        ..ObjectOptions::default()
    }
}

/// Whole pieces of objects are written while they come, in two pieces of theirs.
pub(crate) fn store_options() -> StoreOptions {
    StoreOptions {
        piece_bytes: u64::from(PIECE) / 2,
        ..StoreOptions::new("sim")
    }
}

pub(crate) fn open(disk: &SimDisk) -> (Objects, OpenReport, Store) {
    try_open(disk).unwrap()
}

pub(crate) fn try_open(disk: &SimDisk) -> Result<(Objects, OpenReport, Store), ObjectError> {
    let store = Store::open_on(disk.device(), store_options())?;
    let (objects, report) = Objects::open(store.clone(), options())?;
    Ok((objects, report, store))
}

/// For a question to the engine beside the objects.
pub(crate) fn engine_ctx() -> RequestCtx {
    RequestCtx {
        id: RequestId(1),
        ..RequestCtx::default()
    }
}

pub(crate) fn ctx() -> Ctx<'static> {
    engine_ctx().into()
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
        .block_on(future)
}

/// Reproducible bytes that depend on both arguments.
pub(crate) fn content(version: u64, len: usize) -> Vec<u8> {
    let mut x = version.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ len as u64;
    std::iter::repeat_with(|| {
        x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        x.to_be_bytes()[0]
    })
    .take(len)
    .collect()
}

/// An ETag that tells versions apart.
pub(crate) fn etag(version: u64) -> ETag {
    let mut md5 = [0; 16];
    md5[..8].copy_from_slice(&version.to_be_bytes());
    ETag { md5, parts: 0 }
}

pub(crate) async fn put(
    objects: &Objects,
    bucket: &str,
    key: &str,
    (version, len): (u64, usize),
    condition: Condition,
) -> Result<Committed, ObjectError> {
    let info = PutInfo {
        // Both ways to write are used; a block must say its size.
        size: (version.is_multiple_of(2) || block_size(key).is_some()).then_some(len as u64),
        ..PutInfo::default()
    };
    let mut writer = objects.begin(bucket, key, info)?;
    for chunk in content(version, len).chunks(333) {
        writer.write(ctx(), chunk).await?;
    }
    let commit = CommitInfo {
        etag: etag(version),
        condition,
        ..CommitInfo::default()
    };
    writer.commit(ctx(), commit).await
}

/// An object of the bucket, whatever was there.
pub(crate) async fn stored(objects: &Objects, key: &str, what: (u64, usize)) {
    let done = put(objects, "bucket", key, what, Condition::Always).await;
    done.unwrap();
}

/// Deletes an object of the bucket, if it is there.
pub(crate) async fn removed(objects: &Objects, key: &str) {
    let done = objects
        .delete(ctx(), "bucket", key, Condition::Always)
        .await;
    done.unwrap();
}

/// The bytes that a reader has still to come.
pub(crate) async fn rest_of(reader: &mut Reader) -> Vec<u8> {
    let mut all = Vec::new();
    while let Some(bytes) = reader.next(ctx()).await {
        all.extend_from_slice(&bytes.unwrap());
    }
    all
}

/// The size in a key that may be one of a block.
pub(crate) fn block_size(key: &str) -> Option<usize> {
    let (_, block) = BlockKey::parse(key)?;
    usize::try_from(block.size).ok()
}

pub(crate) async fn get(
    objects: &Objects,
    bucket: &str,
    key: &str,
) -> Result<Vec<u8>, ObjectError> {
    let mut reader = objects.read(ctx(), bucket, key).await?;
    let mut all = Vec::new();
    while let Some(bytes) = reader.next(ctx()).await {
        all.extend_from_slice(&bytes?);
    }
    Ok(all)
}

pub(crate) fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(a, b)| ((*a).into(), (*b).into())).collect()
}

/// An object with all that is known of it.
pub(crate) async fn put_with(
    objects: &Objects,
    key: &str,
    len: usize,
    (info, commit): (PutInfo, CommitInfo),
) -> Result<ObjectInfo, ObjectError> {
    let mut writer = objects.begin("bucket", key, info)?;
    writer.write(ctx(), &content(1, len)).await?;
    Ok(writer.commit(ctx(), commit).await?.info)
}

/// Entries of the bucket, up to 10,000 keys.
pub(crate) fn list(objects: &Objects) -> Vec<ListEntry> {
    let query = ListQuery {
        max: 10_000,
        ..ListQuery::default()
    };
    run(objects.list("bucket", &query)).unwrap().entries
}

/// Every lump of the store.
pub(crate) fn lumps(store: &Store) -> u64 {
    store.usage(LumpRange::ALL).unwrap().lumps
}

/// Lumps that name volumes.
pub(crate) fn volumes(store: &Store) -> u64 {
    let first = |kind: u128| LumpId((0x53_3300 | kind) << 104);
    let range = LumpRange {
        start: first(5),
        end: Some(first(6)),
    };
    store.usage(range).unwrap().lumps
}

/// The store is used by nobody else and closed in order.
pub(crate) fn close(objects: Objects, store: Store) {
    drop(objects);
    store.close().unwrap();
}
