//! The shipped probe object must have been built from the sources beside it.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Every file that the object is made of, relative to ebpf/: the list of `build-probes`.
fn sources(ebpf: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for dir in ["probes/src", "common/src"] {
        for entry in fs::read_dir(ebpf.join(dir)).expect("a source folder") {
            let name = entry.expect("an entry").file_name();
            let path = Path::new(dir).join(name);
            assert!(!ebpf.join(&path).is_dir(), "{} has no inner folders", dir);
            if path.extension().is_some_and(|e| e == "rs") {
                files.push(path);
            }
        }
    }
    files.sort_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
    files.extend(
        [
            "common/Cargo.toml",
            "probes/Cargo.lock",
            "probes/Cargo.toml",
        ]
        .map(PathBuf::from),
    );
    files
}

#[test]
fn the_prebuilt_object_was_built_from_these_sources() {
    let ebpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut digest = Sha256::new();
    for file in sources(&ebpf) {
        digest.update(file.to_str().expect("UTF-8"));
        digest.update([0]);
        digest.update(fs::read(ebpf.join(&file)).expect("a source"));
        digest.update([0]);
    }
    let hex: String = digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let recorded = fs::read_to_string(ebpf.join("prebuilt/sources.sha256")).expect("the hash");
    assert_eq!(
        recorded.trim(),
        hex,
        "the probes' sources changed: run ebpf/build-probes and commit ebpf/prebuilt"
    );
}
