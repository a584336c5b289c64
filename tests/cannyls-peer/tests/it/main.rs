//! The benchmarks of the program beside the published engine, which only this package builds.

mod bench;
mod seeds;
mod workload;
