//! JuiceFS over S3 of the real service on a disk: its whole life, and what the disk did for it.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lumpscope_lab::disks::StoreKind;
use lumpscope_proto::v1::{BlockLine, ListSlowestRequest, SlowRequest, StoreReport, TraceRequest};
use lumpscope_tests::client::Client;
use lumpscope_tests::needs::{Need, alone, find_tool};
use lumpscope_tests::s3::key;
use lumpscope_tests::service::{Service, lab_with_stores, run_ok};
use lumpscope_tests::watching::Watching;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Fuse,
    Need::Tool("juicefs"),
    Need::Tool("fio"),
    Need::Tool("python3"),
    Need::Tool("unshare"),
];
const STORE: &str = "raw";
/// The access key of tests/juicefs, and its secret.
const ACCESS: &str = "AKJUICEFS";
const SECRET: &str = "a-secret-of-these-tests-only";
/// The bucket of tests/juicefs.
const BUCKET: &str = "jfs";
/// A lump's id says with this that it is the record of a bucket (docs/objects.md), or of a volume.
const RECORDS: [&str; 2] = ["533301", "533305"];
/// Longest time that the data of a deleted object may still be there.
const FREED_WITHIN: Duration = Duration::from_secs(10);
/// A block of a full object of JuiceFS, in bytes.
const BLOCK: u64 = 4 << 20;

/// A file of access keys with JuiceFS's: it may do everything with its bucket, and nothing else.
fn keys(folder: &Path) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join("keys.toml");
    let text = key(ACCESS, SECRET, &[(BUCKET, "", "[\"read\", \"write\"]")]);
    std::fs::write(&path, text).expect("a file can be written");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    path.to_str().expect("UTF-8").to_owned()
}

/// Format, mount, files compared, bench, fio, fsck, gc, destroy: tests/juicefs/run says what must be so.
fn one_round(service: &Service, work: &Path) {
    let juicefs = find_tool("juicefs").expect("it was found before");
    let tools = juicefs.parent().expect("a program lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("juicefs/run"))
        .args(["--service", &format!("http://{}", service.s3), "--work"])
        .arg(work)
        .env("PATH", format!("{}:{path}", tools.display()))
        .output()
        .expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", output.status);
    eprintln!("{said}");
}

/// JuiceFS's requests were counted under their methods, and answered.
fn counted(metrics: &str) {
    for method in [
        "s3_create_bucket",
        "s3_put_object",
        "s3_get_object",
        "s3_list_objects_v2",
        "s3_delete_object",
    ] {
        let line = format!(
            "lumpscope_requests_total{{store=\"{STORE}\",method=\"{method}\",code=\"OK\"}}"
        );
        assert!(metrics.contains(&line), "{line} is not in the metrics");
    }
}

/// Nearly every byte that the service asked of the disk belongs to a request.
fn attributed(report: &StoreReport) {
    assert!(report.observed, "{}", report.not_observed_because);
    let block = report.block.as_ref().expect("an observed store has totals");
    let right = block.attributed_bytes + block.shared_bytes;
    assert!(
        block.own_bytes > 0 && right * 1000 >= block.own_bytes * 999,
        "only {right} of {} bytes are attributed",
        block.own_bytes
    );
    eprintln!("{right} of {} bytes are attributed", block.own_bytes);
}

/// The slowest puts of whole blocks say where on the disk they were.
fn located(slowest: &[SlowRequest]) {
    let (mut full, mut with_seek) = (0, 0);
    let of_puts = |request: &&SlowRequest| request.method == "s3_put_object";
    for request in slowest.iter().filter(of_puts) {
        let data = request.blocks.iter().filter(|block| {
            block.operation == "write" && block.purpose == "data" && block.sector > 0
        });
        let bytes: u64 = data.clone().map(|block| block.own_bytes).sum();
        full += u32::from(bytes >= BLOCK);
        with_seek += u32::from(data.clone().any(|block| block.seek_bytes.is_some()));
    }
    let of = slowest.len();
    assert!(full > 0, "no put of a whole block among the {of} slowest");
    assert!(with_seek > 0, "no put among {of} has a seek distance");
    eprintln!("of the {of} slowest: {full} puts of whole blocks, {with_seek} with a seek distance");
}

/// Reads and writes were seen with the request they were made for, their place and the way there.
fn seen(lines: &[BlockLine]) {
    for operation in ["read", "write"] {
        let of: Vec<&BlockLine> = lines
            .iter()
            .filter(|line| line.operation == operation && !line.request_ids.is_empty())
            .collect();
        let bytes: u64 = of.iter().map(|line| u64::from(line.sectors) * 512).sum();
        let seeks = of.iter().filter(|line| line.seek_bytes.is_some()).count();
        assert!(
            bytes >= BLOCK && seeks > 0,
            "{operation}: {bytes} bytes, {seeks} distances of {} block requests",
            of.len()
        );
        eprintln!(
            "{operation}: {} block requests, {bytes} bytes, {seeks} distances",
            of.len()
        );
    }
}

/// Lumps that belong to an object.
fn left(service: &Service) -> Vec<String> {
    run_ok(&["list", STORE, "--server", &service.grpc])
        .lines()
        .filter(|line| !RECORDS.iter().any(|kind| line.starts_with(kind)))
        .map(str::to_owned)
        .collect()
}

/// Nothing of the volume is left: data is freed a moment after its object is gone.
fn nothing_left(service: &Service) {
    let until = Instant::now() + FREED_WITHIN;
    while !left(service).is_empty() {
        assert!(
            Instant::now() < until,
            "left of the volume: {:?}",
            left(service)
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_lives_on_a_disk_and_its_block_requests_are_known() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 1 << 30, "768M");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let keys = keys(folder.path());
    let more = ["--s3-listen", "127.0.0.1:0", "--s3-credentials", &keys];
    let service = Service::start(&lab, &more);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    let asked = TraceRequest {
        store: STORE.to_owned(),
        owner: "request".to_owned(),
        ..TraceRequest::default()
    };
    let watching = Watching::begin(&client, asked).await;
    tokio::task::block_in_place(|| one_round(&service, folder.path()));
    seen(&watching.end().await.lines);
    counted(&service.scrape());
    attributed(&client.report(STORE).await.expect("a report"));
    let wanted = ListSlowestRequest {
        store: STORE.to_owned(),
        limit: 1000,
        ..ListSlowestRequest::default()
    };
    let answer = client.observe().list_slowest(wanted).await;
    located(&answer.expect("the slowest").into_inner().requests);
    nothing_left(&service);
    assert!(service.stop());
}
