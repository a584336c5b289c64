//! Every target over its seeds and over mutations of them that are always the same, within a
//! bounded address space: memory out of proportion ends the test program.

use std::path::Path;

use lumpscope_engine_fuzz::{FuzzTarget, TARGETS, by_name, corpus};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Address space of the program with all its threads; no image has more than 128 KiB.
const ADDRESS_SPACE: u64 = 2 * 1024 * 1024 * 1024;

fn explore(target: &FuzzTarget) {
    let old = getrlimit(Resource::As);
    setrlimit(
        Resource::As,
        Rlimit {
            current: Some(ADDRESS_SPACE),
            ..old
        },
    )
    .expect("a lower limit is always allowed");
    corpus::explore(
        target,
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"),
    );
}

#[test]
fn structures_survive_any_bytes() {
    let structures = TARGETS.iter().filter(|target| target.name != "image");
    assert_eq!(structures.map(explore).count(), TARGETS.len() - 1);
}

#[test]
fn stores_survive_any_image() {
    let image = by_name("image").expect("one of TARGETS");
    explore(image);
}
