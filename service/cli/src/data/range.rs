//! The client commands on ranges of ids.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{LumpId, v1};
use lumpscope_server::json::to_json;
use lumpscope_units::human;
use serde_json::json;
use tokio_stream::StreamExt as _;

use crate::client::ClientArgs;
use crate::output::{Lines, table};

/// `lumpscope delete-range`.
#[derive(Args)]
pub(crate) struct DeleteRangeArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Name of the store
    store: String,
    /// First id to remove
    start: LumpId,
    /// First id to keep
    end: LumpId,
}

/// `lumpscope list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Name of the store
    store: String,
    /// First id wanted
    #[arg(long)]
    start: Option<LumpId>,
    /// First id not wanted
    #[arg(long)]
    end: Option<LumpId>,
    /// Most ids to list
    #[arg(long)]
    limit: Option<usize>,
}

/// `lumpscope usage`.
#[derive(Args)]
pub(crate) struct UsageArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Name of the store
    store: String,
    /// First id counted
    #[arg(long)]
    start: Option<LumpId>,
    /// First id not counted
    #[arg(long)]
    end: Option<LumpId>,
}

pub(crate) async fn delete_range(args: DeleteRangeArgs) -> Result<ExitCode> {
    let client = args.client.connect().await?;
    let request = v1::DeleteRangeRequest {
        store: args.store,
        start: Some(args.start.into()),
        end: Some(args.end.into()),
        ..Default::default()
    };
    let done = client.delete_range(request).await?;
    args.client.say(
        || json!({"deleted": done.deleted, "request_id": done.request_id}),
        || format!("deleted {}", human::counted(done.deleted, "lump")),
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn list(args: ListArgs) -> Result<ExitCode> {
    let client = args.client.connect().await?;
    let ids = client.list(&args.store, args.start, args.end);
    let mut ids = ids.take(args.limit.unwrap_or(usize::MAX));
    let mut lines = Lines::new(args.client.json);
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

pub(crate) async fn usage(args: UsageArgs) -> Result<ExitCode> {
    let client = args.client.connect().await?;
    let request = v1::UsageRequest {
        store: args.store,
        start: args.start.map(Into::into),
        end: args.end.map(Into::into),
        ..Default::default()
    };
    let u = client.usage(request).await?;
    args.client.say(
        || to_json(&u),
        || {
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
            table.right(1);
            format!("{} in the range\n{table}", human::counted(u.lumps, "lump"))
        },
    )?;
    Ok(ExitCode::SUCCESS)
}
