//! Every target over its seeds and over mutations of them that are always the same.

use std::path::Path;

use lumpscope_engine_fuzz::corpus::explore;
use lumpscope_server_fuzz::TARGETS;

#[test]
fn decoders_survive_any_bytes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    for target in TARGETS {
        explore(target, &corpus);
    }
}
