//! The work of the disk belongs to the request that caused it: checked by looking for the bytes on
//! the disk, by an independent tracer, and by the kernel's own disk statistics.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lumpscope_lab::disks::StoreKind;
use lumpscope_lab::tracer::Tracer;
use lumpscope_proto::v1::{BlockIo, StoreReport};
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, lab_with_stores};
use rustix::fs::{major, minor};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    Need::Tool("bpftrace"),
];
const SECTOR: u64 = 512;
/// Bytes a lump's trailer and padding length may add to its portion, rounded up to blocks of 4096.
const TAIL: u64 = 4096;

/// Where on the disk the bytes lie: the first sector of their only copy.
fn sector_of(device: &Path, bytes: &[u8]) -> u64 {
    // The page cache of the device node may be older than what went past it.
    let file = File::open(device).expect("root may read its loop device");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)
        .expect("the cache can be dropped");
    let mut found = Vec::new();
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    loop {
        let read = file.read_at(&mut chunk, at);
        let count = read.expect("the device can be read");
        if count == 0 {
            break;
        }
        for (index, sector) in chunk[..count].chunks(512).enumerate() {
            if sector == &bytes[..512] {
                found.push(at / SECTOR + index as u64);
            }
        }
        at += count as u64;
    }
    let device = device.display();
    let [first] = found[..] else {
        panic!("the lump's first sector is on {device} at {found:?}");
    };
    let mut whole = vec![0; bytes.len()];
    let read = file.read_exact_at(&mut whole, first * SECTOR);
    read.expect("the device can be read");
    assert!(whole == bytes, "the lump is not contiguous on {device}");
    first
}

/// Data writes of the only put in a report, in order of their sectors.
fn data_writes(report: &StoreReport) -> Vec<BlockIo> {
    let put = report.slowest.iter().find(|it| it.method == "put");
    let put = put.expect("one put was made");
    let expected = put.block_requests as usize;
    assert_eq!(put.blocks.len(), expected, "every block request is listed");
    let of_data = |block: &&BlockIo| block.operation == "write" && block.purpose == "data";
    let writes = put.blocks.iter().filter(of_data);
    let mut writes: Vec<BlockIo> = writes.cloned().collect();
    writes.sort_by_key(|block| block.sector);
    writes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_lump_is_exactly_its_block_requests() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&StoreKind::ALL, 512 << 20, "300M");
    let service = Service::start(&lab, &[]);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    let length = 3 << 20;
    let mut writes = BTreeMap::new();
    for store in lab.stores() {
        let put = client.put(store.name, 7, content(7, 1, length)).await;
        put.expect("the put works");
        let report = client.report(store.name).await.expect("a report");
        let why = &report.not_observed_because;
        assert!(report.observed, "{}: {why}", store.name);
        writes.insert(store.name, data_writes(&report));
    }
    assert!(service.stop(), "the service ends well");
    for store in lab.stores() {
        let first = sector_of(&store.device, &content(7, 1, length));
        let (name, mut next) = (store.name, first);
        let writes = &writes[name];
        for write in writes {
            assert_eq!(write.sector, next, "{name}: gap or overlap in {writes:?}");
            let bytes = u64::from(write.sectors) * SECTOR;
            assert_eq!(write.own_bytes, bytes, "{name}: wholly ours");
            next += u64::from(write.sectors);
        }
        let wanted = first + (length as u64 + TAIL) / SECTOR;
        assert_eq!(next, wanted, "{name}: not the end of the lump's portion");
    }
}

/// Eight clients put and get side by side.
async fn busy(url: &str, store: &str) {
    let mut tasks = Vec::new();
    for client in 0..8_u128 {
        let (url, store) = (url.to_owned(), store.to_owned());
        tasks.push(tokio::spawn(async move {
            let mut connection = Client::connect(&url).await.expect("the service is up");
            for round in 0..6_u64 {
                let key = client << 32 | u128::from(round);
                let length = (1 << 20) + usize::try_from(round).expect("small") * 300_001;
                let body = content(key, round, length);
                let put = connection.put(&store, key, body.clone()).await;
                put.expect("the put works");
                let back = connection.get(&store, key).await.expect("the get works");
                assert!(body == back[..], "{store}: wrong bytes");
            }
        }));
    }
    for task in tasks {
        task.await.expect("a client works");
    }
}

/// Requests and bytes of one operation over all owners.
fn total(report: &StoreReport, operation: &str) -> (u64, u64) {
    let block = report.block.as_ref().expect("an observed store has totals");
    let owners = block.owners.iter().filter(|it| it.operation == operation);
    owners.fold((0, 0), |(requests, bytes), owner| {
        (requests + owner.requests, bytes + owner.bytes)
    })
}

/// How often the whole is done again when the audit says that a completion went unseen: the kernel skips a probe now and then
/// on a busy machine (ebpf/README.md), and then there is nothing to compare.
const ATTEMPTS: usize = 5;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_clients_are_told_apart_and_an_independent_tracer_agrees() {
    let Some(_alone) = alone(NEEDS) else { return };
    for kind in StoreKind::ALL {
        let mut findings = Vec::new();
        while let Err(finding) = watched_by_two(kind).await {
            findings.push(finding);
            let name = kind.name();
            assert!(findings.len() < ATTEMPTS, "{name}: never: {findings:#?}");
        }
    }
}

/// Eight clients on one store, watched by the probes and by bpftrace. `Err`: the audit says that something went unseen.
async fn watched_by_two(kind: StoreKind) -> Result<(), String> {
    let lab = lab_with_stores(&[kind], 512 << 20, "300M");
    // Checked, it would write once more some time after the last put, perhaps between report and tracer.
    let service = Service::start(&lab, &["--commit", "ordered"]);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    let store = lab.store(kind).expect("it was asked for");
    let (before, tracer) = start_tracer(&mut client, store.name, store.devno).await;
    busy(&service.grpc, store.name).await;
    let after = client.report(store.name).await.expect("a report");
    let counted = tracer.finish().expect("bpftrace ends well");
    check_shares(store.name, &after);
    let audit = after.audit.as_ref().expect("an audit");
    let name = store.name;
    assert_eq!(audit.lost_events, 0, "{name}: the ring is large enough");
    if !audit.complete {
        return Err(audit.finding.clone());
    }
    for operation in ["read", "write"] {
        let (old, new) = (total(&before, operation), total(&after, operation));
        let ours = (new.0 - old.0, new.1 - old.1);
        assert!(ours.0 > 0, "{name}: no {operation} was seen at all");
        if counted.of(operation) != ours {
            // The tracer can miss a completion too; the kernel's own statistics agree with the probes.
            let theirs = counted.of(operation);
            let told = format!("{operation}: bpftrace {theirs:?}, probes {ours:?}");
            assert!(theirs.0 < ours.0, "{name}: {told}");
            return Err(told);
        }
    }
    Ok(())
}

/// The independent tracer's script.
fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../ebpf/bpftrace/block-count.bt")
}

/// Starts the tracer and takes a report such that no request of the device falls between the two.
async fn start_tracer(client: &mut Client, store: &str, devno: u64) -> (StoreReport, Tracer) {
    for _ in 0..5 {
        let before = client.report(store).await.expect("a report");
        let tracer = Tracer::start(&script(), major(devno), minor(devno)).expect("bpftrace counts");
        let again = client.report(store).await.expect("a report");
        if before.block == again.block {
            return (before, tracer);
        }
        tracer.finish().expect("bpftrace ends well");
    }
    panic!("{store}: the idle device is never quiet");
}

fn check_shares(store: &str, report: &StoreReport) {
    let block = report.block.as_ref().expect("an observed store has totals");
    let seen = block.own_bytes;
    let moved: u64 = report.operations.iter().map(|it| it.bytes).sum();
    assert!(seen >= moved, "{store}: {seen} bytes, {moved} were moved");
    let right = block.attributed_bytes + block.shared_bytes;
    let most = right * 100 >= seen * 99;
    assert!(most, "{store}: {right} of {seen} bytes are attributed");
}
