//! Decoders of the service that must survive any bytes: no panic, no endless loop, no memory out of
//! proportion, and nothing understood otherwise than it was meant.
//!
//! `cargo test` runs each over its seeds in `corpus` and thousands of mutations of them that are
//! always the same; `./dev fuzz TARGET` looks for new ones with libFuzzer.

mod files;
mod headers;
mod objects;
mod put_stream;
mod s3;

use lumpscope_engine_fuzz::{FuzzTarget, target};

/// All targets.
pub const TARGETS: &[FuzzTarget] = &[
    target("put_stream", put_stream::put_stream, 20_000),
    target("config", files::config, 5_000),
    target("tokens", files::tokens, 5_000),
    target("s3_credentials", files::s3_credentials, 5_000),
    target("call_headers", headers::call_headers, 20_000),
    target("block_key", objects::block_key, 20_000),
    target("trailer", objects::trailer, 20_000),
    target("s3_signed", s3::signed, 20_000),
    target("s3_xml", s3::xml, 20_000),
    target("s3_form", s3::form, 20_000),
];
