//! Generates the Rust code of lumpscope.v1 without `protoc`, with `serde::Serialize` on the messages that are shown.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

const FILES: [&str; 4] = [
    "lumpscope/v1/types.proto",
    "lumpscope/v1/lump_store.proto",
    "lumpscope/v1/admin.proto",
    "lumpscope/v1/observe.proto",
];

/// Messages that `--json` and the page show. Keys are the names of the fields; `ObservedStore`, whose guard is an
/// object of its own, is in `src/json.rs`.
const SHOWN: [&str; 35] = [
    "StoreInfo",
    "PutResponse",
    "GetHeader",
    "HeadResponse",
    "UsageResponse",
    "CollectJournalResponse",
    "GetScrubResponse",
    "ScrubPass",
    "ScrubFinding",
    "DescribeStoreResponse",
    "AddStoreResponse",
    "DrainResponse",
    "DescribeServiceResponse",
    "Privileges",
    "ReloadResponse",
    "BlockLine",
    "DescribeObserverResponse",
    "ProbeProgram",
    "EventPolicy",
    "GuardedOpen",
    "StoreReport",
    "OperationReport",
    "Bucket",
    "StageTime",
    "BlockReport",
    "OwnerTotal",
    "AuditReport",
    "FailureTotal",
    "HeadMove",
    "LostTime",
    "HeatCell",
    "SlowRequest",
    "Step",
    "BlockIo",
    "ProcessTotal",
];

/// Messages that recordings of the observer hold too.
const RECORDED: [&str; 3] = ["AuditReport", "OwnerTotal", "HeadMove"];

/// Fields whose JSON is not what serde derives.
const FORMS: [(&str, &str); 10] = [
    (
        "StoreInfo.state",
        r#"serialize_with = "crate::json::state""#,
    ),
    (
        "PutResponse.durability",
        r#"serialize_with = "crate::json::durability""#,
    ),
    (
        "PutResponse.crc32c",
        r#"serialize_with = "crate::json::crc32c""#,
    ),
    (
        "GetHeader.crc32c",
        r#"serialize_with = "crate::json::known_crc32c""#,
    ),
    (
        "HeadResponse.placement",
        r#"serialize_with = "crate::json::placement""#,
    ),
    ("ScrubFinding.id", r#"serialize_with = "crate::json::hex""#),
    ("DescribeStoreResponse.info", "flatten"),
    ("AddStoreResponse.store", "flatten"),
    (
        "SlowRequest.stages",
        r#"serialize_with = "crate::json::stages""#,
    ),
    (
        "SlowRequest.lost",
        r#"rename = "lost_ns", serialize_with = "crate::json::lost""#,
    ),
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
    let mut generate = tonic_prost_build::configure()
        .bytes(".")
        .client_mod_attribute(".", "#[cfg(feature = \"rpc\")]")
        .server_mod_attribute(".", "#[cfg(feature = \"rpc\")]");
    for message in SHOWN {
        let path = format!("lumpscope.v1.{message}");
        generate = generate.message_attribute(path, "#[derive(serde::Serialize)]");
    }
    for message in RECORDED {
        let path = format!("lumpscope.v1.{message}");
        generate =
            generate.message_attribute(path, "#[derive(serde::Deserialize)] #[serde(default)]");
    }
    for (field, form) in FORMS {
        let path = format!("lumpscope.v1.{field}");
        generate = generate.field_attribute(path, format!("#[serde({form})]"));
    }
    generate.compile_fds(descriptors)?;
    Ok(())
}
