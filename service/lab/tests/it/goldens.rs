//! The generated commands are those of the original benchmark, draw for draw.
use std::fs;
use std::path::{Path, PathBuf};

use lumpscope_lab::commands::{Printed, digest, write};
use lumpscope_lab::workload::{Workload, WorkloadArgs, builtin};

use crate::programs::{PROGRAMS, program};

/// Checks one workload against what the original makes of it: number of commands, bytes needed,
/// digest of all command lines, and the lines that are quoted, so that a failure shows where the
/// streams part.
fn check(name: &str) {
    let golden = fs::read_to_string(testdata(&format!("{name}.golden.txt"))).unwrap();
    let workload = match builtin(name) {
        Some(builtin) => builtin.name.to_owned(),
        None => testdata(name).display().to_string(),
    };
    let stream = WorkloadArgs::new(workload, 1.0).stream().unwrap();
    let mut printed = Vec::new();
    write((Printed::Excerpt, None), &stream, &mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    for (number, (ours, original)) in printed.lines().zip(golden.lines()).enumerate().skip(2) {
        assert_eq!(ours, original, "{name}, line {}", number + 1);
    }
    assert_eq!(printed, golden, "{name}");
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

/// One line of the file a program: its number, commands, the original's sum of bytes, and digest.
#[test]
fn two_hundred_random_programs() {
    let golden = fs::read_to_string(testdata("programs.golden.txt")).unwrap();
    let mut lines = golden.lines();
    for number in 0..PROGRAMS {
        let text = program(number);
        let stream = Workload::parse(&text).unwrap().generate().unwrap();
        let ours = format!(
            "{number} {} {} {}",
            stream.commands.len(),
            stream.least_required_bytes,
            digest(&stream)
        );
        assert_eq!(Some(ours.as_str()), lines.next(), "{text}");
    }
    assert_eq!(lines.next(), None);
}

/// Writes the programs where `LUMPSCOPE_PROGRAMS` says, for another implementation to read.
#[test]
#[ignore = "it is for whoever has another implementation"]
fn programs_for_others() {
    let folder = std::env::var_os("LUMPSCOPE_PROGRAMS").expect("LUMPSCOPE_PROGRAMS names a folder");
    for number in 0..PROGRAMS {
        fs::write(Path::new(&folder).join(number.to_string()), program(number)).unwrap();
    }
}
