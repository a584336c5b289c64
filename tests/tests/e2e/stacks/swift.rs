//! OpenStack Swift with a Lumpscope store on each disk: what was acknowledged outlives what breaks.

use std::path::Path;
use std::process::Command;

use lumpscope_tests::needs::{Need, alone, find_tool};
use lumpscope_tests::service::binary;

const NEEDS: &[Need] = &[
    Need::LoopDevices,
    Need::Tool("swift-python"),
    Need::Tool("memcached"),
    Need::Tool("unshare"),
];

#[test]
fn a_cluster_of_swift_outlives_its_disks() {
    let Some(_alone) = alone(NEEDS) else { return };
    let python = find_tool("swift-python").expect("it was found before");
    let tools = python.parent().expect("a program lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let output = Command::new(&python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("swift/run"))
        .arg("--short")
        .arg("--binary")
        .arg(binary())
        .arg("--work")
        .arg(folder.path())
        .env("PATH", format!("{}:{path}", tools.display()))
        .output()
        .expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stderr);
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}: {said}{table}", output.status);
    // Each scene ended, and none lost anything.
    for scene in ["service killed", "disk destroyed", "bits rot"] {
        let row = table.lines().find(|line| line.contains(scene));
        assert!(row.is_some(), "{scene} is not in\n{table}");
    }
    eprintln!("{said}{table}");
}
