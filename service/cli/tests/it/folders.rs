//! `lumpscope upload` and `download`, as people run them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{Running, body, folder, store_file};
use crate::process::PROGRAM;

const STORE: &str = "disk";
const PART: usize = 4 << 20;

struct Setup {
    running: Running,
    dir: tempfile::TempDir,
}

impl Setup {
    async fn new() -> Self {
        let dir = folder();
        let path = store_file(dir.path(), STORE, 128 << 20, 512, 0.1);
        let running = Running::start(&[(STORE, &path)]).await;
        Self { running, dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, arguments: &[&OsStr]) -> Command {
        let mut command = Command::new(PROGRAM);
        let (name, rest) = arguments.split_first().unwrap();
        command
            .arg(name)
            .args(["--server", &self.running.grpc])
            .args(rest);
        command
    }

    fn run(&self, arguments: &[&OsStr]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn upload(&self, folder: &Path, id: &str, more: &[&str]) -> Output {
        let mut all = vec!["upload".as_ref(), STORE.as_ref(), folder.as_os_str()];
        all.extend(["--manifest".as_ref(), OsStr::new(id)]);
        all.extend(more.iter().map(OsStr::new));
        self.run(&all)
    }

    fn download(&self, id: &str, folder: &Path, more: &[&str]) -> Output {
        let mut all = vec![
            "download".as_ref(),
            STORE.as_ref(),
            id.as_ref(),
            folder.as_os_str(),
        ];
        all.extend(more.iter().map(OsStr::new));
        self.run(&all)
    }

    fn words(&self, arguments: &[&str]) -> Output {
        self.run(&arguments.iter().map(OsStr::new).collect::<Vec<_>>())
    }

    fn ids(&self) -> Vec<String> {
        let listed = good(&self.words(&["list", STORE]));
        listed.lines().map(str::to_owned).collect()
    }
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    assert_eq!(
        output.stderr, b"",
        "without a terminal there is no progress"
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn bad(output: &Output, words: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} in {said:?}");
    }
}

/// Every path of a folder with its permissions and, of files, the bytes.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (u32, Option<Vec<u8>>)> {
    walkdir::WalkDir::new(folder)
        .min_depth(1)
        .into_iter()
        .map(|entry| {
            let entry = entry.unwrap();
            let meta = entry.metadata().unwrap();
            let bytes = meta.is_file().then(|| fs::read(entry.path()).unwrap());
            let path = entry.path().strip_prefix(folder).unwrap().to_owned();
            (path, (meta.permissions().mode() & 0o7777, bytes))
        })
        .collect()
}

/// A folder with everything that can be odd about one.
fn odd_folder(at: &Path) {
    for folder in ["a/b/c/d", "empty/inside", "closed"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
    let long = "n".repeat(255);
    let names: [&[u8]; 9] = [
        b"plain",
        b"with space and\nline",
        b"100%25",
        b"\xff\xfe not UTF-8",
        "\u{e4}\u{1f980}".as_bytes(),
        b"-rf",
        b"...",
        b"a/b/c/d/deep\\",
        long.as_bytes(),
    ];
    for (seed, name) in (0_u128..).zip(names) {
        fs::write(at.join(OsStr::from_bytes(name)), body(seed, 1000)).unwrap();
    }
    fs::write(at.join("no bytes"), b"").unwrap();
    fs::write(at.join("one part"), body(20, PART)).unwrap();
    fs::write(at.join("parts"), body(21, 2 * PART + 1)).unwrap();
    fs::write(at.join("closed/secret"), b"s").unwrap();
    let mode = |name: &str, mode| {
        fs::set_permissions(at.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("plain", 0o755);
    mode("closed/secret", 0o400);
    mode("closed", 0o500);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_comes_back_as_it_was() {
    let setup = Setup::new().await;
    let (from, to) = (setup.path("from"), setup.path("to"));
    odd_folder(&from);
    let said = good(&setup.upload(&from, "77", &["--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["files"], 13);
    assert_eq!(said["directories"], 7);
    assert_eq!(said["skipped_bytes"], 0);
    good(&setup.download("77", &to, &["--jobs", "3"]));
    assert!(tree(&from) == tree(&to));

    bad(
        &setup.download("77", &to, &[]),
        &["is there already", "--force"],
    );
    fs::write(to.join("parts"), b"other").unwrap();
    good(&setup.download("77", &to, &["--force"]));
    assert!(tree(&from) == tree(&to));

    fs::create_dir(setup.path("nothing")).unwrap();
    good(&setup.upload(&setup.path("nothing"), "78", &[]));
    good(&setup.download("78", &setup.path("made/on/the/way"), &[]));
    assert!(tree(&setup.path("made/on/the/way")).is_empty());
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_upload_goes_on() {
    let setup = Setup::new().await;
    let from = setup.path("from");
    fs::create_dir(&from).unwrap();
    for n in 0..6_u8 {
        fs::write(from.join(n.to_string()), body(n.into(), PART + 10)).unwrap();
    }
    // One that really dies, wherever it is.
    let words = [
        "upload",
        STORE,
        from.to_str().unwrap(),
        "--manifest",
        "5",
        "--jobs",
        "1",
    ];
    let words: Vec<&OsStr> = words.iter().map(OsStr::new).collect();
    let mut child = setup.command(&words).spawn().unwrap();
    while setup.ids().len() < 3 {
        assert!(child.try_wait().unwrap().is_none_or(|end| end.success()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    if setup.ids().len() == 13 {
        good(&setup.words(&["delete", STORE, "5"]));
    }
    let there = setup.ids().len();
    let said = good(&setup.upload(&from, "5", &["--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert!(
        said["skipped_bytes"].as_u64().unwrap() >= there as u64 / 2 * 10,
        "{said}"
    );
    assert_eq!(setup.ids().len(), 13);

    // Exactly what is missing is sent: the manifest, and a part that somebody has changed.
    let first = good(&setup.words(&["get", STORE, "5"]));
    let manifest: serde_json::Value = serde_json::from_str(&first).unwrap();
    let big = manifest["files"][2]["parts"][0]["id"].as_str().unwrap();
    let other = setup.path("other");
    fs::write(&other, body(99, PART)).unwrap();
    good(&setup.words(&["put", STORE, big, other.to_str().unwrap()]));
    bad(
        &setup.download("5", &setup.path("broken"), &[]),
        &[big, "not what the manifest says"],
    );
    assert!(!setup.path("broken/2").exists());
    good(&setup.words(&["delete", STORE, "5"]));
    let said = good(&setup.upload(&from, "5", &["--json"]));
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["skipped_bytes"], 6 * (PART + 10) - PART);
    good(&setup.download("5", &setup.path("to"), &[]));
    assert!(tree(&from) == tree(&setup.path("to")));
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_taken_id_is_replaced_only_when_asked_for() {
    let setup = Setup::new().await;
    let (from, to) = (setup.path("from"), setup.path("to"));
    fs::create_dir(&from).unwrap();
    for name in ["stays", "goes"] {
        fs::write(from.join(name), name).unwrap();
    }
    good(&setup.upload(&from, "1", &["--journaled"]));
    assert_eq!(setup.ids().len(), 3);
    fs::remove_file(from.join("goes")).unwrap();
    bad(&setup.upload(&from, "1", &[]), &["already", "--replace"]);
    let said = good(&setup.upload(&from, "1", &["--replace"]));
    let words: Vec<&str> = said.split_whitespace().collect();
    assert!(words.join(" ").contains("removed 1 old parts"), "{said}");
    assert_eq!(setup.ids().len(), 2);
    good(&setup.download("1", &to, &[]));
    assert!(tree(&from) == tree(&to));
    good(&setup.words(&["delete-range", STORE, "0", "2"]));

    // What is no manifest is not taken for one, and is not replaced as one.
    let plain = from.join("stays");
    good(&setup.words(&["put", STORE, "1", plain.to_str().unwrap()]));
    bad(&setup.upload(&from, "1", &["--replace"]), &["no manifest"]);
    bad(
        &setup.download("1", &setup.path("x"), &[]),
        &["no manifest"],
    );
    assert!(!setup.path("x").exists());
    symlink("/etc/passwd", from.join("link")).unwrap();
    bad(&setup.upload(&from, "2", &[]), &["link", "--skip-special"]);
    good(&setup.upload(&from, "2", &["--skip-special"]));
    bad(
        &setup.upload(&setup.path("missing"), "3", &[]),
        &["cannot read"],
    );
    bad(&setup.upload(&plain, "3", &[]), &["cannot read"]);
    let output = setup.download("404", &setup.path("x"), &[]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    setup.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leads_out_of_the_folder() {
    let setup = Setup::new().await;
    let outside = setup.path("outside");
    fs::create_dir(&outside).unwrap();
    let to = setup.path("to");
    let file = setup.path("manifest");
    for path in [
        "../outside/x",
        "/etc/lumpscope-test",
        "a/../../outside/x",
        "..",
        "%2e%2e%2foutside/x",
    ] {
        for kind in ["files", "directories"] {
            let entry = if kind == "files" {
                serde_json::json!({"path": path, "mode": 420, "length": 0, "crc32c": "00000000", "parts": []})
            } else {
                serde_json::json!({"path": path, "mode": 493})
            };
            let mut manifest = serde_json::json!({
                "format": "lumpscope-directory", "version": 1, "files": [], "directories": [],
            });
            manifest[kind] = serde_json::json!([entry]);
            fs::write(&file, manifest.to_string()).unwrap();
            good(&setup.words(&["put", STORE, "6", file.to_str().unwrap()]));
            bad(
                &setup.download("6", &to, &["--force"]),
                &["does not stay inside"],
            );
        }
    }
    assert!(!to.exists());
    assert!(tree(&outside).is_empty());

    // Links that are there already are neither followed nor replaced.
    let from = setup.path("from");
    fs::create_dir_all(from.join("sub")).unwrap();
    fs::write(from.join("sub/file"), b"new").unwrap();
    good(&setup.upload(&from, "7", &[]));
    fs::create_dir(&to).unwrap();
    symlink(&outside, to.join("sub")).unwrap();
    bad(
        &setup.download("7", &to, &["--force"]),
        &["in the way", "no folder"],
    );
    fs::remove_file(to.join("sub")).unwrap();
    fs::create_dir(to.join("sub")).unwrap();
    fs::write(outside.join("victim"), b"old").unwrap();
    symlink(outside.join("victim"), to.join("sub/file")).unwrap();
    bad(
        &setup.download("7", &to, &["--force"]),
        &["in the way", "no file"],
    );
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"old");
    assert_eq!(tree(&outside).len(), 1);
    setup.running.stop().await;
}
