//! Stores on real disks that come and go while the service runs: observed from the first request
//! on, let go at once, and observed anew.

use std::path::Path;

use lumpscope_lab::disks::StoreKind;
use lumpscope_proto::v1::admin_client::AdminClient;
use lumpscope_proto::v1::{AddStoreRequest, RemoveStoreRequest, StoreInfo, StoreReport};
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{LISTEN, Service, binary, lab_with_stores, run_ok};
use tonic::transport::Channel;

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4")];
const LUMP: usize = 1 << 20;

async fn put(client: &mut Client, store: &str, id: u128) {
    let put = client.put(store, id, content(id, 1, LUMP)).await;
    put.expect("stored");
}

async fn add(admin: &mut AdminClient<Channel>, name: &str, path: &Path) -> StoreInfo {
    let request = AddStoreRequest {
        name: name.to_owned(),
        path: path.to_str().expect("UTF-8").to_owned(),
        salvage: false,
    };
    let reply = admin.add_store(request).await.expect("it can be added");
    reply.into_inner().store.expect("a store")
}

async fn remove(admin: &mut AdminClient<Channel>, name: &str) {
    let request = RemoveStoreRequest {
        store: name.to_owned(),
        drain_timeout_ms: 60_000,
    };
    admin.remove_store(request).await.expect("it is taken out");
}

/// Requests of a store that its report counts, and bytes tied to them.
fn counted(report: &StoreReport) -> (u64, u64) {
    let block = report.block.as_ref().expect("observed");
    let requests = report.operations.iter().map(|o| o.count).sum();
    (requests, block.attributed_bytes + block.shared_bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_is_observed_when_it_comes_and_let_go_when_it_goes() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw, StoreKind::Ext4], 256 << 20, "128M");
    let path = |kind: &str| {
        let mut stores = lab.stores().iter();
        let found = stores.find(|store| store.name == kind);
        found.expect("the lab made it").store_path.clone()
    };
    let (raw, ext4) = (path("raw"), path("ext4"));
    let mut command = lab.command(binary());
    command.args(["serve", "--store", &format!("ext4={}", ext4.display())]);
    // A raw device can only be opened again by who may do that.
    command.arg("--keep-privileges").args(LISTEN);
    let service = Service::spawn(command);
    let mut client = Client::connect(&service.grpc).await.expect("it serves");
    let admin = AdminClient::connect(service.grpc.clone()).await;
    let mut admin = admin.expect("it serves");

    let info = add(&mut admin, "raw", &raw).await;
    assert!(info.observed, "{info:?}");
    assert_eq!((info.layout.as_str(), info.block_size), ("minfs", 4096));
    let expected = raw.to_str().expect("UTF-8");
    assert_eq!(format!("/dev/{}", info.device), expected);
    for id in 1..=8 {
        put(&mut client, "raw", id).await;
    }
    let report = client.report("raw").await.expect("a report");
    let (requests, tied) = counted(&report);
    assert_eq!(requests, 8, "{:?}", report.operations);
    assert!(tied >= 8 * LUMP as u64, "{:?}", report.block);
    let metrics = service.scrape();
    assert!(metrics.contains("lumpscope_probe_attached{store=\"raw\""));

    remove(&mut admin, "raw").await;
    assert!(client.report("raw").await.is_err());
    assert!(!service.scrape().contains("\"raw\""));
    // The disk is free for another process, at once.
    let mut check = lab.command(binary());
    let checked = check.arg("check").arg(&raw).output().expect("it runs");
    let said = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success(), "{said}");
    assert!(said.contains("8 verified"), "{said}");

    let info = add(&mut admin, "raw", &raw).await;
    assert!(info.observed, "{info:?}");
    let got = client.get("raw", 3).await.expect("it is there");
    assert!(got == content(3, 1, LUMP));
    let report = client.report("raw").await.expect("a report");
    let (requests, _) = counted(&report);
    assert_eq!(requests, 1, "{:?}", report.operations);
    let audit = report.audit.expect("an audit");
    // What was seen before it went is not counted again.
    assert!(audit.seen_bytes < 4 * LUMP as u64, "{audit:?}");

    // The one that was there from the start goes, too, and the other stays.
    remove(&mut admin, "ext4").await;
    put(&mut client, "raw", 9).await;
    add(&mut admin, "ext4", &ext4).await;
    put(&mut client, "ext4", 1).await;
    let report = client.report("ext4").await.expect("a report");
    assert!(report.observed && counted(&report).0 == 1, "{report:?}");
    assert!(service.stop());
}

/// Block requests of this owner that wrote or flushed.
fn written_by(report: &StoreReport, owner: &str) -> u64 {
    let block = report.block.as_ref().expect("observed");
    let owners = block.owners.iter().filter(|total| total.owner == owner);
    let written = owners.filter(|total| total.operation != "read");
    written.map(|total| total.requests).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_on_one_disk_are_no_strangers_to_each_other() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Ext4], 256 << 20, "64M");
    let one = &lab.stores()[0].store_path;
    let two = one.with_file_name("lumpscope-two.lusf");
    let mut format = lab.command(binary());
    format.args(["format", "--capacity", "64M"]).arg(&two);
    assert!(format.status().expect("it runs").success());
    let mut command = lab.command(binary());
    command.arg("serve");
    for (name, path) in [("one", one), ("two", &two)] {
        command.args(["--store", &format!("{name}={}", path.display())]);
    }
    command.args(LISTEN);
    let service = Service::spawn(command);
    let puts = ["one", "two"].map(|store| {
        let grpc = service.grpc.clone();
        tokio::spawn(async move {
            let mut client = Client::connect(&grpc).await.expect("it serves");
            for id in 1..=30 {
                put(&mut client, store, id).await;
            }
        })
    });
    for puts in puts {
        puts.await.expect("all are put");
    }
    let mut client = Client::connect(&service.grpc).await.expect("it serves");
    for store in ["one", "two"] {
        let report = client.report(store).await.expect("a report");
        assert!(report.observed && counted(&report).0 == 30, "{report:?}");
        assert!(written_by(&report, "request") >= 60, "{report:?}");
        assert_eq!(written_by(&report, "other"), 0, "{report:?}");
    }
    // What moved the head, and what took time, was a request or the file system.
    let slowest = ["--slowest", "60", "--json", "--server", &service.grpc];
    let explained = run_ok(&[&["explain"][..], &slowest].concat());
    assert!(!explained.contains("process lump-owner"), "{explained}");
    assert!(service.stop());
}
