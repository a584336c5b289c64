//! Disks that hang, are gone or take no writes, under a service that goes on: real ones.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::process::Process;
use lumpscope_engine::create::{CreateOptions, format};
use lumpscope_needs::{LOOPS, Need, alone};
use lumpscope_proto::v1;
use rustix::process::Signal;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

const MIB: u64 = 1 << 20;
const LUMP: usize = 20_000;
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(120);

/// Runs a tool and returns its first line.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {said}");
    let told = String::from_utf8(output.stdout).unwrap();
    told.lines().next().unwrap_or_default().to_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn sparse(path: &Path, bytes: u64) {
    let file = std::fs::File::create(path).unwrap();
    file.set_len(bytes).unwrap();
}

/// A loop device over a file; detached on drop.
pub(crate) struct Loop {
    file: PathBuf,
    pub(crate) device: PathBuf,
}

impl Loop {
    pub(crate) fn over(file: PathBuf) -> Self {
        sparse(&file, 32 * MIB);
        let device = run("losetup", &["--find", "--show", text(&file)]).into();
        Self { file, device }
    }

    /// The device has the size of its file.
    pub(crate) fn resize(&self, bytes: u64) {
        let file = std::fs::File::options().write(true).open(&self.file);
        file.unwrap().set_len(bytes).unwrap();
        run("losetup", &["--set-capacity", text(&self.device)]);
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        run("losetup", &["--detach", text(&self.device)]);
    }
}

/// A file system of its own; thawed and unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    fn new(folder: &Path) -> Self {
        let (image, at) = (folder.join("ext4.img"), folder.join("mount"));
        sparse(&image, 64 * MIB);
        run("mkfs.ext4", &["-q", "-F", text(&image)]);
        std::fs::create_dir(&at).unwrap();
        run("mount", &["-o", "loop", text(&image), text(&at)]);
        Self(at)
    }

    /// Until [`thaw`](Self::thaw) no write to it ends.
    fn freeze(&self) {
        run("fsfreeze", &["--freeze", text(&self.0)]);
    }

    fn thaw(&self) {
        run("fsfreeze", &["--unfreeze", text(&self.0)]);
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // It is frozen only if the test has failed.
        let _ = Command::new("fsfreeze")
            .args(["--unfreeze", text(&self.0)])
            .output();
        run("umount", &[text(&self.0)]);
    }
}

async fn info(client: &mut Client, store: &str) -> v1::StoreInfo {
    let reply = client.list_stores(v1::ListStoresRequest {}).await.unwrap();
    let mut stores = reply.into_inner().stores.into_iter();
    stores.find(|info| info.name == store).unwrap()
}

/// Waits until the store is in this state, and looks at everything that shows it.
async fn until(service: &Process, client: &mut Client, state: v1::StoreState) -> v1::StoreInfo {
    let begun = Instant::now();
    loop {
        let told = info(client, "bad").await;
        if told.state() == state {
            let serves = state == v1::StoreState::Serving;
            let (status, health) = http_get(service.metrics, "/healthz").await;
            let code = if serves { 200 } else { 503 };
            assert_eq!(status, code, "{health}");
            let words = ["store bad does not serve", state.word()];
            let named = words.iter().all(|word| health.contains(word));
            assert_eq!(named, !serves, "{health}");
            assert_eq!(http_get(service.metrics, "/readyz").await.0, 200);
            let (_, metrics) = http_get(service.metrics, "/metrics").await;
            let series = |store, state: v1::StoreState, value| {
                let word = state.word();
                format!("lumpscope_store_state{{store=\"{store}\",state=\"{word}\"}} {value}.0")
            };
            assert!(metrics.contains(&series("bad", state, 1)), "{metrics}");
            assert!(metrics.contains(&series("good", v1::StoreState::Serving, 1)));
            assert_eq!(told.state_reason.is_empty(), serves, "{told:?}");
            let seen_ms = begun.elapsed().as_millis();
            shown(service, state).await;
            let (word, page_ms) = (state.word(), begun.elapsed().as_millis());
            println!(
                "{word}: told by stores, metrics and health after {seen_ms} ms, by the page after {page_ms}"
            );
            return told;
        }
        assert!(begun.elapsed() < EVENTUALLY, "{told:?}; {}", service.log());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The page and the health check of gRPC say so, too.
async fn shown(service: &Process, state: v1::StoreState) {
    let mut frames = web::Events::open(service.metrics, "", "").await;
    let serves = state == v1::StoreState::Serving;
    loop {
        let (_, frame) = frames.next().await.unwrap();
        let health = &frame["stores"]["bad"]["health"];
        if health["state"] == state.word() {
            // Errors of the last minutes fire when it serves again, too.
            let firing = health["firing"].as_array().unwrap();
            assert!(serves || !firing.is_empty(), "{health}");
            break;
        }
    }
    let mut health = HealthClient::new(channel(&service.grpc).await);
    // It is looked at four times a second.
    for (name, wanted) in [("store/bad", serves), ("store/good", true)] {
        let service = name.to_owned();
        let request = HealthCheckRequest { service };
        let mut watch = health.watch(request).await.unwrap().into_inner();
        loop {
            let told = watch.message().await.unwrap().unwrap();
            if (told.status() == ServingStatus::Serving) == wanted {
                break;
            }
        }
    }
}

async fn good_goes_on(client: &mut Client, id: u128) {
    put(client, "good", id, &body(id, LUMP)).await.unwrap();
    assert!(get(client, "good", id).await.unwrap() == body(id, LUMP));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_hangs_is_told_and_left_alone_until_it_answers() {
    let needs = [
        Need::LoopDevices,
        Need::Tool("mkfs.ext4"),
        Need::Tool("fsfreeze"),
    ];
    let Some(_alone) = alone(&needs) else { return };
    for backend in ["uring", "threads"] {
        let dir = folder();
        let mount = Mount::new(dir.path());
        let bad = store_file(&mount.0, "bad", 16 * MIB, 4096, 0.05);
        let good = store_file(dir.path(), "good", 16 * MIB, 4096, 0.05);
        let stores = [("bad", bad.as_path()), ("good", good.as_path())];
        let more = ["--io-timeout", "1", "--io-backend", backend];
        let mut service = Process::start(dir.path(), &stores, &more);
        let mut client = connect(&service.grpc).await;
        put(&mut client, "bad", 1, &body(1, LUMP)).await.unwrap();
        mount.freeze();
        let mut other = connect(&service.grpc).await;
        let hangs = tokio::spawn(async move { put(&mut other, "bad", 2, &body(2, LUMP)).await });
        let told = until(&service, &mut client, v1::StoreState::Failed).await;
        assert!(told.failed.contains("has not ended within 1 s"), "{told:?}");
        let words = ["\"bad\"", "out of service", "has not ended within 1 s"];
        refused(get(&mut client, "bad", 1).await, Code::Unavailable, &words);
        let third = put(&mut client, "bad", 3, &body(3, LUMP)).await;
        refused(third, Code::Unavailable, &words);
        good_goes_on(&mut client, 1).await;
        assert!(!hangs.is_finished());
        mount.thaw();
        hangs.await.unwrap().unwrap();
        until(&service, &mut client, v1::StoreState::Serving).await;
        put(&mut client, "bad", 3, &body(3, LUMP)).await.unwrap();
        for id in 1..=3 {
            assert!(get(&mut client, "bad", id).await.unwrap() == body(id, LUMP));
        }
        service.signal(Signal::TERM);
        assert!(service.ended(EVENTUALLY).success(), "{}", service.log());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_is_gone_is_told_and_served_again_when_it_is_back() {
    let Some(_alone) = alone(LOOPS) else { return };
    let dir = folder();
    let disk = Loop::over(dir.path().join("lumpscope-bad.img"));
    format(&disk.device, &CreateOptions::default()).unwrap();
    let good = store_file(dir.path(), "good", 16 * MIB, 4096, 0.05);
    let stores = [("bad", disk.device.as_path()), ("good", good.as_path())];
    let mut service = Process::start(dir.path(), &stores, &[]);
    let mut client = connect(&service.grpc).await;
    for id in 1..=3 {
        put(&mut client, "bad", id, &body(id, LUMP)).await.unwrap();
    }
    // As the kernel does with a disk that is pulled out.
    let bytes = std::fs::read(&disk.file).unwrap();
    disk.resize(0);
    get(&mut client, "bad", 1).await.unwrap_err();
    until(&service, &mut client, v1::StoreState::Gone).await;
    let words = ["\"bad\"", "out of service"];
    refused(get(&mut client, "bad", 1).await, Code::Unavailable, &words);
    good_goes_on(&mut client, 1).await;
    std::fs::write(&disk.file, &bytes).unwrap();
    disk.resize(32 * MIB);
    until(&service, &mut client, v1::StoreState::Serving).await;
    for id in 1..=3 {
        assert!(get(&mut client, "bad", id).await.unwrap() == body(id, LUMP));
    }
    put(&mut client, "bad", 4, &body(4, LUMP)).await.unwrap();
    // Gone again, with a put that fails: what the journal holds is uncertain then.
    disk.resize(0);
    let fifth = put(&mut client, "bad", 5, &body(5, LUMP)).await;
    fifth.unwrap_err();
    until(&service, &mut client, v1::StoreState::Gone).await;
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success(), "{}", service.log());
}

/// A device that the kernel lets nobody write to. It would stay so for whoever gets its number next.
struct ReadOnly<'a>(&'a Path);

impl<'a> ReadOnly<'a> {
    fn set(device: &'a Path) -> Self {
        run("blockdev", &["--setro", text(device)]);
        Self(device)
    }
}

impl Drop for ReadOnly<'_> {
    fn drop(&mut self) {
        let _ = Command::new("blockdev").arg("--setrw").arg(self.0).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_device_is_read_only_from_the_start() {
    let Some(_alone) = alone(&[Need::LoopDevices, Need::Tool("blockdev")]) else {
        return;
    };
    let dir = folder();
    let disk = Loop::over(dir.path().join("lumpscope-bad.img"));
    format(&disk.device, &CreateOptions::default()).unwrap();
    let good = store_file(dir.path(), "good", 16 * MIB, 4096, 0.05);
    let stores = [("bad", disk.device.as_path()), ("good", good.as_path())];
    let mut service = Process::start(dir.path(), &stores, &[]);
    let mut client = connect(&service.grpc).await;
    put(&mut client, "bad", 1, &body(1, LUMP)).await.unwrap();
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success(), "{}", service.log());
    let _read_only = ReadOnly::set(&disk.device);
    let mut service = Process::start(dir.path(), &stores, &[]);
    let mut client = connect(&service.grpc).await;
    let told = until(&service, &mut client, v1::StoreState::ReadOnly).await;
    assert!(told.state_reason.contains("blockdev --setrw"), "{told:?}");
    assert!(get(&mut client, "bad", 1).await.unwrap() == body(1, LUMP));
    let late = put(&mut client, "bad", 2, &body(2, LUMP)).await;
    refused(late, Code::FailedPrecondition, &["read-only"]);
    good_goes_on(&mut client, 1).await;
    service.signal(Signal::TERM);
    assert!(service.ended(EVENTUALLY).success(), "{}", service.log());
}
