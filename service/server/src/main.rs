//! The `lumpscope` binary.

fn main() {}
