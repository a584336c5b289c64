//! The block requests of whole disks as they were seen, without stores, owners or reports: for
//! those who record what a program did and look at it afterwards.
//!
//! [`crate::Observer`] explains requests while a service runs; this keeps them all.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lumpscope_ebpf_common::{BlockEvent, flag};
use thiserror::Error;

use crate::api::{ObjectSource, Tuning};
use crate::audit::{WatchedDisk, look};
use crate::device;
use crate::event::{BlockOp, Class, Event};
use crate::probes::Probes;
use crate::report::AuditReport;
use crate::slots::Slots;

/// Requests that all disks of a tap keep together; more are counted and dropped. About 400 MB.
pub const MAX_TAPPED: usize = 4 << 20;
/// How often the ring is drained: far more often than it fills.
const PERIOD: Duration = Duration::from_millis(10);
/// Disks of one tap.
const MAX_DISKS: usize = 64;
/// How often completions that no program was shown are looked for at the end.
const LOOKS: usize = 3;

/// Why a disk cannot be tapped.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum TapError {
    /// It is no disk, or sysfs does not know it.
    #[error("cannot watch {path}: {why}")]
    Disk { path: PathBuf, why: String },
    /// The probes cannot be attached.
    #[error("the probes cannot be attached: {why}; `lumpscope doctor` says how to get them")]
    Probes {
        /// The call that the kernel refused.
        why: String,
    },
    /// More disks than a tap has room for.
    #[error("{asked} disks are asked for, at most 64 can be watched at once")]
    TooMany { asked: usize },
    /// No thread can be started.
    #[error("cannot start the thread that takes the events: {0}")]
    Thread(std::io::Error),
}

/// One completed block request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TappedRequest {
    /// Its operation.
    pub op: BlockOp,
    /// Class of its likely owner. [`Class::Own`] is this process.
    pub class: Class,
    /// A write for which forced unit access was asked. The block layer takes a flush instead when
    /// the disk cannot do it (`queue/fua` is 0).
    pub fua: bool,
    /// File-system metadata, as the file system itself says.
    pub metadata: bool,
    /// An empty write that asked for a flush: never sent to the disk itself.
    pub flush_parent: bool,
    /// The disk or the kernel returned an error.
    pub failed: bool,
    /// When it completed is not known: `done_ns` is the last time at which it was seen.
    pub done_unknown: bool,
    /// Process that made it; 0: unknown.
    pub tgid: u32,
    /// First sector of 512 bytes on the whole disk.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u32,
    /// `CLOCK_MONOTONIC` in nanoseconds when it was made; absent: not seen.
    pub queue_ns: Option<u64>,
    /// When the driver was given it; absent: never, or not seen.
    pub issue_ns: Option<u64>,
    /// When it completed.
    pub done_ns: u64,
}

/// The requests to a disk while it was tapped.
#[derive(Debug, Clone)]
pub struct TappedDisk {
    /// Name in /sys/block.
    pub disk: String,
    /// In the order of their completion, as far as one processor tells it.
    pub requests: Vec<TappedRequest>,
    /// Requests that fell out because a tap keeps [`MAX_TAPPED`].
    pub dropped: u64,
    /// Counts of the probes against those of the kernel.
    pub audit: AuditReport,
}

impl TappedDisk {
    /// Requests that are known to be missing from `requests`; 0: they are all there.
    #[must_use]
    pub fn missing(&self) -> u64 {
        let audit = &self.audit;
        let unseen = audit.kernel_requests.saturating_sub(audit.seen_requests);
        self.dropped + audit.lost_events + if audit.complete { 0 } else { unseen }
    }
}

/// Keeps every block request of some disks, from [`BlockTap::start`] to [`BlockTap::finish`].
/// Dropping it detaches the probes.
#[derive(Debug)]
pub struct BlockTap {
    shared: Arc<TapShared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct TapShared {
    ended: AtomicBool,
    core: Mutex<TapState>,
}

#[derive(Debug)]
struct TapState {
    probes: Probes,
    disks: Vec<Tapped>,
    kept: usize,
}

#[derive(Debug)]
struct Tapped {
    disk: WatchedDisk,
    requests: Vec<TappedRequest>,
    dropped: u64,
}

impl BlockTap {
    /// Attaches the probes and watches these disks; returns when they are watched. A partition
    /// stands for its whole disk, a file and a directory for the disk below it.
    ///
    /// # Errors
    /// See [`TapError`]; the probes need root, or CAP_BPF and CAP_PERFMON.
    pub fn start(paths: &[&Path]) -> Result<BlockTap, TapError> {
        let too_many = TapError::TooMany { asked: paths.len() };
        let count = u32::try_from(paths.len()).ok();
        let count = count.filter(|_| paths.len() <= MAX_DISKS).ok_or(too_many)?;
        let tuning = Tuning::default();
        let mut probes = Probes::attach(&ObjectSource::Prebuilt, &tuning, count)
            .map_err(|e| TapError::Probes { why: e.to_string() })?;
        let mut slots = Slots::new(probes.slots());
        let mut disks = Vec::new();
        for path in paths {
            disks.extend(arm(&mut probes, &mut slots, &disks, path)?);
        }
        let shared = Arc::new(TapShared {
            ended: AtomicBool::new(false),
            core: Mutex::new(TapState {
                probes,
                disks,
                kept: 0,
            }),
        });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("block-tap".to_owned())
            .spawn(move || of_thread.run())
            .map_err(TapError::Thread)?;
        Ok(BlockTap {
            shared,
            thread: Some(thread),
        })
    }

    /// Ends the recording: one entry for each disk, in the order in which they were first named.
    /// What completed before this call is in it. Waits up to some 60 ms for a moment in which the
    /// disks are idle.
    #[must_use]
    pub fn finish(mut self) -> Vec<TappedDisk> {
        self.stop();
        let mut core = self.shared.lock();
        let core = &mut *core;
        core.drain();
        for _ in 0..LOOKS {
            core.find_late();
        }
        // Completions that were just being handed out when they were counted.
        core.drain();
        let probes = &core.probes;
        let disks = core.disks.drain(..).map(|tapped| {
            look(|| tapped.disk.is_idle(probes).then_some(()));
            TappedDisk {
                audit: tapped.disk.audit(probes),
                disk: tapped.disk.name,
                requests: tapped.requests,
                dropped: tapped.dropped,
            }
        });
        disks.collect()
    }

    fn stop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It does not panic, and if it did nothing more would come.
            let _ = thread.join();
        }
    }
}

impl Drop for BlockTap {
    fn drop(&mut self) {
        self.stop();
    }
}

impl TapShared {
    fn lock(&self) -> MutexGuard<'_, TapState> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        while !self.ended.load(Ordering::Relaxed) {
            self.lock().drain();
            thread::sleep(PERIOD);
        }
    }
}

impl TapState {
    fn drain(&mut self) {
        while let Some(raw) = self.probes.next_event() {
            self.keep(TappedRequest::from(&raw), raw.dev);
        }
    }

    fn keep(&mut self, request: TappedRequest, dev: u32) {
        let Some(tapped) = self.disks.iter_mut().find(|one| one.disk.dev == dev) else {
            return;
        };
        if self.kept >= MAX_TAPPED {
            tapped.dropped += 1;
            return;
        }
        self.kept += 1;
        tapped.requests.push(request);
    }

    fn find_late(&mut self) {
        let mut found = Vec::new();
        for tapped in &mut self.disks {
            look(|| match tapped.disk.find_late(&mut self.probes) {
                Some(late) => {
                    found.extend(late);
                    None
                }
                None => Some(()),
            });
        }
        for event in &found {
            self.keep(TappedRequest::late(event), event.dev);
        }
    }
}

fn arm(
    probes: &mut Probes,
    slots: &mut Slots,
    disks: &[Tapped],
    path: &Path,
) -> Result<Option<Tapped>, TapError> {
    let failed = |why: String| TapError::Disk {
        path: path.to_owned(),
        why,
    };
    let target = device::resolve_any(path).map_err(|error| failed(error.to_string()))?;
    if disks.iter().any(|one| one.disk.dev == target.placement.dev) {
        return Ok(None);
    }
    probes.attach_layer(target.layer).map_err(failed)?;
    let slot = slots
        .take()
        .ok_or_else(|| failed("no slot is left for it".to_owned()))?;
    let disk = WatchedDisk::arm(probes, &target, slot).map_err(|e| failed(e.to_string()))?;
    Ok(Some(Tapped {
        disk,
        requests: Vec::new(),
        dropped: 0,
    }))
}

impl From<&BlockEvent> for TappedRequest {
    fn from(raw: &BlockEvent) -> TappedRequest {
        let has = |bit: u8| raw.flags & bit != 0;
        TappedRequest {
            fua: has(flag::FUA),
            metadata: has(flag::META),
            ..TappedRequest::late(&Event::from(raw))
        }
    }
}

impl TappedRequest {
    /// Of one that was found in the table of those in flight, where two of its flags are no longer
    /// told apart from its class.
    fn late(event: &Event) -> TappedRequest {
        TappedRequest {
            op: event.op,
            class: event.class,
            fua: false,
            metadata: matches!(event.class, Class::FsJournal | Class::FsMetadata),
            flush_parent: event.flush_parent,
            failed: event.failed,
            done_unknown: event.done_unknown,
            tgid: event.tgid,
            sector: event.sector,
            sectors: event.sectors,
            queue_ns: event.queue_ns,
            issue_ns: event.issue_ns,
            done_ns: event.done_ns,
        }
    }
}

#[cfg(test)]
mod tests {
    use lumpscope_ebpf_common::op;

    use super::*;

    #[test]
    fn flags_become_fields() {
        let raw = BlockEvent {
            op: op::WRITE,
            sector: 7,
            sectors: 1,
            issue_ns: 5,
            done_ns: 9,
            tgid: 3,
            flags: flag::FUA | flag::META,
            ..BlockEvent::default()
        };
        let request = TappedRequest::from(&raw);
        assert!(request.fua && request.metadata && !request.flush_parent);
        assert_eq!(request.op, BlockOp::Write);
        assert_eq!(request.sector, 7);
        assert_eq!(request.sectors, 1);
        assert_eq!((request.queue_ns, request.issue_ns), (None, Some(5)));
        assert_eq!((request.done_ns, request.tgid), (9, 3));
    }

    #[test]
    fn what_is_not_there_is_counted() {
        let mut disk = TappedDisk {
            disk: "loop0".to_owned(),
            requests: Vec::new(),
            dropped: 0,
            audit: AuditReport::default(),
        };
        disk.audit.complete = true;
        (disk.audit.kernel_requests, disk.audit.seen_requests) = (12, 10);
        // Within what was under way at the ends: complete.
        assert_eq!(disk.missing(), 0);
        disk.audit.complete = false;
        disk.audit.lost_events = 3;
        disk.dropped = 1;
        assert_eq!(disk.missing(), 2 + 3 + 1);
    }

    #[test]
    fn what_is_no_disk_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let error = BlockTap::start(&[Path::new("/proc/self/status")]);
        let error = error.expect_err("proc has no disk").to_string();
        assert!(error.contains("/proc/self/status"), "{error}");
    }
}
