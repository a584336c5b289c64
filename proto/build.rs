//! Generates the Rust code of lumpscope.v1 without `protoc`.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 4] = [
    "lumpscope/v1/types.proto",
    "lumpscope/v1/lump_store.proto",
    "lumpscope/v1/admin.proto",
    "lumpscope/v1/observe.proto",
];

fn main() -> Result<(), Box<dyn Error>> {
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    let descriptors = protox::compile(FILES, ["."])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    fs::write(
        out.join("lumpscope.v1.descriptors.bin"),
        descriptors.encode_to_vec(),
    )?;
    // Bodies stay `Bytes`: a chunk of a lump is a slice of what the transport received, or of what the disk read.
    tonic_prost_build::configure()
        .bytes(".")
        .compile_fds(descriptors)?;
    Ok(())
}
