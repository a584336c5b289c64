//! The program as people run it: arguments, the ready line, signals, files and pipes.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use crate::common::{body, folder};
use crate::process::{Process, run_with};
use rustix::process::Signal;

fn run(arguments: &[&str]) -> Output {
    run_with(arguments, b"")
}

#[track_caller]
fn good(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// One line on stderr that has all the words, and exit code 1.
#[track_caller]
fn bad(output: &Output, words: &[&str]) {
    bad_with(1, output, words);
}

/// Fails with another exit code.
#[track_caller]
fn bad_with(code: i32, output: &Output, words: &[&str]) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for word in words {
        assert!(text.contains(word), "{word:?} in {text:?}");
    }
    assert_eq!(text.lines().count(), 1, "{text:?}");
}

fn format(path: &Path) {
    let path = path.to_str().unwrap();
    let how = ["--capacity", "16M", "--prealloc", "fallocate"];
    good(&run(&[&["format", path], &how[..]].concat()));
}

#[test]
fn a_lump_goes_in_and_out_and_survives_a_restart() {
    let dir = folder();
    let store = dir.path().join("lumpscope-cli.lusf");
    format(&store);
    let file = dir.path().join("in");
    let bytes = body(1, 3_000_000);
    std::fs::write(&file, &bytes).unwrap();

    let service = Process::start(dir.path(), &[("disk", &store)], &[]);
    let said = good(&service.run(&["put", "disk", "abc", file.to_str().unwrap()]));
    let created = "created 00000000000000000000000000000abc";
    assert!(said.starts_with(created), "{said}");
    let (piped, bytes_piped) = (["put", "disk", "abd", "-", "--embedded"], b"through a pipe");
    good(&service.feed(&piped, bytes_piped));
    let got = service.run(&["get", "disk", "abd"]).stdout;
    assert_eq!(got, bytes_piped);
    let part = ["get", "disk", "abd", "--offset", "8", "--length", "3"];
    assert_eq!(service.run(&part).stdout, b"a p");
    let head = good(&service.run(&["get", "disk", "abd", "--head"]));
    assert!(head.contains("14 bytes in the journal"), "{head}");
    let list = good(&service.run(&["list", "disk"]));
    assert_eq!(list.lines().count(), 2, "{list}");
    assert!(good(&service.run(&["stat", "disk"])).contains("lumps in the range"));
    assert!(good(&service.run(&["stores"])).contains("disk"));
    let no_lump = service.run(&["get", "disk", "1"]);
    bad_with(3, &no_lump, &["no lump", "NOT_FOUND", "request"]);
    let no_store = service.run(&["get", "tape", "1"]);
    bad_with(3, &no_store, &["no store", "has disk"]);
    assert_eq!(service.run(&["get", "disk", "xyz"]).status.code(), Some(2));
    assert!(service.stop().success());

    let service = Process::start(dir.path(), &[("disk", &store)], &[]);
    let out = dir.path().join("out");
    good(&service.run(&["get", "disk", "abc", out.to_str().unwrap()]));
    assert!(std::fs::read(&out).unwrap() == bytes);
    assert_eq!(good(&service.run(&["delete", "disk", "abc"])), "deleted\n");
    assert!(good(&service.run(&["delete", "disk", "abc"])).contains("no such lump"));
    let said = good(&service.run(&["delete", "disk", "--start", "0", "--end", "ffff"]));
    assert_eq!(said, "deleted 1 lump\n");
    assert!(service.stop().success());
}

#[test]
fn what_serve_refuses() {
    let dir = folder();
    let store = dir.path().join("lumpscope-refuse.lusf");
    format(&store);
    let spec = format!("a={}", store.display());
    let linked = dir.path().join("lumpscope-link");
    std::os::unix::fs::symlink(&store, &linked).unwrap();
    let twice = format!("b={}", linked.display());
    let plain = dir.path().join("lumpscope-plain");
    std::fs::write(&plain, vec![1; 1 << 20]).unwrap();
    let plain = format!("p={}", plain.display());
    let serve = |arguments: &[&str]| {
        let ports = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
        let quiet = ["--no-probes", "--log", "off"];
        run(&[&["serve"], &ports[..], &quiet, arguments].concat())
    };
    let config = dir.path().join("config.toml");
    std::fs::write(&config, "store = []\nfoo = 1\n").unwrap();
    let config = config.to_str().unwrap();
    for (arguments, words) in [
        (&[][..], &["no store", "--store"][..]),
        (
            &["--store", &spec, "--store", &twice],
            &["\"a\"", "\"b\"", "same"],
        ),
        (&["--store", &spec, "--store", &spec], &["own name"]),
        (&["--store", &plain], &["\"p\"", "lumpscope format"]),
        (
            &["--store", "n=/nowhere/at/all"],
            &["\"n\"", "/nowhere/at/all"],
        ),
        (&["--config", config], &["config.toml, line 2", "foo"]),
    ] {
        bad(&serve(arguments), words);
    }
    let remote = ["--store", &spec, "--listen", "0.0.0.0:0"];
    let output = run(&[&["serve"], &remote[..]].concat());
    bad(&output, &["--allow-remote", "--tls-cert", "--tokens"]);
    let formatted = run(&["format", store.to_str().unwrap()]);
    bad(&formatted, &["store", "--force"]);
    let nobody = run(&["stores", "--server", "http://127.0.0.1:1"]);
    bad(&nobody, &["cannot reach", "lumpscope serve"]);
    assert_eq!(run(&["serve", "--what"]).status.code(), Some(2));
    assert!(good(&run(&["--version"])).starts_with("lumpscope 0."));
}

/// The kernel refuses writes beyond a file-size limit: a disk that fails, without privileges.
#[test]
fn a_store_that_fails_says_so_and_the_others_go_on() {
    let dir = folder();
    let [one, two] = ["lumpscope-1.lusf", "lumpscope-2.lusf"].map(|name| dir.path().join(name));
    let path = one.to_str().unwrap();
    let sizes = "--capacity 16M --journal-ratio 0.5 --prealloc fallocate";
    let format_one = ["format", path].into_iter().chain(sizes.split(' '));
    good(&run(&format_one.collect::<Vec<_>>()));
    format(&two);
    // 2 MiB in units of 512 bytes: inside the journal of the first store, whose data region is
    // behind it, and inside the data region of the second, behind its journal.
    let stores = [("f", one.as_path()), ("g", two.as_path())];
    let threads = ["--io-backend", "threads"];
    let service = Process::limited(dir.path(), &stores, &threads, 2 << 20);
    let bytes = body(1, 40_000);
    let put = |store: &str, id: &str, how: &[&str]| {
        service.feed(&[&["put", store, id, "-"], how].concat(), &bytes)
    };
    // Its data region cannot be written, its journal can: the put fails, the store goes on.
    bad(&put("f", "1", &[]), &["INTERNAL"]);
    let mut stored = 0;
    let failed = loop {
        stored += 1;
        let output = put("f", &format!("{stored:x}"), &["--embedded"]);
        if !output.status.success() {
            break output;
        }
        assert!(stored < 90, "the limit does not hold");
    };
    assert!(stored > 5, "{failed:?}");
    let words = ["refuses the journal", "UNAVAILABLE"];
    bad(&put("f", "ffff", &["--embedded"]), &words);
    bad(&service.run(&["delete", "f", "1"]), &words);
    assert!(service.run(&["get", "f", "1"]).stdout == bytes);
    let stores = good(&service.run(&["stores"]));
    assert!(stores.contains("read-only: the disk refuses"), "{stores}");
    good(&put("g", "1", &["--embedded"]));
    assert!(service.stop().code().is_some());
}

#[test]
fn doctor_speaks_to_people_and_machines() {
    let short = run(&["doctor"]);
    let text = String::from_utf8_lossy(&short.stdout).into_owned();
    assert!(text.lines().count() <= 10, "{text}");
    for part in ["works ", "doctor --all"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let table = run(&["doctor", "--all"]);
    assert_eq!(short.status.code(), table.status.code());
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    for topic in [
        "io_uring",
        "huge pages",
        "loop devices",
        "xfs tools",
        "scrub-rate",
    ] {
        assert!(text.contains(topic), "{topic} in {text}");
    }
    let json = run(&["doctor", "--json"]);
    assert_eq!(json.status.code(), table.status.code());
    let findings: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert!(findings.as_array().unwrap().len() >= 6);
}

/// Commands of the runbooks have these names and options: asked for help, they say no error.
#[test]
fn the_runbooks_name_commands_that_exist() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/runbooks");
    let files = std::fs::read_dir(folder).unwrap();
    let text = |file: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(file.unwrap().path()).unwrap()
    };
    let all: String = files.map(text).collect();
    let named = all.split('`').skip(1).step_by(2);
    let commands: BTreeSet<&str> = named.filter_map(|c| c.strip_prefix("lumpscope ")).collect();
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands {
        let words = command.split(" >").next().unwrap_or_default();
        let words = words.split_whitespace();
        let words = words.map(|w| if w == "ID" { "1" } else { w });
        let asked: Vec<&str> = words.chain(["--help"]).collect();
        let help = run(&asked);
        assert!(help.status.success(), "{command}: {help:?}");
    }
}

#[test]
fn check_says_what_is_there_and_exits_with_what_it_found() {
    let folder = folder();
    let path = folder.path().join("a.lusf");
    format(&path);
    let name = path.to_str().unwrap();
    let serving = Process::start(folder.path(), &[("a", &path)], &[]);
    for (id, len) in [("1", 10), ("2", 200_000)] {
        good(&serving.feed(&["put", "a", id, "-", "--data"], &body(1, len)));
    }
    let in_use = run(&["check", name]);
    assert_eq!(in_use.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&in_use.stderr).contains("in use"));
    assert!(serving.stop().success());

    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&run(arguments).stdout).unwrap()
    };
    let report = json(&["check", "--quick", "--json", name]);
    assert_eq!(report["lumps"]["count"], 2);
    assert_eq!(report["journal"]["records"]["put"], 2);
    assert_eq!(report["image"]["layout"], "lusf");
    assert!(report["journal"]["seal"]["epoch"].is_string());
    assert!(good(&run(&["check", "--quick", name])).contains("findings     none"));
    let lines = good(&run(&["check", name, "--lumps", "--start", "2", "--json"]));
    let lump: serde_json::Value = serde_json::from_str(lines.trim()).unwrap();
    assert_eq!(lump["id"], "00000000000000000000000000000002");
    let first = good(&run(&["check", name, "--journal", "--limit", "1"]));
    assert_eq!(first.lines().count(), 1);
    let clean = run(&["check", name]);
    assert!(good(&clean).contains("2 verified"), "{clean:?}");

    let offset = lump["offset"].as_u64().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"rotten", offset + 100_000).unwrap();
    let report = run(&["check", "--json", name]);
    assert_eq!(report.status.code(), Some(4));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let finding = &report["findings"]["list"][0];
    assert_eq!(finding["kind"], "checksum");
    assert_eq!(finding["lump"], lump["id"]);
    assert!(finding["portion"]["count"].as_u64() > Some(40));
    let (first, sectors) = (&finding["first_sector"], &finding["sectors"]);
    let bad = (offset + 100_000) / 512;
    let first = first.as_u64().unwrap();
    let found = first..first + sectors.as_u64().unwrap();
    assert!(found.contains(&bad), "{finding}");
    // Damage is known to the chunk.
    assert!(sectors.as_u64() <= Some(128), "{finding}");

    let nothing = folder.path().join("nothing");
    std::fs::write(&nothing, vec![0; 100_000]).unwrap();
    for more in ["--quick", "--lumps", "--journal", "--salvage"] {
        let refused = run(&["check", nothing.to_str().unwrap(), more]);
        assert_eq!(refused.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&refused.stderr).contains("not a lump store"));
    }
}

/// Damages the record of the second lump; answers its position in the ring.
fn rot_second_record(path: &Path) -> u64 {
    let name = path.to_str().unwrap();
    let records = good(&run(&["check", name, "--journal", "--json"]));
    let second = records.lines().nth(1).unwrap();
    let second: serde_json::Value = serde_json::from_str(second).unwrap();
    assert_eq!(second["record"], "put");
    let at = second["ring_position"].as_u64().unwrap();
    let report = run(&["check", "--quick", "--json", name]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let block = report["image"]["block_size"].as_u64().unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"rot", 2 * block + at + 9).unwrap();
    at
}

/// All that was saved of store a arrives in b.
fn evacuates(serving: &Process) {
    good(&serving.run(&["evacuate", "a", "b"]));
    for id in ["1", "3"] {
        assert_eq!(serving.run(&["get", "b", id]).stdout, body(1, 5000));
    }
}

#[test]
fn a_damaged_store_is_salvaged_once_and_opens_ever_after() {
    let folder = folder();
    let path = folder.path().join("a.lusf");
    format(&path);
    let name = path.to_str().unwrap();
    let serve = || Process::start(folder.path(), &[("a", &path)], &[]);
    let serving = serve();
    for id in ["1", "2", "3"] {
        good(&serving.feed(&["put", "a", id, "-", "--data"], &body(1, 5000)));
    }
    assert!(serving.stop().success());
    assert!(good(&run(&["check", "--salvage", "--quick", name])).contains("no damage"));

    let at = rot_second_record(&path);
    let position = format!("ring position {at}");
    let refused = run(&["serve", "--no-probes", "--store", &format!("a={name}")]);
    bad(&refused, &[&position, "--salvage"]);
    let before = std::fs::read(&path).unwrap();
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(4), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = json(&["check", "--salvage", "--quick", "--json", name]);
    assert_eq!(found["lumps"], 2);
    assert_eq!((&found["gaps"], found["cut"].is_null()), (&1.into(), true));
    assert_eq!(found["findings"][0]["ring_position"], at);
    assert_eq!(found["findings"][0]["action"], "log_resumed");
    assert_eq!(found["repaired"], false);
    let checked = json(&["check", "--salvage", "--json", name]);
    assert_eq!(checked["salvage"], found);
    assert_eq!(checked["verified_lumps"], 2);
    let text = run(&["check", "--salvage", name]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    let damaged = "continues after 1 damaged part\n";
    for part in ["2 lumps verified", damaged, "serve --salvage"] {
        assert!(text.contains(part), "{text}");
    }
    let is_same = before == std::fs::read(&path).unwrap();
    assert!(is_same, "a look has written");

    let other = folder.path().join("b.lusf");
    format(&other);
    let stores = [("a", path.as_path()), ("b", other.as_path())];
    let mut serving = Process::start(folder.path(), &stores, &["--salvage"]);
    evacuates(&serving);
    serving.signal(Signal::TERM);
    assert!(serving.ended(Duration::from_secs(60)).success());
    let logged = serving.log();
    for part in ["salvage", &position, "repaired=true"] {
        assert!(logged.contains(part), "{logged}");
    }
    let serving = serve();
    for id in ["1", "3"] {
        let got = serving.run(&["get", "a", id]);
        assert_eq!(got.stdout, body(1, 5000));
    }
    assert!(!serving.run(&["get", "a", "2"]).status.success());
    assert!(serving.stop().success());
    let clean = run(&["check", "--salvage", "--quick", name]);
    assert!(good(&clean).contains("no damage"));
}
