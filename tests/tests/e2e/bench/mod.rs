//! The benchmarks of the program beside the published engine, tests/cannyls-peer. `./dev test bench` runs these tests.

mod engine;
mod seeds;
mod workload;

use lumpscope_tests::needs::{Need, find_tool};

const PEER: Need = Need::Tool("lumpscope-cannyls-peer");

/// Path of the published engine's program.
fn peer() -> String {
    let path = find_tool("lumpscope-cannyls-peer").expect("it was found before");
    path.display().to_string()
}
