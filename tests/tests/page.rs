//! The built-in page in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use lumpscope_tests::browser::{BROWSER, Scenario, processes_with};
use lumpscope_tests::needs::{available, find_tool};
use serde_json::json;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

/// What the compiler of TypeScript finds in a folder of scripts.
fn type_errors(folder: &str, types: &[&str]) -> String {
    let node = find_tool("browser-node").expect("it was found before");
    let modules = node
        .parent()
        .and_then(Path::parent)
        .expect("it lies in TARGET/tools/bin")
        .join("browser/node_modules");
    let config = json!({
        "extends": root().join("tests/browser/tsconfig.json"),
        "compilerOptions": {
            "typeRoots": [modules.join("@types")],
            "types": types,
            "paths": {"*": [modules.join("*")]},
        },
        "include": [root().join(folder)],
        "exclude": [root().join(folder).join("vendor")],
    });
    let beside = tempfile::tempdir().expect("a folder can be made");
    let file = beside.path().join("tsconfig.json");
    std::fs::write(&file, config.to_string()).expect("it can be written");
    let output = Command::new(node)
        .arg(modules.join("typescript/bin/tsc"))
        .args(["--pretty", "false", "--project"])
        .arg(&file)
        .current_dir(root())
        .output()
        .expect("Node starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() || !said.is_empty(), "{output:?}");
    said
}

#[test]
fn the_scripts_hold_what_their_types_say() {
    if !available(BROWSER) {
        return;
    }
    for (folder, types) in [
        ("tests/browser", &["node"][..]),
        ("service/server/page", &[]),
    ] {
        let found = type_errors(folder, types);
        assert!(found.is_empty(), "{folder}: {found}");
    }
}

#[test]
fn nothing_of_a_browser_is_left_when_its_test_ends_too_early() {
    if !available(BROWSER) {
        return;
    }
    let mut scenario = Scenario::start("waits", &[("LUMPSCOPE_URL", "http://127.0.0.1:9")]);
    assert_eq!(scenario.asks().as_deref(), Some("end me"));
    let folder = scenario.folder().to_owned();
    // Node, the browser, and the processes of the browser.
    assert!(processes_with(&folder).len() > 3);
    drop(scenario);
    assert_eq!(processes_with(&folder), [], "they run on");
    assert!(!folder.exists(), "{}", folder.display());
}
