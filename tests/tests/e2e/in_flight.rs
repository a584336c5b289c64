//! Many lumps in flight at a time: whose sectors they are is said by the sectors.
//!
//! Every sector of a lump carries the lump's id, so the disk itself tells which lump each block
//! request has written or read; what the probes say is held against that, byte by byte.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use bytes::Bytes;
use lumpscope_lab::disks::StoreKind;
use lumpscope_proto::v1::{BlockLine, GetRequest, get_response};
use lumpscope_tests::client::{Client, id};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, lab_with_stores};
use lumpscope_tests::watching::{TraceItems, Watching};
use rustix::fs::OFlags;
use tokio::task::JoinSet;

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("mkfs.xfs")];
const SECTOR: usize = 512;
/// Marks a sector of a lump.
const MARK: &[u8; 8] = b"LUMPSECT";
/// Clients: more than the engine has I/Os in flight.
const CLIENTS: u64 = 48;
const LUMPS_PER_CLIENT: u64 = 2;
/// Bytes that must be tied to the right request, of a million.
const RIGHT_PER_MILLION: u64 = 999_000;
/// Bytes read from the device at a time, and the alignment of where they go.
const CHUNK: usize = 1 << 20;
const ALIGNMENT: usize = 4096;

/// Bodies of 1 to 4 MiB whose every sector says whose it is.
fn body(key: u64) -> Bytes {
    let sectors = (1 << 20) / SECTOR + usize::try_from(key * 331 % 6144).expect("small");
    let mut bytes = vec![0; sectors * SECTOR];
    for (number, sector) in bytes.chunks_mut(SECTOR).enumerate() {
        sector[..8].copy_from_slice(MARK);
        sector[8..16].copy_from_slice(&key.to_le_bytes());
        sector[16..24].copy_from_slice(&(number as u64).to_le_bytes());
    }
    bytes.into()
}

/// Which lump each sector of the device belongs to; 0: none.
fn owners(device: &Path) -> Vec<u64> {
    // Past the cache of the device, which may still hold what was there before beside a block that
    // the file system keeps.
    let direct = i32::try_from(OFlags::DIRECT.bits()).expect("a flag");
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(direct)
        .open(device)
        .expect("root may read its loop device");
    let mut owners = Vec::new();
    let mut room = vec![0; CHUNK + ALIGNMENT];
    let start = room.as_ptr().align_offset(ALIGNMENT);
    let chunk = &mut room[start..start + CHUNK];
    loop {
        let at = owners.len() * SECTOR;
        let count = file
            .read_at(chunk, at as u64)
            .expect("the device can be read");
        if count == 0 {
            return owners;
        }
        for sector in chunk[..count].chunks(SECTOR) {
            let stamped = sector.len() == SECTOR && sector[..8] == MARK[..];
            let key = sector[8..16].try_into().map_or(0, u64::from_le_bytes);
            owners.push(if stamped { key } else { 0 });
        }
    }
}

/// Puts all lumps, and then gets them, by many clients at a time: request id -> lump.
async fn busy(url: &str, store: &str) -> BTreeMap<u64, u64> {
    let mut requests = BTreeMap::new();
    for putting in [true, false] {
        let mut tasks = JoinSet::new();
        for number in 0..CLIENTS {
            let (url, store) = (url.to_owned(), store.to_owned());
            tasks.spawn(async move {
                let mut client = Client::connect(&url).await.expect("the service is up");
                let mut mine = Vec::new();
                for round in 0..LUMPS_PER_CLIENT {
                    let key = 1 + number * LUMPS_PER_CLIENT + round;
                    let request = if putting {
                        put(&mut client, &store, key).await
                    } else {
                        get(&mut client, &store, key).await
                    };
                    mine.push((request, key));
                }
                mine
            });
        }
        while let Some(mine) = tasks.join_next().await {
            requests.extend(mine.expect("a client works"));
        }
    }
    requests
}

async fn put(client: &mut Client, store: &str, key: u64) -> u64 {
    let reply = client.put(store, u128::from(key), body(key)).await;
    reply.expect("the put works").request_id
}

async fn get(client: &mut Client, store: &str, key: u64) -> u64 {
    let request = GetRequest {
        store: store.to_owned(),
        id: Some(id(u128::from(key))),
        ..GetRequest::default()
    };
    let reply = client.raw().get(request).await.expect("the get works");
    let (mut stream, mut request_id, mut bytes) = (reply.into_inner(), 0, Vec::new());
    while let Some(message) = stream.message().await.expect("the get works") {
        match message.part.expect("a part") {
            get_response::Part::Header(header) => request_id = header.request_id,
            get_response::Part::Chunk(chunk) => bytes.extend_from_slice(&chunk),
        }
    }
    assert!(bytes == body(key)[..], "wrong bytes");
    request_id
}

/// Bytes of a block of the stores.
const BLOCK: u64 = 4096;

/// Bytes of lumps in block requests, and those of them whose request is the right one.
#[derive(Debug, Default)]
struct Judged {
    bytes: u64,
    right: u64,
}

fn judge(lines: &[BlockLine], owners: &[u64], requests: &BTreeMap<u64, u64>) -> Judged {
    let mut judged = Judged::default();
    for line in lines.iter().filter(|line| line.sectors > 0) {
        let lumps: Vec<u64> = line
            .request_ids
            .iter()
            .filter_map(|request| requests.get(request).copied())
            .collect();
        let from = usize::try_from(line.sector).expect("a small device");
        let to = from + usize::try_from(line.sectors).expect("32 bits");
        for owner in owners[from..to].iter().filter(|owner| **owner != 0) {
            judged.bytes += SECTOR as u64;
            judged.right += if lumps.contains(owner) {
                SECTOR as u64
            } else {
                0
            };
        }
    }
    judged
}

/// Most block requests that were under way at one time.
fn most_in_flight(lines: &[BlockLine]) -> usize {
    let mut steps: Vec<(i64, i32)> = Vec::new();
    for line in lines {
        let (Some(queue), Some(device)) = (line.queue_ns, line.device_ns) else {
            continue;
        };
        let begin = line.done_unix_ns - i64::try_from(queue + device).expect("small");
        steps.extend([(begin, 1), (line.done_unix_ns, -1)]);
    }
    steps.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    usize::try_from(most).expect("never below 0")
}

fn says_that_it_has_an_arm(device: &Path) {
    let name = device.file_name().expect("a device").display();
    std::fs::write(format!("/sys/block/{name}/queue/rotational"), "1").expect("root may");
}

async fn told_apart(kind: StoreKind, backend: &str) {
    let lab = lab_with_stores(&[kind], 1 << 30, "700M");
    let store = lab.store(kind).expect("it was asked for");
    // A disk with an arm gets all that a store may have in flight, any other a few MiB at a time. A
    // store in a file knows of no arm.
    let least = if kind == StoreKind::Raw { 24 } else { 8 };
    says_that_it_has_an_arm(&store.device);
    let mut args = vec!["--io-backend", backend, "--commit", "runs"];
    args.extend(["--put-memory", "512M", "--get-memory", "512M"]);
    let service = Service::start(&lab, &args);
    let client = Client::connect(&service.grpc)
        .await
        .expect("the service is up");
    let watching = Watching::of_store(&client, store.name).await;
    let requests = busy(&service.grpc, store.name).await;
    let TraceItems {
        lines,
        incomplete,
        was_incomplete,
    } = watching.end().await;
    let judged = judge(&lines, &owners(&store.device), &requests);
    let lumps: u64 = (1..=CLIENTS * LUMPS_PER_CLIENT)
        .map(|key| body(key).len() as u64)
        .sum();
    let most = most_in_flight(&lines);
    eprintln!(
        "{} by {backend}: {} of {} bytes right, {} block requests, at most {most} under way; {incomplete}",
        store.name,
        judged.right,
        judged.bytes,
        lines.len()
    );
    // As many slots as the engine has, but for the moments in which a get sends what it has read.
    assert!(
        most >= least,
        "{}: only {most} were under way at a time",
        store.name
    );
    // Put once and got once each; the last block of a lump, which has its checksums, is read first
    // and once more with its last piece. What an audit misses is missing here, too, and is said.
    if !was_incomplete {
        let whole = 2 * lumps..=2 * lumps + CLIENTS * LUMPS_PER_CLIENT * BLOCK;
        assert!(
            whole.contains(&judged.bytes),
            "{}: {} bytes in block requests are none of {whole:?}",
            store.name,
            judged.bytes
        );
    }
    assert!(
        judged.right * 1_000_000 >= judged.bytes * RIGHT_PER_MILLION,
        "{} by {backend}: only {} of {} bytes are tied to the right request",
        store.name,
        judged.right,
        judged.bytes
    );
    assert!(
        judged.bytes >= lumps,
        "{}: hardly anything was seen",
        store.name
    );
    let mut client = client;
    let report = client.report(store.name).await.expect("a report");
    let audit = report.audit.expect("an observed store has an audit");
    assert_eq!(audit.conflicts, 0, "{} by {backend}: {audit:?}", store.name);
    assert!(service.stop(), "the service ends well");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_tied_to_the_right_request_with_io_uring() {
    let Some(_alone) = alone(NEEDS) else { return };
    for kind in StoreKind::ALL {
        told_apart(kind, "uring").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_tied_to_the_right_request_with_threads() {
    let Some(_alone) = alone(NEEDS) else { return };
    for kind in StoreKind::ALL {
        told_apart(kind, "threads").await;
    }
}
