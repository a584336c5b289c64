//! The client commands on ranges of ids.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{LumpId, v1};
use lumpscope_units::human;
use serde_json::json;
use tokio_stream::StreamExt as _;

use crate::client::{Connection, Form};
use crate::output::Lines;

/// `lumpscope delete-range`.
#[derive(Args)]
pub(crate) struct DeleteRangeArgs {
    #[command(flatten)]
    form: Form,
    /// Name of the store
    store: String,
    /// First id to delete
    start: LumpId,
    /// End of the range (exclusive)
    end: LumpId,
}

/// `lumpscope list`.
#[derive(Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    form: Form,
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

pub(crate) async fn delete_range(
    connection: Connection,
    args: DeleteRangeArgs,
) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let request = v1::DeleteRangeRequest {
        store: args.store,
        start: Some(args.start.into()),
        end: Some(args.end.into()),
        ..Default::default()
    };
    let done = client.delete_range(request).await?;
    args.form.say(
        || json!({"deleted": done.deleted, "request_id": done.request_id}),
        || format!("deleted {}", human::counted(done.deleted, "lump")),
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn list(connection: Connection, args: ListArgs) -> Result<ExitCode> {
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
