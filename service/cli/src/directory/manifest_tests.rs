#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use lumpscope_engine::crc32c;

#[test]
fn part_ids_are_those_that_the_document_promises() {
    // printf '%032x' 7 | xxd -r -p; printf 'a/b\0'; printf '%016x' 1 | xxd -r -p: into sha256sum, first 32 digits.
    let id = part_id(LumpId(7), Path::new("a/b"), 1);
    assert_eq!(id.to_string(), EXPECTED_PART_ID);
}

const EXPECTED_PART_ID: &str = "d65f029b16c0bdb4a345c1ff7d429d6f";

#[test]
fn every_name_survives() {
    for name in [
        &b"plain"[..],
        b"with space\nand line",
        b"100%",
        b"%25",
        b"\xff\xfe",
        "\u{e4}\u{1f980}".as_bytes(),
        b"a\\b\"c'",
        b"-rf",
        b"...",
        b"a/b/..c",
    ] {
        let path = Path::new(OsStr::from_bytes(name));
        assert_eq!(decode(&encode(path)).unwrap(), path);
    }
    assert_eq!(encode(Path::new(OsStr::from_bytes(b"\xff%"))), "%FF%25");
}

#[test]
fn paths_that_lead_out_are_refused() {
    for text in [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../../x",
        "a/..",
        ".",
        "a//b",
        "a/",
        "./a",
        "%2e%2e/x",
        "a%2F..%2F..%2Fx",
        "a%00",
        "%",
        "%1",
        "%zz",
        "%+1",
    ] {
        assert!(
            matches!(decode(text), Err(ManifestError::Path { .. })),
            "{text:?}"
        );
    }
    assert!(decode(&"a".repeat(LONGEST_PATH + 1)).is_err());
}

fn file(path: &str, contents: &[&[u8]]) -> File {
    let mut whole = 0;
    let mut parts = Vec::new();
    for (number, content) in (0..).zip(contents) {
        whole = crc32c::append(whole, content);
        parts.push(Part {
            id: part_id(LumpId(1), Path::new(path), number).to_string(),
            length: content.len() as u64,
            crc32c: Crc(crc32c::of(content)),
        });
    }
    File {
        path: path.to_owned(),
        mode: 0o644,
        length: contents.iter().map(|content| content.len() as u64).sum(),
        crc32c: Crc(whole),
        parts,
    }
}

fn folder(path: &str) -> Directory {
    Directory {
        path: path.to_owned(),
        mode: 0o755,
    }
}

fn again(manifest: &Manifest) -> Result<Manifest, ManifestError> {
    Manifest::decode(LumpId(1), &manifest.encode().unwrap())
}

#[test]
fn a_good_manifest_is_understood() {
    let big = vec![7; usize::try_from(PART).unwrap()];
    let files = vec![file("a/empty", &[]), file("big", &[&big, b"rest"])];
    let manifest = again(&Manifest::new(vec![folder("a")], files)).unwrap();
    assert_eq!(manifest.files[1].length, PART + 4);
}

#[test]
fn manifests_that_lie_are_refused() {
    let parts = |change: fn(&mut File)| {
        let mut one = file("f", &[b"bytes"]);
        change(&mut one);
        let refused = again(&Manifest::new(vec![], vec![one])).unwrap_err();
        assert!(matches!(refused, ManifestError::Parts { .. }), "{refused}");
    };
    parts(|file| file.length += 1);
    parts(|file| file.crc32c.0 ^= 1);
    parts(|file| file.parts[0].length = u64::MAX);
    parts(|file| file.parts[0].crc32c.0 ^= 1);
    parts(|file| file.parts[0].id = LumpId(9).to_string());
    parts(|file| file.parts.push(file.parts[0].clone()));
    parts(|file| file.parts.clear());
    let twice = |directories, files| {
        let refused = again(&Manifest::new(directories, files)).unwrap_err();
        assert!(matches!(refused, ManifestError::Twice { .. }), "{refused}");
    };
    twice(vec![folder("f")], vec![file("f", &[])]);
    twice(vec![], vec![file("f", &[]), file("f", &[])]);
    twice(vec![], vec![file("f", &[]), file("f/g", &[])]);
    let newer = br#"{"format":"lumpscope-directory","version":2,"directories":[],"files":[]}"#;
    let refused = Manifest::decode(LumpId(1), newer).unwrap_err();
    assert!(refused.to_string().contains("version 2"), "{refused}");
    assert!(matches!(
        Manifest::decode(LumpId(1), b"\xff\x00 no json"),
        Err(ManifestError::Json(_))
    ));
}
