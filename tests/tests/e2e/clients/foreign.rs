//! Clients that know nothing of this project but its `.proto` files, or not even these: Python's grpcio, grpc-go,
//! grpc-java, grpcurl, ghz.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use lumpscope_tests::needs::{Need, available, find_tool};
use lumpscope_tests::service::{Service, file_store, good, serve_file, words};
use sha2::{Digest as _, Sha256};

const TOKEN: &str = "a-token-of-the-tests";

fn protos() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../proto")
}

/// A service on one empty store named "disk", in a folder of its own.
struct Served {
    service: Service,
    folder: tempfile::TempDir,
}

impl Served {
    fn start(more: &[&str]) -> Self {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let format = ["--capacity", "64M", "--prealloc", "fallocate"];
        let service = serve_file(&file_store(folder.path(), &format), more);
        Self { service, folder }
    }

    /// A service that asks for a token; the file has it.
    fn with_token() -> (Self, PathBuf) {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
        let hash = Sha256::digest(TOKEN);
        let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        let tokens = folder.path().join("tokens.toml");
        let entry = format!(
            "[[token]]\nname = \"tests\"\nsha256 = \"{hash}\"\nscopes = [\"read\", \"write\"]\n\
             stores = [\"*\"]\n"
        );
        std::fs::write(&tokens, entry).expect("a file can be written");
        let served = Self::start(&["--tokens", tokens.to_str().expect("UTF-8")]);
        let token = served.folder.path().join("token");
        std::fs::write(&token, TOKEN).expect("a file can be written");
        (served, token)
    }

    fn address(&self) -> &str {
        let url = &self.service.grpc;
        url.strip_prefix("http://").expect("it begins so")
    }
}

fn tool(name: &str, args: &[&str]) -> Output {
    Command::new(find_tool(name).expect("it was found before"))
        .args(args)
        .output()
        .expect("it starts")
}

/// Runs the Python example on code generated from the `.proto` files as they are.
fn python(arguments: &[&str]) -> Output {
    let stubs = tempfile::tempdir().expect("a folder");
    let (include, out) = (protos(), stubs.path().to_str().expect("UTF-8").to_owned());
    let include = include.to_str().expect("UTF-8");
    let v1 = protos().join("lumpscope/v1");
    let files = ["types", "lump_store", "admin"]
        .map(|file| format!("{}/{file}.proto", v1.to_str().expect("UTF-8")));
    let flags = [
        format!("--proto_path={include}"),
        format!("--python_out={out}"),
        format!("--grpc_python_out={out}"),
    ];
    let mut generate = vec!["-m", "grpc_tools.protoc"];
    generate.extend(flags.iter().chain(&files).map(String::as_str));
    good(&tool("grpc-python", &generate));
    Command::new(find_tool("grpc-python").expect("it was found before"))
        .arg(protos().join("examples/python/lumpscope_example.py"))
        .args(arguments)
        .env("PYTHONPATH", stubs.path())
        .output()
        .expect("it starts")
}

#[test]
fn the_python_example_works_unchanged() {
    if !available(&[Need::Tool("grpc-python")]) {
        return;
    }
    let served = Served::start(&[]);
    let said = good(&python(&["--server", served.address(), "--store", "disk"]));
    assert!(said.ends_with("ok delete\nall done\n"), "{said}");
    assert!(served.service.stop());
}

#[test]
fn the_python_example_works_over_the_unix_socket() {
    if !available(&[Need::Tool("grpc-python")]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("lumpscope.sock");
    let served = Served::start(&["--unix-socket", socket.to_str().expect("UTF-8")]);
    let server = format!("unix:{}", socket.display());
    let said = good(&python(&["--server", &server, "--store", "disk"]));
    assert!(said.ends_with("all done\n"), "{said}");
    assert!(served.service.stop());
}

/// Reads metrics from stdin with the parser of the form that is the argument; it refuses what is not of it.
const PARSER: &str = "
import importlib, sys
parser = importlib.import_module(sys.argv[1])
families = list(parser.text_string_to_metric_families(sys.stdin.read()))
print(len(families))
";

#[test]
fn scrapers_get_the_form_that_they_ask_for() {
    if !available(&["grpc-python", "packages-python"].map(Need::Tool)) {
        return;
    }
    let served = Served::start(&[]);
    good(&python(&["--server", served.address(), "--store", "disk"]));
    for (form, version, more, parser) in [
        ("text/plain", "0.0.4", "", "prometheus_client.parser"),
        ("text/plain", "1.0.0", "", "prometheus_client.parser"),
        (
            "application/openmetrics-text",
            "1.0.0",
            ",*/*;q=0.1",
            "prometheus_client.openmetrics.parser",
        ),
    ] {
        let accept = format!("{form};version={version}{more}");
        let scraped = served.service.scrape_as(&accept);
        let (head, metrics) = scraped.split_once("\r\n\r\n").expect("a head");
        let kind = format!("{form}; version={version};");
        assert!(head.contains(&kind), "{head}");
        let file = served.folder.path().join("metrics");
        std::fs::write(&file, metrics).expect("a file can be written");
        let parsed = Command::new(find_tool("packages-python").expect("it was found before"))
            .args(["-c", PARSER, parser])
            .stdin(std::fs::File::open(&file).expect("it was written"))
            .output()
            .expect("it starts");
        let families: usize = good(&parsed).trim().parse().expect("a number");
        assert!(families > 100, "{families}");
    }
    assert!(served.service.stop());
}

#[test]
fn the_python_example_works_with_a_token() {
    if !available(&[Need::Tool("grpc-python")]) {
        return;
    }
    let (served, token) = Served::with_token();
    let connect = ["--server", served.address(), "--store", "disk"];
    let refused = python(&connect);
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("UNAUTHENTICATED"), "{said}");
    let token = ["--token-file", token.to_str().expect("UTF-8")];
    let said = good(&python(&[&connect[..], &token].concat()));
    assert!(said.ends_with("all done\n"), "{said}");
}

/// A copy of an example's folder, in which code can be generated.
fn example(language: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let from = protos().join("examples").join(language);
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(from.join(".")).arg(folder.path());
    good(&copy.output().expect("cp starts"));
    folder
}

fn inside(folder: &Path, name: &str) -> Command {
    let mut command = Command::new(find_tool(name).expect("it was found before"));
    command.current_dir(folder);
    command
}

/// Runs an example without a token, which is refused, and with it.
fn runs_with_a_token(run: impl Fn(&str, Option<&str>) -> Output) {
    let (served, token) = Served::with_token();
    let refused = run(served.address(), None);
    assert!(!refused.status.success());
    let said = [refused.stdout, refused.stderr].concat();
    let said = String::from_utf8_lossy(&said).to_uppercase();
    assert!(said.contains("UNAUTHENTICATED"), "{said}");
    let said = good(&run(served.address(), token.to_str()));
    assert!(said.ends_with("ok delete\nall done\n"), "{said}");
    assert!(said.contains("reason UNKNOWN_LUMP"), "{said}");
    assert!(served.service.stop());
}

#[test]
fn the_go_example_is_compiled_and_works() {
    if !available(&[Need::Tool("grpc-go"), Need::Tool("buf")]) {
        return;
    }
    let folder = example("go");
    let folder = folder.path();
    let protos = protos().canonicalize().expect("it is there");
    let generated = inside(folder, "buf").arg("generate").arg(protos).output();
    good(&generated.expect("buf starts"));
    let go = |args: &[&str]| {
        let output = inside(folder, "grpc-go").args(args).output();
        output.expect("go starts")
    };
    good(&go(&["vet", "./..."]));
    good(&go(&["build", "-o", "example"]));
    runs_with_a_token(|server, token| {
        let mut run = Command::new(folder.join("example"));
        run.args(["--server", server, "--store", "disk"]);
        run.args(token.map(|file| format!("--token-file={file}")));
        run.output().expect("it was built")
    });
}

#[test]
fn the_java_example_is_compiled_and_works() {
    if !available(&[Need::Tool("grpc-java")]) {
        return;
    }
    let folder = example("java");
    let protos = protos().canonicalize().expect("it is there");
    let protos = format!("-Dprotos={}", protos.to_str().expect("UTF-8"));
    let maven = |goals: &[&str]| {
        let mut run = inside(folder.path(), "grpc-java");
        run.args(["--quiet", "--batch-mode", "--offline", &protos]);
        let mut output = run.args(goals).output().expect("mvn starts");
        // It resets colours also where it used none.
        let said = String::from_utf8_lossy(&output.stdout).replace("\x1b[0m", "");
        output.stdout = said.into_bytes();
        output
    };
    good(&maven(&["compile"]));
    runs_with_a_token(|server, token| {
        let token = token.map_or_else(String::new, |file| format!(" token-file={file}"));
        maven(&["exec:java", &format!("-Dexec.args={server} disk{token}")])
    });
}

/// Ways to tell a tool of the Go world what the service speaks.
fn descriptions() -> [Vec<String>; 2] {
    let include = protos().to_str().expect("UTF-8").to_owned();
    let by_files = [
        "-import-path",
        &include,
        "-proto",
        "lumpscope/v1/lump_store.proto",
    ];
    [vec![], by_files.map(str::to_owned).to_vec()]
}

fn grpcurl(more: &[&str], data: &str, address: &str, method: &str) -> Output {
    let call = format!("lumpscope.v1.LumpStore/{method}");
    let args = [&["-plaintext", "-d", data], more, &[address, &call]].concat();
    tool("grpcurl", &args)
}

#[test]
fn grpcurl_puts_and_gets() {
    if !available(&[Need::Tool("grpcurl")]) {
        return;
    }
    let served = Served::start(&[]);
    let address = served.address();
    let said = good(&tool("grpcurl", &["-plaintext", address, "list"]));
    for service in ["LumpStore", "Admin", "Observe"] {
        let service = format!("lumpscope.v1.{service}");
        assert!(said.lines().any(|line| line == service), "{said}");
    }
    let what = ["-plaintext", address, "describe", "lumpscope.v1.PutHeader"];
    assert!(good(&tool("grpcurl", &what)).contains("crc32c"));
    for (number, description) in descriptions().iter().enumerate() {
        let more: Vec<&str> = description.iter().map(String::as_str).collect();
        let id = format!(r#""store":"disk","id":{{"text":"{}"}}"#, number + 1);
        let put = format!(r#"{{"header":{{{id}}},"body":"aGVsbG8="}}"#);
        assert!(good(&grpcurl(&more, &put, address, "PutSmall")).contains("\"created\": true"));
        let get = format!(r#"{{"get":{{{id}}}}}"#);
        assert!(good(&grpcurl(&more, &get, address, "GetSmall")).contains("aGVsbG8="));
        // A stream of messages, both ways.
        let stream = format!(r#"{{"header":{{{id},"length":5}}}}{{"chunk":"d29ybGQ="}}"#);
        good(&grpcurl(&more, &stream, address, "Put"));
        let said = good(&grpcurl(&more, &format!("{{{id}}}"), address, "Get"));
        assert!(said.contains("d29ybGQ="), "{said}");
        assert!(said.contains("\"verified\": true"), "{said}");
    }
    let missing = r#"{"store":"disk","id":{"text":"99"}}"#;
    let refused = grpcurl(&[], missing, address, "Head");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success());
    assert!(said.contains("NotFound"), "{said}");
    assert!(said.contains("google.rpc.ErrorInfo"), "{said}");
}

#[test]
fn grpcurl_sends_a_token() {
    if !available(&[Need::Tool("grpcurl")]) {
        return;
    }
    let (served, _) = Served::with_token();
    let address = served.address();
    let login = format!("authorization: Bearer {TOKEN}");
    for description in descriptions() {
        let more: Vec<&str> = description.iter().map(String::as_str).collect();
        let refused = grpcurl(&more, "{}", address, "ListStores");
        assert!(!refused.status.success(), "without a token");
        let more = [&more[..], &["-H", &login]].concat();
        assert!(good(&grpcurl(&more, "{}", address, "ListStores")).contains("\"disk\""));
    }
}

fn ghz(more: &[&str], data: &str, address: &str, method: &str) -> serde_json::Value {
    let call = format!("lumpscope.v1.LumpStore/{method}");
    let fixed = words("--insecure -n 60 -c 4 -O json");
    let asked = ["--call", &call, "-d", data];
    let args = [&fixed[..], &asked, more, &[address]].concat();
    let said = good(&tool("ghz", &args));
    serde_json::from_str(&said).expect("ghz prints JSON")
}

#[test]
fn ghz_measures() {
    if !available(&[Need::Tool("ghz")]) {
        return;
    }
    let (served, _) = Served::with_token();
    let include = protos().to_str().expect("UTF-8").to_owned();
    let files = ["-i", &include, "--proto", "lumpscope/v1/lump_store.proto"];
    let login = format!(r#"{{"authorization":"Bearer {TOKEN}"}}"#);
    let asking = ["--reflect-metadata", login.as_str()];
    let login = ["-m", login.as_str()];
    let reflecting = [&login[..], &asking].concat();
    let put = r#"{"header":{"store":"disk","id":{"text":"{{.RequestNumber}}"}},"body":"aGVsbG8="}"#;
    for more in [[&login[..], &files].concat(), reflecting.clone()] {
        let report = ghz(&more, put, served.address(), "PutSmall");
        assert_eq!(report["statusCodeDistribution"]["OK"], 60, "{report}");
    }
    let head = r#"{"store":"disk","id":{"text":"7"}}"#;
    let report = ghz(&reflecting, head, served.address(), "Head");
    assert_eq!(report["statusCodeDistribution"]["OK"], 60, "{report}");
    let report = ghz(&files, head, served.address(), "Head");
    let refused = &report["statusCodeDistribution"]["Unauthenticated"];
    assert_eq!(*refused, 60, "{report}");
}
