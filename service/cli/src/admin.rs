//! `lumpscope admin`: running a service from outside.

mod observer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::{Args, Subcommand};
use lumpscope_client::{Client, v1};
use lumpscope_proto::hex;
use lumpscope_server::config::StoreSpec;
use lumpscope_server::json::to_json;
use lumpscope_units::{Size, clock::date, human};
use serde_json::{Value, json};

use super::client::{ConnectionArgs, OutputFormat};
use super::output::{self, escaped};

/// `lumpscope admin`.
#[derive(Args)]
pub(super) struct AdminArgs {
    /// Print JSON, one object per line, instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: AdminCommand,
}

#[derive(Subcommand)]
enum AdminCommand {
    /// Show the state and findings of the scrubber, or start or stop it
    Scrub(ScrubArgs),
    /// Run the garbage collection of the journal once around the ring
    Gc(StoreArgs),
    /// Refuse new data requests, or only changes, and wait for those in flight
    Drain(DrainArgs),
    /// Accept requests again
    Resume(ResumeArgs),
    /// Open an existing store and serve it, until the service restarts
    AddStore(AddStoreArgs),
    /// Remove a store: finish its requests, flush it and release its device
    RemoveStore(RemoveStoreArgs),
    /// Show the service: version, settings, remaining privileges; or let it read certificates and
    /// tokens again
    Service(ServiceArgs),
    /// Show the observer: its programs and their cost, observation and guard of each store; or change
    /// which block requests it reports individually
    Observer(observer::ObserverArgs),
}

#[derive(Args)]
struct StoreArgs {
    /// Name of the store
    store: String,
}

#[derive(Args)]
struct ScrubArgs {
    /// Name of the store
    store: String,
    /// Start a pass, or resume the one that was stopped
    #[arg(long)]
    start: bool,
    /// Stop the pass; it keeps its position
    #[arg(long, conflicts_with = "start")]
    stop: bool,
    /// Rate limit in bytes per second, e.g. 20M [default: none; only idle disk time is used]
    #[arg(long, value_name = "SIZE", requires = "start")]
    rate: Option<Size>,
}

#[derive(Args)]
#[command(
    after_help = "Ended by `admin resume`, by a restart of the service, or when the store is removed and added."
)]
struct DrainArgs {
    /// Name of the store [default: all stores]
    store: Option<String>,
    /// Refuse puts and deletes only: the store is read-only, e.g. for the last pass of `evacuate`
    #[arg(long)]
    changes_only: bool,
    /// Time limit for requests in flight, at most 600; 0: the time limit of the service's shutdown
    #[arg(long, value_name = "SECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(..=600))]
    wait: u32,
}

#[derive(Args)]
struct ResumeArgs {
    /// Name of the store [default: all stores]
    store: Option<String>,
}

#[derive(Args)]
struct AddStoreArgs {
    /// Name: 1 to 64 letters, digits, '-', '_' or '.'; or NAME=PATH, as for `serve --store`
    store: String,
    /// Path of the device or file, as the service sees it, or uuid:UUID
    path: Option<PathBuf>,
    /// Repair a damaged store while it is opened
    #[arg(long)]
    salvage: bool,
}

#[derive(Args)]
struct RemoveStoreArgs {
    /// Name of the store
    store: String,
    /// Time limit for requests in flight, at most 600; 0: the time limit of the service's shutdown
    #[arg(long, value_name = "SECONDS", default_value_t = 0,
          value_parser = clap::value_parser!(u32).range(..=600))]
    wait: u32,
}

#[derive(Args)]
struct ServiceArgs {
    /// Read certificates and tokens again, and show what is in force
    #[arg(long)]
    reload: bool,
}

/// Carries out one of them.
pub(super) async fn run(connection: ConnectionArgs, args: AdminArgs) -> Result<ExitCode> {
    let client = connection.connect().await?;
    let (json, text) = answer(&client, args.command).await?;
    OutputFormat { json: args.json }.say(|| json, || text)?;
    Ok(ExitCode::SUCCESS)
}

/// The answer as JSON and as text.
async fn answer(client: &Client, command: AdminCommand) -> Result<(Value, String)> {
    Ok(match command {
        AdminCommand::Scrub(args) => scrub(client, args).await?,
        AdminCommand::Gc(args) => {
            let request = v1::CollectJournalRequest { store: args.store };
            collected(&client.collect_journal(request).await?)
        }
        AdminCommand::Drain(args) => {
            let request = v1::DrainRequest {
                store: args.store.unwrap_or_default(),
                timeout_ms: args.wait * 1000,
                changes_only: args.changes_only,
            };
            drained(&client.drain(request).await?, args.changes_only)
        }
        AdminCommand::Resume(args) => {
            let store = args.store.unwrap_or_default();
            let reply = client.resume(v1::ResumeRequest { store }).await?;
            done(reply.request_id, "accepts requests again")
        }
        AdminCommand::AddStore(args) => added(client, args).await?,
        AdminCommand::RemoveStore(args) => {
            let request = v1::RemoveStoreRequest {
                store: args.store,
                drain_timeout_ms: args.wait * 1000,
            };
            done(client.remove_store(request).await?.request_id, "removed")
        }
        AdminCommand::Service(ServiceArgs { reload: true }) => {
            reloaded(&client.reload(v1::ReloadRequest {}).await?)
        }
        AdminCommand::Service(_) => {
            let request = v1::DescribeServiceRequest {};
            let reply = client.describe_service(request).await?;
            (to_json(&reply), service_text(&reply))
        }
        AdminCommand::Observer(args) => observer::observer(client, args).await?,
    })
}

async fn scrub(client: &Client, args: ScrubArgs) -> Result<(Value, String)> {
    let store = args.store;
    if args.start {
        let bytes_per_second = args.rate.map_or(0, |size| size.0);
        let request = v1::StartScrubRequest {
            store,
            bytes_per_second,
        };
        let reply = client.start_scrub(request).await?;
        return Ok(done(reply.request_id, "scrubber started"));
    }
    if args.stop {
        let reply = client.stop_scrub(v1::StopScrubRequest { store }).await?;
        return Ok(done(reply.request_id, "scrubber stopped"));
    }
    let reply = client.get_scrub(v1::GetScrubRequest { store }).await?;
    Ok((to_json(&reply), scrub_text(&reply)))
}

fn done(request_id: u64, text: &str) -> (Value, String) {
    (json!({"request_id": request_id}), text.to_owned())
}

fn collected(reply: &v1::CollectJournalResponse) -> (Value, String) {
    let text = format!(
        "freed {}: {} dropped, {} moved; {} in use, {} of them live",
        human::counted(reply.freed_bytes, "byte"),
        human::counted(reply.dropped_records, "record"),
        human::count(reply.relocated_records),
        human::counted(reply.used_bytes, "byte"),
        human::count(reply.live_bytes)
    );
    (to_json(reply), text)
}

fn drained(reply: &v1::DrainResponse, changes_only: bool) -> (Value, String) {
    let text = match reply.under_way {
        0 if changes_only => {
            "refuses changes: all acknowledged ones are on stable storage".to_owned()
        }
        0 => "drained: all acknowledged changes are on stable storage".to_owned(),
        left => format!("draining: {} in flight", human::counted(left, "request")),
    };
    (to_json(reply), text)
}

async fn added(client: &Client, args: AddStoreArgs) -> Result<(Value, String)> {
    let (name, path) = match args.path {
        Some(path) => (args.store, path),
        None => {
            let spec: StoreSpec = args.store.parse().map_err(anyhow::Error::msg)?;
            (spec.name, spec.path)
        }
    };
    let path = path
        .into_os_string()
        .into_string()
        .map_err(|path| anyhow!("path {path:?} is not valid UTF-8"))?;
    let request = v1::AddStoreRequest {
        name,
        path,
        salvage: args.salvage,
    };
    let mut reply = client.add_store(request).await?;
    let store = reply.store.get_or_insert_default();
    let text = format!("added {}: {}", escaped(&store.name), store.state().word());
    Ok((to_json(&reply), text))
}

fn reloaded(reply: &v1::ReloadResponse) -> (Value, String) {
    let tls = match reply.certificate_not_after {
        0 => "no TLS".to_owned(),
        end => {
            let end = date(end.saturating_mul(1_000_000_000));
            let end = end.strip_prefix("at ").unwrap_or(&end);
            format!("certificate valid until {end}")
        }
    };
    let tokens = human::counted(u64::from(reply.tokens), "token");
    (to_json(reply), format!("{tokens}, {tls}"))
}

fn scrub_text(reply: &v1::GetScrubResponse) -> String {
    let rows = [
        (
            "rate limit, bytes per second (0: none)",
            reply.bytes_per_second,
        ),
        ("position, bytes", reply.position_bytes),
        ("end, bytes", reply.end_bytes),
        ("passes", reply.passes),
        ("lumps verified", reply.verified_lumps),
        ("lumps without a checksum", reply.unverified_lumps),
        ("damaged lumps", reply.corrupt_lumps),
        ("failed reads", reply.read_errors),
        ("findings", reply.findings),
    ];
    let rows = rows.map(|(what, value)| (what, value.to_string()));
    let state = if reply.running { "running" } else { "idle" };
    let mut table = output::facts(["scrubber", state], rows);
    table.right(1);
    let mut text = table.to_string();
    for finding in &reply.listed {
        let message = escaped(&finding.message);
        text.push_str(&format!("\n{} {message}", hex(&finding.id)));
    }
    text
}

fn service_text(reply: &v1::DescribeServiceResponse) -> String {
    let held = reply.privileges.clone().unwrap_or_default();
    let capabilities = if held.capabilities.is_empty() {
        "none".to_owned()
    } else {
        held.capabilities.join(" ")
    };
    let rows = [
        ("process", reply.pid.to_string()),
        ("uptime, seconds", reply.uptime_seconds.to_string()),
        ("user, group", format!("{}, {}", held.uid, held.gid)),
        ("capabilities", capabilities),
        (
            "can gain privileges",
            if held.no_new_privileges { "no" } else { "yes" }.to_owned(),
        ),
        ("connections", reply.connections.to_string()),
        ("requests in flight", reply.under_way.to_string()),
    ];
    let facts = output::facts(["version", &reply.version], rows);
    let settings = BTreeMap::from_iter(&reply.settings).into_iter();
    let settings = settings.map(|(key, value)| (key.as_str(), value.clone()));
    format!(
        "{facts}\n\n{}",
        output::facts(["setting", "value"], settings)
    )
}
