//! Every target over its seeds and over mutations of them that are always the same, within a
//! bounded address space: memory out of proportion ends the test program.

use std::path::{Path, PathBuf};

use lumpscope_engine::device::sim::Random;
use lumpscope_engine_fuzz::{TARGETS, Target};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Address space of the program with all its threads; no image has more than 128 KiB.
const ADDRESS_SPACE: u64 = 2 * 1024 * 1024 * 1024;
/// Longest mutation.
const LONGEST: usize = 4096;

fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
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

fn explore(target: &Target) {
    let old = getrlimit(Resource::As);
    setrlimit(
        Resource::As,
        Rlimit {
            current: Some(ADDRESS_SPACE),
            ..old
        },
    )
    .expect("a lower limit is always allowed");
    let seeds = seeds(target);
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

#[test]
fn structures_survive_any_bytes() {
    let structures = TARGETS.iter().filter(|target| target.name != "image");
    assert_eq!(structures.map(explore).count(), TARGETS.len() - 1);
}

#[test]
fn stores_survive_any_image() {
    let image = lumpscope_engine_fuzz::by_name("image").expect("one of TARGETS");
    explore(image);
}
