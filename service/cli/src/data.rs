//! The client commands on single lumps of a running service.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{LumpId, PutOptions, v1};
use lumpscope_server::json::to_json_with;
use lumpscope_units::human;
use serde_json::json;

use super::client::{Connection, Form};
use crate::error::Interrupted;

pub(super) mod range;
pub(super) mod stores;
pub(super) mod transfer;

/// How lumps are put.
#[derive(Args)]
pub(super) struct DurabilityArg {
    /// Acknowledge before the flush: survives a crash of the service, not a power loss
    #[arg(long)]
    journaled: bool,
}

impl DurabilityArg {
    pub(super) fn wire(&self) -> v1::Durability {
        if self.journaled {
            v1::Durability::Journaled
        } else {
            v1::Durability::Unspecified
        }
    }
}

/// `lumpscope put`.
#[derive(Args)]
pub(super) struct PutArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: LumpId,
    /// File with the bytes; "-": standard input [default: -]
    file: Option<PathBuf>,
    /// Store the bytes in the journal (at most 65,535 bytes) [default: the store decides by size]
    #[arg(long)]
    embedded: bool,
    /// Store the bytes in the data region, whatever their size
    #[arg(long, conflicts_with = "embedded")]
    data: bool,
    #[command(flatten)]
    durability: DurabilityArg,
    /// Refuse if a lump with this id exists
    #[arg(long)]
    if_absent: bool,
}

/// `lumpscope get`.
#[derive(Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: LumpId,
    /// File to write, which appears when complete; "-": standard output [default: -]
    #[arg(required_if_eq("json", "true"))]
    file: Option<PathBuf>,
    /// First byte to read
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Number of bytes to read [default: up to the end]
    #[arg(long)]
    length: Option<u64>,
}

/// `lumpscope head`.
#[derive(Args)]
pub(super) struct HeadArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: LumpId,
}

/// `lumpscope delete`.
#[derive(Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// Ids: 1 to 32 hexadecimal digits each; several are deleted by one request
    #[arg(required = true)]
    ids: Vec<LumpId>,
}

pub(super) async fn put(connection: Connection, args: PutArgs) -> Result<ExitCode> {
    let file = args.file;
    // A pipe may have nobody who writes to it.
    let (body, bar) = tokio::task::spawn_blocking(move || transfer::body(file.as_deref()))
        .await
        .map_err(|_| Interrupted)??;
    let length = body.length();
    let options = PutOptions {
        durability: args.durability.wire(),
        placement: match (args.embedded, args.data) {
            (true, _) => v1::Placement::Embedded,
            (_, true) => v1::Placement::Data,
            _ => v1::Placement::Unspecified,
        },
        if_absent: args.if_absent,
        queue: None,
    };
    let client = connection.connect().await?;
    let reply = client.put(&args.store, args.id, body, &options).await?;
    bar.finish_and_clear();
    args.form.say(
        || {
            let mut json = to_json_with("id", args.id.to_string(), &reply);
            json["length"] = length.into();
            json
        },
        || {
            let verb = if reply.created { "created" } else { "replaced" };
            let (id, request) = (args.id, reply.request_id);
            let place = place(reply.placement());
            format!(
                "{verb} {id} ({} {place}, request {request})",
                human::counted(length, "byte")
            )
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn get(connection: Connection, args: GetArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let range = (args.offset > 0 || args.length.is_some()).then_some(v1::ByteRange {
        offset: args.offset,
        length: args.length,
    });
    let mut target = transfer::Target::new(args.file.as_deref());
    let done = client
        .get_into(&args.store, args.id, range, &mut target)
        .await;
    let header = target.finish(done)?;
    if let (true, Some(header)) = (args.form.json, header) {
        let json = to_json_with("id", args.id.to_string(), &header);
        super::output::print_json(&json)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn head(connection: Connection, args: HeadArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let found = client.head(&args.store, args.id).await?;
    args.form.say(
        || to_json_with("id", args.id.to_string(), &found),
        || {
            let length = human::counted(found.length, "byte");
            format!("{length} {}", place(found.placement()))
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Where a lump lies, behind its size.
fn place(placement: v1::Placement) -> &'static str {
    match placement {
        v1::Placement::Embedded => "in the journal",
        _ => "in the data region",
    }
}

pub(super) async fn delete(connection: Connection, args: DeleteArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let mut existed = Vec::with_capacity(args.ids.len());
    if let [id] = args.ids[..] {
        let reply = client
            .delete(&args.store, id, v1::Durability::Unspecified)
            .await?;
        existed.push(reply.existed);
    } else {
        for ids in args.ids.chunks(lumpscope_client::MANY) {
            existed.extend(client.delete_many(&args.store, ids).await?);
        }
    }
    for (id, existed) in args.ids.iter().zip(existed) {
        args.form.say(
            || json!({"id": id.to_string(), "existed": existed}),
            || match (existed, args.ids.len()) {
                (true, 1) => "deleted".to_owned(),
                (false, 1) => "no such lump".to_owned(),
                (true, _) => format!("{id} deleted"),
                (false, _) => format!("{id} no such lump"),
            },
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
