//! `lumpscope explain`: one request, or the slowest, told from its begin to its end.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use lumpscope_client::v1;
use lumpscope_server::json::to_json;
use lumpscope_units::{Span, clock::date, human};

use super::replay;
use super::units::{NONE, beside, distance, failed, moment};
use crate::client::{ConnectionArgs, OutputFormat};
use crate::error::Exit;
use crate::output::{complain, escaped, print, print_json, table};

/// Slowest requests that are told when no number is given.
const SLOWEST: u32 = 5;

/// `lumpscope explain`.
#[derive(Args)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    form: OutputFormat,
    /// Id of the request, from its reply [default: the slowest requests, or the one that the flight
    /// recorder wrote FILE for]
    #[arg(conflicts_with_all = ["slowest", "failed", "store", "within"])]
    request_id: Option<u64>,
    /// Maximum number of slowest requests [default: 5]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "5",
          value_parser = clap::value_parser!(u32).range(1..))]
    slowest: Option<u32>,
    /// Only requests that failed
    #[arg(long)]
    failed: bool,
    /// Only requests to this store
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Only requests that finished within the last TIME, e.g. 5m [default: all that are kept]
    #[arg(long, value_name = "TIME")]
    within: Option<Span>,
    /// Use this recording instead of a service
    #[arg(long, value_name = "FILE", conflicts_with = "within")]
    replay: Option<PathBuf>,
}

pub(crate) async fn run(connection: ConnectionArgs, args: ExplainArgs) -> Result<ExitCode> {
    let requests = match &args.replay {
        None => asked(&connection, &args).await?,
        Some(file) => match recorded(&args, file).await? {
            Some(requests) => requests,
            None => return Ok(Exit::Missing.into()),
        },
    };
    if args.form.json {
        for request in &requests {
            print_json(&to_json(request))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    if requests.is_empty() {
        print("no finished request matches (the slowest of the last minutes are kept)")?;
    }
    let told: Vec<String> = requests.iter().map(text).collect();
    print(&told.join("\n\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn asked(connection: &ConnectionArgs, args: &ExplainArgs) -> Result<Vec<v1::SlowRequest>> {
    let client = connection.connect().await?;
    if let Some(request_id) = args.request_id {
        let reply = client.explain(v1::ExplainRequest { request_id }).await?;
        return Ok(reply.request.into_iter().collect());
    }
    let within = args.within.unwrap_or_default().nanoseconds();
    let request = v1::ListSlowestRequest {
        store: args.store.clone().unwrap_or_default(),
        // Rounded up: 0 would be "as long as they are kept".
        within_seconds: u32::try_from(within.div_ceil(1_000_000_000)).unwrap_or(u32::MAX),
        limit: args.slowest.unwrap_or(SLOWEST),
        failed: args.failed,
    };
    Ok(client.list_slowest(request).await?.requests)
}

/// From a recording; `None`: there is no such request in it, which was said.
async fn recorded(args: &ExplainArgs, file: &Path) -> Result<Option<Vec<v1::SlowRequest>>> {
    let replay = replay::read(file, v1::TraceRequest::default(), |_| {}).await?;
    replay::known(&replay, args.store.as_deref())?;
    let chosen = args.slowest.is_some() || args.failed || args.store.is_some();
    let known = |id: &u64| !chosen && replay.explain(*id).is_some();
    let written_for = replay.written_for().filter(known);
    let found = match args.request_id.or(written_for) {
        None => {
            let limit = args.slowest.unwrap_or(SLOWEST);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            replay.slowest(args.store.as_deref(), args.failed, limit)
        }
        Some(id) => match replay.explain(id) {
            Some(explained) => vec![explained],
            None => {
                complain(&format!(
                    "lumpscope: request {id} is not in {}",
                    file.display()
                ));
                return Ok(None);
            }
        },
    };
    Ok(Some(found))
}

/// The request in words.
fn text(r: &v1::SlowRequest) -> String {
    let mut text = format!("{}\n{}", escaped(&r.sentence), escaped(&about(r)));
    if !r.steps.is_empty() {
        let _ = write!(text, "\n\n{}", steps(r));
    }
    if !r.blocks.is_empty() {
        let _ = write!(text, "\n\n{}", blocks(r));
    }
    if let Some(lost) = lost(r) {
        let _ = write!(text, "\n\n{}", escaped(&lost));
    }
    if !r.incomplete.is_empty() {
        let _ = write!(text, "\n\nincomplete: {}", escaped(&r.incomplete));
    }
    text
}

/// Which request it was.
fn about(r: &v1::SlowRequest) -> String {
    let mut parts = vec![format!("request {}", r.request_id)];
    if !r.store.is_empty() {
        let disk = match r.device.as_str() {
            "" => String::new(),
            device => format!(" on {device}"),
        };
        parts.push(format!("store {}{disk}", r.store));
    }
    if r.begin_unix_ns > 0 {
        parts.push(format!("accepted {}", date(r.begin_unix_ns)));
    }
    if !r.trace_id.is_empty() {
        parts.push(format!("trace {}", r.trace_id));
    }
    parts.join(", ")
}

fn steps(r: &v1::SlowRequest) -> String {
    let mut table = table(&["at", "took", "stage", "what happened"]);
    for step in &r.steps {
        table.add_row([
            moment(Some(step.from_ns)),
            human::duration_ns(step.took_ns),
            step.stage.clone(),
            step.text.clone(),
        ]);
    }
    table.right(0);
    table.right(1);
    table.to_string()
}

fn blocks(r: &v1::SlowRequest) -> String {
    let mut table = table(&[
        "queued",
        "operation",
        "sector",
        "size",
        "seek",
        "queue",
        "device",
    ]);
    for block in &r.blocks {
        table.add_row(row(block));
        if let Some(notes) = notes(block) {
            table.add_row([notes]);
        }
    }
    for column in [0, 2, 3, 4, 5, 6] {
        table.right(column);
    }
    let listed = r.blocks.len();
    match usize::try_from(r.block_requests) {
        Ok(all) if all > listed => {
            format!("{table}\n{listed} of its {all} block requests listed")
        }
        _ => table.to_string(),
    }
}

/// The line below a block request: where the head had been, and what is not usual.
fn notes(b: &v1::BlockIo) -> Option<String> {
    let mut notes = Vec::new();
    if !b.previous_owner.is_empty() {
        let place = match b.previous_cgroup.as_str() {
            "" => String::new(),
            cgroup => format!(" in {cgroup}"),
        };
        notes.push(format!("there before: {}{place}", b.previous_owner));
    }
    notes.extend(beside(&b.flags, b.hardware_queue));
    if b.shared {
        notes.push(format!("shared, {} of it ours", human::bytes(b.own_bytes)));
    }
    if b.uncertain {
        notes.push("possibly not ours".to_owned());
    }
    if b.failed {
        notes.push(failed(&b.failure));
    }
    (!notes.is_empty()).then(|| format!("  {}", notes.join(", ")))
}

fn row(b: &v1::BlockIo) -> [String; 7] {
    let placed = b.sectors > 0;
    let known = |text: String| if placed { text } else { NONE.to_owned() };
    let size = u64::from(b.sectors) * 512;
    let seen = |at: Option<i64>, ns: u64| match at {
        None => NONE.to_owned(),
        Some(_) => human::duration_ns(ns),
    };
    [
        moment(b.queued_at_ns),
        format!("{} {}", b.operation, b.purpose),
        known(b.sector.to_string()),
        known(human::bytes(size)),
        distance(b.seek_bytes),
        seen(b.queued_at_ns.and(b.issued_at_ns), b.queue_ns),
        seen(b.issued_at_ns.and(b.done_at_ns), b.device_ns),
    ]
}

fn lost(r: &v1::SlowRequest) -> Option<String> {
    let part = |lost: &v1::LostTime| format!("{} {}", lost.owner, human::duration_ns(lost.ns));
    let parts: Vec<String> = r.lost.iter().map(part).collect();
    // A moment may be lost to several: the classes do not add up.
    match (r.lost_in_all_ns, parts.as_slice()) {
        (_, []) => None,
        // A service of an earlier version.
        (None, _) => Some(format!("lost to others: {}", parts.join(", "))),
        (Some(all), _) => Some(format!(
            "lost to others: {} ({})",
            human::duration_ns(all),
            parts.join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained() -> v1::SlowRequest {
        v1::SlowRequest {
            request_id: 7,
            store: "fast".into(),
            device: "loop3".into(),
            method: "put".into(),
            sentence: "put of 1 MiB took 9.1 ms".into(),
            begin_unix_ns: 1_795_271_750_123_456_789,
            block_requests: 3,
            steps: vec![v1::Step {
                from_ns: 120_000,
                took_ns: 8_000_000,
                stage: "device".into(),
                text: "1 write at the device".into(),
            }],
            blocks: vec![
                v1::BlockIo {
                    operation: "write".into(),
                    purpose: "data".into(),
                    sector: 4096,
                    sectors: 2048,
                    seek_bytes: Some(-(41 << 30)),
                    previous_owner: "other (dd[4711])".into(),
                    previous_cgroup: "/system.slice/backup.service".into(),
                    queue_ns: 3_000,
                    device_ns: 7_900_000,
                    queued_at_ns: Some(118_000),
                    issued_at_ns: Some(121_000),
                    done_at_ns: Some(8_021_000),
                    ..Default::default()
                },
                v1::BlockIo {
                    operation: "flush".into(),
                    purpose: "flush".into(),
                    shared: true,
                    failed: true,
                    failure: "medium".into(),
                    ..Default::default()
                },
            ],
            lost_in_all_ns: Some(5_900_000),
            lost: vec![v1::LostTime {
                owner: "fs-journal".into(),
                ns: 5_900_000,
            }],
            incomplete: "2 events were lost".into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_request_is_told_from_its_head_to_what_is_missing() {
        let told = text(&explained());
        // On a terminal a block request has two lines.
        let words = told.split_whitespace().collect::<Vec<_>>().join(" ");
        for wanted in [
            "put of 1 MiB took 9.1 ms",
            "request 7, store fast on loop3, accepted at 2026-11-21 14:35:50.123456 UTC",
            "+120 µs 8.00 ms device 1 write at the device",
            "+118 µs write data 4096 1.00 MiB -41.0 GiB 3.00 µs 7.90 ms",
            "there before: other (dd[4711]) in /system.slice/backup.service",
            "- flush flush - - - - -",
            "shared, 0 B of it ours, FAILED: medium",
            "2 of its 3 block requests listed",
            "lost to others: 5.90 ms (fs-journal 5.90 ms)",
            "incomplete: 2 events were lost",
        ] {
            assert!(words.contains(wanted), "{wanted} in {told}");
        }
        let json = to_json(&explained());
        assert_eq!(json["blocks"][0]["seek_bytes"], -(41_i64 << 30));
        assert!(json["blocks"][1]["queued_at_ns"].is_null());
        assert_eq!(json["lost_ns"]["fs-journal"], 5_900_000);
    }
}
