//! What may be linked into the program: licences, bans, versions and sources, as deny.toml has them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::{files, root, text};

/// The program as it is shipped, and the service and its client alone.
const BUILDS: [(&str, &[&str]); 2] = [
    ("with the lab", &[]),
    ("without the lab", &["--no-default-features"]),
];
/// Where every package that is not ours comes from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// A package that the program needs.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    licence: String,
}

/// Packages of the program for this machine, `edges` as cargo tree has them.
fn linked(features: &[&str], edges: &str) -> BTreeSet<Package> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--package", "lumpscope"])
        .args(features)
        .args(["--edges", edges, "--prefix", "none", "--no-dedupe"])
        .args(["--format", "{p}|{l}"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let tree = String::from_utf8(output.stdout).expect("names are UTF-8");
    let packages = tree.lines().filter_map(|line| {
        let (package, licence) = line.split_once('|')?;
        let (name, rest) = package.split_once(" v")?;
        Some(Package {
            name: name.to_owned(),
            // A folder or "(proc-macro)" may follow.
            version: rest.split(' ').next()?.to_owned(),
            licence: licence.to_owned(),
        })
    });
    let packages: BTreeSet<Package> = packages.collect();
    assert!(packages.len() > 50, "{packages:#?}");
    packages
}

/// Texts in quotes of the list `key` of deny.toml, for each of its lines the first.
fn listed(key: &str) -> Vec<String> {
    let text = text(Path::new("deny.toml"));
    let (_, list) = text
        .split_once(&format!("\n{key} = [\n"))
        .unwrap_or_else(|| panic!("deny.toml has no list {key}"));
    let lines = list.lines().take_while(|line| *line != "]");
    lines
        .filter_map(|line| Some(line.split('"').nth(1)?.to_owned()))
        .collect()
}

/// True: the expression can be met with these licences.
fn is_met(licence: &str, allowed: &[String]) -> bool {
    let plain = licence.replace('/', " OR ").replace(['(', ')'], "");
    plain.split(" AND ").all(|all| {
        all.split(" OR ")
            .any(|one| allowed.iter().any(|name| name == one.trim()))
    })
}

#[test]
fn what_is_linked_has_licences_that_go_with_ours() {
    let allowed = listed("allow");
    assert!(allowed.len() > 5, "{allowed:?}");
    assert!(!is_met("GPL-2.0-only", &allowed) && !is_met("MIT AND GPL-3.0", &allowed));
    for (build, features) in BUILDS {
        for package in linked(features, "normal") {
            let met = is_met(&package.licence, &allowed);
            assert!(met, "{build}: {package:?}: a licence not in deny.toml");
        }
    }
}

/// True: a package `name` below 0.`below`, or of any version, is meant.
fn is_meant(package: &Package, (name, below): (&str, Option<u32>)) -> bool {
    let minor = package.version.strip_prefix("0.");
    let minor = minor.and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    package.name == name && below.is_none_or(|below| minor.is_some_and(|minor| minor < below))
}

#[test]
fn what_is_banned_is_not_linked() {
    let bans = listed("deny");
    assert!(bans.len() > 3, "{bans:?}");
    // Of the lab, which is in the program as it is shipped.
    let of_lab = ["lumpscope-lab", "lumpscope-platter", "rand:<0.8"];
    for (build, features) in BUILDS {
        let linked = linked(features, "normal");
        for ban in &bans {
            if features.is_empty() && of_lab.contains(&ban.as_str()) {
                continue;
            }
            let meant = match ban.split_once(":<0.") {
                Some((name, below)) => (name, Some(below.parse().expect("a minor version"))),
                None => (ban.as_str(), None),
            };
            let banned = linked.iter().find(|package| is_meant(package, meant));
            assert_eq!(banned, None, "{build}: deny.toml bans {ban}");
        }
    }
}

/// Packages of which a build has several versions; macros are not in the program.
fn repeated(features: &[&str]) -> BTreeSet<String> {
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in linked(features, "normal,no-proc-macro") {
        let of = versions.entry(package.name).or_default();
        of.insert(package.version);
    }
    let several = versions.into_iter().filter(|(_, all)| all.len() > 1);
    several.map(|(name, _)| name).collect()
}

#[test]
fn two_versions_of_a_crate_are_linked_only_for_a_reason() {
    let listed: BTreeSet<String> = listed("skip").into_iter().collect();
    let found = repeated(&[]);
    assert_eq!(
        found, listed,
        "several versions are linked, and `skip` of deny.toml: a new one needs a reason there, one \
         that is gone leaves the list (`cargo tree --duplicates --package lumpscope`)"
    );
    let alone = repeated(&["--no-default-features"]);
    assert!(alone.is_subset(&listed), "without the lab: {alone:?}");
}

#[test]
fn packages_come_from_crates_io_with_a_checksum() {
    for lock in ["Cargo.lock", "ebpf/probes/Cargo.lock"] {
        let text = text(Path::new(lock));
        let mut foreign = 0;
        for package in text.split("[[package]]\n").skip(1) {
            let value = |key: &str| {
                let mut lines = package.lines();
                lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(" = "))
            };
            // Ours have no source.
            let Some(source) = value("source") else {
                let name = value("name").unwrap_or_default().trim_matches('"');
                assert!(name.starts_with("lumpscope"), "{lock}: {name} is a folder");
                continue;
            };
            foreign += 1;
            assert_eq!(source.trim_matches('"'), CRATES_IO, "{lock}: {package}");
            assert!(value("checksum").is_some(), "{lock}: {package}");
        }
        assert!(foreign > 10, "{lock} has only {foreign} packages");
    }
}

#[test]
fn each_dependency_says_why_it_is_there() {
    let text = text(Path::new("Cargo.toml"));
    let (_, table) = text
        .split_once("\n[workspace.dependencies]\n")
        .expect("the table");
    let lines = table.lines().take_while(|line| !line.starts_with('['));
    let foreign: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with("lumpscope"))
        .collect();
    assert!(foreign.len() > 50, "{foreign:#?}");
    let mute = |line: &&&str| line.split_once(" # ").is_none_or(|(_, why)| why.len() < 4);
    let mute: Vec<&&str> = foreign.iter().filter(mute).collect();
    assert!(mute.is_empty(), "no reason: {mute:#?}");
    for manifest in files(&["Cargo.toml"]) {
        let own = [
            "Cargo.toml",
            "ebpf/probes/Cargo.toml",
            "tests/cannyls-peer/Cargo.toml",
        ];
        if own.iter().any(|own| manifest == Path::new(own)) {
            continue;
        }
        let text = crate::text(&manifest);
        let sections = text.split("\n[").filter(|part| {
            let head = part.lines().next().unwrap_or("");
            head.ends_with("dependencies]")
        });
        for line in sections.flat_map(|part| part.lines().skip(1)) {
            let of_table = line.contains("workspace = true") || line.contains(".workspace");
            let of_table = of_table || line.is_empty() || line.starts_with('#');
            assert!(of_table, "{}: not in the table: {line}", manifest.display());
        }
    }
}
