//! The built-in page in a real browser, against a real service with real probes and real load.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use lumpscope_lab::disks::{Lab, StoreKind};
use lumpscope_lab::tie_to_parent;
use lumpscope_tests::browser::{BROWSER, Scenario, processes_with};
use lumpscope_tests::client::{Client, content};
use lumpscope_tests::needs::{Need, alone, available, find_tool};
use lumpscope_tests::service::{LISTEN, Service, binary, lab_with_stores, run_ok};
use serde_json::json;

const NEEDS: &[Need] = &[
    Need::Root,
    Need::Tool("mkfs.ext4"),
    Need::Tool("mkfs.xfs"),
    BROWSER[0],
    BROWSER[1],
];
const LUMP: usize = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

fn lab() -> Lab {
    lab_with_stores(&StoreKind::ALL, 512 << 20, "300M")
}

fn page(service: &Service) -> String {
    format!("http://{}/", service.metrics)
}

/// `lumpscope load` on all stores of a service. Dropping it kills the process it started, and no other.
struct Load {
    child: Child,
}

impl Load {
    fn start(service: &Service) -> Load {
        let mut command = Command::new(binary());
        tie_to_parent(&mut command, None);
        command
            .args(["load", "--server", &service.grpc])
            .args(["--rate", "60", "--lumps", "100", "--keep"])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        let child = command.spawn().expect("lumpscope starts");
        Load { child }
    }

    /// Ends it; what was begun has ended, and all of it well.
    fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
        let status = self.child.wait().expect("it can be waited for");
        assert!(status.success(), "the load ends with {status}");
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Already ended: both calls fail, and that is what was wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A token for the service and its entry in the file of tokens.
fn token(scope: &str, store: &str) -> (String, String) {
    let name = format!("reader of {store:?}");
    let mut arguments = vec!["token", "--name", &name, "--scope", scope];
    if !store.is_empty() {
        arguments.extend(["--store", store]);
    }
    let printed = run_ok(&arguments);
    let (secret, entry) = printed
        .split_once("[[token]]")
        .expect("an entry for the file");
    let secret = secret.lines().find(|line| !line.starts_with('#'));
    let secret = secret.expect("a token").to_owned();
    (secret, format!("[[token]]{entry}"))
}

/// A runtime for the few requests that a test makes itself.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime can be made")
}

fn some_puts(service: &Service, store: &str, count: u128, token: Option<&str>) {
    runtime().block_on(async {
        let client = Client::connect(&service.grpc).await;
        let mut client = client.expect("the service is up");
        for number in 0..count {
            let put = client.put_request(store, number, content(number, 1, LUMP));
            let mut request = tonic::Request::new(tokio_stream::iter(put));
            if let Some(token) = token {
                let value = format!("Bearer {token}").parse().expect("plain text");
                request.metadata_mut().insert("authorization", value);
            }
            client.raw().put(request).await.expect("the put works");
        }
    });
}

#[test]
fn the_page_shows_what_the_disks_do() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab();
    let service = Service::start(&lab, &[]);
    let url = page(&service);
    let variables = [("LUMPSCOPE_URL", url.as_str())];
    let load = Load::start(&service);
    for scenario in ["pictures", "slow", "looks", "keyboard"] {
        Scenario::start(scenario, &variables).end();
    }
    let mut totals = Scenario::start("totals", &variables);
    assert_eq!(totals.asks().as_deref(), Some("stop the load"));
    load.stop();
    totals.answer(&json!({}));
    totals.end();
    Scenario::start("explain", &variables).end();
    assert!(service.stop(), "the service ends well");
}

#[test]
fn the_page_asks_for_a_token_and_shows_what_it_allows() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab();
    let tokens = [
        token("observe,read,write", ""),
        token("observe", "ext4"),
        token("read", "raw"),
    ];
    let folder = tempfile::tempdir().expect("a folder can be made");
    let file = folder.path().join("tokens.toml");
    let entries = tokens.each_ref().map(|(_, entry)| entry.as_str());
    std::fs::write(&file, entries.concat()).expect("it can be written");
    let file = file.to_str().expect("paths are UTF-8");
    let service = Service::start(&lab, &["--tokens", file]);
    let [all, one, other] = tokens.each_ref().map(|(secret, _)| secret.as_str());
    let variables = [
        ("LUMPSCOPE_URL", page(&service)),
        ("LUMPSCOPE_TOKEN_ALL", all.to_owned()),
        ("LUMPSCOPE_TOKEN_ONE", one.to_owned()),
        ("LUMPSCOPE_TOKEN_OTHER", other.to_owned()),
    ];
    let variables = variables.each_ref().map(|(k, v)| (*k, v.as_str()));
    let mut login = Scenario::start("login", &variables);
    while let Some(asked) = login.asks() {
        assert_eq!(asked, "put some lumps");
        for store in lab.stores() {
            some_puts(&service, store.name, 3, Some(all));
        }
        login.answer(&json!({}));
    }
    assert!(service.stop(), "the service ends well");
}

/// A service on one raw disk, at given addresses.
fn serve_at(lab: &Lab, grpc: &str, metrics: &str) -> Service {
    let mut command = lab.command(binary());
    let store = format!("raw={}", lab.stores()[0].store_path.display());
    command.args(["serve", "--store", &store]);
    command.args(["--listen", grpc, "--metrics-listen", metrics]);
    Service::spawn(command)
}

#[test]
fn the_page_outlives_the_service() {
    let Some(_alone) = alone(NEEDS) else { return };
    let lab = lab_with_stores(&[StoreKind::Raw], 256 << 20, "128M");
    let service = serve_at(&lab, "127.0.0.1:0", "127.0.0.1:0");
    let (url, metrics) = (page(&service), service.metrics.clone());
    let mut scenario = Scenario::start("restart", &[("LUMPSCOPE_URL", &url)]);
    assert_eq!(scenario.asks().as_deref(), Some("put some lumps"));
    some_puts(&service, "raw", 7, None);
    scenario.answer(&json!(7));
    assert_eq!(scenario.asks().as_deref(), Some("kill the service"));
    service.kill9();
    scenario.answer(&json!({}));
    let asked = scenario.asks();
    let expected = Some("start the service and put some lumps");
    assert_eq!(asked.as_deref(), expected);
    let service = serve_at(&lab, "127.0.0.1:0", &metrics);
    some_puts(&service, "raw", 3, None);
    scenario.answer(&json!(3));
    scenario.end();
    assert!(service.stop(), "the service ends well");
}

/// Needs no root: what is not observed is what a service without privileges cannot observe.
#[test]
fn the_page_says_what_is_not_observed() {
    if !available(BROWSER) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("<b>x<b><img src=x onerror=alert(1)>&lt");
    let path = path.to_str().expect("paths are UTF-8");
    run_ok(&["format", "--capacity", "64M", path]);
    let mut command = Command::new(binary());
    command.args(["serve", "--no-probes", "--store", &format!("plain={path}")]);
    command.args(LISTEN);
    let service = Service::spawn(command);
    let url = page(&service);
    let variables = [("LUMPSCOPE_URL", url.as_str()), ("LUMPSCOPE_PATH", path)];
    let mut scenario = Scenario::start("unobserved", &variables);
    assert_eq!(scenario.asks().as_deref(), Some("put some lumps"));
    some_puts(&service, "plain", 5, None);
    scenario.answer(&json!({}));
    scenario.end();
    assert!(service.stop(), "the service ends well");
}

/// Needs no root: one store serves, the other cannot be opened.
#[test]
fn the_page_shows_the_state_of_each_store_and_the_past() {
    if !available(BROWSER) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = |name: &str| folder.path().join(name).display().to_string();
    run_ok(&["format", "--capacity", "64M", &path("plain.lusf")]);
    let mut command = Command::new(binary());
    command.args(["serve", "--no-probes"]);
    for name in ["plain", "lost"] {
        command.args([
            "--store",
            &format!("{name}={}", path(&format!("{name}.lusf"))),
        ]);
    }
    command.args(LISTEN);
    let service = Service::spawn(command);
    let url = page(&service);
    let mut scenario = Scenario::start("states", &[("LUMPSCOPE_URL", &url)]);
    assert_eq!(scenario.asks().as_deref(), Some("put some lumps"));
    some_puts(&service, "plain", 5, None);
    scenario.answer(&json!(5));
    scenario.end();
    assert!(service.stop(), "the service ends well");
}

/// Type errors in a folder of scripts.
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
