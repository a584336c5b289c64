//! The rules, one test each.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::{files, root, text};

#[test]
fn nothing_is_left_unfinished() {
    let marks = [
        "TO".to_owned() + "DO",
        "FIX".to_owned() + "ME",
        "to".to_owned() + "do!(",
        "unimpl".to_owned() + "emented!(",
    ];
    let mut found = Vec::new();
    let ends = [
        ".rs",
        ".sh",
        ".bt",
        ".proto",
        ".toml",
        "dev",
        "build-probes",
    ];
    for path in files(&ends) {
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
    let begins = markdown.match_indices("](");
    let targets = begins.filter_map(|(at, _)| Some(markdown[at + 2..].split_once(')')?.0));
    targets.collect()
}

/// Whether a Markdown text has a heading with this anchor, as hosting pages make it.
fn has_anchor(markdown: &str, anchor: &str) -> bool {
    let mut headings = markdown.lines().filter_map(|line| line.strip_prefix('#'));
    headings.any(|heading| {
        let heading = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let heading: String = heading.chars().filter(kept).collect();
        heading.replace(' ', "-") == anchor
    })
}

#[test]
fn links_in_documents_resolve() {
    let mut broken = Vec::new();
    for path in files(&[".md"]) {
        let folder = path.parent().expect("a file lies in a folder");
        for target in link_targets(&text(&path)) {
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let file = match file {
                "" => path.clone(),
                file => folder.join(file),
            };
            let there = root().join(&file).exists();
            if !there || !anchor.is_empty() && !has_anchor(&text(&file), anchor) {
                broken.push(format!("{} -> {target}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

/// Words that a paragraph or an item of a list may have.
const MOST_WORDS: usize = 90;

/// Paragraphs and items of a Markdown text, without headings, tables and code.
fn paragraphs(markdown: &str) -> Vec<String> {
    let (mut found, mut code) = (vec![String::new()], false);
    for line in markdown.lines() {
        let fence = line.starts_with("```");
        code ^= fence;
        let apart = fence || code || line.is_empty() || line.starts_with(['#', '|', '<']);
        let number = line.split_once(". ").map_or("", |(number, _)| number);
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        if apart || digits || line.starts_with("- ") {
            found.push(String::new());
        }
        if let (false, Some(last)) = (apart, found.last_mut()) {
            last.push(' ');
            last.push_str(line);
        }
    }
    found
}

#[test]
fn paragraphs_are_short() {
    let mut long = Vec::new();
    for path in files(&[".md"]) {
        for paragraph in paragraphs(&text(&path)) {
            let words = paragraph.split_whitespace().count();
            if words > MOST_WORDS {
                long.push(format!("{}: {words} words:{paragraph}", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "more than {MOST_WORDS} words: {long:#?}");
}

#[test]
fn the_pictures_are_of_this_version() {
    let workspace = text(Path::new("Cargo.toml"));
    let version = workspace.split("\nversion = \"").nth(1);
    let version = version.and_then(|rest| rest.split('"').next());
    let taken = text(Path::new("docs/pictures/VERSION"));
    assert_eq!(Some(taken.trim()), version, "run ./dev screenshots");
}

#[test]
fn every_bpftrace_script_has_an_example() {
    for path in files(&[".bt"]) {
        let name = path.file_stem().and_then(|stem| stem.to_str());
        let example = format!("{}_example.txt", name.expect("names are UTF-8"));
        let is_there = root().join(&path).with_file_name(&example).is_file();
        assert!(is_there, "{} has no {example}", path.display());
        let says = text(&path).contains("cannot see");
        assert!(says, "{} does not say what it cannot see", path.display());
    }
}

/// Names of the packages that a package needs at run time, without its default features.
fn dependencies(package: &str) -> BTreeSet<String> {
    let mut tree = Command::new(env!("CARGO"));
    tree.args("tree --locked --no-default-features --edges normal --prefix none".split(' '));
    tree.args(["--package", package, "--format", "{p}"]);
    let output = tree.current_dir(root()).output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let tree = String::from_utf8(output.stdout).expect("names are UTF-8");
    let names = tree.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn dependencies_point_down_the_data_path() {
    for (package, forbidden) in [
        ("lumpscope-units", "lumpscope-engine tokio clap"),
        (
            "lumpscope-engine",
            "tokio tonic aya opentelemetry lumpscope-observer",
        ),
        (
            "lumpscope-objects",
            "tonic http aya lumpscope-observer lumpscope-server",
        ),
        (
            "lumpscope-observer",
            "tonic lumpscope-engine lumpscope-server",
        ),
        (
            "lumpscope-platter",
            "tokio tonic aya lumpscope-observer lumpscope-server",
        ),
        ("lumpscope-server", "s3s"),
        ("lumpscope-lab", "lumpscope-server"),
        ("lumpscope-ebpf-common", "aya libc"),
    ] {
        let needs = dependencies(package);
        assert!(needs.contains(package), "{package} is not in its own tree");
        for name in forbidden.split(' ') {
            assert!(!needs.contains(name), "{package} must not depend on {name}");
        }
    }
}

/// Libraries that users run. Nothing that measures them belongs to them.
const PRODUCT: [&str; 9] = [
    "lumpscope-units",
    "lumpscope-proto",
    "lumpscope-engine",
    "lumpscope-objects",
    "lumpscope-client",
    "lumpscope-observer",
    "lumpscope-server",
    "lumpscope-s3",
    // The program without its feature `lab`.
    "lumpscope",
];

#[test]
fn the_product_does_not_need_its_laboratory() {
    for package in PRODUCT {
        let needs = dependencies(package);
        assert!(needs.contains(package), "{package} is not in its own tree");
        for name in ["lumpscope-lab", "lumpscope-platter"] {
            assert!(!needs.contains(name), "{package} must not depend on {name}");
        }
    }
}

#[test]
fn the_readme_is_one_page_and_its_figures_are_the_measured_ones() {
    let readme = text(Path::new("README.md"));
    assert!(readme.lines().count() <= 120, "longer than 120 lines");
    assert!(readme.len() <= 10_000, "{} bytes", readme.len());
    let measured = text(Path::new("docs/measured.md"));
    let words = "missed";
    assert!(!readme.contains(words), "missed goals stand in measured.md");
    let heading = "\n## What the disk does for an object\n";
    let (_, figures) = readme.split_once(heading).expect("the figures");
    let figures = figures.split("\n## ").next().expect("a section");
    let rows = figures.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<&str> = rows.skip(1).collect();
    assert_eq!(rows.len(), 6, "{rows:#?}");
    for row in rows {
        let found = measured.lines().any(|line| line == row);
        assert!(found, "not in docs/measured.md: {row}");
    }
}

/// Lines of a comment that stands directly above a line.
fn comment_above<'a>(lines: &'a [&'a str], at: usize) -> impl Iterator<Item = &'a str> {
    let above = lines[..at].iter().rev().map(|line| line.trim());
    above.take_while(|line| line.starts_with("//") || line.starts_with("#["))
}

#[test]
fn unsafe_blocks_of_the_probes_say_why_they_are_sound() {
    // The workspace's lints do not see them: the probes are a workspace of their own.
    let (mut blocks, mut bare) = (0, Vec::new());
    let of_probes = |path: &&std::path::PathBuf| path.starts_with("ebpf/probes/src");
    for path in files(&[".rs"]).iter().filter(of_probes) {
        let text = text(path);
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if line.trim_start().starts_with("//") || !line.contains("unsafe {") {
                continue;
            }
            blocks += 1;
            if !comment_above(&lines, at).any(|above| above.starts_with("// SAFETY: ")) {
                bare.push(format!("{}:{}", path.display(), at + 1));
            }
        }
    }
    assert!(blocks > 20, "only {blocks} blocks: does the rule see them?");
    assert!(bare.is_empty(), "unsafe without `// SAFETY: `: {bare:#?}");
}

/// The writer knows what cannot be written and what must not reach a terminal. Lints refuse `println!`
/// there; this refuses the handles.
#[test]
fn the_command_line_writes_in_one_place() {
    let mut found = Vec::new();
    for path in files(&[".rs"]) {
        if !path.starts_with("service/cli/src") || path.ends_with("output.rs") {
            continue;
        }
        for (number, line) in text(&path).lines().enumerate() {
            let writes = ["io::stdout()", "io::stderr()"];
            if !line.contains("is_terminal()") && writes.iter().any(|handle| line.contains(handle))
            {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(found.is_empty(), "use crate::output: {found:#?}");
}

/// Most types of one name.
const MOST_NAMESAKES: usize = 3;

/// The name of the type or trait that a line at the left margin of a file defines. In tests, aliases are none.
fn defined(line: &str, is_test: bool) -> Option<&str> {
    let mut words = line.split(' ');
    let mut kind = words.next()?;
    if kind == "pub" || kind.starts_with("pub(") {
        kind = words.next()?;
    }
    let name = words.next()?;
    let end = name.find(|c: char| !c.is_alphanumeric());
    let is_type = matches!(kind, "struct" | "enum" | "union" | "trait");
    let is_alias = kind == "type" && !is_test;
    (is_type || is_alias).then(|| &name[..end.unwrap_or(name.len())])
}

/// A name that says what its type is, as `PageState`, needs no path to be understood.
#[test]
fn few_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files(&[".rs"]) {
        let is_test = path.ends_with("tests.rs") || path.iter().any(|part| part == "tests");
        let text = text(&path);
        for name in text.lines().filter_map(|line| defined(line, is_test)) {
            let all = places.entry(name.to_owned()).or_default();
            all.push(path.display().to_string());
        }
    }
    assert!(places.len() > 1000, "does the rule see the types?");
    // Of the lab and of the engine, two each.
    let most = |name: &str| MOST_NAMESAKES + usize::from(name == "Row");
    places.retain(|name, all| all.len() > most(name));
    assert!(places.is_empty(), "names of too many types: {places:#?}");
}
