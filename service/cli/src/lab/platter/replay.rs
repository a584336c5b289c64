//! `lumpscope platter replay`: a recording on disks that it was not made on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, anyhow};
use clap::Args;
use lumpscope_lab::blocks::traced_line;
use lumpscope_observer::{BlockLine, TraceRequest, WallClock};
use lumpscope_platter::disk::{CachePolicy, Policy};
use lumpscope_platter::drive::Drive;
use lumpscope_platter::queue::{Order, Queueing};
use lumpscope_platter::replay::{Prediction, WhatIf, replay};
use lumpscope_platter::trace::{Op, Trace};
use lumpscope_units::human;
use serde_json::json;

use super::named_drive;
use crate::observe::replay::take;
use crate::output;

/// `lumpscope platter replay`.
#[derive(Args)]
pub(crate) struct ReplayArgs {
    /// File written by `lumpscope record`
    file: PathBuf,
    /// Disk of the recording; needed when there are several
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// Drive to replay on; may be given several times
    #[arg(long = "drive", value_name = "DRIVE", default_value = "st1000dm003",
          value_parser = named_drive)]
    drives: Vec<Drive>,
    /// Order in which the drive serves outstanding requests: fifo, elevator or position; may be
    /// given several times
    #[arg(long = "order", value_name = "ORDER", default_value = "fifo")]
    orders: Vec<Order>,
    /// Also with a drive whose writes are done when they are on the platters
    #[arg(long)]
    write_through: bool,
    /// Also with the overlap rule, a hypothesis: a write that rewrites the end of the one before may
    /// cost a turn
    #[arg(long)]
    overlap: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// With --json: every single request, too
    #[arg(long, requires = "json")]
    requests: bool,
}

pub(super) fn run(args: &ReplayArgs) -> Result<ExitCode> {
    let (device, trace) = read(&args.file, args.device.as_deref())?;
    let predicted = what_ifs(args)
        .iter()
        .map(|what_if| {
            replay(&trace, what_if)
                .map_err(|error| anyhow!("{} on {}: {error}", device, what_if.name))
        })
        .collect::<Result<Vec<Prediction>>>()?;
    if args.json {
        print_json(args, &device, &trace, predicted)?;
    } else {
        print_table(&device, &trace, &predicted)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Every drive with every setting in every order.
fn what_ifs(args: &ReplayArgs) -> Vec<WhatIf> {
    let mut policies = vec![Policy::default()];
    if args.overlap {
        policies.push(Policy::default().with_overlap());
    }
    if args.write_through {
        policies.push(Policy::default().write_through());
    }
    let mut all = Vec::new();
    for drive in &args.drives {
        for policy in &policies {
            for &order in &args.orders {
                let mut name = drive.name.to_string();
                if policy.overlap.is_some() {
                    name += ", overlap rule";
                }
                if policy.cache == CachePolicy::WriteThrough {
                    name += ", write through";
                }
                if order != Order::Fifo {
                    name += &format!(", {order}");
                }
                all.push(WhatIf {
                    name,
                    drive: drive.clone(),
                    policy: *policy,
                    queueing: Queueing {
                        order,
                        ..Queueing::default()
                    },
                });
            }
        }
    }
    all
}

/// The block requests of one disk.
fn read(path: &Path, wanted: Option<&str>) -> Result<(String, Trace)> {
    let mut disks: BTreeMap<String, Vec<BlockLine>> = BTreeMap::new();
    let replay = take(path, TraceRequest::default(), |line| {
        disks.entry(line.device.clone()).or_default().push(line);
    })?;
    let in_file = |why: String| anyhow!("{}: {why}", path.display());
    let names: Vec<&str> = disks.keys().map(String::as_str).collect();
    let device = match (wanted, &names[..]) {
        (Some(name), _) if disks.contains_key(name) => name.to_owned(),
        (None, [only]) => (*only).to_owned(),
        (_, []) => return Err(in_file("it holds no block requests".to_owned())),
        (Some(_), _) => {
            let all = names.join(", ");
            return Err(in_file(format!("it has no such device: there are {all}")));
        }
        (None, _) => {
            let all = names.join(", ");
            return Err(in_file(format!("say --device with one of {all}")));
        }
    };
    let lines = disks.remove(&device).unwrap_or_default();
    Ok((device, as_trace(&lines, replay.clock())))
}

/// Block requests as a trace; those whose issue was not seen, or that a disk of platters does not
/// know, are missing in it.
fn as_trace(lines: &[BlockLine], clock: WallClock) -> Trace {
    let mut missing = 0;
    let mut requests = Vec::new();
    for line in lines {
        let done_ns = clock.monotonic_ns(line.done_unix_ns);
        match traced_line(line, done_ns) {
            Some(request) if line.device_ns.is_some() => requests.push(request),
            _ => missing += 1,
        }
    }
    Trace::new(requests, missing)
}

fn print_json(
    args: &ReplayArgs,
    device: &str,
    trace: &Trace,
    mut predicted: Vec<Prediction>,
) -> Result<()> {
    if !args.requests {
        for one in &mut predicted {
            one.requests.clear();
        }
    }
    let mut value = json!({
        "device": device,
        "requests": trace.requests.len(),
        "missing": trace.missing,
        "what_ifs": what_ifs(args),
        "predictions": predicted,
    });
    if args.requests {
        value["trace"] = json!(trace.requests);
    }
    output::print_json(&value)
}

/// Mean latency of some requests; `-`: there are none.
fn mean(predicted: &Prediction, wanted: impl Fn(Op, bool) -> bool) -> String {
    let sums = predicted.sums.iter().filter(|sum| wanted(sum.op, sum.own));
    let (mut requests, mut latency_ns) = (0_u64, 0_u64);
    for sum in sums {
        requests += sum.requests;
        latency_ns = latency_ns.saturating_add(sum.latency_ns);
    }
    match latency_ns.checked_div(requests) {
        Some(mean_ns) => human::duration_ns(mean_ns),
        None => "-".to_owned(),
    }
}

fn print_table(device: &str, trace: &Trace, predicted: &[Prediction]) -> Result<()> {
    let recorded_ns = predicted.first().map_or(0, |one| one.recorded_ns);
    // Recordings of old versions do not name the disk.
    let device = if device.is_empty() { "disk" } else { device };
    output::print(&format!(
        "{}: {}, recorded in {}; means from issue to completion",
        output::escaped(device),
        human::counted(trace.requests.len() as u64, "block request"),
        human::duration_ns(recorded_ns)
    ))?;
    if trace.missing > 0 {
        output::print(&format!(
            "The recording lacks {} more, so the times are too short.",
            human::counted(trace.missing, "block request")
        ))?;
    }
    output::print("")?;
    let mut table = output::table(&[
        "WHAT IF",
        "TAKES",
        "READ",
        "WRITE",
        "FLUSH",
        "OWN",
        "OTHER",
        "SEEKS",
        "TURNS LOST",
    ]);
    for one in predicted {
        let counts = &one.counts;
        table.add_row([
            one.name.clone(),
            human::duration_ns(one.elapsed_ns),
            mean(one, |op, _| op == Op::Read),
            mean(one, |op, _| op == Op::Write),
            mean(one, |op, _| op == Op::Flush),
            mean(one, |_, own| own),
            mean(one, |_, own| !own),
            human::count(counts.seeks),
            human::count(counts.partial_revolutions + counts.overlap_revolutions),
        ]);
    }
    for column in 1..9 {
        table.right(column);
    }
    output::print(&table.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(operation: &str, device_ns: Option<u64>) -> BlockLine {
        BlockLine {
            done_unix_ns: 1000,
            operation: operation.to_owned(),
            owner: "store".to_owned(),
            sector: 8,
            sectors: 8,
            queue_ns: Some(10),
            device_ns,
            ..BlockLine::default()
        }
    }

    #[test]
    fn what_cannot_be_replayed_is_counted_as_missing() {
        let lines = [
            line("write", Some(100)),
            line("write", None),
            line("other", Some(100)),
        ];
        let trace = as_trace(&lines, WallClock::default());
        assert_eq!(trace.missing, 2);
        let only = trace.requests[0];
        assert_eq!(only.queue_ns, 890);
        assert_eq!(only.issue_ns, 900);
        assert_eq!(only.done_ns, 1000);
        assert!(only.own);
    }

    #[test]
    fn a_recording_of_the_observer_is_read() {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../ebpf/observer/testdata/ext4.jsonl"
        );
        let (device, trace) = read(Path::new(file), None).unwrap();
        assert!(trace.requests.len() > 10, "{device}: {trace:?}");
        let again = read(Path::new(file), Some(&device)).unwrap();
        assert_eq!(again.1, trace);
        let error = read(Path::new(file), Some("nothing"))
            .unwrap_err()
            .to_string();
        let words = "it has no such device: there are";
        assert!(error.contains(words), "{error}");
    }
}
