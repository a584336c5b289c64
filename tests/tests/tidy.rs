//! Rules of the house that a compiler does not check. Needs neither root nor devices.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Rust file longer than this is about more than one thing.
const LONGEST_FILE: usize = 600;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("tests/ lies in the workspace")
        .to_owned()
}

/// The project's files, relative to the root: what git tracks or would track.
fn files(ends: &[&str]) -> Vec<PathBuf> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(root())
        .output()
        .expect("git runs");
    assert!(output.status.success(), "not a git checkout");
    let list = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let found: Vec<PathBuf> = list
        .lines()
        .filter(|path| ends.iter().any(|end| path.ends_with(end)))
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect();
    assert!(!found.is_empty(), "no file ends in {ends:?}");
    found
}

fn text(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).expect("tracked files are readable text")
}

#[test]
fn files_are_about_one_thing() {
    let long: Vec<String> = files(&[".rs"])
        .iter()
        .map(|path| (path, text(path).lines().count()))
        .filter(|(_, lines)| *lines > LONGEST_FILE)
        .map(|(path, lines)| format!("{} has {lines} lines", path.display()))
        .collect();
    assert!(
        long.is_empty(),
        "longer than {LONGEST_FILE} lines: {long:#?}"
    );
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = [
        "TO".to_owned() + "DO",
        "FIX".to_owned() + "ME",
        "to".to_owned() + "do!(",
        "unimpl".to_owned() + "emented!(",
    ];
    let mut found = Vec::new();
    for path in files(&[
        ".rs",
        ".sh",
        ".bt",
        ".proto",
        ".toml",
        "dev",
        "build-probes",
    ]) {
        for (number, line) in text(&path).lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark.as_str())) {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "unfinished: {found:#?}");
}

/// Targets of the inline links of a Markdown text.
fn link_targets(markdown: &str) -> Vec<&str> {
    markdown
        .match_indices("](")
        .filter_map(|(at, _)| markdown[at + 2..].split_once(')').map(|(target, _)| target))
        .collect()
}

#[test]
fn links_in_documents_resolve() {
    let mut broken = Vec::new();
    for path in files(&[".md"]) {
        let folder = root()
            .join(&path)
            .parent()
            .expect("a file lies in a folder")
            .to_owned();
        for target in link_targets(&text(&path)) {
            let file = target.split('#').next().unwrap_or("");
            if target.contains("://") || file.is_empty() {
                continue;
            }
            if !folder.join(file).exists() {
                broken.push(format!("{} -> {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

#[test]
fn every_bpftrace_script_has_an_example() {
    for path in files(&[".bt"]) {
        let name = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .expect("names are UTF-8");
        let example = root()
            .join(&path)
            .with_file_name(format!("{name}_example.txt"));
        assert!(
            example.is_file(),
            "{} has no {}",
            path.display(),
            example.display()
        );
        assert!(
            text(&path).contains("cannot see"),
            "{} does not say what it cannot see",
            path.display()
        );
    }
}

/// Names of the packages that a package needs at run time.
fn dependencies(package: &str) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--locked",
            "--package",
            package,
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
        ])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let tree = String::from_utf8(output.stdout).expect("names are UTF-8");
    tree.lines()
        .filter_map(|line| line.split(' ').next())
        .map(str::to_owned)
        .collect()
}

#[test]
fn dependencies_point_down_the_data_path() {
    let rules: [(&str, &[&str]); 7] = [
        ("lumpscope-units", &["lumpscope-engine", "tokio", "clap"]),
        (
            "lumpscope-engine",
            &[
                "tokio",
                "tonic",
                "aya",
                "opentelemetry",
                "lumpscope-observer",
            ],
        ),
        (
            "lumpscope-objects",
            &["tonic", "http", "aya", "lumpscope-observer", "lumpscope"],
        ),
        (
            "lumpscope-observer",
            &["tonic", "lumpscope-engine", "lumpscope"],
        ),
        (
            "lumpscope-platter",
            &["tokio", "tonic", "aya", "lumpscope-observer", "lumpscope"],
        ),
        ("lumpscope-lab", &["lumpscope"]),
        ("lumpscope-ebpf-common", &["aya", "libc"]),
    ];
    for (package, forbidden) in rules {
        let needs = dependencies(package);
        assert!(needs.contains(package), "{package} is not in its own tree");
        for name in forbidden {
            assert!(
                !needs.contains(*name),
                "{package} must not depend on {name}"
            );
        }
    }
}

#[test]
fn documents_name_only_commands_that_exist() {
    let help = lumpscope_tests::service::run_ok(&["--help"]);
    let known: BTreeSet<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(
        known.contains("serve"),
        "the help lists no commands: {help}"
    );
    for document in ["README.md", "ARCHITECTURE.md"] {
        for (at, _) in text(Path::new(document)).match_indices("`lumpscope ") {
            let rest = &text(Path::new(document))[at + "`lumpscope ".len()..];
            let word = rest
                .split(|c: char| c.is_whitespace() || c == '`')
                .next()
                .unwrap_or("");
            assert!(
                known.contains(word),
                "{document} names '{word}', which is no command"
            );
        }
    }
}
