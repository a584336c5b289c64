//! The generated commands are those of the original benchmark, draw for draw.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use lumpscope_bench::workload::{Workload, builtin};
use sha2::{Digest, Sha256};

/// Checks one workload against what the original makes of it: the number of commands, the bytes
/// needed, the digest of all command lines, and the lines that are quoted (so that a failure shows
/// where the streams part).
fn check(name: &str) {
    let golden = fs::read_to_string(testdata(&format!("{name}.golden.txt"))).unwrap();
    let text = match builtin(name) {
        Some(builtin) => builtin.text.to_owned(),
        None => fs::read_to_string(testdata(name)).unwrap(),
    };
    let stream = Workload::parse(&text).unwrap().generate().unwrap();

    let mut lines = golden.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    let digest = lines.next().unwrap().rsplit(' ').next().unwrap();
    let quoted: Vec<&str> = lines
        .by_ref()
        .take_while(|line| !line.starts_with('#'))
        .collect();
    for (index, line) in quoted.iter().enumerate() {
        assert_eq!(
            stream.commands[index].to_string(),
            *line,
            "{name}, command {}",
            index + 1
        );
    }
    for (step, line) in lines.enumerate() {
        let index = (step + 1) * 997 - 1;
        assert_eq!(
            stream.commands[index].to_string(),
            line,
            "{name}, command {}",
            index + 1
        );
    }
    assert_eq!(
        header[2],
        stream.commands.len().to_string(),
        "{name}: number of commands"
    );

    let mut hash = Sha256::new();
    for command in &stream.commands {
        hash.update(format!("{command}\n"));
    }
    let hash: String = hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert_eq!(hash, digest, "{name}: digest of all commands");
    assert_eq!(
        header[4],
        stream.least_required_bytes.to_string(),
        "{name}: bytes required"
    );
}

fn testdata(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("testdata")
        .join(file)
}

#[test]
fn the_four_of_the_published_comparison() {
    for name in ["seq1", "seq2", "rand1", "rand2"] {
        check(name);
    }
}

#[test]
fn the_samples_of_the_original() {
    for number in 1..=7 {
        check(&format!("workload{number}"));
    }
}
