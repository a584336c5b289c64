//! Rules of the house that a compiler does not check: file lengths, links, the directions of dependencies, the README.
//! Built in seconds, because this crate depends on none of the others.

#[cfg(test)]
mod cycles;
#[cfg(test)]
mod linked;
#[cfg(test)]
mod rules;

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the workspace.
///
/// # Panics
/// Never: this crate lies in `tests/tidy` of the workspace.
#[must_use]
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("tests/tidy").to_owned()
}

/// Files that git tracks or would track and whose names end so, relative to [`root`].
///
/// # Panics
/// Outside a git checkout, and when there is no such file.
#[must_use]
pub fn files(ends: &[&str]) -> Vec<PathBuf> {
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

/// Text of one of [`files`].
///
/// # Panics
/// When it is not UTF-8.
#[must_use]
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(root().join(path)).expect("tracked files are readable text")
}
