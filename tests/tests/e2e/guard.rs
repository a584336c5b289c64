//! A service that is asked to guard its device: what it says of that is what others find, and the
//! device is claimed in any case.

use std::path::Path;

use lumpscope_lab::disks::StoreKind;
use lumpscope_proto::v1::{DescribeObserverRequest, ObservedStore};
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{ROOT, alone};
use lumpscope_tests::service::{Service, lab_with_stores};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

/// An unprivileged user and group that need no entry in the user database.
const STRANGER: &str = "4000000:4000001";

async fn described(client: &Client, store: &str) -> ObservedStore {
    let mut observe = client.observe();
    let asked = observe.describe_observer(DescribeObserverRequest {});
    let answer = asked.await.expect("it answers").into_inner();
    let mut stores = answer.stores.into_iter();
    let found = stores.find(|found| found.store == store);
    found.expect("the store is described")
}

/// Why this process, which is not the service, cannot open it so.
fn refusal(path: &Path, flags: OFlags) -> Option<Errno> {
    open(path, flags | OFlags::CLOEXEC, Mode::empty()).err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_said_of_the_guard_is_what_others_find() {
    let Some(_alone) = alone(ROOT) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 256 << 20, "100M");
    let disk = lab.store(StoreKind::Raw).expect("a disk");
    let service = Service::start(&lab, &["--guard", "deny", "--user", STRANGER]);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    let body = content(1, 1, 1 << 20);
    let put = client.put(disk.name, 1, body.clone()).await;
    put.expect("the owner writes");
    assert!(client.get(disk.name, 1).await.expect("a get") == body);

    let before = described(&client, disk.name).await;
    assert_eq!(before.guard_policy, "deny");
    let why = &before.guard_not_effective_because;
    assert_eq!(before.guard_effective, why.is_empty(), "{before:?}");
    let refused = before.guard_effective.then_some(Errno::PERM);
    assert_eq!(refusal(&disk.device, OFlags::WRONLY), refused, "{before:?}");
    let after = described(&client, disk.name).await;
    let denied = u64::from(before.guard_effective);
    assert_eq!(after.guard_denied, before.guard_denied + denied);
    assert_eq!(after.guard_allowed, 0);

    // With or without the guard: nobody else can claim it.
    let claim = OFlags::RDONLY | OFlags::EXCL;
    assert_eq!(refusal(&disk.device, claim), Some(Errno::BUSY));
    let metrics = service.scrape();
    let line = format!(
        "lumpscope_guard_policy{{store=\"{}\",policy=\"deny\"}} 1",
        disk.name
    );
    assert!(metrics.contains(&line), "{line} is not in {metrics}");
    drop(client);
    assert!(service.stop(), "it ends in order");
    let after = refusal(&disk.device, OFlags::WRONLY);
    assert_eq!(after, None, "free after the end");
}
