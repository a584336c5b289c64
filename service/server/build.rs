//! Puts the files of the web page into the program: every file below `page/`, as it is and, where
//! that is smaller, packed. `index.html` becomes `/`, the others `/page/...`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Ending of a file's name, and what its bytes are. What has no ending is text, as a license.
const TYPES: [(&str, &str); 11] = [
    ("", "text/plain; charset=utf-8"),
    ("css", "text/css; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("map", "application/json"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("woff2", "font/woff2"),
];
/// Any other ending.
const OTHER: &str = "application/octet-stream";

fn main() -> io::Result<()> {
    let folder = PathBuf::from(variable("CARGO_MANIFEST_DIR")?).join("page");
    let out = PathBuf::from(variable("OUT_DIR")?);
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    walk(&folder, "", &mut files)?;
    files.sort();
    if !files.iter().any(|name| name == "index.html") {
        let why = format!("{}: there is no index.html", folder.display());
        return Err(io::Error::other(why));
    }
    let mut table = String::from("&[\n");
    for (index, name) in files.iter().enumerate() {
        let entry = entry(&folder, name, &out.join(format!("page-{index}.gz")))?;
        table.push_str(&entry);
    }
    table.push_str("]\n");
    fs::write(out.join("page.rs"), table)
}

fn variable(name: &str) -> io::Result<String> {
    env::var(name).map_err(|error| io::Error::other(format!("{name}: {error}")))
}

/// True: no file of the page, but one for those who work on it: notes, types, and the hidden ones
/// that editors leave.
fn is_for_developers(name: &str) -> bool {
    name.starts_with('.') || name.ends_with(".md") || name.ends_with(".ts")
}

/// Names of all files, relative to the folder.
fn walk(folder: &Path, above: &str, files: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_for_developers(&name) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), &format!("{above}{name}/"), files)?;
        } else if kind.is_file() {
            let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            if !name.chars().all(plain) {
                let why = "a file of the page has a name of letters, digits, '.', '_' and '-'";
                let path = entry.path();
                return Err(io::Error::other(format!("{}: {why}", path.display())));
            }
            files.push(format!("{above}{name}"));
        }
    }
    Ok(())
}

/// A file's line of the table. Packs it into `packed` when that saves a tenth.
fn entry(folder: &Path, name: &str, packed: &Path) -> io::Result<String> {
    let file = folder.join(name);
    let bytes = fs::read(&file)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes)?;
    let small = encoder.finish()?;
    let gzip = if small.len() < bytes.len() - bytes.len() / 10 {
        fs::write(packed, small)?;
        format!("Some(include_bytes!({packed:?}))")
    } else {
        "None".to_owned()
    };
    let path = match name {
        "index.html" => "/".to_owned(),
        name => format!("/page/{name}"),
    };
    let ending = file
        .extension()
        .map_or_else(String::new, |e| e.to_string_lossy().into_owned());
    let known = TYPES.iter().find(|(known, _)| *known == ending);
    let kind = known.map_or(OTHER, |(_, kind)| kind);
    let mut line = String::new();
    // Writing to a text cannot fail.
    let _ = writeln!(
        line,
        "    PageFile {{ path: {path:?}, kind: {kind:?}, plain: include_bytes!({file:?}), gzip: {gzip} }},"
    );
    Ok(line)
}
