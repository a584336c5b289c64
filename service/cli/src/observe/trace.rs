//! `lumpscope trace`: each block request as it completes. On a terminal of less than [`WIDE`] columns
//! it has two lines, and a third that names the cgroup of another process; elsewhere it has one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use clap::Args;
use lumpscope_client::v1;
use lumpscope_server::json::to_json;
use lumpscope_units::columns::{COLUMNS, fitted, trimmed};
use lumpscope_units::{Size, Span, clock::time_of_day, human};

use super::live::{Doubts, ending};
use super::replay;
use super::units::{NONE, beside, distance, failed, process, time};
use crate::client::{ConnectionArgs, OutputFormat};
use crate::output::{self, complain, escaped};

/// From so many columns on, a block request has one line.
const WIDE: u16 = 160;

/// `lumpscope trace`.
#[derive(Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    form: OutputFormat,
    #[command(flatten)]
    filter: FilterArgs,
    /// End after this many block requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Show this recording instead of a service
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
}

// No documentation: clap would take it for that of the command.
#[derive(Args)]
pub(super) struct FilterArgs {
    /// Only block requests of the disk below this store
    #[arg(long, value_name = "STORE")]
    pub(super) store: Option<String>,
    /// Only block requests of this owner class
    #[arg(long, value_name = "CLASS",
          value_parser = ["request", "store", "fs-journal", "fs-metadata", "writeback", "unknown", "other"])]
    owner: Option<String>,
    /// Only block requests of this operation
    #[arg(long, value_name = "OPERATION",
          value_parser = ["read", "write", "flush", "discard", "other"])]
    op: Option<String>,
    /// Only block requests issued for this request
    #[arg(long, value_name = "ID")]
    request: Option<u64>,
    /// Only block requests that took at least this long from queued to completed, e.g. 5ms
    #[arg(long, value_name = "TIME")]
    min_latency: Option<Span>,
    /// Only block requests for which the head moved at least this far, e.g. 1G
    #[arg(long, value_name = "SIZE")]
    min_distance: Option<Size>,
}

impl FilterArgs {
    pub(super) fn request(&self) -> v1::TraceRequest {
        v1::TraceRequest {
            store: self.store.clone().unwrap_or_default(),
            owner: self.owner.clone().unwrap_or_default(),
            operation: self.op.clone().unwrap_or_default(),
            for_request_id: self.request.unwrap_or_default(),
            min_latency_ns: self.min_latency.unwrap_or_default().nanoseconds(),
            min_distance_bytes: self.min_distance.map_or(0, |size| size.0),
        }
    }
}

pub(crate) async fn run(connection: ConnectionArgs, args: TraceArgs) -> Result<ExitCode> {
    if let Some(file) = &args.replay {
        return recorded(&args, file).await;
    }
    let ending = ending()?;
    let client = connection.connect().await?;
    let mut live = client.trace(args.filter.request()).await?;
    let mut screen = Screen::new(args.form.json, args.count);
    loop {
        let reply = tokio::select! {
            reply = live.next() => reply?,
            () = ending.cancelled() => break,
        };
        let Some(reply) = reply else {
            complain("lumpscope: the service ended the stream");
            break;
        };
        if !screen.show(&reply)? {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// From a recording.
async fn recorded(args: &TraceArgs, file: &Path) -> Result<ExitCode> {
    let mut screen = Screen::new(args.form.json, args.count);
    let more = Arc::new(Mutex::new(Ok(true)));
    let shown = Arc::clone(&more);
    let read = replay::read(file, args.filter.request(), move |block| {
        let mut more = shown.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*more, Ok(true)) {
            *more = screen.show(&v1::TraceResponse {
                blocks: vec![block],
                ..Default::default()
            });
        }
    });
    replay::known(&read.await?, args.filter.store.as_deref())?;
    std::mem::replace(
        &mut *more.lock().unwrap_or_else(PoisonError::into_inner),
        Ok(false),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Where the lines go.
struct Screen {
    json: bool,
    left: u64,
    doubts: Doubts,
    begun: bool,
}

impl Screen {
    fn new(json: bool, count: Option<u64>) -> Self {
        Self {
            json,
            left: count.unwrap_or(u64::MAX),
            doubts: Doubts::default(),
            begun: false,
        }
    }

    /// False: that was all.
    fn show(&mut self, reply: &v1::TraceResponse) -> Result<bool> {
        self.doubts.tell(&reply.incomplete, reply.dropped);
        let mut text = String::new();
        if !self.json && !self.begun {
            text = head(width()) + "\n";
        }
        self.begun = true;
        let room = usize::try_from(self.left).unwrap_or(usize::MAX);
        for block in reply.blocks.iter().take(room) {
            let line = match self.json {
                true => output::json(&to_json(block))?,
                false => line(block, width()),
            };
            text.push_str(line.trim_end());
            text.push('\n');
            self.left -= 1;
        }
        let read = text.is_empty() || output::write(text.as_bytes())?;
        Ok(read && self.left > 0)
    }
}

fn width() -> usize {
    match console::Term::stdout().size_checked() {
        Some((_, columns)) if columns >= WIDE => usize::MAX,
        _ => output::width(),
    }
}

/// What the disk did and for whom: a line of each in 80 columns, or both in one line.
fn columns(did: [&str; 8], whom: [&str; 3], width: usize) -> String {
    let [at, device, op, sector, size, seek, queue, took] = did.map(escaped);
    let [owner, process, before] = whom.map(escaped);
    let did = format!(
        "{at:<15} {device:<8} {op:<7} {sector:>12} {size:>8} {seek:>9} {queue:>7} {took:>7}"
    );
    let whom = format!("{owner:<18} {process:<20} {before}");
    match width {
        COLUMNS => {
            let lines = trimmed(&format!("{did}\n{:16}{whom}", ""));
            fitted(&lines, COLUMNS).trim_end().to_owned()
        }
        _ => format!("{did}  {whom}").trim_end().to_owned(),
    }
}

fn head(width: usize) -> String {
    columns(
        [
            "done, UTC",
            "disk",
            "op",
            "sector",
            "size",
            "seek",
            "queue",
            "device",
        ],
        ["for", "process", "there before"],
        width,
    )
}

fn line(b: &v1::BlockLine, width: usize) -> String {
    let (sector, size) = match b.sectors {
        0 => (NONE.to_owned(), NONE.to_owned()),
        n => (b.sector.to_string(), human::bytes(u64::from(n) * 512)),
    };
    let ids: Vec<String> = b.request_ids.iter().map(u64::to_string).collect();
    let owner = match ids.is_empty() {
        true => b.owner.clone(),
        false => format!("{} {}", b.owner, ids.join(", ")),
    };
    let or_none = |text: &str| match text {
        "" => NONE.to_owned(),
        text => text.to_owned(),
    };
    let mut before = or_none(&b.previous_owner);
    if let Some(beside) = beside(&b.flags, b.hardware_queue) {
        before.push_str("  ");
        before.push_str(&beside);
    }
    if b.uncertain {
        before.push_str("  owner not certain");
    }
    if b.failed {
        before.push_str("  ");
        before.push_str(&failed(&b.failure));
    }
    // Our own is known, and kernel threads are in none.
    let cgroup = (b.owner == "other" && !b.cgroup.is_empty()).then(|| escaped(&b.cgroup));
    if let (Some(cgroup), false) = (&cgroup, width == COLUMNS) {
        before.push_str(&format!("  in {cgroup}"));
    }
    let shown = columns(
        [
            &time_of_day(b.done_unix_ns),
            &b.device,
            &b.operation,
            &sector,
            &size,
            &distance(b.seek_bytes),
            &time(b.queue_ns),
            &time(b.device_ns),
        ],
        [&owner, &process(&b.process, b.pid), &before],
        width,
    );
    match cgroup {
        Some(cgroup) if width == COLUMNS => {
            format!(
                "{shown}\n{}",
                fitted(&format!("{:<16}in {cgroup}", ""), COLUMNS)
            )
        }
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_request_is_two_lines_under_their_head() {
        let block = v1::BlockLine {
            done_unix_ns: 1_795_271_750_123_456_789,
            device: "loop3".into(),
            operation: "write".into(),
            owner: "request".into(),
            request_ids: vec![17, 18],
            process: "lumpscope".into(),
            pid: 4711,
            sector: 975_512,
            sectors: 2048,
            seek_bytes: Some(312 << 20),
            previous_owner: "fs-journal".into(),
            queue_ns: Some(2_500),
            device_ns: None,
            ..Default::default()
        };
        let shown = line(&block, COLUMNS);
        let words: Vec<&str> = shown.split_whitespace().collect();
        let wanted = "14:35:50.123456 loop3 write 975512 1.00 MiB +312 MiB 2.50 µs - request 17, 18 \
                      lumpscope[4711] fs-journal";
        assert_eq!(words.join(" "), wanted);
        let at = |text: &str, word: &str| {
            let line = text.lines().nth(1).unwrap();
            line.split(word).next().unwrap().chars().count()
        };
        assert_eq!(at(&head(COLUMNS), "for"), at(&shown, "request 17"));
        assert!(
            shown.lines().all(|line| line.chars().count() <= 80),
            "{shown}"
        );
        assert_eq!(to_json(&block)["device_ns"], serde_json::Value::Null);
        let doubted = v1::BlockLine {
            uncertain: true,
            ..block.clone()
        };
        let told = line(&doubted, usize::MAX);
        assert!(told.ends_with("fs-journal  owner not certain"), "{told}");
        let foreign = v1::BlockLine {
            owner: "other".into(),
            cgroup: "/system.slice/backup.service".into(),
            ..block
        };
        let told = line(&foreign, COLUMNS);
        let last = told.lines().nth(2).expect("a third line");
        assert_eq!(last.trim(), "in /system.slice/backup.service");
        let told = line(&foreign, usize::MAX);
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(told.ends_with(last.trim()), "{told}");
    }
}
