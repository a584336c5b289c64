//! `lumpscope lab` and `lumpscope load` as a user starts them: stores that are really served and used, of which nothing
//! is left, however the end comes.

use std::process::Command;
use std::time::{Duration, Instant};

use lumpscope_tests::needs::{Need, alone};
use lumpscope_tests::service::{LISTEN, Service, binary};
use serde_json::Value;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    Need::Tool("losetup"),
];
/// Everything that must happen at some time happens within this.
const EVENTUALLY: Duration = Duration::from_secs(60);

fn lab() -> Service {
    let mut command = Command::new(binary());
    command.args(["lab", "--size", "512M", "--"]);
    command.args(LISTEN);
    Service::spawn(command)
}

/// Output of a short run of `lumpscope load`, and its exit code.
fn load(server: &str, more: &[&str]) -> (Value, Option<i32>) {
    let output = Command::new(binary())
        .args(["load", "--json", "--lumps", "12", "--server", server])
        .args(more)
        .output()
        .expect("lumpscope starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let said = serde_json::from_str(&said).unwrap_or_default();
    (said, output.status.code())
}

/// Loop devices whose images a process of this id has made.
fn devices_of(pid: u32) -> usize {
    let name = format!("lumpscope-{pid}-");
    let output = Command::new("losetup")
        .arg("--all")
        .output()
        .expect("losetup");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines().filter(|line| line.contains(&name)).count()
}

fn until_gone(pid: u32) {
    let begun = Instant::now();
    while devices_of(pid) > 0 {
        assert!(begun.elapsed() < EVENTUALLY, "loop devices are left");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn lumps(service: &Service) -> Vec<String> {
    let text = service.scrape();
    let wanted = |line: &&str| line.starts_with("lumpscope_store_lumps{");
    text.lines().filter(wanted).map(str::to_owned).collect()
}

#[test]
fn three_stores_are_served_and_loaded_and_vanish() {
    let Some(_alone) = alone(NEEDS) else { return };
    let service = lab();
    let pid = service.pid();
    assert_eq!(devices_of(pid), 3);
    let (said, code) = load(&service.grpc, &["--seconds", "3"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said["puts"].as_u64() > Some(0) && said["gets"].as_u64() > Some(0));
    assert_eq!(
        (&said["failed"], &said["wrong"]),
        (&0.into(), &0.into()),
        "{said}"
    );
    for verb in ["put", "get"] {
        let names = ["p50_ns", "p90_ns", "p99_ns", "p999_ns", "max_ns"];
        let latency = names.map(|name| said["latency"][verb][name].as_u64());
        assert!(latency[0] > Some(0) && latency.is_sorted(), "{said}");
    }
    for store in ["raw", "ext4", "xfs"] {
        let empty = format!("lumpscope_store_lumps{{store=\"{store}\"}} 0");
        let left = lumps(&service);
        assert!(left.iter().any(|line| line.starts_with(&empty)), "{left:?}");
    }
    let (_, code) = load(
        &service.grpc,
        &["--seconds", "1", "--store", "raw", "--keep"],
    );
    assert_eq!(code, Some(0));
    let (_, code) = load(&service.grpc, &["--store", "other"]);
    assert_eq!(code, Some(3), "there is no such store");
    assert!(service.stop(), "an orderly end is a success");
    until_gone(pid);
}

#[test]
fn a_lab_that_is_killed_leaves_nothing() {
    let Some(_alone) = alone(NEEDS) else { return };
    let service = lab();
    let pid = service.pid();
    assert_eq!(devices_of(pid), 3);
    service.kill9();
    until_gone(pid);
}

/// As the demo of docker-compose.yml: without the right to mount.
#[test]
fn the_raw_store_alone_needs_no_mounts() {
    let Some(_alone) = alone(&[Need::Root, Need::Tool("losetup"), Need::Tool("setpriv")]) else {
        return;
    };
    let keep = "-all,+bpf,+perfmon,+mknod,+kill,+setuid,+setgid,+setpcap";
    let with = |stores: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--no-new-privs", "--bounding-set", keep, "--inh-caps", keep]);
        command.arg(binary()).arg("lab").args(stores);
        command.args(["--size", "512M", "--", "--user", "65534:65534"]);
        command.args(LISTEN);
        command
    };
    let refused = with(&["--only", "ext4"]).output().expect("setpriv starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("CAP_SYS_ADMIN"), "{said}");

    let service = Service::spawn(with(&["--only", "raw"]));
    let pid = service.pid();
    assert_eq!(devices_of(pid), 1);
    let observed = |line: &str| {
        line.starts_with("lumpscope_probe_attached{store=\"raw\"") && line.ends_with(" 1.0")
    };
    let text = service.scrape();
    assert!(text.lines().any(observed), "{text}");
    let (said, code) = load(&service.grpc, &["--seconds", "1"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(service.stop(), "an orderly end is a success");
    until_gone(pid);
}
