//! The settings: one list, complete, documented, and checked before anything is served.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::*;
use crate::process::{PROGRAM, Process, program, run_with};
use clap::{CommandFactory as _, Parser};
use lumpscope_server::config::document::{self, NOT_KEYS};
use lumpscope_server::config::{ServeArgs, ServeConfig};
use lumpscope_server::memory_sum;
use lumpscope_units::Size;

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    serve: ServeArgs,
}

fn resolve(flags: &[&str]) -> ServeConfig {
    let all = [&["serve", "--store", "a=/x"], flags].concat();
    Flags::try_parse_from(all).unwrap().serve.resolve().unwrap()
}

/// Nothing but a store, not even from the environment.
fn plain() -> BTreeMap<String, String> {
    let config = ServeConfig {
        stores: vec!["a=/x".parse().unwrap()],
        ..ServeConfig::default()
    };
    settings(&config.checked().unwrap())
}

fn settings(config: &ServeConfig) -> BTreeMap<String, String> {
    config.settings().into_iter().collect()
}

/// Keys, in the order of the flags.
fn keys() -> Vec<String> {
    let command = Flags::command();
    let all = command.get_arguments().filter_map(|arg| arg.get_long());
    let keys = all.filter(|key| !NOT_KEYS.contains(key) && *key != "help");
    keys.map(str::to_owned).collect()
}

/// A value that each key accepts and that is not its default.
fn other_value(key: &str) -> &'static str {
    match key {
        "store" => "b=/y",
        "listen" | "metrics-listen" => "127.0.0.1:7",
        "unix-mode" => "660",
        "tls-cert" | "tls-key" | "tls-client-ca" | "tls-client-crl" | "tokens" | "unix-socket"
        | "probe-object" => "/etc/some/file",
        "user" => "root",
        "guard" => "a=deny",
        "io-backend" => "threads",
        "commit" => "ordered",
        "queue-policy" => "fifo",
        "durability" => "journaled",
        "log-format" => "json",
        "log" => "debug",
        "allow-remote" | "keep-privileges" | "require-all-stores" | "no-probes" | "salvage"
        | "program-statistics" => "true",
        "event-slower-than" | "flight-slower-than" => "5ms",
        "buffer-budget" | "put-memory" | "get-memory" => "512M",
        "max-message" | "stream-window" | "connection-window" | "frame-size" => "3M",
        "connection-memory" => "512M",
        "max-header-bytes" | "min-rate" | "scrub-rate" | "gc-rate" => "7K",
        "s3-listen" => "127.0.0.1:77",
        "s3-domain" => "s3.example.org",
        "s3-etag" => "auto",
        "s3-max-body" => "3M",
        "otlp-endpoint" => "http://127.0.0.1:4317",
        "trace-url" => "http://127.0.0.1:16686/trace/{trace_id}",
        "trace-ratio" => "0.5",
        "trace-slower-than" => "7ms",
        _ => "77",
    }
}

#[test]
fn every_flag_is_a_setting_a_key_and_a_variable() {
    let plain = plain();
    let keys = keys();
    assert!(keys.len() > 40, "{keys:?}");
    let known: Vec<&str> = plain.keys().map(String::as_str).collect();
    let mut wanted: Vec<&str> = keys.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    assert_eq!(known, wanted, "settings() and the flags");
    for key in &keys {
        let value = other_value(key);
        let tls = ["--tls-cert=/c", "--tls-key=/k", "--tls-client-ca=/a"];
        let flag = format!("--{key}={value}");
        let more = match key.as_str() {
            "tls-client-ca" => &tls[..2],
            "tls-client-crl" => &tls[..],
            _ => &[],
        };
        let pair = match key.as_str() {
            "tls-cert" => "--tls-key=/k",
            "tls-key" => "--tls-cert=/c",
            "s3-listen" => "--s3-credentials=/k",
            _ => "--log=info",
        };
        let by_flag = match key.as_str() {
            "store" => {
                let flags = Flags::try_parse_from(["serve", &flag]).unwrap();
                flags.serve.resolve().unwrap()
            }
            "log" => resolve(&[&flag]),
            _ => resolve(&[&[flag.as_str(), pair], more].concat()),
        };
        let said = &settings(&by_flag)[key.as_str()];
        assert_eq!(said, value, "--{key}");
        assert_ne!(said, &plain[key.as_str()], "{key}");

        // The file that says what is in force brings the same into force.
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), by_flag.to_toml()).unwrap();
        let read = ServeConfig::of_file(file.path()).unwrap();
        let read = read.checked().unwrap().settings();
        assert_eq!(read, by_flag.settings(), "{key}");
    }
    for setting in document::settings() {
        let variable = format!("LUMPSCOPE_{}", setting.key.replace('-', "_").to_uppercase());
        if !["check-config", "take-over"].contains(&setting.key.as_str()) {
            assert_eq!(setting.variable, variable);
        }
        assert!(!setting.meaning.is_empty(), "{setting:?}");
        assert!(!setting.value.is_empty(), "{setting:?}");
    }
}

#[test]
fn the_defaults_are_those_that_the_help_tells() {
    let plain = plain();
    for setting in document::settings() {
        let Some(real) = plain.get(setting.key.as_str()) else {
            continue;
        };
        let (told, wanted) = match setting.key.as_str() {
            "store" => continue,
            "max-overtakes" => ("half of queue-limit", "512"),
            "overload-threshold" => ("three quarters of queue-limit", "768"),
            _ => (real.as_str(), real.as_str()),
        };
        assert_eq!(setting.default, told, "{}", setting.key);
        assert_eq!(real, wanted, "{}", setting.key);
    }
}

#[test]
fn config_md_is_the_list_of_the_code() {
    let document = include_str!("../../../server/CONFIG.md");
    let lines = document.split_inclusive('\n');
    let table: String = lines.filter(|line| line.starts_with('|')).collect();
    let want = document::markdown();
    assert!(table == want, "CONFIG.md should have this table:\n{want}");
}

#[test]
fn the_example_shows_every_key_with_its_default() {
    let text = include_str!("../../../server/lumpscope.example.toml");
    let parse = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let read = ServeConfig::of_file(file.path()).unwrap();
        read.checked().unwrap()
    };
    let as_it_is = settings(&parse(text));
    // With everything switched on that is commented out.
    let shown = text.lines().map(|line| match line.strip_prefix('#') {
        Some(key) if key.contains(" = ") && !key.starts_with(' ') => key,
        _ => line,
    });
    let all = shown.fold(String::new(), |all, line| all + line + "\n");
    let with_all = settings(&parse(&all));
    for key in keys() {
        let assigned = format!("{key} = ");
        let shown = all.lines().any(|line| line.starts_with(&assigned));
        assert!(shown, "{key} is not in the example");
        let (plain, shown) = (&as_it_is[key.as_str()], &with_all[key.as_str()]);
        // What has no default is shown with an example.
        if !plain.is_empty() && key != "unix-mode" {
            assert_eq!(shown, plain, "{key}");
        }
    }
}

fn check(arguments: &[&str]) -> Output {
    let all = [&["serve", "--check-config"], arguments].concat();
    program().args(all).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_good_configuration_is_printed_as_a_file_that_can_be_used() {
    let dir = folder();
    let path = store_file(dir.path(), "checked", 16 << 20, 4096, 0.05);
    let spec = format!("a={}", path.display());
    let first = check(&["--store", &spec, "--queue-depth", "7", "--user", "root"]);
    assert!(first.status.success(), "{}", said(&first));
    let file = dir.path().join("printed.toml");
    std::fs::write(&file, &first.stdout).unwrap();
    let second = check(&["--config", file.to_str().unwrap()]);
    assert!(second.status.success(), "{}", said(&second));
    assert_eq!(first.stdout, second.stdout);
    let text = String::from_utf8(first.stdout).unwrap();
    for line in ["queue-depth = 7", "user = \"root\"", "# tokens is not set"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    let is_setting = |line: &str| line.contains(" = ") || line.starts_with("# ");
    assert!(text.lines().all(is_setting), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_runs_is_not_disturbed() {
    let dir = folder();
    let path = store_file(dir.path(), "running", 16 << 20, 4096, 0.05);
    let mut service = Running::start(&[("a", &path)]).await;
    let spec = format!("a={}", path.display());
    let output = check(&["--store", &spec]);
    assert!(output.status.success(), "{}", said(&output));
    let stored = put(&mut service.client, "a", 1, &body(1, 10_000)).await;
    stored.unwrap();
    service.stop().await;
}

#[test]
fn every_problem_is_told_in_a_line_of_its_own() {
    let dir = folder();
    let good = store_file(dir.path(), "good", 16 << 20, 4096, 0.05);
    let plain = dir.path().join("plain");
    std::fs::write(&plain, vec![7; 100_000]).unwrap();
    let (good, plain) = (good.display(), plain.display());
    let arguments = format!(
        "--store good={good} --store again={good} --store plain={plain} \
         --store gone=/nowhere/at/all --store gone=/nowhere/else \
         --queue-depth 0 --min-rate 1K --frame-size 1K --listen 0.0.0.0:1 \
         --tls-cert /nowhere/cert --tokens /nowhere/tokens --user no-such-user \
         --log what=is=this --unix-socket /nowhere/socket --probe-object {plain}"
    );
    let output = check(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "{}", said(&output));
    let text = String::from_utf8(output.stderr).unwrap();
    for words in [
        ["queue-depth", "1 to 4096"],
        ["frame-size", "16K"],
        ["listen", "0.0.0.0:1"],
        ["TLS", "tls-key"],
        ["\"gone\"", "own name"],
        ["\"plain\"", "lumpscope format"],
        ["store \"gone\"", "/nowhere/at/all"],
        ["\"again\"", "same"],
        ["/nowhere/tokens", "read"],
        ["no-such-user", "no user"],
        ["what=is=this", "no filter"],
        ["/nowhere", "look at"],
        ["probe-object", "no compiled BPF object"],
    ] {
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        assert!(text.lines().any(has_all), "{words:?} in {text}");
    }
    let is_ours = |line: &str| line.starts_with("lumpscope: ");
    assert!(text.lines().all(is_ours), "{text}");
}

#[test]
fn every_file_about_logins_and_tls_is_looked_at() {
    let dir = folder();
    let path = store_file(dir.path(), "a", 16 << 20, 4096, 0.05);
    let spec = format!("a={}", path.display());
    let missing = [
        ("--tls-cert", "/nowhere/cert"),
        ("--tls-key", "/nowhere/key"),
        ("--tls-client-ca", "/nowhere/ca"),
        ("--tls-client-crl", "/nowhere/crl"),
        ("--tokens", "/nowhere/tokens"),
        ("--s3-credentials", "/nowhere/s3"),
    ];
    let flags = missing.iter().flat_map(|(flag, file)| [*flag, *file]);
    let more = ["--store", &spec, "--s3-listen", "127.0.0.1:0"].into_iter();
    let output = check(&more.chain(flags).collect::<Vec<_>>());
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for (_, file) in missing {
        let lines = text
            .lines()
            .filter(|line| line.contains(&format!("{file}:")));
        assert_eq!(lines.count(), 1, "{file} in {text}");
    }
}

#[test]
fn a_variable_that_is_wrong_is_named_and_ends_the_check_with_two() {
    use std::os::unix::ffi::OsStringExt as _;
    let dir = folder();
    let path = store_file(dir.path(), "a", 16 << 20, 4096, 0.05);
    let spec = format!("a={}", path.display());
    let latin = std::ffi::OsString::from_vec(vec![b'\xe4']);
    for (name, value) in [
        ("LUMPSCOPE_QUEU_DEPTH", "3".into()),
        ("LUMPSCOPE_QUEUE_DEPTH", "x".into()),
        ("LUMPSCOPE_QUEUE_DEPTH", latin.clone()),
        ("LUMPSCOPE_TIMEOUT", latin.clone()),
    ] {
        let output = program()
            .args(["serve", "--check-config", "--store", &spec])
            .env(name, value)
            .output()
            .unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        assert!(text.contains(name), "{name}: {text}");
    }
}

/// Arguments, variables and keys that cannot be read are problems like others, and nothing that follows
/// from them is one more.
#[test]
fn what_cannot_be_read_is_told_with_everything_else() {
    let dir = folder();
    let config = dir.path().join("wrong.toml");
    let text = "store = 7\nqueue-limit = \"many\"\nquue-depth = 1\nbuffer-budget = \"1M\"\n\
                tls-cert = 1\ntls-key = \"/nowhere/key\"\nlisten = \"0.0.0.0:1\"\n";
    std::fs::write(&config, text).unwrap();
    let output = program()
        .args("serve --check-config --queue-depth x --no-such=1".split(' '))
        .args(["--frame-size=1X", "--config", config.to_str().unwrap()])
        .env("LUMPSCOPE_MAX_STREAMS", "y")
        .env("LUMPSCOPE_QUEUE_DEPHT", "7")
        // As Kubernetes and Docker tell of a service with this name.
        .env("LUMPSCOPE_SERVICE_HOST", "10.0.0.1")
        .env("LUMPSCOPE_PORT", "tcp://10.0.0.1:50051")
        .env("LUMPSCOPE_PORT_50051_TCP_ADDR", "10.0.0.1")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    let text = String::from_utf8(output.stderr).unwrap();
    let found: Vec<&str> = text.lines().collect();
    for words in [
        ["--queue-depth", "'x'"],
        ["--no-such", "unexpected"],
        ["--frame-size", "1X"],
        ["LUMPSCOPE_MAX_STREAMS", "'y'"],
        ["LUMPSCOPE_QUEUE_DEPHT", "no setting"],
        ["wrong.toml, line 1:", ""],
        ["wrong.toml, line 2:", ""],
        ["wrong.toml, line 3:", "quue-depth"],
        ["wrong.toml, line 5:", ""],
        ["buffer-budget", "256M"],
    ] {
        let fits = |line: &&&str| words.iter().all(|word| line.contains(word));
        assert_eq!(found.iter().filter(fits).count(), 1, "{words:?} in {text}");
    }
    assert_eq!(found.len(), 10, "{text}");
}

/// A value that follows from a wrong one was written by nobody.
#[test]
fn what_nobody_wrote_is_no_problem() {
    let dir = folder();
    let store = store_file(dir.path(), "a", 16 << 20, 4096, 0.05);
    let spec = format!("a={}", store.display());
    for (wrong, only) in [
        (["--buffer-budget", "0"], "buffer-budget: 0 is"),
        (["--queue-limit", "0"], "queue-limit: 0 is"),
        (["--put-memory", "900M"], "put-memory: 900M is"),
    ] {
        let output = check(&[&["--store", &spec][..], &wrong].concat());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{wrong:?}: {text}");
        assert!(text.contains(only), "{wrong:?}: {text}");
    }
}

#[test]
fn a_file_that_is_not_toml_is_one_problem() {
    let dir = folder();
    let config = dir.path().join("wrong.toml");
    std::fs::write(&config, "store = [\"a=/x\"]\nlisten = \n").unwrap();
    let output = check(&["--config", config.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let text = said(&output);
    assert!(text.contains("wrong.toml, line 2"), "{text}");
}

#[test]
fn localhost_is_an_address_to_listen_at() {
    let dir = folder();
    let path = store_file(dir.path(), "a", 16 << 20, 4096, 0.05);
    let at = ["--listen", "localhost:0", "--metrics-listen", "localhost:0"];
    let service = Process::start(dir.path(), &[("a", &path)], &at);
    let grpc = &service.grpc;
    assert!(grpc.starts_with("http://127.0.0.1:"), "{grpc}");
    assert!(service.metrics.ip().is_loopback());
    let asked = service.run(&["health"]);
    assert!(asked.status.success(), "{}", said(&asked));

    let far = ["serve", "--store", "a=/x", "--listen", "myhost:50051"];
    let other = run_with(&far, b"");
    assert_eq!(other.status.code(), Some(2));
    let text = said(&other);
    assert!(text.contains("or localhost:50051"), "{text}");
}

/// A certificate and its key, as files.
fn certificate(folder: &Path, name: &str, last_year: i32) -> (PathBuf, PathBuf) {
    let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    params.not_after = rcgen::date_time_ymd(last_year, 1, 1);
    let key = rcgen::KeyPair::generate().unwrap();
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let files = (file("crt"), file("key"));
    std::fs::write(&files.0, params.self_signed(&key).unwrap().pem()).unwrap();
    std::fs::write(&files.1, key.serialize_pem()).unwrap();
    std::fs::set_permissions(&files.1, PermissionsExt::from_mode(0o600)).unwrap();
    files
}

/// Level and words of what doctor finds with this configuration.
fn doctor(config: &Path, topic: &str) -> (String, String) {
    let config = config.to_str().unwrap();
    let output = run_with(&["doctor", "--json", "--config", config], b"");
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let list = findings.as_array().unwrap();
    let found = list.iter().find(|finding| finding["topic"] == topic);
    let found = found.unwrap_or_else(|| panic!("{topic} is not in {findings}"));
    let text = |key: &str| found[key].as_str().unwrap().to_owned();
    (text("level"), text("found"))
}

#[test]
fn certificates_keys_and_tokens_are_looked_into() {
    let dir = folder();
    let store = store_file(dir.path(), "tls", 16 << 20, 4096, 0.05);
    let (cert, key) = certificate(dir.path(), "good", 2090);
    let (old, old_key) = certificate(dir.path(), "old", 2020);
    let tokens = dir.path().join("tokens.toml");
    std::fs::write(&tokens, "what = 1\n").unwrap();
    std::fs::set_permissions(&tokens, PermissionsExt::from_mode(0o600)).unwrap();
    let config = dir.path().join("tls.toml");
    let write = |cert: &Path, key: &Path, more: &str| {
        let text = format!(
            "store = [{:?}]\ntls-cert = {cert:?}\ntls-key = {key:?}\n{more}",
            format!("a={}", store.display())
        );
        std::fs::write(&config, text).unwrap();
        said(&check(&["--config", config.to_str().unwrap()]))
    };
    let text = write(&cert, &key, "");
    assert!(text.contains("tls-key = "), "{text}");
    let secret = std::fs::read_to_string(&key).unwrap();
    assert!(secret.lines().all(|line| !text.contains(line)), "{text}");
    let (level, words) = doctor(&config, "certificate");
    assert!(level == "good" && words.contains("days"), "{level} {words}");
    assert_eq!(doctor(&config, "private key permissions").0, "good");

    // Both the certificate and the tokens are wrong: both are told.
    let text = write(&cert, &old_key, &format!("tokens = {tokens:?}\n"));
    assert!(text.contains("good.crt"), "{text}");
    assert!(text.contains("tokens.toml"), "{text}");
    assert_eq!(doctor(&config, "token file").0, "missing");
    write(&old, &old_key, "");
    let (level, words) = doctor(&config, "certificate");
    assert!(level == "missing", "{level} {words}");
    assert!(words.contains("expired"), "{level} {words}");
    std::fs::set_permissions(&old_key, PermissionsExt::from_mode(0o644)).unwrap();
    assert_eq!(doctor(&config, "private key permissions").0, "missing");
}

const TOKENS: &str = "[[token]]\nname = \"a\"\n\
    sha256 = \"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\"\n\
    scopes = [\"read\"]\nstores = [\"a\"]\n";
const KEYS: &str = "[[key]]\nname = \"a\"\naccess = \"AKA\"\nsecret = \"a-secret-of-the-tests\"\n\
    [[key.allow]]\nbucket = \"b\"\nrights = [\"read\"]\nprefix = \"p/\"\n";

/// A file whose end is missing could give more than was meant: it is told by `--check-config`, and
/// the service does not start with it.
#[test]
fn a_cut_file_of_tokens_or_access_keys_is_refused_before_the_start_and_at_it() {
    let dir = folder();
    let store = store_file(dir.path(), "cut", 16 << 20, 4096, 0.05);
    let spec = format!("a={}", store.display());
    for (key, whole, more) in [
        ("--tokens", TOKENS, [].as_slice()),
        ("--s3-credentials", KEYS, &["--s3-listen", "127.0.0.1:0"]),
    ] {
        let file = dir.path().join(format!("{}.toml", &key[2..]));
        let file_name = file.to_str().unwrap();
        let mut arguments = vec!["--store", &spec, "--no-probes", key, file_name];
        arguments.extend(["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"]);
        arguments.extend(more);
        let write = |text: &str| {
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        };
        write(whole);
        let good = check(&arguments);
        assert!(good.status.success(), "{}", said(&good));
        let ends = whole.match_indices('\n').map(|(at, _)| at + 1);
        for cut in ends.filter(|cut| *cut < whole.len()) {
            write(&whole[..cut]);
            let bad = check(&arguments);
            let text = said(&bad);
            assert_eq!(bad.status.code(), Some(1), "{cut}: {text}");
            assert!(text.contains(file_name), "{cut}: {text}");
        }
        // The last one is whole but for its last line.
        let bad = run_with(&[&["serve"], &arguments[..]].concat(), b"");
        let text = said(&bad);
        assert_eq!(bad.status.code(), Some(1), "{text}");
        assert!(bad.stdout.is_empty() && text.contains("[end]"), "{text}");
        write(whole);
        let more = [more, &[key, file_name]].concat();
        drop(Process::start(dir.path(), &[("a", &store)], &more));
    }
}

#[test]
fn a_trace_url_leads_somewhere_and_says_where_the_id_belongs() {
    let with = |url: &str| {
        ServeConfig {
            stores: vec!["a=/x".parse().unwrap()],
            trace_url: Some(url.to_owned()),
            ..ServeConfig::default()
        }
        .checked()
    };
    for bad in [
        "http://127.0.0.1:16686/trace/",
        "127.0.0.1/{trace_id}",
        "javascript:alert({trace_id})",
        "ftp://host/{trace_id}",
        "http:///{trace_id}",
        "http://a host/{trace_id}",
    ] {
        let why = with(bad).unwrap_err().to_string();
        assert!(why.contains("trace-url"), "{bad}: {why}");
        assert!(why.contains("{trace_id}"), "{bad}: {why}");
    }
    let good = "https://grafana.example/explore?id={trace_id}";
    let config = with(good).unwrap();
    assert_eq!(config.trace_url.as_deref(), Some(good));
    assert_eq!(with("").unwrap().trace_url, None);
}

/// A limit as systemd, docker and Kubernetes write it: what stands behind `before`, up to `after`.
fn limit(text: &str, before: &str, after: char) -> u64 {
    let (_, rest) = text.split_once(before).expect(before);
    let size = rest.split(after).next().unwrap();
    let Size(bytes) = size.trim_end_matches('i').to_uppercase().parse().unwrap();
    bytes
}

#[test]
fn the_memory_that_the_service_is_given_is_enough_for_what_it_may_hold() {
    // The index of two million lumps, which is not a part of the sum.
    const INDEX: u64 = 64 << 20;
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).unwrap();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let manifest = read("docs/kubernetes/base/lumpscope.yaml");
    let (_, settings) = manifest.split_once("lumpscope.toml: |\n").unwrap();
    let (settings, _) = settings.split_once("---").unwrap();
    let compose = read("docker-compose.yml");
    let of_demo = |key: &str| {
        let (_, rest) = compose.split_once(&format!("LUMPSCOPE_{key}: ")).unwrap();
        rest.lines().next().unwrap().to_owned()
    };
    let demo = format!(
        "store = [\"raw=/a\", \"ext4=/b\", \"xfs=/c\"]\nput-memory = {:?}\nget-memory = {:?}\n\
         buffer-budget = {:?}\n",
        of_demo("PUT_MEMORY"),
        of_demo("GET_MEMORY"),
        of_demo("BUFFER_BUDGET")
    );
    let of_compose = limit(&compose, "LUMPSCOPE_MEMORY:-", '}');
    let unit = read("service/server/systemd/lumpscope.service");
    let unit = limit(&unit, "MemoryMax=", '\n');
    let pod = limit(&manifest, "limits:\n              memory: ", '\n');
    for (what, settings, given) in [
        ("unit", read("service/server/lumpscope.example.toml"), unit),
        ("kubernetes", settings.to_owned(), pod),
        ("compose", "store = [\"disk=/a\"]".to_owned(), of_compose),
        ("compose, demo", demo, of_compose),
    ] {
        let config: ServeConfig = toml::from_str(&settings).unwrap();
        let sum = memory_sum(&config.checked().unwrap());
        let is_enough = sum + INDEX <= given;
        assert!(is_enough, "{what}: {} of {}", Size(sum), Size(given));
    }
}

#[test]
fn a_token_for_the_collector_goes_to_no_other_machine_in_clear() {
    let dir = folder();
    let store = store_file(dir.path(), "clear", 16 << 20, 4096, 0.05);
    let store = format!("a={}", store.display());
    let check = |endpoint: &str, variable: &str| {
        Command::new(PROGRAM)
            .args(["serve", "--check-config", "--store", &store])
            .args(["--otlp-endpoint", endpoint])
            .env(variable, "authorization=Bearer%20s3cret")
            .output()
            .unwrap()
    };
    for of in ["", "TRACES_"] {
        let variable = &*format!("OTEL_EXPORTER_OTLP_{of}HEADERS");
        for far in ["http://collector.example:4317", "http://192.0.2.1:4317"] {
            let refused = check(far, variable);
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(!refused.status.success(), "{far}");
            for word in [far, variable, "unencrypted", "https://"] {
                assert!(said.contains(word), "{word:?} in {said}");
            }
            assert!(!said.contains("s3cret"), "{said}");
        }
        for safe in [
            "http://127.0.0.1:4317",
            "http://[::1]:4317",
            "http://localhost:4317",
            "https://collector.example:4317",
        ] {
            assert!(check(safe, variable).status.success(), "{safe}");
        }
    }
    let without = check("http://collector.example:4317", "OTHER");
    assert!(without.status.success());
}
