//! The client commands on whole stores.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Code, Error, LumpId, v1};
use lumpscope_server::json::to_json;
use serde_json::json;

use crate::client::{ConnectionArgs, OutputFormat};
use crate::error::{Exit, NoStore};
use crate::output::{
    self, COLUMNS, Table, complain, escaped, indented, print, print_json, table, width,
};

/// `lumpscope stores`.
#[derive(Args)]
pub(crate) struct StoresArgs {
    #[command(flatten)]
    form: OutputFormat,
}

/// `lumpscope stat`.
#[derive(Args)]
pub(crate) struct StatArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Name of the store
    store: String,
    /// First id of the lumps that are counted
    #[arg(long, value_name = "ID")]
    start: Option<LumpId>,
    /// End of their range (exclusive)
    #[arg(long, value_name = "ID")]
    end: Option<LumpId>,
}

/// `lumpscope sync`.
#[derive(Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Name of the store
    store: String,
}

/// `lumpscope health`.
#[derive(Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Store to check [default: whether any store serves]
    store: Option<String>,
}

fn state_text(store: &v1::StoreInfo) -> String {
    let state = store.state().word();
    // A service of an older version gives no reason but that of a failure.
    let reasons = [&store.state_reason, &store.failed];
    match reasons.into_iter().find(|reason| !reason.is_empty()) {
        Some(reason) => format!("{state}: {reason}"),
        None => state.to_owned(),
    }
}

fn observed_text(store: &v1::StoreInfo) -> String {
    if store.observed {
        "yes".to_owned()
    } else {
        format!("no: {}", store.not_observed_because)
    }
}

/// All of a store in one line.
fn lines(stores: &[v1::StoreInfo]) -> Table {
    let mut table = table(&[
        "name", "state", "observed", "layout", "device", "uuid", "path",
    ]);
    for store in stores {
        table.add_row([
            store.name.clone(),
            state_text(store),
            observed_text(store),
            store.layout.clone(),
            store.device.clone(),
            store.uuid.clone(),
            store.path.clone(),
        ]);
    }
    table
}

pub(crate) async fn stores(connection: ConnectionArgs, args: StoresArgs) -> Result<ExitCode> {
    let stores = connection.connect().await?.stores().await?;
    if args.form.json {
        for store in &stores {
            print_json(&to_json(store))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if width() > COLUMNS {
        return print(&lines(&stores).to_string()).map(|()| ExitCode::SUCCESS);
    }
    let mut table = table(&["name", "state", "observed", "layout", "device"]);
    let mut more = String::new();
    for store in stores {
        let word = if store.observed { "yes" } else { "no" };
        let cells = [
            &store.name,
            store.state().word(),
            word,
            &store.layout,
            &store.device,
        ];
        table.add_row(cells);
        let about = [
            store.path.clone(),
            format!("uuid {}", store.uuid),
            state_text(&store),
            format!("observed {}", observed_text(&store)),
        ];
        more.push_str(&format!("\n{}\n", escaped(&store.name)));
        for text in about {
            more.push_str(&indented(&text));
        }
    }
    print(&format!("{table}\n{more}"))?;
    Ok(ExitCode::SUCCESS)
}

/// The health service says no more than that it knows nothing of this name.
fn unknown(error: Error, store: Option<&str>) -> anyhow::Error {
    match store {
        Some(name) if error.code() == Some(Code::NotFound) => {
            anyhow::Error::new(error).context(NoStore(name.to_owned()))
        }
        _ => error.into(),
    }
}

pub(crate) async fn health(connection: ConnectionArgs, args: HealthArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let serves = client.serves(args.store.as_deref()).await;
    let serves = serves.map_err(|error| unknown(error, args.store.as_deref()))?;
    let word = if serves { "serving" } else { "not serving" };
    let json = || json!({ "store": args.store, "serving": serves });
    args.form.say(json, || word.to_owned())?;
    Ok(match serves {
        true => Exit::Done.into(),
        false => Exit::Failed.into(),
    })
}

pub(crate) async fn stat(connection: ConnectionArgs, args: StatArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let store = args.store.clone();
    let described = client.describe_store(v1::DescribeStoreRequest { store });
    let described = described.await?;
    let request = v1::UsageRequest {
        store: args.store,
        start: args.start.map(Into::into),
        end: args.end.map(Into::into),
        ..Default::default()
    };
    let usage = match client.usage(request).await {
        Ok(usage) => Some(usage),
        // A token may have the right to see the store's state, but not what it holds.
        Err(error) if error.code() == Some(Code::PermissionDenied) => {
            complain(&format!("lumpscope: incomplete: {error}"));
            None
        }
        Err(error) => return Err(error.into()),
    };
    args.form.say(
        || {
            let mut json = to_json(&described);
            json["usage"] = usage.as_ref().map_or(serde_json::Value::Null, to_json);
            json
        },
        || {
            let usage = usage.as_ref().map(|usage| format!("\n\n{}", space(usage)));
            let (facts, numbers) = (facts(&described), numbers(&described));
            format!("{facts}{}\n\n{numbers}", usage.unwrap_or_default())
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

fn facts(reply: &v1::DescribeStoreResponse) -> Table {
    let info = reply.info.clone().unwrap_or_default();
    let rows = [
        ("state", state_text(&info)),
        ("path", info.path.clone()),
        ("layout", info.layout.clone()),
        ("block size, bytes", info.block_size.to_string()),
        ("largest lump, bytes", info.max_lump_bytes.to_string()),
        ("uuid", info.uuid.clone()),
        ("device", info.device.clone()),
        ("observed", observed_text(&info)),
        ("disk I/O", reply.io_backend.clone()),
        ("disk", reply.disk.clone()),
        ("durable by", reply.durability.clone()),
        ("lumps", reply.lumps.to_string()),
    ];
    output::facts(["store", &info.name], rows)
}

fn space(usage: &v1::UsageResponse) -> Table {
    let rows = [
        ("lumps in the range", usage.lumps),
        ("bytes of the lumps in the range", usage.stored_bytes),
        ("data region, bytes used", usage.data_used_bytes),
        ("data region, bytes", usage.data_capacity_bytes),
        ("journal, bytes used", usage.journal_used_bytes),
        ("journal, bytes", usage.journal_capacity_bytes),
        (
            "largest lump that fits now, bytes",
            usage.largest_free_bytes,
        ),
    ];
    let rows = rows.map(|(what, value)| (what, value.to_string()));
    let mut space = output::facts(["space", "value"], rows);
    space.right(1);
    space
}

fn numbers(reply: &v1::DescribeStoreResponse) -> Table {
    let rows = std::collections::BTreeMap::from_iter(&reply.numbers).into_iter();
    let rows = rows.map(|(name, value)| (name.as_str(), value.to_string()));
    let mut list = output::facts(["counter", "value"], rows);
    list.right(1);
    list
}

pub(crate) async fn sync(connection: ConnectionArgs, args: StoreArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let request = v1::SyncRequest { store: args.store };
    let reply = client.sync(request).await?;
    args.form.say(
        || json!({"request_id": reply.request_id}),
        || "all acknowledged changes are on stable storage".to_owned(),
    )?;
    Ok(ExitCode::SUCCESS)
}
