//! The targets without a fuzzer: over their seeds, and over mutations of these that are always the
//! same.

use std::path::{Path, PathBuf};

use lumpscope_engine::device::sim::Random;

use crate::FuzzTarget;

/// Longest mutation.
const LONGEST: usize = 4096;

fn seeds(target: &FuzzTarget, corpus: &Path) -> Vec<Vec<u8>> {
    let folder = corpus.join(target.name);
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).expect("a readable seed"))
        .collect()
}

/// Does to the bytes what a fuzzer without feedback would do.
fn mutate(bytes: &mut Vec<u8>, others: &[Vec<u8>], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.index(bytes.len());
        match random.below(7) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            1 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][random.index(5)],
            2 => bytes.insert(at, random.next().to_le_bytes()[0]),
            3 if !bytes.is_empty() => drop(bytes.remove(at)),
            4 => bytes.truncate(at),
            5 => {
                let other = &others[random.index(others.len())];
                let from = random.index(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.extend_from_slice(&random.next().to_le_bytes()),
        }
    }
    bytes.truncate(LONGEST);
}

/// Runs a target over the seeds in its folder of `corpus`, then over its mutations.
///
/// # Panics
/// When the target does, and when there are no seeds or they cannot be read.
pub fn explore(target: &FuzzTarget, corpus: &Path) {
    let seeds = seeds(target, corpus);
    assert!(!seeds.is_empty(), "{} has no seeds", target.name);
    for seed in &seeds {
        (target.run)(seed);
    }
    for number in 0..target.mutations {
        let mut random = Random::derive(number, &[8]);
        let mut bytes = seeds[random.index(seeds.len())].clone();
        mutate(&mut bytes, &seeds, &mut random);
        (target.run)(&bytes);
    }
}
