//! The client commands on whole stores.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::{Code, Error, v1};
use lumpscope_server::json::to_json;
use serde_json::json;

use crate::client::ClientArgs;
use crate::output::{COLUMNS, Table, escaped, indented, print, print_json, table, width};

/// `lumpscope stores`.
#[derive(Args)]
pub(crate) struct StoresArgs {
    #[command(flatten)]
    client: ClientArgs,
}

/// `lumpscope stat` and `lumpscope sync`.
#[derive(Args)]
pub(crate) struct StoreArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Name of the store
    store: String,
}

/// `lumpscope health`.
#[derive(Args)]
pub(crate) struct HealthArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// Check this store; absent: check that any store serves
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
    let mut table = table(&["name", "state", "observed", "layout", "device", "path"]);
    for store in stores {
        table.add_row([
            store.name.clone(),
            state_text(store),
            observed_text(store),
            store.layout.clone(),
            store.device.clone(),
            store.path.clone(),
        ]);
    }
    table
}

pub(crate) async fn stores(args: StoresArgs) -> Result<ExitCode> {
    let stores = args.client.connect().await?.stores().await?;
    if args.client.json {
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
        Some(name) if error.code() == Some(Code::NotFound) => anyhow::Error::new(error).context(
            format!("there is no store {name:?}: `lumpscope stores` lists them"),
        ),
        _ => error.into(),
    }
}

pub(crate) async fn health(args: HealthArgs) -> Result<ExitCode> {
    let client = args.client.connect().await?;
    let serves = client.serves(args.store.as_deref()).await;
    let serves = serves.map_err(|error| unknown(error, args.store.as_deref()))?;
    let word = if serves { "serving" } else { "not serving" };
    let json = || json!({ "store": args.store, "serving": serves });
    args.client.say(json, || word.to_owned())?;
    Ok(match serves {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

pub(crate) async fn stat(args: StoreArgs) -> Result<ExitCode> {
    let client = args.client.connect().await?;
    let request = v1::DescribeStoreRequest { store: args.store };
    let reply = client.describe_store(request).await?;
    args.client.say(
        || to_json(&reply),
        || {
            let info = reply.info.clone().unwrap_or_default();
            let mut facts = table(&["store", &info.name]);
            for (what, value) in [
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
            ] {
                facts.add_row([what.to_owned(), value]);
            }
            let mut list = table(&["number", "value"]);
            for (name, value) in std::collections::BTreeMap::from_iter(&reply.numbers) {
                list.add_row([name.clone(), value.to_string()]);
            }
            list.right(1);
            format!("{facts}\n\n{list}")
        },
    )?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn sync(args: StoreArgs) -> Result<ExitCode> {
    let client = args.client.connect().await?;
    let request = v1::SyncRequest { store: args.store };
    let reply = client.sync(request).await?;
    args.client.say(
        || json!({"request_id": reply.request_id}),
        || "everything that was acknowledged is on stable storage".to_owned(),
    )?;
    Ok(ExitCode::SUCCESS)
}
