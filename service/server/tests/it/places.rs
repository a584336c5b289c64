//! A store and the place where it lies: names that lead to another disk, copies, and memory.

use std::path::Path;

use lumpscope_proto::v1::{AddStoreRequest, DrainRequest, ListStoresRequest, RemoveStoreRequest};
use tonic::Code;

use crate::common::{Running, config, folder, store_file};
use lumpscope_server::serve::Service;

const MIB: u64 = 1 << 20;

fn made(folder: &Path, name: &str) -> std::path::PathBuf {
    store_file(folder, name, 16 * MIB, 4096, 0.05)
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_have_changed_places_serve_no_other_store() {
    let dir = folder();
    let (a, b) = (made(dir.path(), "a"), made(dir.path(), "b"));
    Running::start(&[("fast", &a), ("cold", &b)])
        .await
        .stop()
        .await;
    let swapped = Service::start(config(&[("fast", &b), ("cold", &a)])).await;
    let refused = swapped.err().unwrap().to_string();
    for words in [
        "is store \"cold\", not \"fast\"",
        "uuid:",
        "lumpscope rename",
    ] {
        assert!(refused.contains(words), "{words:?} in {refused:?}");
    }
    // The one that is right is served.
    let service = Running::start(&[("fast", &a), ("other", &b)]).await;
    let (_, text) = service.http_get("/healthz").await;
    assert!(text.contains("store other does not serve"), "{text}");
    // Nor is it added under another name while the service runs.
    let add = AddStoreRequest {
        name: "third".to_owned(),
        path: b.display().to_string(),
        salvage: false,
    };
    let refused = service.admin().await.add_store(add).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    service.stop().await;
    lumpscope_engine::rename(&b, "other", None).unwrap();
    let service = Running::start(&[("fast", &a), ("other", &b)]).await;
    assert_eq!(service.http_get("/healthz").await.0, 200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_an_image_is_not_served_beside_it() {
    let dir = folder();
    let one = made(dir.path(), "one");
    let copy = dir.path().join("copy.lusf");
    std::fs::copy(&one, &copy).unwrap();
    let service = Running::start(&[("one", &one)]).await;
    let add = |name: &str| AddStoreRequest {
        name: name.to_owned(),
        path: copy.display().to_string(),
        salvage: false,
    };
    let mut admin = service.admin().await;
    let before = std::fs::read(&copy).unwrap();
    let refused = admin.add_store(add("two")).await.unwrap_err();
    let words = "is open already, as store \"one\"";
    assert!(refused.message().contains(words), "{refused}");
    assert_eq!(std::fs::read(&copy).unwrap(), before, "it was changed");
    // It can be served in place of the other.
    let remove = RemoveStoreRequest {
        store: "one".to_owned(),
        drain_timeout_ms: 0,
    };
    admin.remove_store(remove).await.unwrap();
    admin.add_store(add("two")).await.unwrap();
    drop(admin);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_memory_says_so_everywhere() {
    use lumpscope_engine::create::{CreateOptions, format};
    use lumpscope_engine::guard::VolatileMedium;

    let memory = Path::new("/dev/shm");
    if VolatileMedium::of_path(memory) != Some(VolatileMedium::Tmpfs) {
        return lumpscope_needs::skipped("/dev/shm is no tmpfs here");
    }
    let dir = tempfile::tempdir_in(memory).unwrap();
    let path = dir.path().join("store.lusf");
    let options = CreateOptions {
        capacity: Some(16 * MIB),
        volatile: true,
        ..CreateOptions::default()
    };
    if let Err(error) = format(&path, &options) {
        return lumpscope_needs::skipped(&format!("no direct I/O in memory: {error}"));
    }
    let disk = folder();
    let lasting = made(disk.path(), "lasting");
    let mut service = Running::start(&[("ram", &path), ("lasting", &lasting)]).await;
    let asked = service.client.list_stores(ListStoresRequest {}).await;
    let stores = asked.unwrap().into_inner();
    let reason = &stores.stores[0].state_reason;
    let words = "NOT DURABLE: it is in memory (tmpfs)";
    assert!(reason.contains(words), "{reason}");
    assert_eq!(stores.stores[1].state_reason, "");
    let (_, text) = service.http_get("/metrics").await;
    assert!(text.contains("lumpscope_store_volatile{store=\"ram\"} 1.0"));
    assert!(text.contains("lumpscope_store_volatile{store=\"lasting\"} 0.0"));
    assert_eq!(service.http_get("/healthz").await.0, 200);
    // Another reason does not hide it.
    let frozen = DrainRequest {
        store: "ram".to_owned(),
        timeout_ms: 0,
        changes_only: true,
    };
    service.admin().await.drain(frozen).await.unwrap();
    let asked = service.client.list_stores(ListStoresRequest {}).await;
    let reason = asked.unwrap().into_inner().stores.remove(0).state_reason;
    let both = reason.contains("NOT DURABLE") && reason.contains("changes");
    assert!(both, "{reason}");
    service.stop().await;
}
