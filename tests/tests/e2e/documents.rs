//! Documents, and files that start the program, name only commands and flags that it has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use lumpscope_tests::service::run_ok;
use lumpscope_tidy::{files, text};

/// Headings of commands: of all, and of those of one command.
const HEADINGS: [&str; 7] = [
    "Store:",
    "Serve:",
    "Data:",
    "Look:",
    "Offline:",
    "Lab:",
    "Commands:",
];
/// Commands for packages, which the help does not list.
const HIDDEN: [&str; 2] = ["completions", "man"];

/// The commands that a help text lists.
fn listed_commands(help: &str) -> BTreeSet<String> {
    let mut commands = BTreeSet::new();
    let mut inside = false;
    for line in help.lines() {
        if !line.starts_with(' ') {
            inside = HEADINGS.contains(&line);
        } else if inside && !line.starts_with("   ") {
            // Not the further lines of a long description.
            commands.extend(line.split_whitespace().next().map(str::to_owned));
        }
    }
    commands
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
            run_ok(&words)
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

/// Command lines of `lumpscope` in a file of compose or Kubernetes: lists that are a container's command.
fn container_commands(yaml: &str) -> Vec<String> {
    let mut found: Vec<Vec<&str>> = Vec::new();
    let mut in_list = false;
    for line in yaml.lines().map(str::trim) {
        let word = |word: &'static str| line.strip_prefix(word).map(str::trim);
        let list = word("command:").or_else(|| word("args:"));
        let list = list.or_else(|| word("test: [\"CMD\", \"lumpscope\","));
        if let Some(list) = list {
            in_list = list.is_empty();
            let words = list
                .split(',')
                .map(|word| word.trim_matches(['[', ']', ' ', '"']));
            found.push(words.filter(|word| !word.is_empty()).collect());
        } else if let Some(item) = line.strip_prefix("- ").filter(|_| in_list) {
            if let Some(words) = found.last_mut() {
                words.push(item.trim_matches('"'));
            }
        } else {
            in_list = false;
        }
    }
    found.into_iter().map(|words| words.join(" ")).collect()
}

/// Command lines of `lumpscope` in a file, without the name.
fn lines_of(path: &Path) -> Vec<String> {
    let text = text(path);
    match path.extension().and_then(|end| end.to_str()) {
        Some("md") => command_lines(&text),
        Some("service") => {
            let lines = text
                .lines()
                .filter_map(|line| line.strip_prefix("ExecStart="));
            let lines = lines.filter_map(|line| line.strip_prefix("/usr/bin/lumpscope "));
            lines.map(str::to_owned).collect()
        }
        _ => container_commands(&text),
    }
}

#[test]
fn documents_name_only_commands_and_flags_that_exist() {
    let mut cache = BTreeMap::new();
    let program = help_of("", &mut cache);
    let known = listed_commands(&program);
    assert!(known.contains("serve"), "the help lists no commands");
    let mut wrong = Vec::new();
    let (mut flags, mut starts) = (0, 0);
    let started = ["docker-compose.yml", ".yaml", ".service"];
    for path in files(&[&[".md"], started.as_slice()].concat()) {
        let lines = lines_of(&path);
        let is_document = path.extension().is_some_and(|end| end == "md");
        starts += if is_document { 0 } else { lines.len() };
        for line in lines {
            let command = line.split_whitespace().next().unwrap_or("");
            if HIDDEN.contains(&command) {
                continue;
            }
            if !known.contains(command) {
                // A flag of the program, a placeholder, or a name that is no command.
                if command.starts_with(|c: char| c.is_ascii_lowercase()) {
                    wrong.push(format!("{}: {line}", path.display()));
                }
                continue;
            }
            // Options of all commands stand in the help of the program.
            let help = help_of(&line, &mut cache) + &program;
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
    assert!(starts >= 6, "only {starts} lines that start it");
}
