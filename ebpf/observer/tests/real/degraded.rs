//! Unobservable stores are reported with the reason; everything else goes on.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lumpscope_observer::{Level, ObjectSource, Observer, ObserverOptions, Tuning, WatchedStore};

use crate::support::{LoopDevice, Watched, ready, sh};

fn observe(path: &Path) -> Observer {
    Observer::start(ObserverOptions {
        stores: vec![WatchedStore {
            name: "it".to_owned(),
            path: path.to_owned(),
            guard: lumpscope_observer::GuardPolicy::Off,
        }],
        enabled: true,
        ..ObserverOptions::default()
    })
}

fn why_not(observer: &Observer) -> String {
    let status = observer.store_status("it").expect("it");
    assert!(!status.observed && status.mode == "none", "{status:?}");
    let report = observer.report("it").expect("it");
    assert!(!report.audit.complete && report.not_observed_because == status.why_not);
    status.why_not
}

#[test]
fn a_file_in_memory_has_no_disk() {
    let Some(_one) = ready() else { return };
    let file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file in memory");
    let why = why_not(&observe(file.path()));
    let words = "is on tmpfs, which does not say on which disk";
    assert!(why.contains(words), "{why}");
}

#[test]
fn a_missing_object_is_named() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(1 << 20);
    let observer = Observer::start(ObserverOptions {
        stores: vec![WatchedStore {
            name: "it".to_owned(),
            path: device.path.clone(),
            guard: lumpscope_observer::GuardPolicy::Off,
        }],
        object: ObjectSource::Path(PathBuf::from("/nowhere/probes.o")),
        enabled: true,
        tuning: Tuning::default(),
    });
    let why = why_not(&observer);
    assert!(why.contains("/nowhere/probes.o"), "{why}");
}

#[test]
fn switched_off_means_off() {
    let observer = Observer::start(ObserverOptions {
        stores: vec![WatchedStore {
            name: "it".to_owned(),
            path: PathBuf::from("/dev/null"),
            guard: lumpscope_observer::GuardPolicy::Off,
        }],
        ..ObserverOptions::default()
    });
    assert_eq!(why_not(&observer), "the probes are switched off");
    assert!(observer.store_status("other").is_none());
}

#[test]
fn a_partition_is_observed_on_its_disk() {
    let Some(_one) = ready() else { return };
    let device = LoopDevice::new(64 << 20);
    let path = device.path.to_str().expect("UTF-8");
    let table = Command::new("sh")
        .args([
            "-c",
            &format!("echo 'label: gpt\nstart=4096,size=65536' | sfdisk -q --no-reread {path}"),
        ])
        .status();
    assert!(table.expect("sfdisk").success());
    sh("partx", &["-u", path]);
    let it = Watched::new(Path::new(&format!("{path}p1")), Tuning::default());
    it.request(1, "put", 4096, || it.write(1, 1 << 20, 4096));
    let report = it.report();
    assert_eq!(format!("/dev/{}", report.device), path);
    assert_eq!(report.block.attributed_bytes, 4096, "{:?}", report.block);
    assert_eq!(report.slowest[0].blocks[0].sector, 4096 + 2048);
    drop(it);
    sh("partx", &["-d", path]);
}

#[test]
fn doctor_finds_root_in_good_health() {
    let Some(_one) = ready() else { return };
    let findings = Observer::doctor();
    let probes = findings
        .iter()
        .find(|f| f.topic == "probes")
        .expect("a trial");
    // Before 5.19 the hook of io_uring does not name its request: only the cross-check is missing.
    let all_but_submit = probes.level == Level::Degraded
        && probes.found.contains("submit_")
        && !["start_", "issue_", "done_"]
            .iter()
            .any(|p| probes.found.contains(p));
    assert!(
        probes.level == Level::Good || all_but_submit,
        "{findings:#?}"
    );
    // `./dev kernels` shows it.
    eprintln!("probes: {}", probes.found);
}

/// Runs the next test, and it alone, as nobody.
#[test]
fn without_privileges_nothing_breaks() {
    let Some(_one) = ready() else { return };
    let dir = tempfile::Builder::new()
        .prefix("lumpscope-")
        .tempdir_in("/var/tmp")
        .expect("dir");
    let everybody = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(dir.path(), everybody).expect("permissions");
    let program = dir.path().join("tests");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    let out = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&program)
        .args(["--exact", "degraded::as_nobody", "--ignored"])
        .current_dir("/")
        .output()
        .expect("setpriv");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "run by without_privileges_nothing_breaks"]
fn as_nobody() {
    let file = tempfile::NamedTempFile::new_in("/var/tmp").expect("a file on a disk");
    let observer = observe(file.path());
    let why = why_not(&observer);
    assert!(why.contains("lumpscope doctor"), "{why}");
    assert!(!why.contains('\n'), "short enough to read: {why}");
    assert!(why.len() < 600, "short enough to read: {why}");
    let findings = Observer::doctor();
    let level = |topic: &str| findings.iter().find(|f| f.topic == topic).map(|f| f.level);
    assert_eq!(level("capabilities"), Some(Level::Missing));
    assert_eq!(level("probes"), Some(Level::Missing));
}
