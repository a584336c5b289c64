//! `lumpscope export`: block requests of a recording in the forms that other tools read.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use clap::Args;
use lumpscope_client::v1;
use lumpscope_units::human;
use serde_json::json;

use super::replay;
use super::trace::FilterArgs;
use crate::output::{complain, escaped, escaped_json, print_as_is};

/// Most block requests of an export, which are ordered in memory: about 2 GiB.
const MOST: usize = 4 << 20;

/// `lumpscope export`.
#[derive(Args)]
pub(crate) struct ExportArgs {
    /// File written by `lumpscope record` or the flight recorder
    file: PathBuf,
    /// Form of the output
    #[arg(long, value_name = "FORMAT")]
    format: Format,
    #[command(flatten)]
    filter: FilterArgs,
    /// End after this many block requests; at most 4,194,304 are exported
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// Block requests of a recording that fit, and how many there was no room for.
#[derive(Default)]
struct Collected {
    blocks: Vec<v1::BlockLine>,
    left_out: u64,
}

pub(crate) async fn run(args: ExportArgs) -> Result<ExitCode> {
    let count = args.count.and_then(|count| usize::try_from(count).ok());
    let room = count.unwrap_or(usize::MAX).min(MOST);
    let collected = Arc::new(Mutex::new(Collected::default()));
    let to = Arc::clone(&collected);
    let read = replay::read(&args.file, args.filter.request(), move |block| {
        let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
        match to.blocks.len() < room {
            true => to.blocks.push(block),
            false => to.left_out += 1,
        }
    });
    let replay = read.await?;
    replay::known(&replay, args.filter.store.as_deref())?;
    let found = std::mem::take(&mut *collected.lock().unwrap_or_else(PoisonError::into_inner));
    if count.is_none() && found.left_out > 0 {
        complain(&format!(
            "lumpscope: incomplete: left out {} beyond {MOST}",
            human::counted(found.left_out, "block request")
        ));
    }
    print_as_is(&text(args.format, &found.blocks, replay.disks()))?;
    Ok(ExitCode::SUCCESS)
}

/// A form that another tool reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// Comma-separated, a line each, times in nanoseconds since 1970
    Csv,
    /// An I/O log of fio, version 3, for `fio --read_iolog`
    Fio,
    /// The text that blkparse prints: queued (Q), issued (D) and completed (C)
    Blkparse,
    /// A trace for ui.perfetto.dev and chrome://tracing
    Perfetto,
}

/// Numbers of the disks, by name.
type Disks = BTreeMap<String, (u32, u32)>;

/// All of the block requests as text. Times begin with the first of them, but for CSV.
fn text(format: Format, blocks: &[v1::BlockLine], disks: &Disks) -> String {
    match format {
        Format::Csv => csv(blocks),
        Format::Fio => fio(blocks),
        Format::Blkparse => blkparse(blocks, disks),
        Format::Perfetto => perfetto(blocks),
    }
}

/// When it was queued, issued and completed; a time that was not seen is that of the next.
fn times(block: &v1::BlockLine) -> [i64; 3] {
    let ago = |ns: Option<u64>| i64::try_from(ns.unwrap_or(0)).unwrap_or(i64::MAX);
    let done = block.done_unix_ns;
    let issued = done.saturating_sub(ago(block.device_ns));
    [issued.saturating_sub(ago(block.queue_ns)), issued, done]
}

/// Where it lies in bytes, and how many.
fn bytes(block: &v1::BlockLine) -> (u64, u64) {
    (
        block.sector.saturating_mul(512),
        u64::from(block.sectors) * 512,
    )
}

/// Name of its disk; recordings of older versions have none.
fn disk(block: &v1::BlockLine) -> &str {
    match block.device.as_str() {
        "" => "unknown",
        name => name,
    }
}

/// The disks, each once.
fn disks_of(blocks: &[v1::BlockLine]) -> Vec<&str> {
    let mut disks: Vec<&str> = blocks.iter().map(disk).collect();
    disks.sort_unstable();
    disks.dedup();
    disks
}

fn first(blocks: &[v1::BlockLine]) -> i64 {
    let queued = blocks.iter().map(|block| times(block)[0]);
    queued.min().unwrap_or(0)
}

fn ids(block: &v1::BlockLine) -> String {
    let ids: Vec<String> = block.request_ids.iter().map(u64::to_string).collect();
    ids.join(" ")
}

/// A field of CSV: in quotes where it needs them, in one line, and never a formula of a spreadsheet.
fn quoted(text: &str) -> String {
    let text = match text.starts_with(['=', '+', '-', '@']) {
        true => format!("'{text}"),
        false => text.to_owned(),
    };
    let text = escaped(&text);
    if text.contains([',', '"']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.into_owned()
}

fn csv(blocks: &[v1::BlockLine]) -> String {
    let mut out = "done_unix_ns,disk,stores,operation,owner,requests,process,pid,sector,sectors,\
                   seek_bytes,previous_owner,queue_ns,device_ns,failed,cgroup,container,failure,flags,\
                   hardware_queue,uncertain\n"
        .to_owned();
    let number = |n: Option<u64>| n.map_or(String::new(), |n| n.to_string());
    for block in blocks {
        let fields = [
            block.done_unix_ns.to_string(),
            quoted(&block.device),
            quoted(&block.stores.join(" ")),
            quoted(&block.operation),
            quoted(&block.owner),
            ids(block),
            quoted(&block.process),
            block.pid.to_string(),
            block.sector.to_string(),
            block.sectors.to_string(),
            block.seek_bytes.map_or(String::new(), |n| n.to_string()),
            quoted(&block.previous_owner),
            number(block.queue_ns),
            number(block.device_ns),
            block.failed.to_string(),
            quoted(&block.cgroup),
            quoted(&block.container),
            quoted(&block.failure),
            quoted(&block.flags.join(" ")),
            number(block.hardware_queue.map(u64::from)),
            block.uncertain.to_string(),
        ];
        out += &fields.join(",");
        out.push('\n');
    }
    out
}

/// Path of a disk for fio, which writes to it: a name cannot lead out of /dev, nor into a further field.
fn path(disk: &str) -> String {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "._-!".contains(c);
    let name = disk.replace(|c| !is_name(c), "_");
    match name.starts_with('.') {
        true => format!("/dev/_{name}"),
        false => format!("/dev/{name}"),
    }
}

/// In the order in which they were made. What fio has no word for is left out.
fn fio(blocks: &[v1::BlockLine]) -> String {
    let begin = first(blocks);
    let mut lines: Vec<(i64, String)> = Vec::new();
    for block in blocks {
        let action = match block.operation.as_str() {
            "read" | "write" => block.operation.as_str(),
            "discard" => "trim",
            "flush" => "sync",
            _ => continue,
        };
        let at = times(block)[0].saturating_sub(begin);
        let (offset, length) = bytes(block);
        let file = path(disk(block));
        let line = format!("{} {file} {action} {offset} {length}\n", at / 1000);
        lines.push((at, line));
    }
    lines.sort_by_key(|(at, _)| *at);
    let files = disks_of(blocks);
    let end = lines.last().map_or(0, |(at, _)| at / 1000);
    let mut out = "fio version 3 iolog\n".to_owned();
    for file in files.iter().map(|file| path(file)) {
        let _ = write!(out, "0 {file} add\n0 {file} open\n");
    }
    out.extend(lines.into_iter().map(|(_, line)| line));
    for file in files.iter().map(|file| path(file)) {
        let _ = writeln!(out, "{end} {file} close");
    }
    out
}

/// blkparse's own columns. Processor and process id are not in a recording: 0 in all lines.
fn blkparse(blocks: &[v1::BlockLine], disks: &Disks) -> String {
    let begin = first(blocks);
    let mut lines: Vec<(i64, usize, &str, &v1::BlockLine)> = Vec::new();
    for block in blocks {
        let [queued, issued, done] = times(block);
        let steps = [
            ("Q", queued, block.queue_ns.is_some()),
            ("D", issued, block.device_ns.is_some()),
            ("C", done, true),
        ];
        for (order, (action, at, seen)) in steps.into_iter().enumerate() {
            if seen {
                lines.push((at.saturating_sub(begin), order, action, block));
            }
        }
    }
    lines.sort_by_key(|(at, order, ..)| (*at, *order));
    let mut out = String::new();
    for (number, (at, _, action, block)) in (1_u64..).zip(lines) {
        let (major, minor) = disks.get(&block.device).copied().unwrap_or((0, 0));
        let kind = match block.operation.as_str() {
            "read" => "R",
            "write" => "W",
            "flush" => "F",
            "discard" => "D",
            _ => "N",
        };
        let (seconds, ns) = (at / 1_000_000_000, at % 1_000_000_000);
        let disk = format!("{major},{minor}");
        let last = match action {
            "C" if block.failed => "-5".to_owned(),
            "C" => "0".to_owned(),
            _ => escaped(&block.process).into_owned(),
        };
        let (cpu, pid, sector, sectors) = (0, block.pid, block.sector, block.sectors);
        let _ = writeln!(
            out,
            "{disk:>7} {cpu:>2} {number:>8} {seconds:>5}.{ns:09} {pid:>5} {action:>2} {kind:>3} \
             {sector} + {sectors} [{last}]"
        );
    }
    out
}

/// Slices that may overlap: two lanes for each, in the queue and at the device.
fn perfetto(blocks: &[v1::BlockLine]) -> String {
    let begin = first(blocks);
    let devices = disks_of(blocks);
    let mut events = Vec::new();
    for (pid, device) in (1_u32..).zip(&devices) {
        events.push(json!({
            "ph": "M", "pid": pid, "name": "process_name", "args": { "name": device },
        }));
    }
    for (id, block) in (1_u64..).zip(blocks) {
        let pid = devices.partition_point(|device| *device < disk(block)) + 1;
        let [queued, issued, done] = times(block);
        let what = json!({
            "sector": block.sector,
            "bytes": bytes(block).1,
            "seek_bytes": block.seek_bytes,
            "requests": block.request_ids,
            "process": block.process,
            "pid": block.pid,
            "cgroup": block.cgroup,
            "container": block.container,
            "previous_owner": block.previous_owner,
            "failed": block.failed,
            "failure": block.failure,
            "flags": block.flags,
            "hardware_queue": block.hardware_queue,
            "uncertain": block.uncertain,
        });
        let name = format!("{} {}", block.operation, block.owner);
        let spans = [
            ("queue", queued, issued, block.queue_ns.is_some()),
            ("device", issued, done, block.device_ns.is_some()),
        ];
        for (lane, from, to, seen) in spans {
            if !seen {
                continue;
            }
            for (ph, at) in [("b", from), ("e", to)] {
                let us = microseconds(at.saturating_sub(begin));
                events.push(json!({
                    "ph": ph, "pid": pid, "tid": pid, "id": id, "cat": lane, "name": name,
                    "ts": us, "args": if ph == "b" { what.clone() } else { json!({}) },
                }));
            }
        }
    }
    escaped_json(&json!({ "displayTimeUnit": "ns", "traceEvents": events }).to_string()) + "\n"
}

#[expect(
    clippy::cast_precision_loss,
    reason = "exact to a nanosecond for a hundred days"
)]
fn microseconds(ns: i64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(operation: &str, done: i64, sector: u64) -> v1::BlockLine {
        v1::BlockLine {
            done_unix_ns: done,
            device: "loop3".into(),
            stores: vec!["fast".into()],
            operation: operation.into(),
            owner: "request".into(),
            request_ids: vec![7, 8],
            process: "a,\"b\"".into(),
            cgroup: "/a.scope".into(),
            sector,
            sectors: if operation == "flush" { 0 } else { 8 },
            queue_ns: Some(1_000),
            device_ns: Some(5_000),
            ..Default::default()
        }
    }

    fn two() -> [v1::BlockLine; 2] {
        // The second was made first.
        [
            block("write", 1_000_020_000, 16),
            block("flush", 1_000_012_000, 0),
        ]
    }

    #[test]
    fn csv_has_a_line_each_and_quotes_what_needs_it() {
        let text = text(Format::Csv, &two(), &Disks::new());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        let columns = lines[0].split(',').count();
        assert_eq!(columns, 21);
        assert_eq!(
            lines[1],
            "1000020000,loop3,fast,write,request,7 8,\"a,\"\"b\"\"\",0,16,8,,,1000,5000,false,/a.scope,,,,,false"
        );
    }

    #[test]
    fn no_name_is_a_formula_or_a_path() {
        for formula in ["=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)"] {
            let mut block = block("write", 1_000_020_000, 16);
            block.process = formula.to_owned();
            let text = text(Format::Csv, &[block], &Disks::new());
            assert!(text.contains(&format!(",'{formula},")), "{text}");
        }
        assert_eq!(path("cciss!c0d0"), "/dev/cciss!c0d0");
        assert_eq!(path("../etc/passwd"), "/dev/_.._etc_passwd");
        assert_eq!(path("sda write 0 9"), "/dev/sda_write_0_9");
    }

    #[test]
    fn an_io_log_of_fio_is_in_the_order_of_making() {
        let text = text(Format::Fio, &two(), &Disks::new());
        let wanted = "fio version 3 iolog\n0 /dev/loop3 add\n0 /dev/loop3 open\n\
                      0 /dev/loop3 sync 0 0\n8 /dev/loop3 write 8192 4096\n8 /dev/loop3 close\n";
        assert_eq!(text, wanted);
    }

    #[test]
    fn the_text_of_blkparse_has_three_lines_for_each() {
        let disks = Disks::from([("loop3".to_owned(), (7, 3))]);
        let text = text(Format::Blkparse, &two(), &disks);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 6, "{text}");
        let words: Vec<Vec<&str>> = lines
            .iter()
            .map(|l| l.split_whitespace().collect())
            .collect();
        let expected = [
            "7,3",
            "0",
            "1",
            "0.000000000",
            "0",
            "Q",
            "F",
            "0",
            "+",
            "0",
            "[a,\"b\"]",
        ];
        assert_eq!(words[0], expected);
        let last = [
            "7,3",
            "0",
            "6",
            "0.000014000",
            "0",
            "C",
            "W",
            "16",
            "+",
            "8",
            "[0]",
        ];
        assert_eq!(words[5], last);
    }

    #[test]
    fn a_trace_for_perfetto_ends_what_it_begins() {
        let text = text(Format::Perfetto, &two(), &Disks::new());
        let all: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let events = all["traceEvents"].as_array().expect("a list");
        let of = |ph: &str| events.iter().filter(|e| e["ph"] == ph).count();
        assert_eq!((of("M"), of("b"), of("e")), (1, 4, 4));
        let device = events
            .iter()
            .find(|e| e["cat"] == "device" && e["id"] == 1 && e["ph"] == "b");
        let device = device.expect("it was at the device");
        assert_eq!((&device["ts"], &device["pid"]), (&json!(9.0), &json!(1)));
        assert_eq!(device["args"]["bytes"], 4096);
    }
}
