//! S3 of the real service: clients that know nothing of it, access keys and their rules; in the modules: clients that
//! are broken, slow or mean, many keys and large objects, and kill -9 in the middle of everything.

mod crash;
mod hostile;
mod scale;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use lumpscope_lab::disks::StoreKind;
use lumpscope_tests::needs::{Need, alone, available, find_tool};
use lumpscope_tests::s3::{ACCESS, BucketClient, SECRET, key, keys};
use lumpscope_tests::service::{self, Service, good, lab_with_stores, run};

/// Keys that boto3 lists: a page and a bit.
const LISTED: &str = "1100";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder")
}

/// Makes a store in a file.
fn file_store(folder: &Path) -> String {
    service::file_store(folder, &["--capacity", "512M"])
}

/// Serves a file with S3.
fn serve(store: &str, keys: &Path, more: &[&str]) -> Service {
    service::serve_file(store, &[&with_s3(keys)[..], more].concat())
}

fn with_s3(keys: &Path) -> [&str; 4] {
    let keys = keys.to_str().expect("UTF-8");
    ["--s3-listen", "127.0.0.1:0", "--s3-credentials", keys]
}

/// A number that the service tells of its only store.
fn gauge(service: &Service, name: &str) -> u64 {
    let begin = format!("{name}{{store=\"disk\"}} ");
    let metrics = service.scrape();
    let value = metrics.lines().find_map(|line| line.strip_prefix(&begin));
    let whole = value.expect("it is told").trim_end_matches(".0");
    whole.parse().expect("a count")
}

/// Runs a program of the folder s3.
fn python(script: &str, arguments: &[&str], environment: &[(&str, &Path)]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let script = tests.join("s3").join(script);
    let output = Command::new(find_tool("s3-python").expect("it was found before"))
        .arg(script)
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .expect("it starts");
    eprintln!("{}", good(&output));
}

/// Expectations of boto3.
fn conform(service: &Service) {
    let url = format!("http://{}", service.s3);
    python("conformance.py", &[&url, ACCESS, SECRET, LISTED], &[]);
}

#[test]
fn boto3_finds_what_it_expects_on_a_disk() {
    let Some(_alone) = alone(&[Need::Root, Need::Tool("s3-python")]) else {
        return;
    };
    let lab = lab_with_stores(&[StoreKind::Raw], 1 << 30, "768M");
    let folder = folder();
    let service = Service::start(&lab, &with_s3(&keys(folder.path(), "")));
    conform(&service);
    let metrics = service.scrape();
    for (method, code) in [
        ("put_object", "OK"),
        ("complete_upload", "OK"),
        ("get_object", "NOT_FOUND"),
    ] {
        let line = format!(
            "lumpscope_requests_total{{store=\"raw\",method=\"s3_{method}\",code=\"{code}\"}}"
        );
        assert!(metrics.contains(&line), "{line} is not in the metrics");
    }
    assert!(service.stop());
}

/// Those that need nothing but Python; `./dev s3-suites clients` has the others.
#[test]
fn clients_of_others_move_data_with_their_defaults() {
    if !available(&[Need::Tool("s3-python")]) {
        return;
    }
    let folder = folder();
    let store = file_store(folder.path());
    let service = serve(&store, &keys(folder.path(), ""), &[]);
    let url = format!("http://{}", service.s3);
    let login = [&*url, ACCESS, SECRET];
    let arguments = [&login[..], &["boto3", "minio-py", "smart_open"]].concat();
    python("clients.py", &arguments, &[]);
    assert!(service.stop());
}

#[test]
fn awscli_copies_folders_to_a_file_and_back() {
    if !available(&[Need::Tool("s3-python")]) {
        return;
    }
    let folder = folder();
    let store = file_store(folder.path());
    let service = serve(&store, &keys(folder.path(), ""), &[]);
    let aws = |args: &[&str]| {
        let output = Command::new(find_tool("s3-python").expect("it was found before"))
            .args(["-m", "awscli", "--endpoint-url"])
            .arg(format!("http://{}", service.s3))
            .args(args)
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_CONFIG_FILE", "/dev/null")
            .output()
            .expect("it starts");
        good(&output)
    };
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    std::fs::create_dir(&there).expect("a folder");
    for (name, size) in [("empty", 0), ("täst %41.txt", 10), ("large", 20 << 20)] {
        std::fs::write(there.join(name), vec![7; size]).expect("a file");
    }
    let [there, back] = [&there, &back].map(|path| path.to_str().expect("UTF-8"));
    aws(&["s3", "mb", "s3://folder"]);
    aws(&["s3", "sync", there, "s3://folder/a"]);
    assert!(aws(&["s3", "ls", "--recursive", "s3://folder"]).contains("a/täst %41.txt"));
    aws(&["s3", "sync", "s3://folder/a", back]);
    let same = Command::new("diff").args(["-r", there, back]).status();
    assert!(same.expect("diff starts").success());
    aws(&["s3", "rb", "--force", "s3://folder"]);
    assert!(service.stop());
}

#[test]
fn rules_hold_and_change_while_the_service_runs() {
    let folder = folder();
    let store = file_store(folder.path());
    let secret = "another-secret-of-the-tests";
    let entry = |rights| key("AKSOME", secret, &[("data", "mine/", rights)]);
    let path = keys(folder.path(), &entry("[\"read\"]"));
    let service = serve(&store, &path, &["--reload-interval", "1"]);
    let all = BucketClient::new(&service.s3, "data", ACCESS, SECRET);
    let some = BucketClient::new(&service.s3, "data", "AKSOME", secret);
    let status = |answer: Option<(u16, Vec<u8>)>| answer.expect("an answer").0;
    assert_eq!(status(some.create()), 403);
    assert_eq!(status(all.create()), 200);
    for key in ["mine/a", "other"] {
        assert_eq!(status(all.put(key, b"1")), 200);
    }
    assert_eq!(some.get("mine/a"), Some((200, b"1".to_vec())));
    for answer in [
        some.get("other"),
        some.put("mine/a", b"2"),
        some.delete("mine/a"),
        some.list(""),
        BucketClient::new(&service.s3, "data", "AKSOME", SECRET).get("mine/a"),
        BucketClient::new(&service.s3, "data", "AKNONE", secret).get("mine/a"),
    ] {
        assert_eq!(status(answer), 403);
    }
    assert_eq!(status(some.list("mine/")), 200);
    let both = ["mine/a", "other"].map(str::to_owned);
    let many = |client: &BucketClient| client.delete_many(&both);
    let refused = String::from_utf8(many(&some).expect("an answer").1).expect("XML");
    assert_eq!(refused.matches("<Code>AccessDenied</Code>").count(), 2);
    assert_eq!(some.create_upload("mine/a"), None);
    assert_eq!(status(some.copy("mine/a", "mine/b")), 403);
    keys(folder.path(), &entry("[\"read\", \"write\"]"));
    let until = Instant::now() + Duration::from_secs(20);
    while status(some.put("mine/a", b"2")) != 200 {
        assert!(Instant::now() < until, "the new rules are not in force");
        std::thread::sleep(Duration::from_millis(100));
    }
    for answer in [
        some.put("other", b"2"),
        some.copy("mine/a", "other"),
        some.copy("other", "mine/a"),
        some.remove(),
    ] {
        assert_eq!(status(answer), 403);
    }
    assert_eq!(status(some.copy("mine/a", "mine/b")), 200);
    assert_eq!(some.create_upload("other"), None);
    let upload = some.create_upload("mine/c").expect("it may");
    let others = all.create_upload("other").expect("it may");
    assert_eq!(some.upload_part("other", &others, 1, b"x"), None);
    assert_eq!(status(some.abort("other", &others)), 403);
    let why = "those of others are none of its business";
    assert_eq!(some.uploads(), None, "{why}");
    assert!(some.upload_part("mine/c", &upload, 1, b"x").is_some());
    let refused = String::from_utf8(many(&some).expect("an answer").1).expect("XML");
    assert_eq!(refused.matches("<Code>AccessDenied</Code>").count(), 1);
    assert_eq!(status(some.get("mine/a")), 404);
    assert_eq!(all.get("other"), Some((200, b"1".to_vec())));
    assert!(service.stop());
}

/// Refused files of access keys.
#[test]
fn a_file_of_keys_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    let store = file_store(folder.path());
    let path = keys(folder.path(), "");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("it is ours");
    let store = format!("a={store}");
    let checked = ["serve", "--check-config", "--store", &store];
    let output = run(&[&checked[..], &with_s3(&path)].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("chmod o-rwx,g-w"), "{said}");
    assert!(!said.contains(SECRET), "{said}");
}
