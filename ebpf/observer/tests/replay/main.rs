//! Correlation of recorded and of made-up events: no root, no kernel.
//!
//! `testdata/*.jsonl` were written by the tests in `tests/real` with `LUMPSCOPE_RECORD` set: six
//! requests on a file of a file system on which another process works too.

mod attribution;
mod crosscheck;
mod explained;
mod foreign;
mod interference;
mod live;
mod properties;
mod recordings;
mod sequences;
mod support;
