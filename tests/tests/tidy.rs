//! Rules of the house that a compiler does not check. Needs neither root nor devices.

use std::collections::{BTreeMap, BTreeSet};
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

/// The commands that a help text lists.
fn listed_commands(help: &str) -> BTreeSet<String> {
    help.lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| line.starts_with("  "))
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Help of a command line's command, which is the longest run of its words that are commands.
fn help_of(line: &str, cache: &mut BTreeMap<String, String>) -> String {
    let mut path = String::new();
    let mut help = String::new();
    for word in std::iter::once("").chain(line.split_whitespace()) {
        if !word.is_empty() && !listed_commands(&help).contains(word) {
            break;
        }
        path = format!("{path} {word}");
        let known = cache.entry(path.trim().to_owned()).or_insert_with(|| {
            let mut words: Vec<&str> = path.split_whitespace().collect();
            words.push("--help");
            lumpscope_tests::service::run_ok(&words)
        });
        help.clone_from(known);
    }
    help
}

/// Command lines of `lumpscope` in a document, without the name: inline code and lines of blocks.
fn command_lines(markdown: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block = false;
    for line in markdown.lines() {
        if line.starts_with("```") {
            block = !block;
        } else if block {
            let line = line.strip_prefix("sudo ").unwrap_or(line);
            let line = line.split(" #").next().unwrap_or(line);
            found.extend(line.strip_prefix("lumpscope "));
        } else {
            let code = line.split('`').skip(1).step_by(2);
            let code = code.map(|code| code.strip_prefix("sudo ").unwrap_or(code));
            found.extend(code.filter_map(|code| code.strip_prefix("lumpscope ")));
        }
    }
    found.into_iter().map(str::to_owned).collect()
}

#[test]
fn documents_name_only_commands_and_flags_that_exist() {
    let mut cache = BTreeMap::new();
    let known = listed_commands(&help_of("", &mut cache));
    assert!(known.contains("serve"), "the help lists no commands");
    let mut wrong = Vec::new();
    let mut flags = 0;
    for path in files(&[".md"]) {
        for line in command_lines(&text(&path)) {
            let command = line.split_whitespace().next().unwrap_or("");
            if !known.contains(command) {
                // A flag of the program, a placeholder, or a name that is no command.
                if command.starts_with(|c: char| c.is_ascii_lowercase()) {
                    wrong.push(format!("{}: {line}", path.display()));
                }
                continue;
            }
            let help = help_of(&line, &mut cache);
            let words = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
            let words: BTreeSet<&str> = words.collect();
            for word in line.split_whitespace().filter(|w| w.starts_with("--")) {
                let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
                let flag = &word[..end.unwrap_or(word.len())];
                flags += 1;
                if !words.contains(flag) {
                    wrong.push(format!("{}: no {flag} in {line}", path.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not in the help: {wrong:#?}");
    assert!(flags > 50, "only {flags} flags found in the documents");
}

#[test]
fn the_readme_is_one_page_and_its_figures_are_the_measured_ones() {
    let readme = text(Path::new("README.md"));
    assert!(readme.lines().count() <= 120, "longer than 120 lines");
    assert!(readme.len() <= 10_000, "{} bytes", readme.len());
    let measured = text(Path::new("docs/measured.md"));
    let figures = readme.split("\n## Measured\n").nth(1).expect("the figures");
    let figures = figures.split("\n## ").next().expect("a section");
    let rows: Vec<&str> = figures
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split_once(" | "))
        .map(|(_, cells)| cells)
        .skip(1)
        .collect();
    assert_eq!(rows.len(), 8, "{rows:#?}");
    for row in rows {
        // All lines, because several figures may have the same command.
        let mut lines = measured.lines();
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        assert!(
            lines.any(|line| cells.iter().all(|cell| line.contains(cell))),
            "not in docs/measured.md: {row}"
        );
    }
}
