//! Every single seek distance, held against an independent tracer that writes down what the disk was sent.

use std::io::Write as _;

use lumpscope_lab::disks::StoreKind;
use lumpscope_lab::tracer::Tracer;
use lumpscope_proto::v1::BlockLine;
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, lab_with_stores};
use lumpscope_tests::watching::{TraceItems, Watching};
use rustix::fs::{major, minor};

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    Need::Tool("bpftrace"),
];
/// One line a request that is sent to the disk: time, first sector, sectors, what it is.
const SCRIPT: &str = r#"BEGIN { printf("ready\n"); }
tracepoint:block:block_rq_issue /args->dev == (((uint64)$1 << 20) | (uint64)$2)/ {
    printf("issue %llu %llu %u %s\n", nsecs, args->sector, args->nr_sector, args->rwbs);
}
"#;
/// How often the whole is done again when one of the two says, or shows, that it was not shown everything.
const ATTEMPTS: usize = 5;
const LUMPS: u64 = 24;

/// A read or write as the disk was sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sent {
    at: i128,
    sector: u64,
    sectors: u64,
    /// In bytes, from the end of the one before; the first has none.
    seek: Option<i64>,
}

/// Requests recorded by bpftrace, in the order of time, with the distances that follow from them.
fn independent(text: &str) -> Vec<Sent> {
    let mut all: Vec<Sent> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.strip_prefix("issue ")?.split(' ');
            let mut number = || words.next()?.parse::<u64>().ok();
            let (at, sector, sectors) = (number()?, number()?, number()?);
            let kind = words.next()?;
            let data = sectors > 0 && (kind.starts_with('R') || kind.starts_with('W'));
            data.then_some(Sent {
                at: i128::from(at),
                sector,
                sectors,
                seek: None,
            })
        })
        .collect();
    all.sort_by_key(|sent| sent.at);
    for index in 1..all.len() {
        let end = all[index - 1].sector + all[index - 1].sectors;
        let distance = i128::from(all[index].sector) - i128::from(end);
        all[index].seek = Some(i64::try_from(distance * 512).expect("a small disk"));
    }
    all
}

/// Requests seen by the probes.
fn ours(lines: &[BlockLine]) -> Vec<Sent> {
    let data = |line: &&BlockLine| matches!(line.operation.as_str(), "read" | "write");
    let mut all: Vec<Sent> = lines
        .iter()
        .filter(data)
        .map(|line| Sent {
            at: i128::from(line.done_unix_ns) - i128::from(line.device_ns.unwrap_or(0)),
            sector: line.sector,
            sectors: u64::from(line.sectors),
            seek: line.seek_bytes,
        })
        .collect();
    all.sort_by_key(|sent| sent.at);
    all
}

/// One client, one lump after the other: the disk is sent one thing at a time.
async fn work(client: &mut Client, store: &str) {
    for number in 0..LUMPS {
        let key = u128::from(number * 7 % LUMPS);
        let length = (1 << 20) + usize::try_from(number % 5).expect("small") * 700_001;
        client
            .put(store, key, content(key, 1, length))
            .await
            .expect("the put works");
    }
    for number in 0..LUMPS {
        let key = u128::from(number * 11 % LUMPS);
        client.get(store, key).await.expect("the get works");
    }
}

/// `Err`: one of the two was not shown everything, so there is nothing to compare.
async fn compared(kind: StoreKind) -> Result<usize, String> {
    let lab = lab_with_stores(&[kind], 512 << 20, "200M");
    let service = Service::start(&lab, &[]);
    let mut client = Client::connect(&service.grpc)
        .await
        .expect("the service is up");
    let store = lab.store(kind).expect("it was asked for");
    let mut script = tempfile::NamedTempFile::new().expect("a file for the script");
    script
        .write_all(SCRIPT.as_bytes())
        .expect("the script is written");
    let tracer = Tracer::start(script.path(), major(store.devno), minor(store.devno))
        .expect("bpftrace writes down");
    let watching = Watching::of_store(&client, store.name).await;
    work(&mut client, store.name).await;
    let TraceItems {
        lines, incomplete, ..
    } = watching.end().await;
    let theirs = independent(&tracer.finish_text().expect("bpftrace ends well"));
    let ours = ours(&lines);
    if !incomplete.is_empty() {
        return Err(incomplete);
    }
    let first = ours.first().expect("something was done");
    let place = |sent: &Sent| (sent.sector, sent.sectors);
    let from = theirs.iter().position(|sent| place(sent) == place(first));
    let from = from.ok_or("bpftrace was not shown the first")?;
    let theirs = &theirs[from..];
    if theirs.len() < ours.len() {
        return Err(format!(
            "bpftrace was shown {} of {}",
            theirs.len(),
            ours.len()
        ));
    }
    for (index, (our, their)) in ours.iter().zip(theirs).enumerate().skip(1) {
        assert_eq!(
            (place(our), our.seek),
            (place(their), their.seek),
            "{}: request {index} of {}",
            store.name,
            ours.len()
        );
    }
    assert!(service.stop(), "the service ends well");
    Ok(ours.len())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_seek_distance_is_that_of_an_independent_tracer() {
    let Some(_alone) = alone(NEEDS) else { return };
    for kind in StoreKind::ALL {
        let mut findings = Vec::new();
        let count = loop {
            match compared(kind).await {
                Ok(count) => break count,
                Err(finding) => findings.push(finding),
            }
            assert!(findings.len() < ATTEMPTS, "{}: {findings:#?}", kind.name());
        };
        assert!(
            count as u64 > 2 * LUMPS,
            "{}: {count} requests",
            kind.name()
        );
        eprintln!("{}: {count} distances are equal", kind.name());
    }
}
