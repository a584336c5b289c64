//! The block requests of a disk one by one, as the service hands them out: for the model of a drive,
//! and for the report's dots.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lumpscope_client::{Client, Error, Live, Options};
use lumpscope_platter::trace::{Op, Trace, Traced};
use lumpscope_proto::v1::{BlockLine, TraceRequest, TraceResponse};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::blocks::traced_line;
use crate::experiment::report::Dots;
use crate::human;

/// Block requests that are kept at most, some 100 MiB of them.
const MOST: usize = 2_000_000;
/// Replies come about every second: after so many more, what had completed before is known.
const LAST_REPLIES: u64 = 2;
/// Longest wait for these.
const PATIENCE: Duration = Duration::from_secs(10);
/// Bytes of a sector.
const SECTOR: u64 = 512;
/// Owner classes as the dots name them, and in which order.
const GROUPS: [&str; 8] = [
    "request, write",
    "request, read",
    "store",
    "fs-journal",
    "fs-metadata",
    "writeback",
    "unknown",
    "other",
];

/// Observations of one disk.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct DiskObservations {
    /// The block requests by owner: nanoseconds since the first, first byte on the disk.
    pub(super) groups: Vec<Dots>,
    /// All block requests, as a trace. Those of the store and its requests are its own.
    pub(super) trace: Trace,
    /// Why each of them was made, in their order.
    pub(super) made_for: Vec<MadeFor>,
    /// Known gaps; empty: none.
    pub(super) missing: String,
}

/// Why a block request was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MadeFor {
    /// One of [`OWNERS`].
    pub(super) owner: &'static str,
    /// Requests of clients that it was made for.
    pub(super) requests: Vec<u64>,
}

pub(super) use lumpscope_observer::OWNERS;

/// Looks on until it is asked what it saw. Dropped, it ends.
pub(super) struct TraceWatch {
    reader: JoinHandle<()>,
    lines: Arc<Mutex<Lines>>,
    replies: watch::Receiver<u64>,
}

#[derive(Default)]
struct Lines {
    blocks: Vec<BlockLine>,
    missing: String,
}

impl TraceWatch {
    /// Begins. What completes after this returns is seen.
    pub(super) async fn start(server: &str, store: &str) -> Result<TraceWatch, String> {
        let request = TraceRequest {
            store: store.to_owned(),
            ..TraceRequest::default()
        };
        let begun = async {
            let client = Client::connect(Options::new(server)).await?;
            let mut stream = client.trace(request).await?;
            // It comes at once, and says that nothing is missed from here on.
            stream.next().await?;
            Ok(stream)
        };
        let stream = begun.await.map_err(|error: Error| error.to_string())?;
        let lines = Arc::new(Mutex::new(Lines::default()));
        let (replied, replies) = watch::channel(0);
        let reader = tokio::spawn(read(stream, Arc::clone(&lines), replied));
        Ok(TraceWatch {
            reader,
            lines,
            replies,
        })
    }

    /// Ends, when what has completed is known.
    pub(super) async fn finish(mut self) -> DiskObservations {
        let enough = *self.replies.borrow() + LAST_REPLIES;
        let last = self.replies.wait_for(|seen| *seen >= enough);
        let in_time = matches!(tokio::time::timeout(PATIENCE, last).await, Ok(Ok(_)));
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let mut lines = std::mem::take(&mut *lines);
        if !in_time && lines.missing.is_empty() {
            lines.missing = "the service did not hand out the last ones in time".to_owned();
        }
        DiskObservations::of(lines)
    }
}

impl Drop for TraceWatch {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read(
    mut stream: Live<TraceResponse>,
    lines: Arc<Mutex<Lines>>,
    replied: watch::Sender<u64>,
) {
    loop {
        let reply = stream.next().await;
        let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
        match reply {
            Ok(Some(reply)) => lines.add(reply),
            Ok(None) => return,
            Err(error) => {
                lines.missing = error.to_string();
                return;
            }
        }
        drop(lines);
        replied.send_modify(|count| *count += 1);
    }
}

impl Lines {
    fn add(&mut self, mut reply: TraceResponse) {
        let room = MOST - self.blocks.len().min(MOST);
        if reply.blocks.len() > room {
            reply.blocks.truncate(room);
            self.missing = format!("all after the first {}", human::count_of(MOST));
        }
        self.blocks.append(&mut reply.blocks);
        if !reply.incomplete.is_empty() {
            self.missing = reply.incomplete;
        } else if reply.dropped > 0 {
            self.missing = format!("{} that came too fast", human::count(reply.dropped));
        }
    }
}

impl DiskObservations {
    fn of(lines: Lines) -> DiskObservations {
        let mut requests: Vec<(Traced, MadeFor)> = lines
            .blocks
            .iter()
            .filter_map(|block| Some((drawn(block)?, made_for(block))))
            .collect();
        requests.sort_by_key(|(request, _)| (request.issue_ns, request.queue_ns, request.sector));
        let (requests, made_for) = requests.into_iter().unzip();
        let trace = Trace {
            requests,
            missing: 0,
        };
        let begin = trace.requests.first().map_or(0, |first| first.issue_ns);
        let mut groups = GROUPS.map(|_| Vec::new());
        for block in &lines.blocks {
            let Some(request) = drawn(block) else {
                continue;
            };
            if matches!(request.op, Op::Read | Op::Write) {
                let after = human::as_float(request.issue_ns - begin);
                let byte = human::as_float(request.sector.saturating_mul(SECTOR));
                groups[group(block)].push((after, byte));
            }
        }
        DiskObservations {
            groups: std::iter::zip(GROUPS, groups)
                .filter(|(_, points)| !points.is_empty())
                .map(|(name, points)| Dots::of(name, points))
                .collect(),
            trace,
            made_for,
            missing: lines.missing,
        }
    }
}

fn made_for(block: &BlockLine) -> MadeFor {
    let known = OWNERS.into_iter().find(|owner| *owner == block.owner);
    MadeFor {
        owner: known.unwrap_or("other"),
        requests: block.request_ids.clone(),
    }
}

/// Its place in [`GROUPS`].
fn group(block: &BlockLine) -> usize {
    match (block.owner.as_str(), block.operation.as_str()) {
        ("request", "write") => 0,
        ("request", _) => 1,
        (owner, _) => GROUPS
            .iter()
            .position(|name| *name == owner)
            .unwrap_or(GROUPS.len() - 1),
    }
}

fn drawn(block: &BlockLine) -> Option<Traced> {
    traced_line(block, u64::try_from(block.done_unix_ns).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(owner: &str, operation: &str, done: i64, sector: u64) -> BlockLine {
        BlockLine {
            done_unix_ns: done,
            operation: operation.to_owned(),
            owner: owner.to_owned(),
            sector,
            sectors: 8,
            device_ns: Some(100),
            queue_ns: Some(10),
            ..BlockLine::default()
        }
    }

    #[test]
    fn block_requests_are_grouped_by_owner() {
        let mut lines = Lines::default();
        lines.add(TraceResponse {
            blocks: vec![
                block("request", "write", 1100, 8),
                block("fs-journal", "write", 1300, 0),
                block("request", "read", 1200, 16),
                block("store", "flush", 1400, 0),
                block("a new one", "write", 1500, 24),
                block("request", "zone reset", 1600, 24),
            ],
            ..TraceResponse::default()
        });
        let seen = DiskObservations::of(lines);
        let names: Vec<&str> = seen.groups.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(
            names,
            ["request, write", "request, read", "fs-journal", "other"]
        );
        assert_eq!(seen.groups[1].points, [(100.0, 8192.0)]);
        assert_eq!((seen.trace.requests.len(), seen.missing.as_str()), (5, ""));
        let owners: Vec<&str> = seen.made_for.iter().map(|made| made.owner).collect();
        assert_eq!(
            owners,
            ["request", "request", "fs-journal", "store", "other"]
        );
    }

    #[test]
    fn what_is_missing_is_told() {
        let mut lines = Lines::default();
        lines.add(TraceResponse {
            dropped: 7,
            ..TraceResponse::default()
        });
        assert_eq!(DiskObservations::of(lines).missing, "7 that came too fast");
    }
}
