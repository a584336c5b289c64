//! The client commands: lumps in and out of a running service.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use lumpscope_proto::v1;
use tokio_stream::StreamExt as _;

use super::client::{IdArg, ServerArg, refused};
use super::output::{print, right, table};
use crate::error::ServerError;

mod transfer;

/// `lumpscope put`.
#[derive(Args)]
pub(super) struct PutArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: IdArg,
    /// File with the bytes; standard input when absent or "-"
    file: Option<PathBuf>,
    /// Put the bytes into the journal record itself; at most 65,535 bytes
    #[arg(long)]
    embedded: bool,
    /// Return when written, before the flush
    #[arg(long)]
    journaled: bool,
}

/// `lumpscope get`.
#[derive(Args)]
pub(super) struct GetArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: IdArg,
    /// File to write; standard output when absent or "-"
    file: Option<PathBuf>,
    /// First byte wanted
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Number of bytes wanted; to the end when absent
    #[arg(long)]
    length: Option<u64>,
}

/// `lumpscope head`.
#[derive(Args)]
pub(super) struct HeadArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: IdArg,
}

/// `lumpscope delete`.
#[derive(Args)]
pub(super) struct DeleteArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// Id: 1 to 32 hexadecimal digits
    id: IdArg,
}

/// `lumpscope delete-range`.
#[derive(Args)]
pub(super) struct DeleteRangeArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// First id that goes
    start: IdArg,
    /// First id that stays
    end: IdArg,
}

/// `lumpscope list`.
#[derive(Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// First id wanted
    #[arg(long)]
    start: Option<IdArg>,
    /// First id not wanted
    #[arg(long)]
    end: Option<IdArg>,
    /// Stop after so many
    #[arg(long)]
    limit: Option<usize>,
}

/// `lumpscope usage`.
#[derive(Args)]
pub(super) struct UsageArgs {
    #[command(flatten)]
    server: ServerArg,
    /// Name of the store
    store: String,
    /// First id counted
    #[arg(long)]
    start: Option<IdArg>,
    /// First id not counted
    #[arg(long)]
    end: Option<IdArg>,
}

/// `lumpscope stores`.
#[derive(Args)]
pub(super) struct StoresArgs {
    #[command(flatten)]
    server: ServerArg,
}

pub(super) async fn put(args: PutArgs) -> Result<ExitCode, ServerError> {
    let source = transfer::Source::open(args.file.as_deref())?;
    let header = v1::PutHeader {
        store: args.store,
        id: Some(args.id.wire()),
        length: source.length(),
        durability: if args.journaled {
            v1::Durability::Journaled.into()
        } else {
            v1::Durability::Unspecified.into()
        },
        placement: if args.embedded {
            v1::Placement::Embedded.into()
        } else {
            v1::Placement::Data.into()
        },
        ..Default::default()
    };
    let length = header.length;
    let mut client = args.server.connect().await?;
    let (messages, failure) = source.messages(header);
    let sent = client.put(messages).await;
    if let Ok(error) = failure.try_recv() {
        return Err(error);
    }
    let reply = sent.map_err(refused)?.into_inner();
    let verb = if reply.created { "created" } else { "replaced" };
    print(&format!(
        "{verb} {} ({length} bytes, request {})",
        args.id.0, reply.request_id
    ));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn get(args: GetArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let range = (args.offset > 0 || args.length.is_some()).then_some(v1::ByteRange {
        offset: args.offset,
        length: args.length,
    });
    let request = v1::GetRequest {
        store: args.store,
        id: Some(args.id.wire()),
        range,
        ..Default::default()
    };
    let mut parts = client.get(request).await.map_err(refused)?.into_inner();
    let mut target = transfer::Target::new(args.file.as_deref());
    while let Some(part) = parts.next().await {
        if let Some(v1::get_response::Part::Chunk(chunk)) = part.map_err(refused)?.part {
            target.write(&chunk)?;
        }
    }
    target.finish()?;
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn head(args: HeadArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let request = v1::HeadRequest {
        store: args.store,
        id: Some(args.id.wire()),
        ..Default::default()
    };
    let found = client.head(request).await.map_err(refused)?.into_inner();
    let place = match found.placement() {
        v1::Placement::Embedded => "embedded in the journal",
        v1::Placement::Data | v1::Placement::Unspecified => "data region",
    };
    print(&format!("{} bytes, {place}", found.length));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn delete(args: DeleteArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let request = v1::DeleteRequest {
        store: args.store,
        id: Some(args.id.wire()),
        durability: v1::Durability::Unspecified.into(),
        ..Default::default()
    };
    let done = client.delete(request).await.map_err(refused)?.into_inner();
    print(if done.existed {
        "deleted"
    } else {
        "there was no such lump"
    });
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn delete_range(args: DeleteRangeArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let request = v1::DeleteRangeRequest {
        store: args.store,
        start: Some(args.start.wire()),
        end: Some(args.end.wire()),
        durability: v1::Durability::Unspecified.into(),
        ..Default::default()
    };
    let done = client.delete_range(request).await.map_err(refused)?;
    print(&format!("deleted {} lumps", done.into_inner().deleted));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn list(args: ListArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut page_token = bytes::Bytes::new();
    while left > 0 {
        let request = v1::ListRequest {
            store: args.store.clone(),
            start: args.start.map(IdArg::wire),
            end: args.end.map(IdArg::wire),
            page_size: u32::try_from(left.min(10_000)).unwrap_or(10_000),
            page_token,
            ..Default::default()
        };
        let page = client.list(request).await.map_err(refused)?.into_inner();
        let hex = |id: &bytes::Bytes| id.iter().map(|b| format!("{b:02x}")).collect::<String>();
        let lines: Vec<String> = page.ids.iter().map(hex).collect();
        print(&lines.join("\n"));
        left = left.saturating_sub(page.ids.len());
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn usage(args: UsageArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let request = v1::UsageRequest {
        store: args.store,
        start: args.start.map(IdArg::wire),
        end: args.end.map(IdArg::wire),
        ..Default::default()
    };
    let u = client.usage(request).await.map_err(refused)?.into_inner();
    let mut table = table(&["", "bytes"]);
    for (what, bytes) in [
        ("lumps in the range", u.stored_bytes),
        ("data region, used", u.data_used_bytes),
        ("data region", u.data_capacity_bytes),
        ("journal, used", u.journal_used_bytes),
        ("journal", u.journal_capacity_bytes),
        ("largest lump that fits now", u.largest_free_bytes),
    ] {
        table.add_row([what.to_owned(), bytes.to_string()]);
    }
    right(&mut table, 1);
    print(&format!("{} lumps in the range\n{table}", u.lumps));
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn stores(args: StoresArgs) -> Result<ExitCode, ServerError> {
    let mut client = args.server.connect().await?;
    let request = v1::ListStoresRequest {};
    let reply = client.list_stores(request).await.map_err(refused)?;
    let mut table = table(&[
        "name",
        "layout",
        "block",
        "largest lump",
        "device",
        "observed",
        "state",
        "path",
    ]);
    for store in reply.into_inner().stores {
        let observed = if store.observed {
            "yes".to_owned()
        } else {
            format!("no: {}", store.not_observed_because)
        };
        let state = if store.failed.is_empty() {
            "works".to_owned()
        } else {
            format!("failed: {}", store.failed)
        };
        table.add_row([
            store.name,
            store.layout,
            store.block_size.to_string(),
            store.max_lump_bytes.to_string(),
            store.device,
            observed,
            state,
            store.path,
        ]);
    }
    print(&table.to_string());
    Ok(ExitCode::SUCCESS)
}
