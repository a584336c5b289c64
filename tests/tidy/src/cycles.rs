//! No import cycle between the modules at the top of a crate, nor between the parts of the owner.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::{files, text};

/// Source without comments, and without the tests at its end.
fn source(path: &Path) -> String {
    let text = text(path);
    let text = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = text.unwrap_or_default().lines();
    let code = lines.map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// Names that stand directly behind a path: one, or those of a list in braces.
fn named(source: &str, path: &str) -> BTreeSet<String> {
    let word = |text: &str| {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
        text[..end.unwrap_or(text.len())].to_owned()
    };
    let mut names = BTreeSet::new();
    for (at, _) in source.match_indices(path) {
        let longer = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        if source[..at].ends_with(longer) {
            continue;
        }
        let behind = &source[at + path.len()..];
        let Some(list) = behind.strip_prefix('{') else {
            names.insert(word(behind));
            continue;
        };
        let (mut depth, mut begins) = (0, true);
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => begins = true,
                c if begins && !c.is_whitespace() => {
                    begins = false;
                    names.insert(word(&list[at..]));
                }
                _ => {}
            }
        }
    }
    names
}

/// For each module in a folder, what it names beside itself there, with a file that does. `path`: of
/// the folder, as sources name it.
fn imports(
    src: &Path,
    path: &str,
    files: &[PathBuf],
) -> BTreeMap<String, BTreeMap<String, PathBuf>> {
    let mut all: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
    for file in files {
        let Ok(inside) = file.strip_prefix(src) else {
            continue;
        };
        let top = inside.iter().next().and_then(|name| name.to_str());
        let top = top.unwrap_or_default().trim_end_matches(".rs");
        let stem = inside.file_stem().and_then(|name| name.to_str());
        let stem = stem.unwrap_or_default();
        let of_tests = stem == "tests" || stem.ends_with("_tests");
        if of_tests || matches!(top, "lib" | "main" | "bin" | "mod") {
            continue;
        }
        let depth = inside.iter().count() - usize::from(stem == "mod");
        let source = source(file);
        let mut names = named(&source, path);
        names.extend(named(&source, &"super::".repeat(depth)));
        names.remove(top);
        let names = names.into_iter().map(|name| (name, file.clone()));
        all.entry(top.to_owned()).or_default().extend(names);
    }
    all
}

/// The edges of cycles, and between them: modules that name no other, or that no other names, are
/// taken away until none is left.
fn cycles(mut imports: BTreeMap<String, BTreeMap<String, PathBuf>>) -> Vec<String> {
    loop {
        let before = imports.len();
        let left: BTreeSet<String> = imports.keys().cloned().collect();
        for named in imports.values_mut() {
            named.retain(|name, _| left.contains(name));
        }
        let named: BTreeSet<String> = imports.values().flat_map(|n| n.keys().cloned()).collect();
        imports.retain(|name, names| !names.is_empty() && named.contains(name));
        if imports.len() == before {
            break;
        }
    }
    let edges = imports.into_iter().flat_map(|(from, named)| {
        let edge =
            move |(to, path): (String, PathBuf)| format!("{from} -> {to}: {}", path.display());
        named.into_iter().map(edge)
    });
    edges.collect()
}

#[test]
fn modules_import_each_other_in_one_direction() {
    let rust = files(&[".rs"]);
    let mut found = Vec::new();
    for manifest in files(&["Cargo.toml"]) {
        let src = manifest.with_file_name("src");
        found.extend(cycles(imports(&src, "crate::", &rust)));
    }
    assert!(
        found.is_empty(),
        "import cycles between the modules at the top of a crate: {found:#?}"
    );
    let edges = |all: &[(&str, &str)]| {
        let mut map: BTreeMap<String, BTreeMap<String, PathBuf>> = BTreeMap::new();
        for (from, to) in all {
            map.entry((*to).to_owned()).or_default();
            let from = map.entry((*from).to_owned()).or_default();
            from.insert((*to).to_owned(), PathBuf::new());
        }
        cycles(map).len()
    };
    assert_eq!(edges(&[("a", "b"), ("b", "c"), ("a", "c")]), 0);
    assert_eq!(edges(&[("a", "b"), ("b", "c"), ("c", "b")]), 2);
    let names = named(
        "use crate::{a::{b, c}, d};\nxcrate::e; $crate::f::g",
        "crate::",
    );
    assert_eq!(names, ["a", "d", "f"].map(str::to_owned).into());
}

/// A part imports those below it, and never the loop that drives them all.
#[test]
fn parts_of_the_owner_import_each_other_in_one_direction() {
    let owner = Path::new("service/engine/src/owner");
    let mut imports = imports(owner, "crate::owner::", &files(&[".rs"]));
    imports.remove("stepped");
    assert!(imports.len() > 10, "only {imports:#?}: are they found?");
    let parts: BTreeSet<String> = imports.keys().cloned().collect();
    let all = imports.values().flatten();
    let of_loop: Vec<_> = all.filter(|(name, _)| !parts.contains(*name)).collect();
    assert!(of_loop.is_empty(), "imports of the loop: {of_loop:#?}");
    let found = cycles(imports);
    assert!(found.is_empty(), "import cycles across parts: {found:#?}");
}
