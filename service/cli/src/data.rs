//! The client commands on single lumps of a running service.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Client, Code, LumpId, PutOptions, v1};
use lumpscope_engine::format::trailer::max_payload;
use lumpscope_engine::units::BlockSize;
use lumpscope_server::json::to_json_with;
use lumpscope_units::human;
use serde_json::json;
use tokio_stream::StreamExt as _;

use super::client::{ConnectionArgs, OutputFormat};
use super::output::Lines;
use crate::error::Interrupted;
use transfer::Start;

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
    form: OutputFormat,
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
#[command(
    group = clap::ArgGroup::new("shown").args(["file", "head"]),
    // Standard output cannot have both the bytes and the answer.
    mut_arg("json", |arg| arg.requires("shown"))
)]
pub(super) struct GetArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: LumpId,
    /// File to write, which appears when complete; "-": standard output [default: -]
    file: Option<PathBuf>,
    /// First byte to read
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Number of bytes to read [default: up to the end]
    #[arg(long)]
    length: Option<u64>,
    /// Show the size and location of the lump only
    #[arg(long, conflicts_with_all = ["offset", "length"])]
    head: bool,
}

/// `lumpscope delete`.
#[derive(Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Name of the store
    store: String,
    /// Ids: 1 to 32 hexadecimal digits each; several are deleted by one request
    #[arg(required_unless_present = "start", conflicts_with = "start")]
    ids: Vec<LumpId>,
    /// First id of a range, all of whose lumps are deleted
    #[arg(long, value_name = "ID", requires = "end")]
    start: Option<LumpId>,
    /// End of the range (exclusive)
    #[arg(long, value_name = "ID", requires = "start")]
    end: Option<LumpId>,
}

/// `lumpscope list`.
#[derive(Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Name of the store
    store: String,
    /// First id to list
    #[arg(long)]
    start: Option<LumpId>,
    /// End of the range (exclusive)
    #[arg(long)]
    end: Option<LumpId>,
    /// Maximum number of ids to list
    #[arg(long)]
    limit: Option<usize>,
}

pub(super) async fn put(connection: ConnectionArgs, args: PutArgs) -> Result<ExitCode> {
    let file = args.file;
    let path = file.clone();
    // A pipe may have nobody who writes to it.
    let start = tokio::task::spawn_blocking(move || transfer::start(path.as_deref()))
        .await
        .map_err(|_| Interrupted)??;
    let client = connection.connect().await?;
    let largest = match start {
        Start::Complete(..) => 0,
        Start::Endless(..) => largest_lump(&client, &args.store).await?,
    };
    let (body, bar) = tokio::task::spawn_blocking(move || start.complete(file.as_deref(), largest))
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

/// Bytes of the largest lump of a store; of a store that is not there, none.
async fn largest_lump(client: &Client, store: &str) -> Result<u64> {
    match client.stores().await {
        Ok(stores) => {
            let found = stores.into_iter().find(|known| known.name == store);
            Ok(found.map_or(0, |known| known.max_lump_bytes))
        }
        // A token may have the right to write, but not to read: then that of any store.
        Err(error) if error.code() == Some(Code::PermissionDenied) => {
            Ok(max_payload(BlockSize::MAX))
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) async fn get(connection: ConnectionArgs, args: GetArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    if args.head {
        return head(&client, &args).await;
    }
    let range = (args.offset > 0 || args.length.is_some()).then_some(v1::ByteRange {
        offset: args.offset,
        length: args.length,
    });
    let mut target = transfer::GetTarget::new(args.file.as_deref());
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

async fn head(client: &Client, args: &GetArgs) -> Result<ExitCode> {
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

pub(super) async fn delete(connection: ConnectionArgs, args: DeleteArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    if let Some((start, end)) = args.start.zip(args.end) {
        let request = v1::DeleteRangeRequest {
            store: args.store,
            start: Some(start.into()),
            end: Some(end.into()),
            ..Default::default()
        };
        let done = client.delete_range(request).await?;
        args.form.say(
            || json!({"deleted": done.deleted, "request_id": done.request_id}),
            || format!("deleted {}", human::counted(done.deleted, "lump")),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
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

pub(super) async fn list(connection: ConnectionArgs, args: ListArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let ids = client.list(&args.store, args.start, args.end);
    let mut ids = ids.take(args.limit.unwrap_or(usize::MAX));
    let mut lines = Lines::new(args.form.json);
    let mut ended = Ok(());
    while let Some(id) = ids.next().await {
        let id = match id {
            Ok(id) => id.to_string(),
            Err(error) => {
                ended = Err(error);
                break;
            }
        };
        if !lines.add(&json!({ "id": &id }), |_| id.clone())? {
            break;
        }
    }
    // The ids that came before an error are listed.
    lines.flush()?;
    ended?;
    Ok(ExitCode::SUCCESS)
}
