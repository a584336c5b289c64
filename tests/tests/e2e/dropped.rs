//! A service that has given up its privileges still serves a raw device, and still says what the disk did.

use std::collections::BTreeSet;
use std::process::Command;

use lumpscope_lab::disks::StoreKind;
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{Service, lab_with_stores, run};

const NEEDS: &[Need] = &[Need::Root, Need::Tool("mkfs.ext4"), Need::Tool("mkfs.xfs")];
/// An unprivileged user and group that need no entry in the user database.
const STRANGER: &str = "4000000:4000001";

/// Ids of the BPF programs that a process holds; of all processes when `pid` is `*`.
fn programs(pid: &str) -> BTreeSet<String> {
    let script = format!("grep -hs '^prog_id:' /proc/{pid}/fdinfo/*");
    let output = Command::new("sh").args(["-c", &script]).output();
    let ids = output.expect("sh runs").stdout;
    let ids = String::from_utf8_lossy(&ids).into_owned();
    ids.lines().map(str::to_owned).collect()
}

/// A bpffs of the test's own; unmounted when dropped.
struct Bpffs(tempfile::TempDir);

impl Bpffs {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a mount point");
        let mut mount = Command::new("mount");
        mount.args(["-t", "bpf", "bpf"]).arg(dir.path());
        assert!(mount.status().expect("mount runs").success());
        Self(dir)
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        // What stays mounted says so when its folder cannot be removed.
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Lines of every thread's status that say what it may do; workers of the kernel left out.
fn threads(pid: u32) -> Vec<String> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("the service runs");
    let statuses = tasks.filter_map(|task| {
        let folder = task.ok()?.path();
        std::fs::read_to_string(folder.join("status")).ok()
    });
    let of_kernel = |status: &String| status.starts_with("Name:\tiou-wrk-");
    statuses.filter(|status| !of_kernel(status)).collect()
}

/// No thread can do anything that an ordinary user cannot, as /proc and `lumpscope doctor` say.
fn nothing_is_held(pid: u32) {
    let all = threads(pid);
    assert!(all.len() > 4, "{all:?}");
    for status in &all {
        for line in [
            "Uid:\t4000000\t4000000\t4000000\t4000000",
            "Gid:\t4000001\t4000001\t4000001\t4000001",
            "CapPrm:\t0000000000000000",
            "CapEff:\t0000000000000000",
            "CapBnd:\t0000000000000000",
            "NoNewPrivs:\t1",
        ] {
            let has = status.lines().any(|one| one == line);
            assert!(has, "{line} is not in {status}");
        }
    }
    let doctor = run(&["doctor", "--json", "--pid", &pid.to_string()]);
    let findings: Vec<serde_json::Value> =
        serde_json::from_slice(&doctor.stdout).expect("doctor prints JSON");
    let mut findings = findings.iter();
    let held = findings.find(|it| it["topic"] == "privileges held");
    let held = held.expect("doctor says what is held");
    assert_eq!(held["level"], "good", "{held}");
    assert_eq!(held["found"], "none", "{held}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_served_and_attributed_after_the_drop() {
    let Some(_alone) = alone(NEEDS) else { return };
    // First: a lab sees what was mounted before it.
    let bpffs = Bpffs::new();
    let lab = lab_with_stores(&StoreKind::ALL, 512 << 20, "300M");
    let pins = bpffs.0.path().join("pins");
    let pinned = || std::fs::read_dir(&pins).expect("a folder").count();
    let folder = pins.to_str().expect("UTF-8");
    let service = Service::start(&lab, &["--user", STRANGER, "--pin-maps", folder]);
    assert_eq!(pinned(), 4, "the maps are pinned");
    let pid = service.pid();
    let attached = programs(&pid.to_string());
    assert!(attached.len() >= 3, "they are not attached: {attached:?}");
    nothing_is_held(pid);
    let mut client = Client::connect(&service.grpc).await.expect("it is up");
    let length = 1 << 20;
    for store in lab.stores() {
        for id in 1..=20 {
            let put = client.put(store.name, id, content(id, 1, length)).await;
            put.expect("a put after the drop");
            let got = client.get(store.name, id).await;
            let got = got.expect("a get after the drop");
            assert!(got == content(id, 1, length), "lump {id} of {}", store.name);
        }
        let report = client.report(store.name).await.expect("a report");
        let name = store.name;
        assert!(report.observed, "{name}: {}", report.not_observed_because);
        let put = report.slowest.iter().find(|it| it.method == "put");
        let put = put.expect("puts were made");
        let mut data = put.blocks.iter().filter(|block| block.purpose == "data");
        assert!(data.clone().count() > 0, "{name}: {put:?}");
        assert!(data.all(|block| block.own_bytes > 0), "{name}: {put:?}");
        let audit = report.audit.expect("an audit");
        // Both sides were read: the kernel's statistics, and the probes' maps.
        let (seen, counted) = (audit.seen_requests, audit.kernel_requests);
        let enough = counted >= 60 && seen >= counted - counted / 10;
        assert!(enough, "{name}: {}", audit.finding);
    }
    nothing_is_held(pid);
    assert!(service.stop(), "the service ends well");
    let found = pinned();
    assert_eq!(found, 0, "the maps are unpinned, in the folder of the user");
    let left: BTreeSet<String> = programs("*").intersection(&attached).cloned().collect();
    assert!(left.is_empty(), "the probes are still loaded: {left:?}");
}
